"""What a full buffer costs in memory, by its own account and by the operating system's.

    python bench/python/bench_memory.py [--quick]

Four questions: frames of 84x84 bytes, many short episodes each with a stream of its own, sampling for a long time, and
data in which no observation equals the successor that came before it. The rows are read back each time.
The first needs 8 GB of memory for its million frames, and takes fewer where there is less.
"""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ringback import ReplayBuffer
from side_by_side import arguments
from steps import box

FRAME = 84 * 84


def kilobytes(file: str, key: str) -> int:
    """Return one figure of /proc, in bytes."""
    for line in Path(file).read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"{file} has no {key}")


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return kilobytes("/proc/self/status", "VmRSS")


def line(what: str, figure: str, bar: str, met: bool) -> None:
    """Print one line of the table."""
    print(f"| {what} | {figure} | {bar}: {'met' if met else 'MISSED'} |", flush=True)


def frame_of(number: int, out: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Write a step's number into the first eight bytes of a frame."""
    out.reshape(-1)[:8].view(np.int64)[0] = number
    return out


def frames(capacity: int, episode: int) -> None:
    """Fill a buffer with frames, one and a quarter times round."""
    before = resident()
    space = spaces.Box(0, 255, (84, 84), np.uint8)
    buffer = ReplayBuffer(capacity, space, spaces.Discrete(4), seed=0)
    current = np.random.default_rng(0).integers(0, 256, (84, 84), np.uint8)
    successor = current.copy()
    total = capacity + capacity // 4
    for step in range(total):
        # A frame's number is unique: the last successor of an episode is not the next episode's first observation.
        number = step + step // episode
        ended = step % episode == episode - 1
        frame_of(number, current)
        buffer.add(current, step % 4, float(step), frame_of(number + 1, successor), ended)
    batch = buffer.sample_transitions(64)
    step = batch.rewards.ravel().astype(np.int64)
    number = step + step // episode
    assert np.array_equal(batch.observations.reshape(64, -1)[:, :8].copy().view(np.int64).ravel(), number)
    assert np.array_equal(batch.next_observations.reshape(64, -1)[:, :8].copy().view(np.int64).ravel(), number + 1)
    allowed = 1.02 * FRAME * capacity + FRAME * (capacity // episode + 1)
    for account, used in (("nbytes", buffer.nbytes), ("resident", resident() - before)):
        what = f"{capacity:,} frames of 84x84 bytes, episodes of {episode}, {account}"
        line(what, f"{used / capacity:,.0f} bytes a step", f"<= {allowed / capacity:,.0f}", used <= allowed)


def short_episodes(streams: int) -> None:
    """Write short episodes one after another: all on one stream, then each on a stream of its own."""
    used = []
    for own_stream in (False, False, True):  # the first round warms up what a process keeps for good
        before = resident()
        buffer = ReplayBuffer(streams * 2, box(17), box(6), seed=0)
        observations = np.random.default_rng(0).random((6, 17), dtype=np.float32)
        action = np.zeros(6, np.float32)
        for episode in range(streams):
            for t in range(5):
                observations[t + 1, 0] = episode * 6 + t + 1
                buffer.add(
                    observations[t], action, float(t), observations[t + 1], t == 4, False, episode if own_stream else 0
                )
        steps = buffer.get(np.arange(buffer.total_added - len(buffer), buffer.total_added))
        assert np.array_equal(steps.next_observations[:-1, 0] % 6, (steps.rewards[:-1, 0] + 1) % 6)
        used.append((buffer.nbytes, resident() - before))
        del buffer, steps
    for account, (one, many) in zip(("nbytes", "resident"), zip(*used[1:], strict=True), strict=True):
        slack = 0 if account == "nbytes" else 1 << 20  # the allocator keeps a little for itself
        what = f"{streams:,} episodes of 5 steps, each a stream of its own, against one stream, {account}"
        line(what, f"{many / 1e6:.1f} MB against {one / 1e6:.1f}", "<= as much", many <= one * 1.01 + slack)


def sampling(capacity: int, calls: int) -> None:
    """Sample often, of both kinds, and look whether anything grew."""
    buffer = ReplayBuffer(capacity, box(17), box(6), seed=0)
    observations = np.random.default_rng(0).random((capacity + 1, 17), dtype=np.float32)
    for step in range(capacity):
        buffer.add(observations[step], np.zeros(6, np.float32), float(step), observations[step + 1], step % 100 == 99)
    for _ in range(100):
        buffer.sample_transitions(256)
        buffer.sample_sequences(32, 50)
    before, own = resident(), buffer.nbytes
    for _ in range(calls):
        buffer.sample_transitions(256)
        buffer.sample_sequences(32, 50)
    grown = max(resident() - before, buffer.nbytes - own)
    line(f"{2 * calls:,} samples from {capacity:,} steps, growth", f"{grown / 1e6:.2f} MB", "<= 1", grown <= 1e6)


def arbitrary(capacity: int) -> None:
    """Write steps whose observation never equals the successor before it, against steps that follow one another."""
    used = []
    rng = np.random.default_rng(0)
    rows = rng.random((capacity + 1, 17), dtype=np.float32)
    strangers = rng.random((capacity, 17), dtype=np.float32)
    rows[:, 0] = np.arange(capacity + 1)
    strangers[:, 0] = np.arange(capacity) + 0.5
    warnings.simplefilter("ignore", UserWarning)  # that it costs memory is what is measured
    for follow in (True, True, False):
        before = resident()
        buffer = ReplayBuffer(capacity, box(17), 6, seed=0)
        for step in range(capacity):
            successor = rows[step + 1] if follow else strangers[step]
            buffer.add(rows[step], np.zeros(6, np.float32), float(step), successor, step % 250 == 249)
        batch = buffer.get(np.arange(buffer.total_added - len(buffer), buffer.total_added))
        assert np.array_equal(batch.observations, rows[-capacity - 1 : -1])
        assert np.array_equal(batch.next_observations, rows[1:] if follow else strangers)
        del batch
        used.append((buffer.nbytes, resident() - before))
        del buffer
    for account, (chained, loose) in zip(("nbytes", "resident"), zip(*used[1:], strict=True), strict=True):
        what = f"{capacity:,} steps of 17 + 6 float32 that do not follow one another, {account}"
        line(what, f"{loose / chained:.2f} times those that do", "<= 2", loose <= 2.0 * chained)


def main() -> None:
    """Print the table."""
    quick = arguments(str(__doc__)).quick
    print("\n### memory\n\n| what | cost | bar |\n|---|---|---|")
    room = kilobytes("/proc/meminfo", "MemAvailable") * 3 // 4 // FRAME
    frames(2_000 if quick else min(1_000_000, room), 250)
    short_episodes(500 if quick else 50_000)
    sampling(2_000 if quick else 100_000, 50 if quick else 5_000)
    arbitrary(2_000 if quick else 300_000)


if __name__ == "__main__":
    main()
