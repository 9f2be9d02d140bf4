"""Where an episode ends: by its flags, by an outside reset, by a load."""

from __future__ import annotations

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import everything, play


def test_an_outside_reset_closes_the_open_episode_as_truncated() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, 3, None)
    assert buffer.end_episode() is True
    play(buffer, 1, 2, None)
    batch = everything(buffer)
    assert batch["truncations"] == [False, False, True, False, False]
    assert batch["terminations"] == [False] * 5
    assert batch["next_observations"] == [1, 2, 3, 1001, 1002]
    assert buffer.valid_starts(3).tolist() == [0]
    assert buffer.valid_starts(2).tolist() == [0, 1, 3]


def test_ending_says_whether_an_episode_was_open() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    assert buffer.end_episode() is False
    play(buffer, 0, 2, None)
    assert buffer.end_episode(5) is False
    assert buffer.end_episode(0) is True
    assert buffer.end_episode(0) is False
    play(buffer, 1, 2)
    assert buffer.end_episode(0) is False  # its own flag ended it


def test_ending_one_stream_leaves_the_others_open() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, 2, None, stream=7)
    play(buffer, 1, 2, None, stream=-3)
    assert buffer.end_episode(7) is True
    play(buffer, 1, 1, None, stream=-3, start=2)
    assert everything(buffer)["truncations"] == [False, True, False, False, False]
    assert buffer.valid_starts(3).tolist() == [2]


def test_a_reset_that_starts_with_the_same_observation_needs_the_call() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, 2, None)
    buffer.end_episode()
    play(buffer, 0, 2, None, start=2)  # continues the numbers, and still is another episode
    assert buffer.valid_starts(3).tolist() == []
    assert buffer.num_episodes == 2


def test_the_last_step_of_an_open_episode_has_neither_flag() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, 3, None)
    batch = buffer.sample_sequences(1, 3)
    assert not batch.terminations.any()
    assert not batch.truncations.any()
    assert batch.is_last[0, :, 0].tolist() == [False, False, True]
    play(buffer, 0, 1, None, start=3)
    assert buffer.sample_sequences(1, 4).is_last[0, :, 0].tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("end", "flags"), [("terminated", (True, False)), ("truncated", (False, True)), ("both", (True, True))]
)
def test_both_flags_are_stored_apart(end: str, flags: tuple[bool, bool]) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, 4, end)
    batch = everything(buffer)
    assert (batch["terminations"][-1], batch["truncations"][-1]) == flags
    assert batch["dones"][-1] == float(flags[0])
    assert not any(batch["terminations"][:-1] + batch["truncations"][:-1])


def test_flags_may_be_any_kind_of_truth_value() -> None:
    for true in (True, 1, np.True_, 1.0, np.float32(1), np.array([True]), np.array(1)):
        buffer = ReplayBuffer(20, 1, 1)
        buffer.add([0.0], [0.0], 0.0, [1.0], true)
        buffer.add([5.0], [0.0], 0.0, [6.0], False, true)
        batch = everything(buffer)
        assert batch["terminations"] == [True, False], repr(true)
        assert batch["truncations"] == [False, True], repr(true)


def test_a_silent_streams_episode_goes_on_after_all_its_steps_are_evicted() -> None:
    buffer = ReplayBuffer(5, 1, 1)
    play(buffer, 0, 3, None, stream=1)
    play(buffer, 1, 9, stream=2)
    assert set(np.array(everything(buffer)["observations"]) // 1000) == {1}
    play(buffer, 0, 2, None, stream=1, start=3)
    batch = buffer.sample_sequences(1, 2)
    while batch.observations[0, 0, 0] != 3:
        batch = buffer.sample_sequences(1, 2)
    assert not batch.is_first.any()  # its first steps are history that is gone, not a start


def test_a_silent_stream_can_be_ended_after_all_its_steps_are_evicted() -> None:
    buffer = ReplayBuffer(5, 1, 1)
    play(buffer, 0, 3, None, stream=1)
    play(buffer, 1, 9, stream=2)
    assert buffer.end_episode(1) is True
    play(buffer, 2, 5, stream=1)
    assert buffer.sample_sequences(1, 5).is_first[0, :, 0].tolist() == [True, False, False, False, False]
