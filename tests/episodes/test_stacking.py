"""The acting side's stack: the last k observations, filled before t = 0 and nowhere else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer, SingleAgentEpisode
from ringback.episodes.stacking import stack_last
from ringback.errors import EpisodeError


def observation(t: int) -> Any:
    """Say t in every leaf."""
    return {"camera": np.full((2, 3), t + 5, np.uint8), "body": (np.float32(t + 0.5), np.array([t, -t]))}


def played(steps: int, make: Any = observation) -> SingleAgentEpisode:
    episode = SingleAgentEpisode()
    episode.add_env_reset(make(0))
    for t in range(steps):
        episode.add_env_step(make(t + 1), t, float(t))
    return episode


def want(t: int, k: int, fill: Any, make: Any) -> Any:
    """Stack observations t - k + 1 .. t, one by one."""
    rows = [np.atleast_1d(make(max(s, 0))) for s in range(t - k + 1, t + 1)]
    if fill != "first":
        rows = [
            row if s >= 0 else np.full_like(row, fill) for s, row in zip(range(t - k + 1, t + 1), rows, strict=True)
        ]
    return np.stack(rows)


LEAVES: dict[str, Any] = {
    "camera": lambda t: observation(t)["camera"],
    "body/0": lambda t: observation(t)["body"][0],
    "body/1": lambda t: observation(t)["body"][1],
}


def leaf(stack: Any, path: str) -> Any:
    for key in path.split("/"):
        stack = stack[int(key) if isinstance(stack, tuple) else key]
    return stack


@pytest.mark.parametrize("fill", ["first", 0, 7])
@pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_stacks_at_every_time_of_every_chunk(k: int, numpy: bool, fill: Any) -> None:
    chunk = played(0)
    for t in range(9):
        if t in (3, 4, 7):
            chunk = chunk.cut(len_lookback_buffer=k - 1)
        read = SingleAgentEpisode.from_state(chunk.get_state())
        stack = stack_last(read.to_numpy() if numpy else read, k, fill)
        for path, make in LEAVES.items():
            expected = want(t, k, fill, make)
            np.testing.assert_array_equal(leaf(stack, path), expected)
            assert (leaf(stack, path).shape, leaf(stack, path).dtype) == (expected.shape, expected.dtype)
        chunk.add_env_step(observation(t + 1), t, 0.0)


@pytest.mark.parametrize("fill", ["first", 9])
@pytest.mark.parametrize("stack", [1, 3, 5, {"camera": 4, "body/1": 2}], ids=str)
def test_the_policy_sees_what_the_learner_will_see(stack: Any, fill: Any) -> None:
    space = gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (2, 3), np.uint8),
            "body": gym.spaces.Tuple((gym.spaces.Box(-100, 100, ()), gym.spaces.Box(-100, 100, (2,), np.int64))),
        }
    )
    deepest = stack if isinstance(stack, int) else 4
    buffer = ReplayBuffer(100, space, gym.spaces.Discrete(100), seed=0)
    seen = []
    for length in (1, 2, 9, 20):
        chunk = played(0)
        for t in range(length):
            seen.append(stack_last(chunk, stack, fill))
            chunk.add_env_step(observation(t + 1), t, 0.0, terminated=t == length - 1)
            if t % 3 == 2 or t == length - 1:
                buffer.add_episode(chunk)
                seen_last = stack_last(chunk, stack, fill)
                chunk = chunk if chunk.is_done else chunk.cut(len_lookback_buffer=deepest - 1)
    ids = buffer.valid_starts(stack=stack)
    assert len(ids) == len(seen) == 32
    batch = buffer.get(ids, stack=stack, stack_fill=fill)
    for path in LEAVES:
        stored, after = leaf(batch.observations, path), leaf(batch.next_observations, path)
        for t, frames in enumerate(seen):
            np.testing.assert_array_equal(leaf(frames, path), stored[t])
            assert (leaf(frames, path).shape, leaf(frames, path).dtype) == (stored[t].shape, stored.dtype)
        np.testing.assert_array_equal(leaf(seen_last, path), after[-1])


def test_fills_of_the_paper_cases() -> None:
    episode = played(2, lambda t: np.array([t + 5]))
    pieces = [episode[:t] for t in range(3)]
    assert [stack_last(piece, 3, 0).ravel().tolist() for piece in pieces] == [[0, 0, 5], [0, 5, 6], [5, 6, 7]]
    assert [stack_last(piece, 3).ravel().tolist() for piece in pieces] == [[5, 5, 5], [5, 5, 6], [5, 6, 7]]


def test_leaves_are_stacked_by_name_and_the_others_are_not() -> None:
    stack = stack_last(played(2), {"camera": 4, "body/0": 2})
    np.testing.assert_array_equal(stack["camera"], want(2, 4, "first", LEAVES["camera"]))
    np.testing.assert_array_equal(stack["body"][0], want(2, 2, "first", LEAVES["body/0"]))
    np.testing.assert_array_equal(stack["body"][1], [2, -2])


def test_stack_is_a_copy() -> None:
    episode = played(3, lambda t: np.array([t])).to_numpy()
    for k in (1, 3, 9):
        stack_last(episode, k)[:] = 99
    assert episode.get_observations().ravel().tolist() == [0, 1, 2, 3]


def test_a_lookback_that_is_too_short_is_refused_though_a_fill_is_given() -> None:
    chunk = played(5).cut(len_lookback_buffer=2)
    assert stack_last(chunk, 3)["camera"].shape == (3, 2, 3)
    for fill in ("first", 0.0):
        with pytest.raises(EpisodeError, match=r"^stack_last: the lookback must hold 3 steps at t = 5, got 2$"):
            stack_last(chunk, 4, fill)
    chunk.add_env_step(observation(6), 5, 0.0)
    assert stack_last(chunk, 4)["camera"].shape == (4, 2, 3)


@pytest.mark.parametrize(("steps", "text"), [(1, "1 step"), (2, "2 steps")])
def test_no_more_steps_are_asked_for_than_there_were(steps: int, text: str) -> None:
    chunk = played(steps).cut(len_lookback_buffer=0)
    for _ in range(3):
        with pytest.raises(EpisodeError, match=rf"^stack_last: the lookback must hold {text} at t = {steps}, got 0$"):
            stack_last(chunk, 10)
        chunk.add_env_step(observation(chunk.t + 1), 0, 0.0)


def test_what_lies_before_the_first_step_is_not_read() -> None:
    """A lookback before t = 0 is none that a buffer stores."""
    episode = SingleAgentEpisode(observations=[1, 2, 3, 4], actions=[0, 0, 0], rewards=[0.0] * 3, len_lookback_buffer=2)
    assert episode.t_started == 0
    assert stack_last(episode, 4).ravel().tolist() == [3, 3, 3, 4]


@pytest.mark.parametrize(
    ("error", "k", "fill", "message"),
    [
        (ValueError, 0, "first", "k must be >= 1, got 0"),
        (ValueError, {"camera": 0}, "first", r"k must be >= 1, got \{'camera': 0\}"),
        (ValueError, {}, "first", r"k must name a leaf, got \{\}"),
        (TypeError, 2.0, "first", "k must be an int or a mapping of str to int, got 2.0"),
        (TypeError, True, "first", "k must be an int or a mapping of str to int, got True"),
        (
            ValueError,
            {"cam": 2},
            "first",
            r"k must name leaves among \['body/0', 'body/1', 'camera'\], got \['cam'\]",
        ),
        (ValueError, 4, "last", "fill must be 'first' or a number, got 'last'"),
        (ValueError, 4, -1, "fill must fit the dtype uint8, got -1"),
        (ValueError, 4, 0.5, "fill must fit the dtype uint8, got 0.5"),
        (ValueError, 4, np.nan, "fill must fit the dtype uint8, got nan"),
    ],
)
def test_wrong_arguments_are_named(error: Any, k: Any, fill: Any, message: str) -> None:
    with pytest.raises(error, match=rf"^stack_last: {message}$"):
        stack_last(played(1), k, fill)


def test_an_episode_before_its_reset_has_no_stack() -> None:
    with pytest.raises(EpisodeError, match=r"^stack_last: the episode must have an observation, got <?Single"):
        stack_last(SingleAgentEpisode(), 2)
