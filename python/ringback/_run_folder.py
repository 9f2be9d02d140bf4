"""The folder that a training run leaves behind: its configuration, its figures, its learning curve."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

__all__ = ["RunFolder"]

COLUMNS = (
    "step",
    "episodes",
    "seconds",
    "steps_per_second",
    "recent_return",
    "validation_return",
)


class Progress(Protocol):
    """What a training program tells of a moment; `ringback.examples.training.Progress` is one."""

    @property
    def step(self) -> int: ...
    @property
    def episodes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def recent_return(self) -> float: ...
    @property
    def finished(self) -> tuple[float, ...]: ...
    @property
    def validation_return(self) -> float | None: ...
    @property
    def figures(self) -> dict[str, float]: ...


class RunFolder:
    """Writes ``config.json`` at once, ``metrics.csv`` as the run goes and ``learning_curve.png`` at its end.

    Parameters
    ----------
    path : path-like
        Made if missing; files of an earlier run in it are replaced.
    figures : sequence of str, default empty
        What the program tells of itself: further columns of ``metrics.csv``.
    every : int, default 500
        Env steps from one line of ``metrics.csv`` to the next; a validation has a line in any case.

    Raises
    ------
    OSError
        If the folder or a file in it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], figures: Sequence[str] = (), *, every: int = 500) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "learning_curve.png", "model.pt"):
            (self.path / name).unlink(missing_ok=True)
        self._figures = figures
        self._every = every
        self._next = every
        self._last: Progress | None = None
        self._written: Progress | None = None
        self._training: list[tuple[int, float]] = []
        self._validation: list[tuple[int, float]] = []
        self._file = open(self.path / "metrics.csv", "w", newline="", encoding="utf-8")  # noqa: SIM115 - closed by close
        self._csv = csv.writer(self._file)
        self._csv.writerow((*COLUMNS, *figures))

    @property
    def model(self) -> Path:
        """Where the model belongs."""
        return self.path / "model.pt"

    def write_config(self, content: Mapping[str, Any]) -> None:
        """Write ``config.json``, in place of an earlier one."""
        (self.path / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def report(self, progress: Progress) -> None:
        """Take note of a moment, and write it down where it is time."""
        self._last = progress
        self._training += [(progress.step, value) for value in progress.finished]
        if progress.validation_return is not None:
            self._validation.append((progress.step, progress.validation_return))
        if progress.validation_return is not None or progress.step >= self._next:
            self._next = (progress.step // self._every + 1) * self._every
            self._write(progress)

    def draw(self, title: str, threshold: float | None) -> None:
        """Draw ``learning_curve.png``.

        Parameters
        ----------
        title : str
            Above the figure.
        threshold : float or None
            A return to mark, such as the one that counts as solved.
        """
        from matplotlib.figure import Figure  # no pyplot: neither a display nor a global state is touched

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        if self._training:
            steps, returns = zip(*self._training, strict=True)
            axes.plot(steps, returns, ".", ms=3, alpha=0.35, color="tab:blue", label="training episodes")
            axes.plot(steps, _moving_mean(returns), color="tab:blue", label="mean of the last 20")
        if self._validation:
            axes.plot(*zip(*self._validation, strict=True), "o-", color="tab:orange", label="validation, greedy")
        if threshold is not None:
            axes.axhline(threshold, ls="--", lw=1, color="grey", label="reward threshold")
        axes.set(title=title, xlabel="env steps", ylabel="return, undiscounted")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize="small")
        figure.savefig(self.path / "learning_curve.png", dpi=120)

    def close(self) -> None:
        """Write the last moment down and close the files; a second call does nothing."""
        if not self._file.closed:
            if self._last is not None and self._last is not self._written:
                self._write(self._last)
            self._file.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, progress: Progress) -> None:
        self._written = progress
        self._csv.writerow(
            (
                progress.step,
                progress.episodes,
                f"{progress.seconds:.2f}",
                f"{progress.step / progress.seconds:.1f}" if progress.seconds > 0 else "",
                _number(progress.recent_return),
                _number(progress.validation_return),
                *(_number(progress.figures.get(name)) for name in self._figures),
            )
        )
        self._file.flush()  # a run that is killed leaves its figures


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


def _moving_mean(values: tuple[float, ...], width: int = 20) -> list[float]:
    window: deque[float] = deque(maxlen=width)
    means = []
    for value in values:
        window.append(value)
        means.append(sum(window) / len(window))
    return means
