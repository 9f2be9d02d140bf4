"""A handle names one step for ever (I5): read it, change it, or hear that it is stale."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import content, counts, everything, play
from tests.replay.worlds import counted, counted_batch, f32, nested, vectors


@pytest.fixture
def buffer() -> ReplayBuffer:
    buffer = ReplayBuffer(6, 1, 1)
    play(buffer, 0, 4)
    play(buffer, 1, 5, None)  # ids 0..8, live are 3..8
    return buffer


def test_steps_come_in_the_order_asked_for(buffer: ReplayBuffer) -> None:
    batch = buffer.get([8, 3, 3, 5])
    assert batch.ids.tolist() == [8, 3, 3, 5]
    assert counts(batch.observations) == [1004, 3, 3, 1001]
    assert counts(batch.next_observations) == [1005, 4, 4, 1002]
    assert batch.terminations[:, 0].tolist() == [False, True, True, False]
    observations, actions, rewards, successors, dones = batch
    assert [part.shape for part in (observations, actions, rewards, successors, dones)] == [(4, 1)] * 5


@pytest.mark.parametrize("ids", [[2], [3, 2, 4], [9], [-1], [8, 9], [2**62], [-(2**63)]])
def test_a_stale_or_unwritten_id_is_refused(buffer: ReplayBuffer, ids: list[int]) -> None:
    with pytest.raises(IndexError, match="ids"):
        buffer.get(ids)
    with pytest.raises(IndexError, match="ids"):
        buffer.set(ids, "reward", np.zeros(len(ids)))
    assert content(buffer) == [3, 1000, 1001, 1002, 1003, 1004]


def test_a_handle_never_reaches_the_step_that_took_its_slot(buffer: ReplayBuffer) -> None:
    buffer.get([3])
    play(buffer, 1, 1, None, start=5)
    with pytest.raises(IndexError, match="3"):
        buffer.get([3])
    assert counts(buffer.get([9]).observations) == [1005]


@pytest.mark.parametrize("ids", [[1.0], ["3"], [None], [True], np.array([3.0])])
def test_an_id_that_is_no_integer_is_refused(buffer: ReplayBuffer, ids: Any) -> None:
    with pytest.raises(TypeError, match="ids"):
        buffer.get(ids)
    with pytest.raises(TypeError, match="ids"):
        buffer.set(ids, "reward", [0.0])


def test_no_ids_give_an_empty_batch(buffer: ReplayBuffer) -> None:
    batch = buffer.get(np.empty(0, np.int64))
    assert batch.observations.shape == (0, 1)
    assert batch.ids.shape == (0,)


def test_a_field_can_be_changed(buffer: ReplayBuffer) -> None:
    buffer.set([4, 6], "reward", [0.25, 0.75])
    buffer.set(np.array([5]), "action", f32([[9]]))
    batch = buffer.get([3, 4, 5, 6])
    assert batch.rewards[:, 0].tolist() == [3, 0.25, 1001, 0.75]
    assert batch.actions[:, 0].tolist() == [-3, -1000, 9, -1002]


def test_rewards_may_come_as_a_column(buffer: ReplayBuffer) -> None:
    buffer.set([4, 6], "reward", f32([[1], [2]]))
    assert buffer.get([4, 6]).rewards[:, 0].tolist() == [1, 2]


def test_the_last_of_duplicate_ids_wins(buffer: ReplayBuffer) -> None:
    buffer.set([4, 5, 4, 4], "reward", [1, 2, 3, 7])
    assert buffer.get([4, 5]).rewards[:, 0].tolist() == [7, 2]
    buffer.set([5, 5], "observation", vectors([1, 2]))
    assert counts(buffer.get([5]).observations) == [2]
    assert counts(buffer.get([4]).next_observations) == [2]


def test_setting_an_observation_changes_what_the_step_before_leads_to(buffer: ReplayBuffer) -> None:
    buffer.set([6], "observation", vectors([-5]))
    batch = buffer.get([5, 6, 7])
    assert counts(batch.observations) == [1001, -5, 1003]
    assert counts(batch.next_observations) == [-5, 1003, 1004]
    assert "leads to" in str(ReplayBuffer.set.__doc__)  # and the documentation says so


def test_setting_an_episodes_first_observation_leaves_the_episode_before_alone(buffer: ReplayBuffer) -> None:
    buffer.set([4], "observation", vectors([-5]))
    assert counts(buffer.get([3, 4]).next_observations) == [4, 1001]


def test_setting_the_newest_observation_leaves_its_successor(buffer: ReplayBuffer) -> None:
    buffer.set([8], "observation", vectors([-5]))
    batch = buffer.get([7, 8])
    assert counts(batch.observations) == [1003, -5]
    assert counts(batch.next_observations) == [-5, 1005]


def test_a_successor_that_was_kept_apart_stays_when_the_observation_is_set() -> None:
    buffer = ReplayBuffer(300, 1, 1)
    play(buffer, 0, 200)
    a = buffer.add([5.0], [0.0], 0.0, [6.0], False)
    b = buffer.add([50.0], [0.0], 0.0, [51.0], False)
    buffer.set([b], "observation", vectors([60]))
    assert counts(buffer.get([a, b]).next_observations) == [6, 51]


def test_one_leaf_can_be_set_by_its_path() -> None:
    space = nested()
    buffer = ReplayBuffer(9, space, 1)
    for t in range(4):
        buffer.add(counted(space, t), [0.0], 0.0, counted(space, t + 1), False)
    buffer.set([2], "observation/goal/cell", np.array([[4, 3, 2]]))
    buffer.set([1], "observation/body/0", np.array([4]))
    batch = buffer.get([0, 1, 2, 3])
    assert batch.observations["goal"]["cell"][2].tolist() == [4, 3, 2]
    assert batch.next_observations["goal"]["cell"][1].tolist() == [4, 3, 2]
    assert batch.observations["body"][0][1].tolist() == [4]
    assert batch.next_observations["body"][0][0].tolist() == [4]
    want = counted_batch(space, range(4))
    np.testing.assert_array_equal(batch.observations["camera"], want["camera"])
    np.testing.assert_array_equal(batch.observations["goal"]["cell"][[0, 1, 3]], want["goal"]["cell"][[0, 1, 3]])


def test_a_whole_structure_can_be_set() -> None:
    space = nested()
    buffer = ReplayBuffer(9, space, 1)
    for t in range(4):
        buffer.add(counted(space, t), [0.0], 0.0, counted(space, t + 1), False)
    buffer.set([1, 3], "observation", counted_batch(space, [40, 50]))
    batch = buffer.get([1, 3])
    want = counted_batch(space, [40, 50])
    np.testing.assert_array_equal(batch.observations["camera"], want["camera"])
    np.testing.assert_array_equal(batch.observations["body"][2], want["body"][2])


def test_extras_can_be_set() -> None:
    buffer = ReplayBuffer(9, 1, 1, extras={"priority": (), "state": (2,)})
    for t in range(3):
        buffer.add([t], [0.0], 0.0, [t + 1], False, extras={"priority": t, "state": [t, t]})
    buffer.set([1], "priority", [7.5])
    buffer.set([2], "state", [[8, 9]])
    batch = buffer.get([0, 1, 2])
    assert batch.extras["priority"].tolist() == [[0], [7.5], [2]]
    assert batch.extras["state"].tolist() == [[0, 0], [1, 1], [8, 9]]


@pytest.mark.parametrize("field", ["rewards", "terminated", "truncated", "id", "", "observation/x", "next_observation"])
def test_an_unknown_field_is_refused_with_the_known_ones(buffer: ReplayBuffer, field: str) -> None:
    with pytest.raises(ValueError, match=r"observation.*action.*reward"):
        buffer.set([4], field, [0.0])


def test_the_flags_cannot_be_set(buffer: ReplayBuffer) -> None:
    for field in ("terminations", "truncations", "dones"):
        with pytest.raises(ValueError, match="field"):
            buffer.set([4], field, [True])


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0, 3.0], np.zeros((2, 2))])
def test_values_must_match_the_ids(buffer: ReplayBuffer, values: Any) -> None:
    with pytest.raises(ValueError, match="reward"):
        buffer.set([4, 5], "reward", values)
    assert everything(buffer)["rewards"] == [3, 1000, 1001, 1002, 1003, 1004]


def test_one_stale_id_among_good_ones_changes_nothing(buffer: ReplayBuffer) -> None:
    with pytest.raises(IndexError, match="ids"):
        buffer.set([4, 5, 0], "reward", [7.0, 7.0, 7.0])
    assert everything(buffer)["rewards"] == [3, 1000, 1001, 1002, 1003, 1004]


def test_one_bad_leaf_among_good_ones_changes_nothing() -> None:
    space = gym.spaces.Dict({"a": gym.spaces.Box(-9, 9, (1,)), "b": gym.spaces.Discrete(5)})
    buffer = ReplayBuffer(9, space, 1)
    buffer.add({"a": [1.0], "b": 1}, [0.0], 0.0, {"a": [2.0], "b": 2}, False)
    with pytest.raises(ValueError, match="observation/b"):
        buffer.set([0], "observation", {"a": [[5.0]], "b": [1, 2]})
    assert buffer.get([0]).observations["a"].tolist() == [[1.0]]
