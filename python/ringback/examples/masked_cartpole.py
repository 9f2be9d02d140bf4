"""CartPole without its velocities: what a network learns that remembers, and what one that does not.

Both learn the same way, by double deep Q-learning with 3-step returns (`ringback.examples.dqn`); the one with a memory
replays sequences instead of transitions (`ringback.examples.recurrent`).

References
----------
Hausknecht and Stone 2015, "Deep Recurrent Q-Learning for Partially Observable MDPs", after Wierstra et al. 2007
(tasks that are made partially observable by hiding velocities).
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringback.examples import dqn, recurrent, training

__all__ = ["KINDS", "Outcome", "draw", "line", "run", "settings", "summary", "write"]

ENV = "CartPole-v1"
PROGRAMS: dict[str, Any] = {"LSTM": recurrent, "no memory": dqn}
KINDS = tuple(PROGRAMS)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one run gave.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    seed : int
        Of the run.
    curve : tuple of (int, float)
        Env steps, and the mean return of the validation then.
    returns : tuple of float
        Of 20 greedy episodes of the best network, used neither in training nor to choose it.
    step : int
        Env steps taken.
    seconds : float
        For all of that.
    """

    kind: str
    seed: int
    curve: tuple[tuple[int, float], ...]
    returns: tuple[float, ...]
    step: int
    seconds: float

    @property
    def mean_return(self) -> float:
        """Mean of `returns`."""
        return float(np.mean(self.returns))


def settings(kind: str, seed: int, **changes: Any) -> training.Settings:
    """Return the settings of a run.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    seed : int
        Of the run.
    **changes
        Other settings.

    Returns
    -------
    training.Settings
    """
    made: training.Settings = PROGRAMS[kind].Settings(ENV, seed=seed, mask_velocity=True, **changes)
    return made


def run(
    seeds: Sequence[int],
    report: Callable[[str, int, training.Progress], None] = lambda kind, seed, progress: None,
    **changes: Any,
) -> Iterator[Outcome]:
    """Train a network of each kind with each seed.

    Parameters
    ----------
    seeds : sequence of int
        Of the runs.
    report : callable
        Called with the kind, the seed and the `training.Progress` after each round.
    **changes
        Other settings, of both.

    Yields
    ------
    Outcome
        The kinds of one seed one after the other.
    """
    for seed in seeds:
        for kind, program in PROGRAMS.items():
            chosen = settings(kind, seed, **changes)
            curve: list[tuple[int, float]] = []
            started = time.monotonic()
            result = program.train(chosen, functools.partial(_note, curve, functools.partial(report, kind, seed)))
            if result.reason == "interrupted":
                raise KeyboardInterrupt
            returns = program.evaluate(
                result.network, training.environment(chosen), training.TEST_EPISODES, seed=(seed, training.TEST)
            )
            yield Outcome(kind, seed, tuple(curve), tuple(returns), result.step, time.monotonic() - started)


def _note(curve: list[tuple[int, float]], report: training.Report, progress: training.Progress) -> None:
    if progress.validation_return is not None:
        curve.append((progress.step, progress.validation_return))
    report(progress)


def line(done: Outcome) -> str:
    """Say in a line what a run gave."""
    return (
        f"{done.kind:<10} seed {done.seed}: mean return {done.mean_return:6.1f} over {len(done.returns)} episodes, "
        f"{done.step} env steps, {done.seconds:.0f} s"
    )


def summary(runs: Sequence[Outcome]) -> list[str]:
    """Say in a line a kind what all its runs gave."""
    lines = []
    for kind in KINDS:
        means = [done.mean_return for done in runs if done.kind == kind]
        if means:
            spread = f"{min(means):.1f} to {max(means):.1f}"
            lines.append(f"{kind}: mean return {np.mean(means):.1f} over {len(means)} seeds, {spread}")
    return lines


def write(runs: Sequence[Outcome], path: str | os.PathLike[str]) -> None:
    """Write the validations and the final mean returns as comma-separated values.

    Parameters
    ----------
    runs : sequence of Outcome
        What `run` gave.
    path : path-like
        Replaced if it exists.
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("network", "seed", "of", "step", "mean_return"))
        for done in runs:
            table.writerows((done.kind, done.seed, "validation", step, value) for step, value in done.curve)
            table.writerow((done.kind, done.seed, "test", done.step, done.mean_return))


def draw(runs: Sequence[Outcome], path: str | os.PathLike[str]) -> None:
    """Draw the validations of all runs over env steps.

    Parameters
    ----------
    runs : sequence of Outcome
        What `run` gave.
    path : path-like
        A PNG file, replaced if it exists.
    """
    from matplotlib.figure import Figure  # no pyplot: neither a display nor a global state is touched

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes: Any = figure.add_subplot()
    for kind, colour in zip(KINDS, ("tab:blue", "tab:orange"), strict=True):
        of_kind = [done for done in runs if done.kind == kind]
        for number, done in enumerate(of_kind):
            mean = np.mean([other.mean_return for other in of_kind])
            label = f"{kind}: {mean:.0f} in the end" if number == 0 else None
            axes.plot(*zip(*done.curve, strict=True), "o-", ms=3, lw=1.2, color=colour, label=label)
    seeds = sorted({done.seed for done in runs})
    axes.set(
        title=f"{ENV} without velocities, seeds {seeds[0]}..{seeds[-1]}" if seeds[1:] else f"{ENV} without velocities",
        xlabel="env steps",
        ylabel="mean return of 20 greedy episodes",
        ylim=(0, 520),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(Path(path), dpi=120)
