"""One writer and several readers at once: no torn row, and nobody waits for ever.

Each row carries its step's number many times over, so that a row put together from two steps shows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer

PIXELS = (64, 64)


def frame(step: int) -> np.ndarray:
    return np.full(PIXELS, step % 251, np.uint8)


def write(buffer: ReplayBuffer, step: int) -> None:
    buffer.add(
        {"camera": frame(step), "number": np.full(5, step, np.float64)},
        np.full(3, step, np.float64),
        float(step % 1000),
        {"camera": frame(step + 1), "number": np.full(5, step + 1, np.float64)},
        step % 97 == 96,
        extras={"again": step},
    )


def check(observations: Any, steps: np.ndarray) -> None:
    steps = steps.reshape(-1)
    camera = observations["camera"].reshape(steps.size, -1)
    assert (camera == (steps % 251)[:, None]).all()
    assert (observations["number"].reshape(steps.size, 5) == steps[:, None]).all()


def check_transitions(batch: Any) -> None:
    steps = batch.ids
    check(batch.observations, steps)
    check(batch.next_observations, steps + 1)
    assert (batch.actions == steps[:, None]).all()
    assert (batch.rewards[:, 0] == steps % 1000).all()
    assert (batch.extras["again"][:, 0] == steps).all()
    assert (batch.terminations[:, 0] == (steps % 97 == 96)).all()


def check_sequences(batch: Any) -> None:
    assert (batch.ids == batch.start_ids[:, None] + np.arange(batch.ids.shape[1])).all()
    check(batch.observations, batch.ids)
    assert (batch.extras["again"][..., 0] == batch.ids).all()
    assert not (batch.ids[:, :-1] % 97 == 96).any()


def make(capacity: int) -> ReplayBuffer:
    space = gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, PIXELS, np.uint8),
            "number": gym.spaces.Box(-np.inf, np.inf, (5,), np.float64),
        }
    )
    action_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    buffer = ReplayBuffer(capacity, space, action_space, extras={"again": ((), np.int64)}, seed=1)
    for step in range(capacity):
        write(buffer, step)
    return buffer


FEWEST_READS = 20  # by each reader; so few were left to chance by a writer of fixed length (3 at times)


def run_beside_a_writer(buffer: ReplayBuffer, readers: list[Callable[[], None]], writes: int) -> None:
    """Write at least that many steps, and until each reader has read a number of times; fail if one side starves."""
    failures: list[BaseException] = []
    done = threading.Event()
    ready = threading.Barrier(len(readers) + 1)
    reads = [0] * len(readers)
    before = buffer.total_added
    written = 0

    def guarded(work: Callable[[], None]) -> None:
        try:
            ready.wait()
            work()
        except BaseException as failure:
            failures.append(failure)
            done.set()

    def writing() -> None:
        nonlocal written
        while written < writes or (min(reads) < FEWEST_READS and written < 100 * writes):
            if failures:
                return
            write(buffer, before + written)
            written += 1
        done.set()

    def reading(k: int) -> None:
        while not done.is_set():
            assert reads[k] < 5_000 + 10 * written, f"the writer came to {written} writes in {reads} reads"
            readers[k]()
            reads[k] += 1

    threads = [threading.Thread(target=guarded, args=(writing,))]
    threads += [threading.Thread(target=guarded, args=(lambda k=k: reading(k),)) for k in range(len(readers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert min(reads) >= FEWEST_READS, f"a reader came to nothing beside {written} writes: {reads}"
    assert buffer.total_added == before + written


@pytest.mark.parametrize("batch_size", [3, 300])  # 12 KB keep the interpreter's lock, 2 MB let it go
def test_one_writer_and_three_readers_never_see_a_torn_row(batch_size: int) -> None:
    buffer = make(400)

    def transitions() -> None:
        check_transitions(buffer.sample_transitions(batch_size))

    def sequences() -> None:
        check_sequences(buffer.sample_sequences(max(1, batch_size // 10), 9))

    def handles() -> None:
        try:
            ids = buffer.valid_starts()[-max(1, batch_size // 2) :]
            check_transitions(buffer.get(ids))
        except IndexError:  # evicted in between: said so, which is right
            pass

    run_beside_a_writer(buffer, [transitions, sequences, handles], writes=3000)


def test_several_writers_and_readers_add_up() -> None:
    buffer = ReplayBuffer(1000, 4, 1)
    failures: list[BaseException] = []

    def writer(stream: int) -> None:
        try:
            for t in range(1500):
                number = 10_000 * stream + t
                buffer.add(
                    np.full(4, number, np.float32),
                    [stream],
                    t,
                    np.full(4, number + 1, np.float32),
                    False,
                    False,
                    stream,
                )
        except BaseException as failure:
            failures.append(failure)

    def reader() -> None:
        try:
            for _ in range(300):
                if len(buffer) < 100:
                    continue
                batch = buffer.sample_transitions(50, n_step=3, gamma=0.9)
                assert (batch.observations == batch.observations[:, :1]).all()
                assert (batch.next_observations[:, 0] == batch.observations[:, 0] + batch.n_steps[:, 0]).all()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=writer, args=(stream,)) for stream in range(3)]
    threads += [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert buffer.total_added == 4500
    batch = buffer.get(buffer.valid_starts())
    for stream in range(3):  # each stream's steps are in its own order, none lost in between
        own = batch.observations[batch.actions[:, 0] == stream, 0]
        np.testing.assert_array_equal(np.diff(own), 1)


def test_saving_beside_a_writer_gives_one_moment() -> None:
    buffer = make(200)
    other = make(200)

    def save() -> None:
        try:
            state = buffer.get_state()
        except RuntimeError as refusal:
            if "must not change" in str(refusal):
                return  # a write came in between, and it says so
            raise
        other.set_state(state)
        ids = other.valid_starts()
        assert len(ids) == 200
        assert ids[-1] == other.total_added - 1
        check_transitions(other.get(ids))

    run_beside_a_writer(buffer, [save], writes=1500)


def test_a_large_draw_lets_other_python_threads_run() -> None:
    buffer = make(400)
    done = threading.Event()
    counted = [0]

    def count() -> None:
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(50):
            check_transitions(buffer.sample_transitions(400))
    finally:
        done.set()
        thread.join()
    assert counted[0] > 0


def test_threads_draw_what_one_thread_would() -> None:
    together, alone = make(300), make(300)
    found: list[list[int]] = []
    guard = threading.Lock()

    def draw() -> None:
        for _ in range(40):
            ids = together.sample_transitions(300).ids.tolist()
            with guard:
                found.append(ids)

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [alone.sample_transitions(300).ids.tolist() for _ in range(120)]
    assert sorted(found) == sorted(expected)  # every draw of the stream once, whoever took it
