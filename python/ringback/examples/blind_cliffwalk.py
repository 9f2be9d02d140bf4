"""The Blind Cliffwalk: how many updates different replays need, as a function of what is in the memory.

A cliff has n states in a row. In each of them one action is right and leads to the next state, the other is wrong and
ends the episode with nothing; only the right action of the last state is rewarded, with 1. The memory holds the
transitions of all 2^n sequences of actions, 2^(n+1) - 2 of them, of which a single one has the reward. A tabular
Q-learner replays one transition at a time until its values are right, and the replay decides which:

- ``uniform``: any transition, by `ReplayBuffer`;
- ``oracle``: the one whose update brings the values closest to the truth, which no learner can know;
- ``prioritised``: in proportion to the last error that was seen of it, by `PrioritizedReplayBuffer`.

References
----------
Schaul et al. 2016, "Prioritized Experience Replay", sections 3.1 and 3.3, Figure 1, and appendix B.1.
"""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from ringback import PrioritizedReplayBuffer, ReplayBuffer, Transitions

__all__ = ["KINDS", "Row", "draw", "growth", "header", "line", "run", "summary", "transitions", "write"]

STEP_SIZE = 0.25
TOLERANCE = 1e-3  # mean squared error over all state-action pairs
ALPHA, EPS = 0.5, 1e-4  # the paper's exponent; beta is 0: importance weights would take the gain away
KINDS = ("uniform", "oracle", "prioritised")
LEAST = 9  # states from which on growth is fitted


@dataclasses.dataclass(frozen=True)
class Row:
    """What one cliff took.

    Attributes
    ----------
    states : int
        n.
    updates : dict of str to tuple of int
        Updates until the values were right, of each kind of replay, one number a seed.
    """

    states: int
    updates: dict[str, tuple[int, ...]]

    @property
    def transitions(self) -> int:
        """Size of the memory."""
        return (2 << self.states) - 2

    def median(self, kind: str) -> float:
        """Return the median over the seeds."""
        return float(np.median(self.updates[kind]))


def run(
    states: Sequence[int],
    seeds: int,
    seed: int = 0,
    report: Callable[[int, str], None] = lambda states, kind: None,
    kinds: Sequence[str] = KINDS,
) -> Iterator[Row]:
    """Learn cliffs of several lengths, each with each kind of replay.

    Parameters
    ----------
    states : sequence of int
        n of each cliff, at least 2.
    seeds : int
        Repetitions of each.
    seed : int, default 0
        Root of every random stream: first values, and draws.
    report : callable
        Called with n and the kind after each learner.
    kinds : sequence of str
        Which replays; default all of `KINDS`.

    Yields
    ------
    Row
        In the order of `states`.
    """
    solvers = dict(zip(KINDS, (_uniform, _oracle, _prioritised), strict=True))
    for n in states:
        updates: dict[str, list[int]] = {kind: [] for kind in kinds}
        for kind in kinds:
            for k in range(seeds):
                updates[kind].append(solvers[kind](n, (seed, k, n)))
                report(n, kind)
        yield Row(n, {kind: tuple(numbers) for kind, numbers in updates.items()})


def transitions(n: int) -> Iterator[tuple[int, int, float, int, bool]]:
    """List all transitions of all sequences of n actions.

    Parameters
    ----------
    n : int
        States of the cliff.

    Yields
    ------
    tuple
        (state, action, reward, next state, terminated); the right action of state s is s mod 2, so that it is not
        always the same one.
    """
    for sequence in range(2**n):
        for state in range(n):
            right = bool(sequence >> state & 1)
            last = right and state == n - 1
            action = state % 2 if right else 1 - state % 2
            ends = last or not right
            yield state, action, float(last), state if ends else state + 1, ends
            if ends:
                break


class _Learner:
    """A table of 2n values that is updated one transition at a time, and knows how far it is from the truth."""

    def __init__(self, n: int, seed: tuple[int, ...]) -> None:
        self.gamma = 1 - 1 / n
        self.truth = [0.0] * (2 * n)
        for state in range(n):
            self.truth[2 * state + state % 2] = self.gamma ** (n - 1 - state)
        self.values: list[float] = np.random.default_rng(seed).normal(0, 0.1, 2 * n).tolist()
        self._goal = TOLERANCE * 2 * n
        self.off = self._off()

    @property
    def is_right(self) -> bool:
        """Whether the mean squared error of the values is small."""
        return self.off < self._goal

    def _off(self) -> float:
        return sum((value - truth) ** 2 for value, truth in zip(self.values, self.truth, strict=True))

    def replay(self, batch: Transitions) -> list[float]:
        """Take a step of Q-learning with each row, until the values are right; return the absolute TD errors."""
        errors = []
        values, truths, gamma, off, goal = self.values, self.truth, self.gamma, self.off, self._goal
        for state, action, reward, after, ends in zip(*(column.ravel().tolist() for column in batch), strict=True):
            place = 2 * state + action
            was, truth = values[place], truths[place]
            td = reward - was if ends else reward + gamma * max(values[2 * after], values[2 * after + 1]) - was
            now = values[place] = was + STEP_SIZE * td
            off += (now - truth) ** 2 - (was - truth) ** 2
            errors.append(abs(td))
            if off < goal:
                off = self._off()  # the running sum is checked before it is believed
                if off < goal:
                    break
        self.off = off
        return errors


def _filled(buffer: ReplayBuffer, n: int) -> ReplayBuffer:
    for state, action, reward, after, ends in transitions(n):
        buffer.add(state, action, reward, after, ends)
    return buffer


def _spaces(n: int) -> tuple[int, gym.spaces.Discrete, gym.spaces.Discrete]:
    return 2 ** (n + 1) - 2, gym.spaces.Discrete(n), gym.spaces.Discrete(2)


def _uniform(n: int, seed: tuple[int, ...]) -> int:
    buffer = _filled(ReplayBuffer(*_spaces(n), seed=seed), n)
    learner = _Learner(n, seed)
    updates = 0
    while not learner.is_right:
        # With replacement, many draws at once are the same as one after another.
        updates += len(learner.replay(buffer.sample_transitions(256, replace=True)))
    return updates


def _prioritised(n: int, seed: tuple[int, ...]) -> int:
    buffer = PrioritizedReplayBuffer(*_spaces(n), alpha=ALPHA, eps=EPS, seed=seed)
    _filled(buffer, n)
    learner = _Learner(n, seed)
    updates = 0
    while not learner.is_right:
        batch = buffer.sample_transitions(1, beta=0.0)
        buffer.update_priorities(batch.ids, learner.replay(batch))
        updates += 1
    return updates


def _oracle(n: int, seed: tuple[int, ...]) -> int:
    learner = _Learner(n, seed)
    values, truth = np.array(learner.values), np.array(learner.truth)
    state, action = np.divmod(np.arange(2 * n), 2)
    right = action == state % 2
    ends = ~right | (state == n - 1)
    reward = (right & (state == n - 1)).astype(float)
    after = np.where(ends, state, state + 1)
    updates = 0
    while np.mean((values - truth) ** 2) >= TOLERANCE:
        future = np.where(ends, 0.0, learner.gamma * values.reshape(n, 2).max(axis=1)[after])
        updated = values + STEP_SIZE * (reward + future - values)
        best = np.argmin((updated - truth) ** 2 - (values - truth) ** 2)
        values[best] = updated[best]
        updates += 1
    return updates


def growth(rows: Sequence[Row], kind: str) -> tuple[float, float]:
    """Fit how the updates grow with the number of states.

    Parameters
    ----------
    rows : sequence of Row
        Those with at least 9 states count, as smaller cliffs do not show yet how it goes on; there must be two of them.
    kind : str
        One of `KINDS`.

    Returns
    -------
    tuple of float
        The factor for each further state if the growth is exponential, and the exponent of n if it is polynomial.
    """
    large = [row for row in rows if row.states >= LEAST]
    logs: npt.NDArray[np.float64] = np.log([row.median(kind) for row in large])
    n = np.array([row.states for row in large], float)
    return float(np.exp(np.polyfit(n, logs, 1)[0])), float(np.polyfit(np.log(n), logs, 1)[0])


def header() -> str:
    """Return the heading of the table that `line` gives the lines of."""
    kinds = "".join(f"{kind:>13}" for kind in KINDS)
    return f"{'states':>6}{'transitions':>13}{kinds}{'uniform/oracle':>16}{'uniform/prioritised':>21}"


def line(row: Row) -> str:
    """Return the medians of a cliff, and how many times fewer updates than uniform replay the others need."""
    medians = [row.median(kind) for kind in KINDS]
    counts = "".join(f"{median:>13.0f}" for median in medians)
    return (
        f"{row.states:>6}{row.transitions:>13}{counts}{medians[0] / medians[1]:>16.1f}{medians[0] / medians[2]:>21.1f}"
    )


def summary(rows: Sequence[Row]) -> list[str]:
    """Say in a line a kind how its updates grow; nothing for cliffs that are too short to tell."""
    if sum(row.states >= LEAST for row in rows) < 2:
        return []
    lines = []
    for kind in KINDS:
        factor, exponent = growth(rows, kind)
        said = f"n^{exponent:.1f}" if kind == "oracle" else f"x{factor:.2f} for each further state"
        lines.append(f"{kind} grows as {said} (n = {LEAST}..{rows[-1].states})")
    return lines


def write(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write the updates of every learner as comma-separated values.

    Parameters
    ----------
    rows : sequence of Row
        What `run` gave.
    path : path-like
        Replaced if it exists.
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("states", "transitions", "replay", "repetition", "updates"))
        for row in rows:
            for kind, numbers in row.updates.items():
                table.writerows((row.states, row.transitions, kind, k, number) for k, number in enumerate(numbers))


def draw(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw the medians over the size of the memory, both on a logarithmic scale, as the paper's Figure 1.

    Parameters
    ----------
    rows : sequence of Row
        What `run` gave.
    path : path-like
        A PNG file, replaced if it exists.
    """
    from matplotlib.figure import Figure  # no pyplot: neither a display nor a global state is touched

    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes: Any = figure.add_subplot()
    sizes = [row.transitions for row in rows]
    for kind, colour in zip(KINDS, ("black", "tab:green", "tab:red"), strict=True):
        axes.loglog(sizes, [row.median(kind) for row in rows], "o-", ms=4, color=colour, label=kind)
        low, high = zip(*((min(row.updates[kind]), max(row.updates[kind])) for row in rows), strict=True)
        axes.fill_between(sizes, low, high, color=colour, alpha=0.15, lw=0)
    repetitions = len(rows[0].updates[KINDS[0]])
    axes.set(
        title=f"Blind Cliffwalk, n = {rows[0].states}..{rows[-1].states} states, median and range of {repetitions}",
        xlabel="transitions in the memory",
        ylabel="updates until the values are right",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(Path(path), dpi=120)
