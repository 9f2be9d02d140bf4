"""Every live step leads to exactly the observation that it was given (I2)."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import content, counts, everything, live, play
from tests.replay.worlds import f32, vectors


def add(buffer: ReplayBuffer, observation: Any, successor: Any, end: bool = False, cut: bool = False) -> int:
    return buffer.add(f32([observation]), f32([0]), 0.0, f32([successor]), end, cut)


def successors(buffer: ReplayBuffer) -> list[int]:
    return counts(buffer.get(buffer.valid_starts()).next_observations)


def test_the_newest_step_is_usable_at_once_with_its_own_successor() -> None:
    buffer = ReplayBuffer(5, 1, 1)
    for observation in (10, 11, 12):
        add(buffer, observation, observation + 1)
    assert successors(buffer) == [11, 12, 13]
    buffer.end_episode()
    play(buffer, 1, 1)
    assert successors(buffer) == [11, 12, 13, 1001]


@pytest.mark.parametrize("capacity", [3, 4, 5, 100])
def test_a_time_limit_never_shows_the_next_episodes_reset(capacity: int) -> None:
    buffer = ReplayBuffer(capacity, 1, 1)
    add(buffer, 0, 1)
    add(buffer, 1, 2, cut=True)
    for step in range(20):
        add(buffer, 100 + step, 101 + step)
        for observation, successor in zip(content(buffer), successors(buffer), strict=True):
            assert successor == observation + 1


def test_the_end_of_a_truncated_episode_is_marked_as_truncated_only() -> None:
    buffer = ReplayBuffer(5, 1, 1)
    play(buffer, 0, 2, "truncated")
    play(buffer, 1, 2, None)
    batch = everything(buffer)
    assert batch["next_observations"] == [1, 2, 1001, 1002]
    assert batch["terminations"] == [False, False, False, False]
    assert batch["truncations"] == [False, True, False, False]
    assert batch["dones"] == [0.0, 0.0, 0.0, 0.0]


def test_arbitrary_successors_are_kept_and_counted() -> None:
    buffer = ReplayBuffer(8, 1, 1)
    given = [(0, 50), (7, 8), (8, 99), (3, 3), (3, 60)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for observation, successor in given:
            add(buffer, observation, successor)
    assert list(zip(content(buffer), successors(buffer), strict=True)) == given
    assert buffer.stats()["kept_successors"] == 2  # after 0 and after 8; the newest step's is not kept beside a row
    assert len(buffer.valid_starts(5)) == 1  # a difference does not end the episode


def test_kept_successors_survive_every_wrap() -> None:
    buffer = ReplayBuffer(7, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(60):
            add(buffer, 10 * step, 10 * step + (5 if step % 3 else 10), end=step % 11 == 10)
            batch = buffer.get(buffer.valid_starts())
            for observation, successor in zip(counts(batch.observations), counts(batch.next_observations), strict=True):
                assert successor - observation == (5 if observation // 10 % 3 else 10)


def test_equal_is_meant_after_the_cast_to_the_stored_dtype() -> None:
    buffer = ReplayBuffer(
        8, gym.spaces.Box(-1, 1, (1,), np.float64), 1, cast={"observation": "float32"}, on_mismatch="raise"
    )
    third = np.array([1 / 3])
    buffer.add([0.0], [0.0], 0.0, third, False)
    buffer.add(third.astype(np.float32).astype(np.float64), [0.0], 0.0, [1.0], False)
    assert len(buffer.valid_starts(2)) == 1


def test_nan_equals_nan() -> None:
    buffer = ReplayBuffer(8, 3, 1, on_mismatch="raise")
    one, two = f32([1, np.nan, 3]), f32([np.nan, 2, 3])
    buffer.add(one, [0.0], 0.0, two, False)
    buffer.add(two, [0.0], 0.0, one, False)
    with pytest.raises(ValueError, match="must equal"):
        buffer.add(two, [0.0], 0.0, one, False)
    np.testing.assert_array_equal(buffer.get([0, 1]).next_observations, [two, one])


def test_every_leaf_is_compared() -> None:
    space = gym.spaces.Dict(
        {"a": gym.spaces.Box(-9, 9, (2,)), "b": gym.spaces.Discrete(4), "c": gym.spaces.Box(0, 255, (64, 64), np.uint8)}
    )

    def observe(a: float, b: int, c: int) -> dict[str, Any]:
        return {"a": f32([0, a]), "b": b, "c": np.full((64, 64), c, np.uint8)}

    for other in (observe(2, 1, 1), observe(1, 2, 1), observe(1, 1, 2)):
        buffer = ReplayBuffer(8, space, 1, on_mismatch="split")
        buffer.add(observe(0, 0, 0), [0.0], 0.0, observe(1, 1, 1), False)
        buffer.add(observe(1, 1, 1), [0.0], 0.0, observe(1, 1, 1), False)
        assert buffer.num_episodes == 1
        buffer.add(other, [0.0], 0.0, observe(0, 0, 0), False)
        assert buffer.num_episodes == 2


def test_a_split_closes_the_episode_as_truncated() -> None:
    buffer = ReplayBuffer(8, 1, 1, on_mismatch="split")
    add(buffer, 0, 1)
    add(buffer, 1, 2)
    add(buffer, 100, 101)  # an unmarked reset
    add(buffer, 101, 102)
    batch = everything(buffer)
    assert batch["truncations"] == [False, True, False, False]
    assert batch["terminations"] == [False] * 4
    assert batch["next_observations"] == [1, 2, 101, 102]
    assert buffer.valid_starts(2).tolist() == [0, 2]
    sequences = buffer.sample_sequences(2, 2)
    assert sequences.is_first[:, :, 0].tolist() == [[True, False], [True, False]]
    assert buffer.stats()["kept_successors"] == 0


def test_a_mismatch_can_be_refused_and_then_changes_nothing() -> None:
    buffer = ReplayBuffer(8, 1, 1, on_mismatch="raise")
    add(buffer, 0, 1)
    with pytest.raises(ValueError, match="observation"):
        add(buffer, 5, 6)
    assert live(buffer) == [0]
    assert add(buffer, 1, 2) == 1
    assert len(buffer.valid_starts(2)) == 1
    add(buffer, 2, 3, end=True)
    add(buffer, 50, 51)  # after an end nothing has to match
    assert len(buffer) == 4


def test_an_unmarked_reset_to_an_equal_observation_cannot_be_seen() -> None:
    buffer = ReplayBuffer(8, 1, 1, on_mismatch="split")
    add(buffer, 0, 1)
    add(buffer, 1, 2)
    assert buffer.num_episodes == 1


def test_the_flags_alone_say_where_an_episode_ends() -> None:
    buffer = ReplayBuffer(8, 1, 1)
    add(buffer, 0, 1, end=True)
    add(buffer, 1, 2)  # equal to the successor before, but after an end
    assert buffer.num_episodes == 2
    assert buffer.valid_starts(2).tolist() == []


def test_many_kept_successors_are_warned_about_once() -> None:
    buffer = ReplayBuffer(300, 1, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2000):
            add(buffer, 10 * step, 10 * step + 5)
    assert len(caught) == 1
    assert "successor" in str(caught[0].message)


def test_matching_data_is_not_warned_about() -> None:
    buffer = ReplayBuffer(300, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for episode in range(100):
            play(buffer, episode, 9)
    assert buffer.stats()["kept_successors"] == 0


def test_streams_are_compared_each_with_its_own_past() -> None:
    buffer = ReplayBuffer(30, 1, 1, on_mismatch="raise")
    for t in range(8):
        buffer.add_batch(
            vectors([0, 100, 200]) + t, vectors([0] * 3), [0.0] * 3, vectors([0, 100, 200]) + t + 1, [False] * 3
        )
    assert len(buffer.valid_starts(8)) == 3
    with pytest.raises(ValueError, match="observation"):
        buffer.add_batch(vectors([8, 108, 999]), vectors([0] * 3), [0.0] * 3, vectors([9, 109, 1000]), [False] * 3)
    assert len(buffer) == 24  # the two rows that did match are not stored either
