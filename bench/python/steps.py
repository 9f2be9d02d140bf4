"""The data of the benches: episodes whose every row says where it belongs, and buffers full of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from ringback import ReplayBuffer

Floats = npt.NDArray[np.float32]

OBSERVATION = 17
ACTION = 6


@dataclass(frozen=True)
class Steps:
    """M steps in the order of writing.

    Observation column 0 counts all steps, column 1 the episodes, column 2 the steps of the episode; a successor carries
    the same numbers, one step on. Column 3 is 1 in the last observation of an episode only. Rewards count all steps.
    """

    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats
    terminations: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rewards)


def make_steps(count: int, shortest: int, longest: int, seed: int = 0) -> Steps:
    """Return steps in episodes of `shortest` to `longest` steps, ended in turn by termination and by truncation."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, count // shortest + 1)
    ends = np.cumsum(lengths)
    ends = np.append(ends[ends < count], count)  # the last episode is cut short by the end of the data
    episode = np.searchsorted(ends, np.arange(count), side="right")
    begins = np.concatenate(([0], ends[:-1]))
    observations = rng.random((count, OBSERVATION), dtype=np.float32)
    observations[:, 0] = np.arange(count)
    observations[:, 1] = episode
    observations[:, 2] = np.arange(count) - begins[episode]
    observations[:, 3] = 0
    successors = np.empty_like(observations)
    successors[:-1] = observations[1:]
    last = ends - 1
    successors[last] = observations[last]
    successors[last, 0] += 1
    successors[last, 2] += 1
    successors[last, 3] = 1
    terminations, truncations = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    terminations[last[::2]] = True
    truncations[last[1::2]] = True
    actions = rng.random((count, ACTION), dtype=np.float32)
    actions[:, 0] = np.arange(count)
    return Steps(observations, actions, np.arange(count, dtype=np.float32), successors, terminations, truncations)


def box(size: int) -> spaces.Box:
    """Return the space of float32 vectors."""
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def fill(capacity: int, steps: Steps) -> ReplayBuffer:
    """Return a buffer that has taken all `steps` one by one, so that it has wrapped and every page is warm."""
    buffer = ReplayBuffer(capacity, box(OBSERVATION), box(ACTION), seed=0)
    add = buffer.add
    rows = zip(
        steps.observations,
        steps.actions,
        steps.rewards.tolist(),
        steps.next_observations,
        steps.terminations.tolist(),
        steps.truncations.tolist(),
        strict=True,
    )
    for observation, action, reward, successor, terminated, truncated in rows:
        add(observation, action, reward, successor, terminated, truncated)
    return buffer


def check_transitions(
    steps: Steps, live: int, observations: Floats, actions: Floats, rewards: Floats, successors: Floats, dones: Floats
) -> None:
    """Raise AssertionError unless every row is one of the last `live` steps, whole and with its own successor."""
    number = observations[:, 0].astype(np.int64)
    assert number.min() >= len(steps) - live, "a row that was overwritten"
    assert np.array_equal(observations, steps.observations[number])
    assert np.array_equal(actions, steps.actions[number])
    assert np.array_equal(rewards.ravel(), steps.rewards[number])
    assert np.array_equal(successors, steps.next_observations[number])
    assert np.array_equal(dones.ravel().astype(np.bool_), steps.terminations[number])


def check_sequences(
    steps: Steps, live: int, observations: Floats, actions: Floats, rewards: Floats, dones: Floats
) -> None:
    """Raise AssertionError unless every window is consecutive live steps of one episode."""
    number = observations[:, :, 0].astype(np.int64)
    assert number.min() >= len(steps) - live, "a row that was overwritten"
    assert np.array_equal(number, number[:, :1] + np.arange(number.shape[1])), "steps that do not follow one another"
    assert np.all(observations[:, :, 1] == observations[:, :1, 1]), "a window over an episode's end"
    assert np.array_equal(observations, steps.observations[number])
    assert np.array_equal(actions, steps.actions[number])
    assert np.array_equal(rewards.reshape(number.shape), steps.rewards[number])
    assert np.array_equal(dones.reshape(number.shape).astype(np.bool_), steps.terminations[number])
