"""Uniform transitions out of a full ring, beside what NumPy can do with the same rows.

    python bench/python/bench_transitions.py [--quick]

Ours allocates fresh arrays in each call and draws without replacement. The rivals are generous to NumPy: they draw with
replacement (the textbook excepted), write into arrays made once, and keep every successor a second time.
"""

from __future__ import annotations

import functools

import numpy as np

from side_by_side import Contender, arguments, at_least, compare
from steps import ACTION, OBSERVATION, Floats, Steps, check_transitions, fill, make_steps

BATCH = 256


class Columns:
    """Five preallocated columns in the ring's slot order, and the ways to sample them."""

    def __init__(self, capacity: int, steps: Steps) -> None:
        slots = np.arange(len(steps) - capacity, len(steps)) % capacity
        self.capacity = capacity
        self.columns: list[Floats] = []
        for column in (steps.observations, steps.actions, steps.rewards, steps.next_observations, steps.terminations):
            ring = np.empty((capacity, *column.shape[1:]), np.float32)
            ring[slots] = column[-capacity:]
            self.columns.append(ring if ring.ndim == 2 else ring[:, None])
        self.out = [np.empty((BATCH, column.shape[1]), np.float32) for column in self.columns]
        self.rng = np.random.default_rng(0)
        np.random.seed(0)

    def take(self) -> list[Floats]:
        """Bounded integers and five takes into preallocated arrays: the best that columns allow."""
        rows = self.rng.integers(0, self.capacity, BATCH)
        for column, out in zip(self.columns, self.out, strict=True):
            np.take(column, rows, axis=0, out=out, mode="clip")
        return self.out

    def textbook(self) -> list[Floats]:
        """What is copied from book to book: a permutation of the whole ring for 256 rows of it."""
        rows = np.random.choice(self.capacity, BATCH, replace=False)
        return [column[rows] for column in self.columns]


class Packed:
    """One packed row a step: five slices of one take. What a careful user of NumPy ends up with."""

    def __init__(self, columns: Columns) -> None:
        self.table = np.concatenate(columns.columns, axis=1)
        self.out = np.empty((BATCH, self.table.shape[1]), np.float32)
        self.rng = np.random.default_rng(0)
        self.cuts = np.cumsum([0] + [column.shape[1] for column in columns.columns])

    def take(self) -> list[Floats]:
        """One take, five views."""
        rows = self.rng.integers(0, len(self.table), BATCH)
        np.take(self.table, rows, axis=0, out=self.out, mode="clip")
        return [self.out[:, begin:end] for begin, end in zip(self.cuts[:-1], self.cuts[1:], strict=True)]


def main() -> None:
    """Print the table."""
    quick = arguments(str(__doc__)).quick
    large, small = (3_000, 1_000) if quick else (1_000_000, 10_000)
    contenders = []
    for capacity in (large, small):
        steps = make_steps(capacity + capacity // 3, 50, 1000)
        buffer, columns = fill(capacity, steps), Columns(capacity, steps)
        packed = Packed(columns)
        ours = functools.partial(buffer.sample_transitions, BATCH)
        bars = (at_least(3.5), at_least(500), ("", None)) if capacity == large else (("", None),) * 3
        growth = ("", None) if capacity == large else at_least(1 / 2.5)
        ways = [
            ("ringback", ours, *growth),
            ("ringback, out=", functools.partial(buffer.sample_transitions, BATCH, out=ours()), "", None),
            ("NumPy: integers + five takes with out=", columns.take, *bars[0]),
            ("NumPy: one packed table, one take with out=", packed.take, *bars[2]),
            ("NumPy: textbook choice(replace=False) + fancy indexing", columns.textbook, *bars[1]),
        ]
        for name, way, bar, met in ways:

            def check(way=way, steps=steps, capacity=capacity) -> None:  # type: ignore[no-untyped-def]
                check_transitions(steps, capacity, *way())

            contenders.append(Contender(f"{name}, {capacity:,} steps", way, check, 1, bar, met))
    compare(f"sample {BATCH} transitions of {OBSERVATION} + {ACTION} float32", contenders, quick)


if __name__ == "__main__":
    main()
