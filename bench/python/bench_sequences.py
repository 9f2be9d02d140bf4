"""Windows inside episodes out of a full ring, beside NumPy's rejection sampler and rescans.

    python bench/python/bench_sequences.py [--quick]

Ours allocates fresh arrays in each call and draws without replacement. The rejection sampler writes into arrays made
once, draws with replacement, and is told how many steps are left in each episode, which somebody must keep up to date.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ringback import ReplayBuffer
from side_by_side import Contender, arguments, at_least, at_most, compare
from steps import ACTION, OBSERVATION, Floats, Steps, check_sequences, fill, make_steps

BATCH = 32


class Columns:
    """The four columns of a full, wrapped ring in slot order, and two ways to draw windows out of them."""

    def __init__(self, capacity: int, length: int, steps: Steps) -> None:
        slots = np.arange(len(steps) - capacity, len(steps)) % capacity
        self.capacity, self.length = capacity, length
        self.head = len(steps) % capacity
        self.columns: list[Floats] = []
        for column in (steps.observations, steps.actions, steps.rewards, steps.terminations):
            ring = np.empty((capacity, *column.shape[1:]), np.float32)
            ring[slots] = column[-capacity:]
            self.columns.append(ring if ring.ndim == 2 else ring[:, None])
        ended = (steps.terminations | steps.truncations)[-capacity:]
        self.ended = np.empty(capacity, np.bool_)
        self.ended[slots] = ended
        ends = np.flatnonzero(ended)
        left = ends[np.searchsorted(ends, np.arange(capacity))] - np.arange(capacity) + 1
        self.left = np.empty(capacity, np.int32)
        self.left[slots] = left
        self.out = [np.empty((BATCH, length, column.shape[1]), np.float32) for column in self.columns]
        self.steps_on = np.arange(length)
        self.rng = np.random.default_rng(0)

    def _take(self, starts: npt.NDArray[np.int64]) -> list[Floats]:
        rows = starts[:, None] + self.steps_on
        if rows[:, -1].max() >= self.capacity:
            rows %= self.capacity
        for column, out in zip(self.columns, self.out, strict=True):
            np.take(column, rows, axis=0, out=out, mode="clip")
        return self.out

    def reject(self) -> list[Floats]:
        """Draw half as many again as needed, keep those with enough steps left: hand-tuned for these lengths."""
        while True:
            starts = self.rng.integers(0, self.capacity, BATCH + BATCH // 2)
            starts = starts[self.left[starts] >= self.length][:BATCH]
            if len(starts) == BATCH:
                return self._take(starts)

    def rescan(self) -> list[Floats]:
        """List all valid starts by a cumulative sum over the end flags in order of time, then choose among them."""
        ends = np.cumsum(np.roll(self.ended, -self.head))
        ends_before = np.concatenate(([0], ends))[: self.capacity - self.length + 1]
        starts = np.flatnonzero(ends[self.length - 2 : self.capacity - 1] == ends_before)
        return self._take((self.rng.choice(starts, BATCH, replace=False) + self.head) % self.capacity)

    def tuned_rescan(self) -> list[Floats]:
        """Do the same with narrow integers, compare in place, choose positions instead of values."""
        ended = np.concatenate((self.ended[self.head :], self.ended[: self.head]))
        ends = np.cumsum(ended, dtype=np.int32)
        inside = np.empty(self.capacity - self.length + 1, np.bool_)
        inside[0] = ends[self.length - 2] == 0
        np.equal(ends[self.length - 1 : -1], ends[: -self.length], out=inside[1:])
        valid = np.flatnonzero(inside)
        starts = valid[self.rng.choice(len(valid), BATCH, replace=False)]
        return self._take((starts + self.head) % self.capacity)


def adding(buffer: ReplayBuffer, steps: Steps) -> Callable[[], None]:
    """Return a function that adds the next of `steps`, round and round."""
    rows = list(
        zip(
            steps.observations,
            steps.actions,
            steps.rewards.tolist(),
            steps.next_observations,
            steps.terminations.tolist(),
            steps.truncations.tolist(),
            strict=True,
        )
    )
    add, position = buffer.add, 0

    def step() -> None:
        nonlocal position
        add(*rows[position])
        position = position + 1 if position + 1 < len(rows) else 0

    return step


def alternate(buffer: ReplayBuffer, steps: Steps, length: int) -> Callable[[], object]:
    """Return a function that adds one step and samples once."""
    step, sample = adding(buffer, steps), functools.partial(buffer.sample_sequences, BATCH, length)

    def both() -> object:
        step()
        return sample()

    return both


def against_numpy(capacity: int, length: int, quick: bool) -> None:
    """Episodes of random length: the table of the rivals."""
    steps = make_steps(capacity + capacity // 3, 50, 1000)
    still, growing, columns = fill(capacity, steps), fill(capacity, steps), Columns(capacity, length, steps)
    ours = functools.partial(still.sample_sequences, BATCH, length)

    def check(way: Callable[[], object]) -> Callable[[], None]:
        return lambda: check_sequences(steps, capacity, *way())  # type: ignore[misc]

    contenders = [
        Contender("ringback", ours, check(ours)),
        Contender(
            "ringback, one add before each", alternate(growing, steps, length), bar=at_most(1.3)[0], met=at_most(1.3)[1]
        ),
        Contender("NumPy: rejection, takes with out=", columns.reject, check(columns.reject), 1, *at_least(3)),
        Contender("NumPy: vectorised rescan", columns.rescan, check(columns.rescan), 1, *at_least(100)),
        Contender("NumPy: vectorised rescan, hand-tuned", columns.tuned_rescan, check(columns.tuned_rescan)),
    ]
    what = f"{capacity:,} steps of {OBSERVATION} + {ACTION} float32"
    compare(f"sample {BATCH} sequences of {length}, episodes of 50..1000, {what}", contenders, quick)


def whole_episodes(capacity: int, length: int, quick: bool) -> None:
    """Windows as long as the episodes: one start in `length` is valid."""
    steps = make_steps(capacity + capacity // 4, length, length)
    still, growing = fill(capacity, steps), fill(capacity, steps)
    ours = functools.partial(still.sample_sequences, BATCH, length)
    sample, step = functools.partial(growing.sample_sequences, BATCH, length), adding(growing, steps)

    def both() -> object:
        step()
        return sample()

    contenders = [
        Contender("ringback", ours, lambda: check_sequences(steps, capacity, *ours())),
        Contender("ringback, one add before each", both, bar=at_most(1.3)[0], met=at_most(1.3)[1]),
    ]
    compare(f"sample {BATCH} sequences of {length}, episodes of {length}, {capacity:,} steps", contenders, quick)


def main() -> None:
    """Print both tables."""
    quick = arguments(str(__doc__)).quick
    against_numpy(6_000 if quick else 1_000_000, 50, quick)
    whole_episodes(4_000 if quick else 1_000_000, 100 if quick else 1_000, quick)


if __name__ == "__main__":
    main()
