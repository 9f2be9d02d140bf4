"""Writing into a full, warm ring, beside the textbook's ring of NumPy arrays.

    python bench/python/bench_add.py [--quick]

The steps are ready-made Python objects, as an environment hands them out, in a list that is walked round and round; the
walk costs the same for everybody and is in every figure ("loop only" is the walk alone).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ringback import ReplayBuffer
from side_by_side import Contender, arguments, at_most, compare, no_check
from steps import ACTION, OBSERVATION, box

Row = tuple[Any, ...]
ROWS = 4096  # small enough that the input rows stay in the cache, for everybody
STREAMS = 16


class TextbookRing:
    """Five arrays and a write position."""

    def __init__(self, capacity: int, observation: int, action: int) -> None:
        self.capacity, self.position, self.size = capacity, 0, 0
        self.observations = np.zeros((capacity, observation), np.float32)
        self.actions = np.zeros((capacity, action), np.float32 if action > 1 else np.int64)
        self.rewards = np.zeros((capacity, 1), np.float32)
        self.next_observations = np.zeros((capacity, observation), np.float32)
        self.dones = np.zeros((capacity, 1), np.float32)

    def add(self, observation: Any, action: Any, reward: Any, next_observation: Any, done: Any) -> None:
        """Write one step."""
        position = self.position
        self.observations[position] = observation
        self.actions[position] = action
        self.rewards[position] = reward
        self.next_observations[position] = next_observation
        self.dones[position] = done
        self.position = (position + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def add_many(self, observations: Any, actions: Any, rewards: Any, next_observations: Any, dones: Any) -> None:
        """Write a step of each stream by slices; the capacity is a multiple of their number, so that none wraps."""
        begin, end = self.position, self.position + len(rewards)
        self.observations[begin:end] = observations
        self.actions[begin:end] = actions
        self.rewards[begin:end, 0] = rewards
        self.next_observations[begin:end] = next_observations
        self.dones[begin:end, 0] = dones
        self.position = end % self.capacity
        self.size = min(self.size + end - begin, self.capacity)


def single_rows() -> list[Row]:
    """Return steps of CartPole's shape: 4 float32, a Discrete action; an episode ends every 128 steps."""
    rng = np.random.default_rng(0)
    observations = rng.random((ROWS + 1, 4), dtype=np.float32)
    observations[:, 0] = np.arange(ROWS + 1)
    current, rows = observations[0].copy(), []
    for t in range(ROWS):
        successor = observations[t + 1].copy()
        rows.append((current, np.int64(t % 2), float(t), successor, t % 128 == 127))
        current = successor
    return rows


def batch_rows() -> list[Row]:
    """Return steps of 16 sub-environments; their episodes end together every 128 steps."""
    rng = np.random.default_rng(0)
    count = ROWS // STREAMS
    observations = rng.random((count + 1, STREAMS, OBSERVATION), dtype=np.float32)
    observations[:, :, 0] = np.arange(count + 1)[:, None]
    actions = rng.random((count, STREAMS, ACTION), dtype=np.float32)
    current, rows = observations[0].copy(), []
    for t in range(count):
        successor = observations[t + 1].copy()
        ends = np.full(STREAMS, t % 128 == 127)
        rows.append((current, actions[t].copy(), np.full(STREAMS, t, np.float64), successor, ends))
        current = successor
    return rows


def walk(add: Callable[..., object], rows: list[Row]) -> Callable[[], None]:
    """Return a function that adds all rows once, by position."""

    def run() -> None:
        for a, b, c, d, e in rows:
            add(a, b, c, d, e)

    return run


def walk_with_keywords(add: Callable[..., object], rows: list[Row]) -> Callable[[], None]:
    """Return a function that adds all rows once, naming every argument."""

    def run() -> None:
        for a, b, c, d, e in rows:
            add(observation=a, action=b, reward=c, next_observation=d, terminated=e)

    return run


def loop_only(rows: list[Row]) -> Callable[[], None]:
    """Return a function that walks the rows and does nothing."""

    def run() -> None:
        for _a, _b, _c, _d, _e in rows:
            pass

    return run


def warm(run: Callable[[], None], calls: int, capacity: int) -> Callable[[], None]:
    """Run until the ring has wrapped, so that no page is touched for the first time while it is timed."""
    for _ in range(capacity * 3 // 2 // calls + 1):
        run()
    return run


def checking(buffer: ReplayBuffer, rows: list[Row]) -> Callable[[], None]:
    """Return a check that the newest walk over the rows can be read back, successors included."""

    def check() -> None:
        newest = np.arange(buffer.total_added - len(rows), buffer.total_added)
        got = buffer.get(newest)
        want: list[npt.NDArray[Any]] = [np.array([row[column] for row in rows]) for column in range(5)]
        assert np.array_equal(got.observations, want[0])
        assert np.array_equal(got.actions.ravel(), want[1])
        assert np.array_equal(got.rewards.ravel(), want[2])
        assert np.array_equal(got.next_observations, want[3])
        assert np.array_equal(got.terminations.ravel(), want[4])

    return check


def checking_batches(buffer: ReplayBuffer, rows: list[Row]) -> Callable[[], None]:
    """Return the same check for steps that came 16 at a time."""
    flat = [tuple(column[stream] for column in row) for row in rows for stream in range(STREAMS)]

    def check() -> None:
        newest = np.arange(buffer.total_added - len(flat), buffer.total_added)
        got = buffer.get(newest)
        assert np.array_equal(got.observations, np.array([row[0] for row in flat]))
        assert np.array_equal(got.actions, np.array([row[1] for row in flat]))
        assert np.array_equal(got.next_observations, np.array([row[3] for row in flat]))
        assert np.array_equal(got.terminations.ravel(), np.array([row[4] for row in flat]))

    return check


def one_at_a_time(capacity: int, quick: bool) -> None:
    """The table of `add`."""
    rows = single_rows()
    observation, action = box(4), spaces.Discrete(2)
    textbook = TextbookRing(capacity, 4, 1)
    positional, named = (ReplayBuffer(capacity, observation, action, seed=0) for _ in range(2))
    runs = [
        ("NumPy: textbook ring", walk(textbook.add, rows), None, ("", None)),
        ("ringback", walk(positional.add, rows), checking(positional, rows), at_most(0.55)),
        ("ringback, with keywords", walk_with_keywords(named.add, rows), checking(named, rows), at_most(1)),
        ("loop only", loop_only(rows), None, ("", None)),
    ]
    compare(
        f"add one step of 4 float32 and a Discrete action, ring of {capacity:,}",
        contenders(runs, ROWS, capacity),
        quick,
    )


def sixteen_at_a_time(capacity: int, quick: bool) -> None:
    """The table of `add_batch`."""
    rows = batch_rows()
    textbook = TextbookRing(capacity, OBSERVATION, ACTION)
    buffer = ReplayBuffer(capacity, box(OBSERVATION), box(ACTION), seed=0)
    runs = [
        ("NumPy: slice writes", walk(textbook.add_many, rows), None, ("", None)),
        ("ringback", walk(buffer.add_batch, rows), checking_batches(buffer, rows), at_most(0.9)),
        ("loop only", loop_only(rows), None, ("", None)),
    ]
    title = f"add {STREAMS} streams of {OBSERVATION} + {ACTION} float32, ring of {capacity:,}"
    compare(title, contenders(runs, len(rows), capacity // STREAMS), quick)


def contenders(runs: list[tuple[str, Callable[[], None], Any, Any]], calls: int, capacity: int) -> list[Contender]:
    """Warm every ring and make a contender of it."""
    return [
        Contender(name, warm(run, calls, capacity), check or no_check, calls, *bar) for name, run, check, bar in runs
    ]


def main() -> None:
    """Print both tables."""
    quick = arguments(str(__doc__)).quick
    one_at_a_time(8_192 if quick else 200_000, quick)
    sixteen_at_a_time(8_192 if quick else 200_000, quick)


if __name__ == "__main__":
    main()
