"""What ``ringback bench`` runs: the replay buffer's calls on this machine, each timed and each answer checked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ringback
from ringback import ReplayBuffer

__all__ = ["table"]

OBSERVATION, ACTION = 17, 6
STREAMS = 16
GAMMA = 0.99
ADDED = 1_000  # steps prepared for the lines that write
HEADER = f"{'call':<34}{'µs/call':>10}{'rows/s':>12}{'GB/s':>8}"


def table(capacity: int, repeats: int) -> Iterator[str]:
    """Fill a buffer, time its calls and yield the lines of a table as they are known.

    Parameters
    ----------
    capacity : int
        Steps in the buffer, at least 2000.
    repeats : int
        Timings of each line; the median counts.

    Yields
    ------
    str
        A line of the table.

    Raises
    ------
    RuntimeError
        If an answer of the buffer is wrong.

    Notes
    -----
    Everything in step k says k (observation k, action -k, reward k, next observation k + 1), so that every row that
    comes back proves itself. Timings are of a full ring whose memory has been written before.
    """
    buffer = ReplayBuffer(capacity, OBSERVATION, ACTION, seed=0)
    written = _fill(buffer, capacity + ADDED)
    size = f"{capacity} steps of {OBSERVATION} + {ACTION} float32, {buffer.nbytes / 1e6:.1f} MB"
    yield f"ringback {ringback.__version__}: {size}"
    yield HEADER

    rows = _rows(written, ADDED)
    steps = list(zip(*rows, strict=True))

    def add() -> None:
        for observation, action, reward, after in steps:
            buffer.add(observation, action, reward, after, False)
        buffer.end_episode()

    handed = sum(array[:1].nbytes for array in rows) + 2
    yield _line("add, one step", _time(add, repeats) / ADDED, 1, handed)
    _check_transitions(buffer.get(buffer.valid_starts()[-ADDED:]), 1)

    batches = _batches(written + ADDED)
    ends = np.zeros(STREAMS, bool)

    def add_batch() -> None:
        for observations, actions, rewards, after in batches:
            buffer.add_batch(observations, actions, rewards, after, ends)
        for stream in range(STREAMS):
            buffer.end_episode(stream)

    yield _line(f"add_batch, {STREAMS} streams", _time(add_batch, repeats) / len(batches), STREAMS, handed * STREAMS)
    _check_transitions(buffer.get(buffer.valid_starts()[-STREAMS * len(batches) :]), 1)

    def transitions() -> Any:
        return buffer.sample_transitions(256)

    yield _sampled("sample_transitions(256)", transitions, repeats, 256, lambda batch: _check_transitions(batch, 1))

    def n_step() -> Any:
        return buffer.sample_transitions(256, n_step=3, gamma=GAMMA)

    yield _sampled("… n_step=3, gamma=0.99", n_step, repeats, 256, lambda batch: _check_transitions(batch, 3))

    def sequences() -> Any:
        return buffer.sample_sequences(32, 50)

    yield _sampled("sample_sequences(32, 50)", sequences, repeats, 32 * 50, _check_sequences)


def _rows(first: int, count: int) -> tuple[Any, Any, Any, Any]:
    """Return observations, actions, rewards and next observations of steps `first`, `first` + 1 and so on."""
    number = np.arange(first, first + count, dtype=np.float32)[:, None]
    return (
        np.repeat(number, OBSERVATION, axis=1),
        np.repeat(-number, ACTION, axis=1),
        number[:, 0].copy(),
        np.repeat(number + 1, OBSERVATION, axis=1),
    )


def _batches(first: int) -> list[tuple[Any, Any, Any, Any]]:
    """Batches of one step of each stream, from as many steps as `_rows` of `ADDED`."""
    length = ADDED // STREAMS
    arrays = [array[: STREAMS * length].reshape(STREAMS, length, *array.shape[1:]) for array in _rows(first, ADDED)]
    observations, actions, rewards, after = (np.ascontiguousarray(np.swapaxes(array, 0, 1)) for array in arrays)
    return list(zip(observations, actions, rewards, after, strict=True))


def _fill(buffer: ReplayBuffer, count: int) -> int:
    """Write steps in episodes of 50 to 1000 steps and return how many."""
    rng = np.random.default_rng(0)
    written = 0
    while written < count:
        length = min(int(rng.integers(50, 1001)), count - written)
        for t, row in enumerate(zip(*_rows(written, length), strict=True)):
            buffer.add(*row, t == length - 1)
        written += length
    return written


def _time(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call: the median of `repeats`, after one that warms up."""
    call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _sampled(name: str, draw: Callable[[], Any], repeats: int, rows: int, check: Callable[[Any], None]) -> str:
    def many() -> Any:
        batch = None
        for _ in range(500):
            batch = draw()
        return batch

    seconds = _time(many, repeats) / 500
    batch = draw()
    check(batch)
    arrays = [*batch, batch.terminations, batch.truncations, batch.ids]
    return _line(name, seconds, rows, sum(array.nbytes for array in arrays))


def _line(name: str, seconds: float, rows: int, size: int) -> str:
    return f"{name:<34}{seconds * 1e6:>10.2f}{rows / seconds / 1e6:>10.2f} M{size / seconds / 1e9:>8.2f}"


def _check_transitions(batch: Any, n_step: int) -> None:
    number = batch.observations[:, :1]
    steps = batch.n_steps if n_step > 1 else np.ones_like(batch.ids)[:, None]
    powers = GAMMA ** np.arange(n_step)
    within = np.arange(n_step) < steps
    want = np.where(within, powers * (number.astype(np.float64) + np.arange(n_step)), 0).sum(1, keepdims=True)
    _require(
        (batch.observations == number).all()
        and (batch.actions == -number).all()
        and (batch.next_observations == number + steps).all()
        and np.allclose(batch.rewards, want, rtol=1e-6)
        and ((steps >= 1) & (steps <= n_step)).all()
    )
    if n_step > 1:
        _require(np.allclose(batch.discounts, GAMMA**steps * (1 - batch.dones), rtol=1e-6))


def _check_sequences(batch: Any) -> None:
    number = batch.observations[:, :1, :1] + np.arange(50, dtype=np.float32)[:, None]
    _require(
        (batch.observations == number).all()
        and (batch.actions == -number).all()
        and (batch.rewards == number).all()
        and not batch.dones[:, :-1].any()
    )


def _require(right: Any) -> None:
    if not right:
        raise RuntimeError("ringback bench: every row must say its own step, got another; please report this")
