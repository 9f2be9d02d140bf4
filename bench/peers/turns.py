"""Two sides do the same work in one process, a few calls each in turn."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]


class Side(Protocol):
    """One of the two, with data of its own."""

    def prepare(self) -> Any:
        """Return what a call consumes; unmeasured."""

    def call(self, given: Any) -> Any:
        """Do the measured work."""

    def answer(self, result: Any) -> Arrays:
        """Return what is compared; raise if it is wrong by itself."""

    def units(self, result: Any) -> int:
        """Return how many of the row's units this call did."""


@dataclass
class Row:
    """A comparison.

    ``ours`` and ``theirs`` make a side; ``bar`` is for the ratio (None: it is only there to be looked at); ``calls`` of
    each side make a turn, ``at_a_time`` of one and then of the other.
    """

    name: str
    ours: Callable[[], Side]
    theirs: Callable[[], Side]
    bar: float | None
    calls: int
    at_a_time: int = 1


@dataclass
class Measured:
    """Microseconds a unit, one figure a turn."""

    name: str
    bar: float | None
    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> float:
        """How many times as long the other side takes: the median of the turns."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def verdict(self) -> str:
        """Whether the bar is met."""
        return "" if self.bar is None else "met" if self.ratio >= self.bar else "missed"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "ratio": self.ratio, "verdict": self.verdict}


def measure(row: Row, turns: int, calls: int | None = None) -> Measured:
    """Compare the answers, take the time of both sides, and compare again."""
    check(row)
    taken = [turn(row, calls or row.calls) for _ in range(turns)]
    check(row)
    return Measured(row.name, row.bar, *(list(column) for column in zip(*taken, strict=True)))


def check(row: Row, calls: int = 3) -> None:
    """Raise if the two sides do not give the same in a few calls one after the other."""
    ours, theirs = row.ours(), row.theirs()
    for _ in range(calls):
        a, b = (side.answer(side.call(side.prepare())) for side in (ours, theirs))
        for name, expected in b.items():
            same(row.name, name, a.get(name), expected)


def same(row: str, column: str, ours: np.ndarray[Any, Any] | None, theirs: np.ndarray[Any, Any]) -> None:
    """Raise if a column differs; floats may differ by rounding."""
    if ours is None:
        raise SystemExit(f"{row}: ours lacks the column {column!r}")
    if ours.shape != theirs.shape:
        raise SystemExit(f"{row}: {column!r} has the shape {ours.shape}, RLlib's {theirs.shape}")
    if not np.allclose(ours, theirs, rtol=1e-5, atol=1e-5):
        at = np.unravel_index(np.argmax(np.abs(ours.astype(float) - theirs.astype(float))), ours.shape)
        raise SystemExit(f"{row}: {column!r} is {ours[at]} at {tuple(map(int, at))}, RLlib's {theirs[at]}")


def turn(row: Row, calls: int) -> tuple[float, float]:
    """Return microseconds a unit of ours and of theirs: medians of calls.

    The sides change places often, for a shared machine changes its pace. The clock is that of the wall, which takes no
    system call: one costs as much as a fast call, and leaves cold caches behind. The median leaves out the calls that
    the machine interrupted. The garbage collector is off: it would bill one side for what the other left behind.
    """
    sides = row.ours(), row.theirs()
    for side in sides:
        side.call(side.prepare())
    spent: tuple[list[float], list[float]] = [], []
    gc.collect()
    gc.disable()
    try:
        for done in range(0, calls, row.at_a_time):
            for side, times in zip(sides, spent, strict=True):
                for _ in range(min(row.at_a_time, calls - done)):
                    given = side.prepare()
                    start = time.perf_counter_ns()
                    result = side.call(given)
                    stop = time.perf_counter_ns()
                    times.append((stop - start) / side.units(result) / 1000)
                    del result  # or the next call, which may be the other side's, would be billed for its end
    finally:
        gc.enable()
    return statistics.median(spent[0]), statistics.median(spent[1])
