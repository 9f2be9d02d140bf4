"""Batches drawn ahead: the same ones however far ahead, every step once an epoch, and a thread that ends."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from ringback import PrioritizedReplayBuffer, ReplayBuffer
from ringback.replay.batches import Batches
from tests.replay.playing import assert_consistent, play
from tests.replay.statistics import assert_uniform
from tests.replay.twin import SEQUENCES, TRANSITIONS, assert_same, fields_of

PREFETCHES = (0, 1, 2, 5)


def filled(steps: int = 50, capacity: int = 100, seed: int = 7) -> ReplayBuffer:
    """Return a buffer with episodes of 20 steps."""
    buffer = ReplayBuffer(capacity, 1, 1, seed=seed)
    for episode in range(-(-steps // 20)):
        play(buffer, episode, min(20, steps - 20 * episode))
    return buffer


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ringback.batches"]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.001)


# ---- what is delivered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_batches_are_the_same_for_every_prefetch(prefetch: int) -> None:
    plain, ahead = filled(), filled()
    options = {"n_step": 3, "gamma": 0.9}
    with (
        Batches(plain, 8, prefetch=0, options=options) as want,
        Batches(ahead, 8, prefetch=prefetch, options=options) as got,
    ):
        for a, b in islice(zip(want, got, strict=True), 20):
            assert_same(fields_of(b, TRANSITIONS), fields_of(a, TRANSITIONS))
            assert a.n_steps.max() == 3


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_sequences_are_the_same_for_every_prefetch(prefetch: int) -> None:
    plain, ahead = filled(), filled()
    with Batches(plain, 3, length=5, prefetch=0) as want, Batches(ahead, 3, length=5, prefetch=prefetch) as got:
        for a, b in islice(zip(want, got, strict=True), 20):
            assert_same(fields_of(b, SEQUENCES), fields_of(a, SEQUENCES))
            assert a.ids.shape == (3, 5)


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_an_epoch_gives_each_step_once_and_its_last_batch_is_shorter(prefetch: int) -> None:
    buffer = filled(10)
    with Batches(buffer, 4, epochs=3, prefetch=prefetch) as batches:
        ids = [batch.ids.tolist() for batch in batches]
        assert [len(part) for part in ids] == [4, 4, 2] * 3
        epochs = [[number for part in ids[3 * k : 3 * k + 3] for number in part] for k in range(3)]
        assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == 3
        assert next(batches, None) is None
        assert batches.dropped == 0
    again = [batch.ids.tolist() for batch in Batches(filled(10), 4, epochs=3, prefetch=0)]
    assert ids == again


def test_a_buffer_and_its_views_hand_on_what_is_asked_for() -> None:
    buffer = filled()
    batch = next(buffer.batches(8, prefetch=0, n_step=3, gamma=0.5))
    assert batch.n_steps.max() == 3
    with buffer.batches(3, length=5, burn_in=2) as windows:
        assert next(windows).ids.shape == (3, 7)
    assert sum(len(part.ids) for part in buffer.batches(8, 2, 1)) == 100
    train, _ = buffer.split(0.25)
    assert sum(len(part.ids) for part in train.batches(8, epochs=2)) == 2 * len(train)
    assert next(train.batches(4, prefetch=0, stack=3)).observations.shape == (4, 3, 1)


def test_draws_by_priority_are_the_same_for_every_prefetch() -> None:
    want: list[list[int]] = []
    for prefetch in PREFETCHES:
        buffer = PrioritizedReplayBuffer(100, 1, 1, seed=3)
        play(buffer, 0, 50)
        buffer.update_priorities(np.arange(50), np.arange(50) + 1.0)
        with buffer.batches(8, prefetch=prefetch, beta=0.7) as batches:
            got = [[*batch.ids.tolist(), *batch.weights.ravel().tolist()] for batch in islice(batches, 10)]
        want = want or got
        assert got == want


def test_rows_of_an_epoch_are_read_as_asked() -> None:
    batch = next(Batches(filled(), 50, epochs=1, prefetch=0))
    assert_consistent(batch)
    assert len(batch) == 5


def test_orders_are_uniform_and_differ_from_one_another() -> None:
    buffer = filled(20)
    first = [int(next(Batches(buffer, 1, epochs=1, prefetch=0)).ids[0]) for _ in range(20 * 20)]
    assert_uniform(first, range(20))


def test_batches_neither_move_the_buffers_own_draws_by_what_is_drawn_nor_depend_on_them() -> None:
    one, two = filled(), filled()
    a, b = Batches(one, 8, prefetch=0), Batches(two, 8, prefetch=3)
    for _ in range(5):
        next(a)
    two.sample_transitions(8)
    for _ in range(5):
        next(b)
    one.sample_transitions(8)
    np.testing.assert_array_equal(next(a).ids, next(b).ids)
    np.testing.assert_array_equal(one.sample_transitions(8).ids, two.sample_transitions(8).ids)
    b.close()


# ---- writes in between -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_evicted_steps_of_an_epoch_are_left_out_and_counted(prefetch: int) -> None:
    buffer = filled(100)
    with Batches(buffer, 10, epochs=1, prefetch=prefetch) as batches:
        seen = [next(batches).ids for _ in range(3)]
        ready = 10 * (len(seen) + prefetch)
        wait_until(lambda: len(batches._line._ready) == prefetch)
        play(buffer, 9, 60, None)  # steps 0 .. 59 go
        rest = [batch.ids for batch in batches]
        everything = np.concatenate(seen + rest)
        assert len(set(everything.tolist())) == len(everything)
        late = np.concatenate(seen + rest)[ready:]
        assert late.min() >= 60
        assert all(len(ids) == 10 for ids in rest[:-1])
        assert batches.dropped == 100 - len(everything) > 0
        assert set(range(60, 100)) <= set(everything.tolist()) <= set(range(100))


def test_an_epoch_of_which_nothing_is_left_ends() -> None:
    buffer = filled(100)
    batches = Batches(buffer, 10, epochs=1, prefetch=0)
    next(batches)
    play(buffer, 9, 100, None)
    assert next(batches, None) is None
    assert batches.dropped == 90


def test_the_next_epoch_has_what_is_there_when_it_begins() -> None:
    buffer = filled(10)
    batches = Batches(buffer, 10, epochs=2, prefetch=0)
    next(batches)
    play(buffer, 9, 5, None)
    assert [batch.ids.tolist() for batch in batches] != []
    second = Batches(buffer, 15, epochs=1, prefetch=0)
    assert sorted(next(second).ids.tolist()) == list(range(15))


def test_a_writer_beside_an_epoch_never_makes_it_fail() -> None:
    buffer = filled(100)
    halt = threading.Event()

    def write() -> None:
        t = 0
        while not halt.is_set():
            buffer.add([t], [-t], t, [t + 1], False)
            t += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with Batches(buffer, 7, epochs=200, prefetch=2) as batches:
            given = sum(len(batch.ids) for batch in batches)
        assert given + batches.dropped == 200 * 100
        assert batches.dropped > 0
    finally:
        halt.set()
        writer.join()


# ---- the sides of a split --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 2])
def test_each_side_of_a_split_gives_its_own_steps(prefetch: int) -> None:
    buffer = filled(100)
    for view in buffer.split(0.25, seed=1):
        side = set(view.valid_starts().tolist())
        with Batches(view, 8, prefetch=prefetch) as batches:
            assert all(set(batch.ids.tolist()) <= side for batch in islice(batches, 20))
        with Batches(view, 3, prefetch=prefetch, length=4) as windows:
            assert all(set(batch.ids.ravel().tolist()) <= side for batch in islice(windows, 20))
        with Batches(view, 7, epochs=2, prefetch=prefetch) as epochs:
            assert sorted(np.concatenate([batch.ids for batch in epochs]).tolist()) == sorted([*side, *side])


# ---- the thread ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_so_many_batches_wait_and_no_more_are_drawn(prefetch: int) -> None:
    buffer = filled()
    with Batches(buffer, 8, prefetch=prefetch) as batches:
        assert buffer.stats()["sampled"] == 0
        for given in range(1, 4):
            next(batches)
            wait_until(lambda given=given: buffer.stats()["sampled"] == 8 * (given + prefetch))  # type: ignore[misc]
            time.sleep(0.01)
            assert buffer.stats()["sampled"] == 8 * (given + prefetch)
        assert len(threads()) == 1
    assert not threads()


def test_no_thread_without_prefetch() -> None:
    batches = Batches(filled(), 8, prefetch=0)
    next(batches)
    assert not threads()
    batches.close()
    assert next(batches, None) is None


def test_close_ends_a_thread_that_waits_and_wakes_who_waits_for_it() -> None:
    batches = Batches(filled(), 8)
    next(batches)
    batches.close()
    batches.close()
    assert not threads()
    assert next(batches, None) is None


def test_garbage_ends_its_thread() -> None:
    batches = Batches(filled(), 8)
    next(batches)
    gone = weakref.ref(batches)
    del batches
    gc.collect()
    assert gone() is None
    wait_until(lambda: not threads())


def test_a_last_epoch_ends_the_thread() -> None:
    batches = Batches(filled(), 8, epochs=1)
    list(batches)
    wait_until(lambda: not threads())


@pytest.mark.parametrize("prefetch", PREFETCHES)
def test_an_error_comes_up_in_its_turn_and_the_next_call_tries_again(prefetch: int) -> None:
    buffer = filled(5)
    batches = Batches(buffer, 8, prefetch=prefetch)
    for _ in range(3):
        with pytest.raises(ValueError, match="8"):
            next(batches)
    play(buffer, 5, 10)
    assert next(batches).ids.shape == (8,)
    batches.close()


def test_an_error_comes_after_the_batches_that_were_drawn_before_it() -> None:
    class Failing:
        """Gives three numbers, then fails once, then goes on."""

        def __init__(self) -> None:
            self.calls = 0

        def _state_header(self) -> Any:
            return {"generator": np.arange(4, dtype=np.uint64)}

        def _sampling_view(self) -> Any:
            return self

        def sample_transitions(self, batch_size: int) -> int:
            self.calls += 1
            if self.calls == 4:
                raise KeyError("four")
            return self.calls

    batches = Batches(Failing(), 1, prefetch=5)
    assert [next(batches) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(KeyError, match="four"):
        next(batches)
    assert [next(batches) for _ in range(3)] == [5, 6, 7]
    batches.close()


def test_several_threads_may_share_an_iterator() -> None:
    want = sorted(tuple(batch.ids) for batch in islice(Batches(filled(), 8, prefetch=0), 60))
    shared = Batches(filled(), 8, prefetch=3)
    got: list[Any] = []
    takers = [
        threading.Thread(target=lambda: got.extend([tuple(next(shared).ids) for _ in range(20)])) for _ in range(3)
    ]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    shared.close()
    assert sorted(got) == want


def run(program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + program],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )


START = """
import os, signal, sys, threading, time
from ringback import PrioritizedReplayBuffer, ReplayBuffer
from ringback.replay.batches import Batches
buffer = ReplayBuffer(1000, 64, 1, seed=1)
for t in range(1000):
    buffer.add([t] * 64, [0.0], t, [t + 1] * 64, False)
batches = Batches(buffer, 256, prefetch=3)
"""


def test_the_interpreter_exits_with_a_thread_at_work() -> None:
    for _ in range(3):
        done = run("for _ in range(50): next(batches)\n")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_uncaught_error_exits_too() -> None:
    done = run("next(batches); raise SystemExit(7)")
    assert (done.returncode, done.stderr) == (7, "")


def test_an_interrupt_comes_through_and_leaves_nothing_behind() -> None:
    done = run(
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    while True: next(batches)\n"
        "except KeyboardInterrupt:\n"
        "    batches.close()\n"
        "    print(next(batches, 'closed'), threading.active_count())\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed 1\n", "")


def test_an_interrupt_ends_a_wait() -> None:
    done = run(
        "release = threading.Event()\n"
        "class Slow:\n"
        "    def _sampling_view(self): return self\n"
        "    def _state_header(self): return buffer._state_header()\n"
        "    def sample_transitions(self, size): release.wait(); return size\n"
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try: next(Batches(Slow(), 1))\n"
        "except KeyboardInterrupt: print('interrupted')\n"
        "release.set()\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_is_refused_and_can_exit() -> None:
    done = run(
        "next(batches)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: next(batches)\n"
        "    except RuntimeError as error: print(error)\n"
        "    batches.close()\n"
        "    sys.exit()\n"
        "_, status = os.waitpid(child, 0)\n"
        "next(batches)\n"
        "print(status, flush=True)\n"
    )
    message = "batches must be used by the process that made them, got a call in a forked child"
    assert done.stdout.splitlines() == [message, "0"], done.stderr


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "arguments", "message"),
    [
        (ValueError, {"batch_size": 0}, "batch_size must be >= 1, got 0"),
        (TypeError, {"batch_size": 1.5}, "batch_size must be an integer, got 1.5"),
        (ValueError, {"epochs": 0}, "epochs must be >= 1, got 0"),
        (ValueError, {"prefetch": -1}, "prefetch must be >= 0, got -1"),
        (TypeError, {"prefetch": True}, "prefetch must be an integer, got True"),
        (ValueError, {"length": 0}, "length must be >= 1, got 0"),
        (ValueError, {"length": 3, "epochs": 1}, "epochs must be None with length=, got 1"),
        (ValueError, {"options": {"out": {}}}, "out must not be given: batches are drawn ahead, each into arrays .*"),
    ],
)
def test_wrong_arguments_are_named(error: Any, arguments: Any, message: str) -> None:
    with pytest.raises(error, match=rf"^batches: {message}$"):
        Batches(filled(), **{"batch_size": 4, **arguments})


@pytest.mark.parametrize(("epochs", "length"), [(None, None), (1, None), (None, 5)])
def test_an_unknown_option_is_refused_at_once(epochs: int | None, length: int | None) -> None:
    buffer = filled()
    options = {"replace": True, "unknown": 1} if epochs is None else {"unknown": 1}
    with pytest.raises(TypeError, match=r"batches: options must be among \[.*'n_step'.*\], got \['unknown'\]"):
        buffer.batches(4, epochs, length=length, **options)


def test_its_repr_says_what_it_gives() -> None:
    with filled().batches(4, prefetch=0, n_step=3, gamma=0.9) as batches:
        assert repr(batches) == f"Batches({filled()!r}, 4, epochs=None, prefetch=0, n_step=3, gamma=0.9)"


def test_batches_are_not_pickled_and_do_not_keep_a_buffer_from_it() -> None:
    buffer = filled()
    with Batches(buffer, 4) as batches:
        next(batches)
        assert len(pickle.loads(pickle.dumps(buffer))) == 50
        with pytest.raises(TypeError, match=r"^batches cannot be pickled; pickle the buffer"):
            pickle.dumps(batches)


def test_an_empty_buffer_has_no_epoch() -> None:
    with pytest.raises(ValueError, match=r"^batches: the buffer must hold a step when an epoch begins, got none$"):
        next(Batches(ReplayBuffer(5, 1, 1), 4, epochs=1))
