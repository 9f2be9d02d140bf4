"""The recurrent state before each step, stored with the step, so that it outlives the step before."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer, SingleAgentEpisode
from tests.replay.answers import FullTwin, numbers
from tests.replay.worlds import f32, vector

INITIAL = 100.0
STATE = {"state_in": vector(2)}


class CountingNetwork:
    """A recurrent network whose state says how many steps it has seen since its initial state."""

    def __init__(self) -> None:
        self.state = np.array([INITIAL, -INITIAL], np.float32)

    def step(self) -> np.ndarray:
        """Return the state after one more step."""
        self.state = self.state + np.array([1, -1], np.float32)
        return self.state


def before(t: int) -> list[float]:
    """Return the state before step t."""
    return [INITIAL + t, -INITIAL - t]


def started(**options: Any) -> SingleAgentEpisode:
    """Return an episode that is about to take its first step."""
    episode = SingleAgentEpisode(
        observation_space=gym.spaces.Box(-9999, 9999, (1,), np.float32),
        action_space=gym.spaces.Discrete(5),
        **options,
    )
    episode.add_env_reset(observation=f32([0]))
    return episode


def grow(episode: SingleAgentEpisode, network: CountingNetwork, steps: int, ends: bool = False) -> None:
    """Add steps; each has the state that the network was left in."""
    for left in range(steps, 0, -1):
        t = episode.t
        episode.add_env_step(
            observation=f32([t + 1]),
            action=t % 5,
            reward=float(t),
            terminated=ends and left == 1,
            extra_model_outputs={"state_out": network.step()},
        )


def recorder(capacity: int = 50, **options: Any) -> Any:
    """Return a buffer that keeps the state before each step."""
    return ReplayBuffer(capacity, 1, gym.spaces.Discrete(5), extras={"state_in": (2,)}, seed=0, **options)


# ------------------------------------------------------------------ reading


def test_the_start_state_is_that_of_row_0_only() -> None:
    twin = FullTwin(20, extras=STATE)
    twin.play(1, 5)
    batch = twin.windows(length=3, start_state="state_in")
    assert batch.start_state.shape == (3, 2)
    assert batch.start_state.tolist() == [[1000, 1000], [1001, 1001], [1002, 1002]]
    assert batch.extras == {}


def test_the_start_state_stands_before_the_burn_in() -> None:
    twin = FullTwin(20, extras=STATE | {"logp": vector(1)})
    twin.play(1, 5)
    batch = twin.windows(length=2, burn_in=2, start_state="state_in")
    assert batch.start_state[:, 0].tolist() == [1000, 1000, 1000, 1001]
    assert numbers(batch.extras["logp"])[3] == [1001, 1002, 1003, 1004]
    assert set(batch.extras) == {"logp"}


def test_the_first_live_row_keeps_its_state() -> None:
    twin = FullTwin(5, extras=STATE)
    twin.play(0, 9, None)  # the step whose state this was is evicted
    batch = twin.windows(length=2, start_state="state_in")
    assert batch.start_state[:, 0].tolist() == [4, 5, 6, 7]


def test_the_state_on_request_only() -> None:
    twin = FullTwin(20, extras=STATE)
    twin.play(1, 4)
    assert twin.windows(length=2).extras["state_in"].shape == (3, 2, 2)
    assert twin.real.sample_sequences(2, 2).start_state is None


def test_the_state_along_a_stream_and_time_major() -> None:
    twin = FullTwin(20, extras=STATE)
    twin.play(1, 2)
    twin.play(2, 2)
    batch = twin.windows(length=2, cross_episodes=True, start_state="state_in", time_major=True)
    assert batch.start_state[:, 0].tolist() == [1000, 1001, 2000]
    assert batch.observations.shape == (2, 3, 1)


@pytest.mark.parametrize("name", ["state", "observation", "state_in/h", ""])
def test_an_unknown_start_state_is_refused(name: str) -> None:
    real: Any = recorder()
    for t in range(5):
        real.add(f32([t]), 0, 0.0, f32([t + 1]), False, extras={"state_in": f32([t, t])})
    text = f"ReplayBuffer.sample_sequences: start_state must name one of the extras, got {name!r}"
    with pytest.raises(ValueError, match=re.escape(text)):
        real.sample_sequences(1, 2, start_state=name)


# ------------------------------------------------------------------ what add_episode derives


def test_a_chunk_without_lookback_needs_the_state_that_it_began_with() -> None:
    episode, network = started(), CountingNetwork()
    grow(episode, network, 2)
    buffer = recorder()
    text = "ReplayBuffer.add_episode: initial_state must have 'state_in' for a chunk without lookback, got none"
    with pytest.raises(ValueError, match=re.escape(text)):
        buffer.add_episode(episode)
    assert len(buffer) == 0


def test_a_whole_episode_gives_the_state_before_each_step() -> None:
    episode, network = started(), CountingNetwork()
    grow(episode, network, 4, ends=True)
    buffer = recorder()
    ids = buffer.add_episode(episode, initial_state={"state_in": f32(before(0))})
    assert buffer.get(ids).extras["state_in"].tolist() == [before(t) for t in range(4)]


@pytest.mark.parametrize("lookback", [0, 1, 3])
@pytest.mark.parametrize("arrays", [False, True])
def test_chunks_carry_the_state_over_their_seams(lookback: int, arrays: bool) -> None:
    chunk, network, buffer = started(), CountingNetwork(), recorder()
    initial: Any = {"state_in": f32(before(0))}
    for _ in range(3):
        grow(chunk, network, 3)
        following = chunk.cut(len_lookback_buffer=lookback)
        if arrays:
            chunk.to_numpy()
        buffer.add_episode(chunk, initial_state=initial)
        initial = {"state_in": network.state.copy()} if lookback == 0 else None
        chunk = following
    assert buffer.get(range(9)).extras["state_in"].tolist() == [before(t) for t in range(9)]


def test_states_that_are_given_are_stored_as_they_are() -> None:
    episode = started()
    for t in range(3):
        outputs = {"state_in": f32([7 + t, 8 + t]), "state_out": f32([90, 91])}
        episode.add_env_step(observation=f32([t + 1]), action=0, reward=0.0, extra_model_outputs=outputs)
    buffer = recorder()
    ids = buffer.add_episode(episode)
    assert buffer.get(ids).extras["state_in"].tolist() == [[7, 8], [8, 9], [9, 10]]


def test_windows_of_chunks_begin_with_their_own_state() -> None:
    chunk, network, buffer = started(), CountingNetwork(), recorder(10)
    buffer_initial: Any = {"state_in": f32(before(0))}
    for _ in range(5):
        grow(chunk, network, 3)
        following = chunk.cut(len_lookback_buffer=1)
        buffer.add_episode(chunk, initial_state=buffer_initial)
        buffer_initial, chunk = None, following
    starts = buffer.valid_starts(4)
    assert starts.tolist() == list(range(5, 12))
    batch = buffer.sample_sequences(len(starts), 4, start_state="state_in")
    np.testing.assert_array_equal(batch.start_state[:, 0], INITIAL + batch.start_ids)
    np.testing.assert_array_equal(batch.start_state[:, 1], -INITIAL - batch.start_ids)
