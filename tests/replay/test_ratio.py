"""The replay-ratio limiter: who may go on, what the other one waits for, and no burst after a warm-up."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from ringback import ReplayBuffer
from ringback.replay.ratio import ReplayRatio
from tests.replay.playing import play


class Counters:
    """Counters that are set by hand."""

    capacity = 1000

    def __init__(self, size: int = 0, added: int = 0, sampled: int = 0) -> None:
        self.now = {"size": size, "added": added, "sampled": sampled}

    def stats(self) -> dict[str, Any]:
        return dict(self.now)

    def add(self, count: int) -> None:
        self.now["added"] += count
        self.now["size"] = min(self.now["size"] + count, self.capacity)

    def sample(self, count: int) -> None:
        self.now["sampled"] += count


@pytest.mark.parametrize(("per_step", "batch"), [(8, 32), (64, 256), (0.5, 3), (1 / 3, 1), (7.3, 5)])
def test_a_loop_draws_what_was_earned_and_never_more(per_step: float, batch: int) -> None:
    buffer = Counters()
    ratio = ReplayRatio(buffer, per_step, min_size=10)
    for t in range(1, 500):
        buffer.add(1)
        while ratio.may_sample(batch):
            buffer.sample(batch)
        earned = max(t - 10, 0) * per_step
        assert earned - batch < buffer.now["sampled"] <= earned + 1e-9
        assert ratio.outstanding == pytest.approx(earned - buffer.now["sampled"])


def test_neither_a_warm_up_nor_loaded_steps_earn_samples() -> None:
    buffer = Counters(size=300, added=5_000, sampled=77)
    assert ReplayRatio(buffer, 4).outstanding == 0
    late = ReplayRatio(buffer, 4, min_size=400)
    buffer.add(99)
    assert late.sample_waits_for(4) == "1 more step added: 400 are needed before the first sample, 399 are stored"
    buffer.add(1)
    assert late.sample_waits_for(4) == "1 more step added: 4 samples need 4 earned ones, 0 are left"
    buffer.add(1)
    assert late.may_sample(4)
    buffer.sample(4)
    assert late.sample_waits_for(9) == "3 more steps added: 9 samples need 9 earned ones, 0 are left"


def test_adding_waits_once_the_learner_is_behind() -> None:
    buffer = Counters()
    free, tied = ReplayRatio(buffer, 10), ReplayRatio(buffer, 10, min_size=5, slack=42)
    buffer.add(5)
    for _ in range(4):
        assert tied.may_add()
        buffer.add(1)
    assert tied.add_waits_for() == "8 more samples drawn: 1 step would leave 50 outstanding, 42 are allowed"
    assert tied.add_waits_for(3) == "28 more samples drawn: 3 steps would leave 70 outstanding, 42 are allowed"
    assert free.may_add(10**6)
    buffer.sample(8)
    assert tied.may_add()
    assert not tied.may_add(2)


def test_steps_of_a_warm_up_may_always_be_added() -> None:
    tied = ReplayRatio(Counters(), 10, min_size=100, slack=42)
    assert tied.may_add(4)
    buffer = Counters(size=98, added=98)
    tied = ReplayRatio(buffer, 10, min_size=100, slack=15)
    buffer.add(1)
    assert tied.may_add(1)


def test_a_buffer_is_counted_by_steps_whoever_draws_them() -> None:
    buffer = ReplayBuffer(100, 1, 1, seed=0)
    ratio = ReplayRatio(buffer, 2)
    play(buffer, 0, 60, None)
    assert ratio.outstanding == 59 * 2
    buffer.sample_transitions(30)
    buffer.sample_sequences(4, 5)
    assert ratio.outstanding == 59 * 2 - 30 - 20


def test_two_threads_keep_the_ratio_and_neither_gets_away() -> None:
    buffer = ReplayBuffer(2_000, 1, 1, seed=0)
    ratio = ReplayRatio(buffer, 16, min_size=50, slack=100)
    seen: list[float] = []
    failures: list[BaseException] = []

    def act() -> None:
        try:
            for t in range(600):
                ratio.wait_to_add(timeout=300)
                buffer.add([t], [0], t, [t + 1], False)
        except BaseException as error:
            failures.append(error)

    actor = threading.Thread(target=act)
    actor.start()
    for _ in range(550 * 16 // 64):
        ratio.wait_to_sample(64, timeout=300)
        seen.append(ratio.outstanding)
        buffer.sample_transitions(64, replace=True)
    actor.join()
    assert not failures
    assert min(seen) >= 64
    assert max(seen) <= 100
    assert ratio.outstanding == 550 * 16 - 64 * len(seen) < 64


def test_a_wait_ends_and_says_what_for() -> None:
    buffer = Counters()
    ratio = ReplayRatio(buffer, 1, min_size=3, slack=2)
    message = (
        "ReplayRatio.wait_to_sample: waited 0.01 s for 3 more steps added: "
        "3 are needed before the first sample, 0 are stored"
    )
    with pytest.raises(TimeoutError) as caught:
        ratio.wait_to_sample(1, timeout=0.01)
    assert str(caught.value) == message
    buffer.add(5)
    with pytest.raises(
        TimeoutError, match=r"^ReplayRatio.wait_to_add: waited 0 s for 1 more sample drawn: 1 step would"
    ):
        ratio.wait_to_add(timeout=0)
    ratio.wait_to_sample(1, timeout=0)


def test_a_restored_limiter_goes_on_and_a_new_one_begins_anew() -> None:
    buffer = ReplayBuffer(100, 1, 1, seed=0)
    ratio = ReplayRatio(buffer, 3, min_size=10)
    play(buffer, 0, 30, None)
    buffer.sample_transitions(12)
    again = pickle.loads(pickle.dumps(buffer))
    resumed = ReplayRatio(again, 3, min_size=10)
    assert resumed.outstanding == 0
    resumed.set_state(ratio.get_state())
    assert resumed.outstanding == ratio.outstanding == 20 * 3 - 12


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (ValueError, {"samples_per_step": 0}, "samples_per_step must be finite and > 0, got 0"),
        (ValueError, {"samples_per_step": float("nan")}, "samples_per_step must be finite and > 0, got nan"),
        (TypeError, {"samples_per_step": "4"}, "samples_per_step must be a number, got '4'"),
        (ValueError, {"min_size": 1001}, r"min_size must be in \[1, 1000\] \(the capacity\), got 1001"),
        (ValueError, {"min_size": 0}, r"min_size must be in \[1, 1000\] \(the capacity\), got 0"),
        (TypeError, {"min_size": 1.5}, "min_size must be an integer, got 1.5"),
        (ValueError, {"slack": -1}, "slack must be finite and > 0, got -1"),
    ],
)
def test_wrong_arguments_are_named(error: Any, options: Any, message: str) -> None:
    with pytest.raises(error, match=rf"^ReplayRatio: {message}$"):
        ReplayRatio(Counters(), **{"samples_per_step": 4, **options})


def test_counts_that_could_never_pass_are_refused() -> None:
    ratio = ReplayRatio(Counters(), 4, slack=20)
    with pytest.raises(ValueError, match=r"^ReplayRatio.may_sample: count must be >= 1, got 0$"):
        ratio.may_sample(0)
    with pytest.raises(ValueError, match=r"may_sample: count must be <= slack - samples_per_step \(16\), got 17$"):
        ratio.may_sample(17)
    with pytest.raises(
        ValueError, match=r"^ReplayRatio.may_add: count must be <= slack / samples_per_step \(5\), got 6$"
    ):
        ratio.may_add(6)
    with pytest.raises(TypeError, match=r"^ReplayRatio.may_add: count must be an integer, got True$"):
        ratio.may_add(True)
    with pytest.raises(ValueError, match=r"^ReplayRatio.wait_to_add: timeout must be >= 0 seconds, got -1$"):
        ratio.wait_to_add(timeout=-1)
