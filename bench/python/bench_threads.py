"""A writer beside other threads: how much of its speed it keeps, and whether anybody starves.

    python bench/python/bench_threads.py [--quick]

Wall clock, unlike the other benches: waiting is what is asked about. Every thread sees to it that its rows are whole.
A writer and a busy Python thread share one interpreter lock, so half the speed is what can be kept there.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from ringback import ReplayBuffer
from side_by_side import arguments, spread
from steps import ACTION, OBSERVATION, box

Work = Callable[[], None]


def rates(works: Sequence[Work], seconds: float) -> list[float]:
    """Run every work in a thread of its own for some seconds, return how often each ran a second."""
    counts, begin, stop = [0] * len(works), threading.Barrier(len(works)), threading.Event()
    failures: list[BaseException] = []

    def loop(index: int) -> None:
        work, count = works[index], 0
        begin.wait()
        try:
            while not stop.is_set():
                work()
                count += 1
        except BaseException as error:  # a thread's error would end that thread only
            failures.append(error)
        counts[index] = count

    threads = [threading.Thread(target=loop, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [count / seconds for count in counts]


class Pair:
    """A full ring in which all columns of a step hold its number, a writer, and readers that look for torn rows."""

    def __init__(self, capacity: int) -> None:
        self.buffer = ReplayBuffer(capacity, box(OBSERVATION), box(ACTION), seed=0)
        self.number = 0
        self.row, self.action = np.zeros(OBSERVATION, np.float32), np.zeros(ACTION, np.float32)
        self.successor = np.zeros(OBSERVATION, np.float32)
        for _ in range(capacity + capacity // 4):
            self.write()

    def write(self) -> None:
        """Add one step; an episode has 100."""
        number = self.number
        self.row.fill(number)
        self.action.fill(number)
        self.successor.fill(number + 1)
        self.buffer.add(self.row, self.action, number, self.successor, number % 100 == 99)
        self.number = (number + 1) % (1 << 23)  # exact as float32

    def read_small(self) -> None:
        """Sample a batch that is copied with the interpreter's lock held."""
        batch = self.buffer.sample_transitions(256)
        assert np.all(batch.observations == batch.rewards)
        assert np.all(batch.actions == batch.rewards)
        assert np.all(batch.next_observations == batch.rewards + 1)

    def read_large(self) -> None:
        """Sample a batch of more than a megabyte, which is copied while other threads run."""
        batch = self.buffer.sample_sequences(256, 64)
        assert np.all(batch.observations == batch.rewards)
        assert np.all(batch.actions == batch.rewards)


def busy() -> None:
    """Keep the interpreter's lock wanted."""
    sum(range(1_000))


def main() -> None:
    """Print the table."""
    quick = arguments(str(__doc__)).quick
    repeats, seconds = (1, 0.1) if quick else (5, 0.5)
    pair = Pair(2_000 if quick else 200_000)
    line_up: list[tuple[str, list[Work]]] = [
        ("alone", [pair.write]),
        ("a busy Python thread", [pair.write, busy]),
        ("a reader of 256 transitions", [pair.write, pair.read_small]),
        ("two readers of 256 sequences of 64", [pair.write, pair.read_large, pair.read_large]),
    ]
    measured: list[list[list[float]]] = [[] for _ in line_up]
    for _ in range(repeats):
        for (_, works), figures in zip(line_up, measured, strict=True):
            figures.append(rates(works, seconds))
    print("\n### one writer beside other threads\n")
    print(
        "| beside | writes a second | times alone | calls a second of each other thread | bar |\n|---|---|---|---|---|"
    )
    for (name, _), figures in zip(line_up, measured, strict=True):
        writes = [figure[0] for figure in figures]
        ratios = [mine / alone[0] for mine, alone in zip(writes, measured[0], strict=True)]
        others = [statistics.median(column) for column in zip(*(figure[1:] for figure in figures), strict=True)]
        bar = ">= 0.45, 0.5 is ideal" if others and "busy" in name else "nobody starves" if others else ""
        met = statistics.median(ratios) >= 0.45 if "busy" in name else all(rate > 1 for rate in others)
        verdict = f"{bar}: {'met' if met else 'MISSED'}" if bar else ""
        called = ", ".join(f"{rate:,.0f}" for rate in others)
        print(f"| {name} | {spread(writes)} | {spread(ratios)} | {called} | {verdict} |")
    if quick:
        print("\n(--quick: too short for the figures to mean anything; the rows were checked)")


if __name__ == "__main__":
    main()
