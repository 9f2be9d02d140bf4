"""Frame stacks: each frame stored once, older ones of the same episode put before it when it is read."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer, SingleAgentEpisode, stack_last
from tests.replay.answers import FullTwin
from tests.replay.worlds import Chunk, f32, image


def frames(part: Any) -> list[list[int]]:
    """Return (B, k, ...) by the first number of each frame."""
    return [[int(frame.reshape(-1)[0]) for frame in row] for row in part]


@pytest.mark.parametrize(
    ("fill", "stacks", "after"),
    [
        ("first", [[5, 5, 5], [5, 5, 6], [5, 6, 7]], [[5, 5, 6], [5, 6, 7], [6, 7, 8]]),
        (0, [[0, 0, 5], [0, 5, 6], [5, 6, 7]], [[0, 5, 6], [5, 6, 7], [6, 7, 8]]),
        (-3.5, [[-3, -3, 5], [-3, 5, 6], [5, 6, 7]], [[-3, 5, 6], [5, 6, 7], [6, 7, 8]]),
    ],
)
def test_the_fill_stands_before_the_first_observation_only(
    fill: Any, stacks: list[list[int]], after: list[list[int]]
) -> None:
    twin = FullTwin(20)
    for observation in (5, 6, 7):
        twin.add(f32([observation]), f32([0]), float(observation), f32([observation + 1]), observation == 7)
    batch = twin.transitions(stack=3, stack_fill=fill)
    assert batch.observations.shape == (3, 3, 1)
    assert frames(batch.observations) == stacks
    assert frames(batch.next_observations) == after
    assert batch.rewards.ravel().tolist() == [5, 6, 7]


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_no_stack_reaches_over_an_end(end: str) -> None:
    twin = FullTwin(20)
    twin.play(1, 1, end)
    twin.play(5, 3, end)
    batch = twin.transitions(stack=2, stack_fill=0)
    assert frames(batch.observations) == [[0, 1000], [0, 5000], [5000, 5001], [5001, 5002]]
    assert frames(batch.next_observations) == [[1000, 1001], [5000, 5001], [5001, 5002], [5002, 5003]]


def test_a_reset_from_outside_is_an_end_for_stacks() -> None:
    twin = FullTwin(20)
    twin.play(1, 3, None)
    twin.end_episode(0)
    twin.play(2, 2, None)
    batch = twin.transitions(stack=4)
    assert frames(batch.observations)[3:] == [[2000] * 4, [2000, 2000, 2000, 2001]]
    assert frames(batch.next_observations)[2:4] == [[1000, 1001, 1002, 1003], [2000, 2000, 2000, 2001]]


def test_steps_whose_older_frames_are_gone_are_no_starts() -> None:
    twin = FullTwin(6)
    twin.play(0, 9, None)
    assert twin.starts(stack=1) == [3, 4, 5, 6, 7, 8]
    assert twin.starts(stack=3) == [5, 6, 7, 8]
    assert frames(twin.transitions(stack=3).observations) == [[3, 4, 5], [4, 5, 6], [5, 6, 7], [6, 7, 8]]
    assert twin.starts(stack=6) == [8]
    assert twin.starts(stack=7) == []
    twin.play(1, 1, stream=1)  # evicts one more; a new episode has its stack by the fill
    assert twin.starts(stack=3) == [6, 7, 8, 9]
    assert frames(twin.transitions(stack=3).observations)[-1] == [1000] * 3


def test_sampling_more_than_the_starts_of_a_stack_is_refused() -> None:
    buffer = ReplayBuffer(6, 1, 1, seed=0)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    text = "ReplayBuffer.sample_transitions: batch_size must be"
    with pytest.raises(ValueError, match=f"{re.escape(text)}.*4.*, got 5"):
        buffer.sample_transitions(5, stack=3)
    drawn = buffer.sample_transitions(300, stack=3, replace=True).ids
    assert set(drawn.tolist()) == {5, 6, 7, 8}


def test_the_order_is_oldest_first_and_streams_do_not_mix() -> None:
    twin = FullTwin(40, image(3, 2), gym.spaces.Discrete(3))
    for t in range(6):
        pictures = np.stack([np.full((3, 2), base + t, np.uint8) for base in (10, 100)])
        twin.add_batch(pictures, np.array([0, 1]), [float(t), 10.0 * t], pictures + 1, [t == 3, False], [False, t == 4])
    batch = twin.transitions(stack=3)
    assert batch.observations.shape == (12, 3, 3, 2)
    assert batch.observations.dtype == np.uint8
    assert frames(batch.observations)[-4:] == [[14] * 3, [102, 103, 104], [14, 14, 15], [105] * 3]


def test_one_leaf_of_a_dict_is_stacked_and_the_others_are_not() -> None:
    space = gym.spaces.Dict(
        {"camera": image(4, 3), "body": gym.spaces.Dict({"speed": gym.spaces.Box(-99, 99, (), np.float32)})}
    )
    twin = FullTwin(20, space, gym.spaces.Discrete(3))

    def seen(t: int) -> dict[str, Any]:
        return {"camera": np.full((4, 3), t, np.uint8), "body": {"speed": np.float32(-t)}}

    for t in range(5):
        twin.add(seen(t), t % 3, float(t), seen(t + 1), t == 4)
    batch = twin.transitions(stack={"camera": 4})
    assert batch.observations["camera"].shape == (5, 4, 4, 3)
    assert frames(batch.observations["camera"])[2] == [0, 0, 1, 2]
    assert batch.observations["body"]["speed"].tolist() == [[0], [-1], [-2], [-3], [-4]]
    assert frames(batch.next_observations["camera"])[4] == [2, 3, 4, 5]
    batch = twin.transitions(stack={"camera": 2, "body/speed": 3}, stack_fill=7)
    assert batch.observations["body"]["speed"].shape == (5, 3, 1)
    assert batch.observations["body"]["speed"][1].ravel().tolist() == [7, 0, -1]
    assert frames(batch.observations["camera"])[0] == [7, 0]


def test_the_newest_frame_of_the_successor_is_the_one_that_was_given() -> None:
    twin = FullTwin(20)
    for t in range(4):
        twin.add(f32([10 * t]), f32([0]), float(t), f32([10 * t + 1]), False)
    batch = twin.transitions(stack=2)
    assert frames(batch.observations) == [[0, 0], [0, 10], [10, 20], [20, 30]]
    assert frames(batch.next_observations) == [[0, 1], [10, 11], [20, 21], [30, 31]]


def test_n_step_and_stacks_together() -> None:
    twin = FullTwin(20)
    twin.play(0, 4, "truncated")
    batch = twin.transitions(stack=3, n_step=2, gamma=0.5)
    assert frames(batch.next_observations) == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [2, 3, 4]]
    assert batch.n_steps.ravel().tolist() == [2, 2, 2, 1]
    assert batch.rewards.ravel().tolist() == [0.5, 2.0, 3.5, 3.0]


def test_stacks_in_sequences() -> None:
    twin = FullTwin(7)
    twin.play(0, 6)
    twin.play(1, 4)  # steps 3, 4, 5 are left of the first episode
    assert twin.starts(length=2) == [3, 4, 6, 7, 8]
    assert twin.starts(length=2, stack=2) == [4, 6, 7, 8]
    batch = twin.windows(length=2, stack=2, next_observations=True)
    assert batch.observations.shape == (4, 2, 2, 1)
    assert [frames(window) for window in batch.observations] == [
        [[3, 4], [4, 5]],
        [[1000, 1000], [1000, 1001]],
        [[1000, 1001], [1001, 1002]],
        [[1001, 1002], [1002, 1003]],
    ]
    assert frames(batch.next_observations[0]) == [[4, 5], [5, 6]]
    assert not batch.is_first[0].any()  # the first row that can be read is not the first step


def test_get_reads_the_same_stacks_and_refuses_what_cannot_be_read() -> None:
    buffer = ReplayBuffer(6, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    batch = buffer.get([8, 5, 8], stack=3)
    assert frames(batch.observations) == [[6, 7, 8], [3, 4, 5], [6, 7, 8]]
    with pytest.raises((IndexError, ValueError), match=r"ReplayBuffer\.get: .*got 4"):
        buffer.get([5, 4], stack=3)


def test_a_split_that_nobody_marked_begins_a_new_stack() -> None:
    twin = FullTwin(20, on_mismatch="split")
    twin.play(0, 3, None)
    twin.play(7, 2, None)
    assert frames(twin.transitions(stack=2).observations) == [[0, 0], [0, 1], [1, 2], [7000, 7000], [7000, 7001]]


def test_an_episode_with_missing_history_has_no_fill() -> None:
    twin = FullTwin(20)
    observations = [f32([t]) for t in range(10, 16)]
    twin.add_episode(Chunk("a", 10, observations, [f32([0])] * 5, [1.0] * 5), gap="cut")
    assert twin.starts(stack=3) == [2, 3, 4]
    assert frames(twin.transitions(stack=3).observations)[0] == [10, 11, 12]


def test_chunks_of_an_episode_are_stacked_over_their_seams() -> None:
    twin = FullTwin(20)
    for start in (0, 3):
        observations = [f32([t]) for t in range(start, start + 4)]
        twin.add_episode(Chunk("a", start, observations, [f32([0])] * 3, [1.0] * 3))
        twin.play(4, 1, None, start=start)
    assert frames(twin.transitions(stack=4).observations)[4:7] == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]


def test_frames_are_stored_once() -> None:
    buffer = ReplayBuffer(2000, image(84, 84), gym.spaces.Discrete(4), seed=0)
    picture = np.zeros((84, 84), np.uint8)
    for t in range(2000):
        following = np.full((84, 84), (t + 1) % 256, np.uint8)
        buffer.add(picture, t % 4, t, following, t % 250 == 249)
        picture = following
    before = buffer.nbytes
    assert before < 2000 * 84 * 84 * 1.06
    for _ in range(20):
        batch = buffer.sample_transitions(32, stack=4)
    assert batch.observations.shape == (32, 4, 84, 84)
    assert buffer.nbytes == before


def test_out_takes_stacks() -> None:
    buffer = ReplayBuffer(50, 2, 1, seed=0)
    for t in range(30):
        buffer.add([t, -t], [0], t, [t + 1, -t - 1], False)
    first = buffer.sample_transitions(8, stack=3)
    arrays = first.observations, first.next_observations
    again = buffer.sample_transitions(8, stack=3, out=first)
    assert again.observations is arrays[0]
    assert again.next_observations is arrays[1]
    assert (again.observations[:, 2, 0] == again.rewards[:, 0]).all()
    with pytest.raises(ValueError, match=re.escape("must")):
        buffer.sample_transitions(8, stack=4, out=first)


# ------------------------------------------------------------------ the acting side


@pytest.mark.parametrize("fill", ["first", 0, 7])
@pytest.mark.parametrize("arrays", [False, True])
def test_the_acting_side_sees_what_training_sees(fill: Any, arrays: bool) -> None:
    episode = SingleAgentEpisode(
        observation_space=gym.spaces.Box(-999, 999, (2,), np.float32), action_space=gym.spaces.Discrete(2)
    )
    episode.add_env_reset(observation=f32([100, -100]))
    acting = [stack_last(episode, 3, fill=fill)]
    for t in range(5):
        episode.add_env_step(observation=f32([101 + t, -101 - t]), action=t % 2, reward=float(t), terminated=t == 4)
        acting.append(stack_last(episode, 3, fill=fill))
    if arrays:
        episode.to_numpy()
        np.testing.assert_array_equal(stack_last(episode, 3, fill=fill), acting[-1])
    buffer = ReplayBuffer(20, 2, gym.spaces.Discrete(2))
    ids = buffer.add_episode(episode)
    batch = buffer.get(ids, stack=3, stack_fill=fill)
    np.testing.assert_array_equal(batch.observations, np.stack(acting[:5]))
    np.testing.assert_array_equal(batch.next_observations, np.stack(acting[1:]))
    assert acting[0].dtype == np.float32
    assert acting[0].shape == (3, 2)


def test_a_chunk_stacks_its_lookback() -> None:
    episode = SingleAgentEpisode(observation_space=gym.spaces.Box(-999, 999, (1,), np.float32))
    episode.add_env_reset(observation=f32([50]))
    for t in range(6):
        episode.add_env_step(observation=f32([51 + t]), action=0, reward=0.0)
    chunk = episode.cut(len_lookback_buffer=3)
    assert stack_last(chunk, 4).ravel().tolist() == [53, 54, 55, 56]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("call", ["sample_transitions", "sample_sequences", "get", "valid_starts"])
@pytest.mark.parametrize(
    ("stack", "kind", "rule"),
    [
        (0, ValueError, "stack must be >= 1, "),
        (-2, ValueError, "stack must be >= 1, "),
        (1.5, TypeError, "stack must be"),
        (True, TypeError, "stack must be"),
        ({"lidar": 2}, ValueError, "stack must name"),
    ],
)
def test_a_wrong_stack_is_refused(call: str, stack: Any, kind: type[Exception], rule: str) -> None:
    buffer: Any = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    arguments: dict[str, tuple[Any, ...]] = {
        "sample_transitions": (4,),
        "sample_sequences": (2, 3),
        "get": ([1, 2],),
        "valid_starts": (2,),
    }
    with pytest.raises(kind, match=rf"^ReplayBuffer\.{call}: {re.escape(rule)}.*got "):
        getattr(buffer, call)(*arguments[call], stack=stack)


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_a_fill_is_the_value_in_each_element_whatever_the_dtype(dtype: str) -> None:
    given = np.dtype(dtype)
    space: Any = gym.spaces.MultiBinary(5) if dtype == "bool" else gym.spaces.Box(0, 100, (5,), given.type)
    buffer = ReplayBuffer(9, space, 1, seed=0)
    values = [0, 1] if dtype == "bool" else [0, 1, 99, 7.0] + [0.1, 1 / 3, -5e-8, np.nan, np.inf] * (given.kind == "f")
    buffer.add(np.full(5, 1, space.dtype), [0], 0.0, np.full(5, 0, space.dtype), False)
    for value in values:
        batch = buffer.get([0], stack=3, stack_fill=value)
        expected = np.full((2, 5), value).astype(space.dtype)
        np.testing.assert_array_equal(batch.observations[0, :2], expected)
        np.testing.assert_array_equal(batch.observations[0, 2], np.full(5, 1))
        np.testing.assert_array_equal(batch.next_observations[0, 0], expected[0])


@pytest.mark.parametrize("fill", ["last", [1, 2], float("nan"), 256, -1, 0.5])
def test_a_wrong_fill_is_refused(fill: Any) -> None:
    twin = FullTwin(20, image(2), gym.spaces.Discrete(3))
    twin.add(np.ones(2, np.uint8), 1, 1.0, np.ones(2, np.uint8), False)
    buffer: Any = twin.real
    with pytest.raises((ValueError, TypeError), match=r"^ReplayBuffer\.sample_transitions: stack_fill must .*, got "):
        buffer.sample_transitions(1, stack=2, stack_fill=fill)


def test_a_stack_in_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    buffer = ReplayBuffer(20, 1, 1, "cpu", seed=0)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    batch = buffer.sample_transitions(9, stack=2)
    assert isinstance(batch.observations, torch.Tensor)
    assert batch.observations.shape == (9, 2, 1)
    assert torch.equal(batch.observations[:, 1], batch.rewards)
