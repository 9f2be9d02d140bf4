"""What comes back: the table of shapes and dtypes, the structure of the spaces, fresh aligned arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import play
from tests.replay.worlds import Space, counted, f32, image, nested, vector


def filled(observation_space: Space | int, action_space: Space | int, steps: int = 20, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(50, observation_space, action_space, **options)
    for t in range(steps):
        buffer.add(
            counted(buffer.observation_space, t),
            counted(buffer.action_space, t),
            t / 4,
            counted(buffer.observation_space, t + 1),
            t == steps - 1,
            extras=None if "extras" not in options else {name: t for name in options["extras"]},
        )
    return buffer


def arrays(part: Any) -> Iterator[np.ndarray]:
    if isinstance(part, dict):
        for value in part.values():
            yield from arrays(value)
    elif isinstance(part, tuple):
        for value in part:
            yield from arrays(value)
    elif part is not None:
        yield part


def test_transitions_have_the_shapes_of_the_table() -> None:
    batch = filled(17, 6, extras={"logp": ()}).sample_transitions(9, n_step=3, gamma=0.9)
    shapes = {
        "observations": ((9, 17), np.float32),
        "actions": ((9, 6), np.float32),
        "rewards": ((9, 1), np.float32),
        "next_observations": ((9, 17), np.float32),
        "dones": ((9, 1), np.float32),
        "terminations": ((9, 1), np.bool_),
        "truncations": ((9, 1), np.bool_),
        "discounts": ((9, 1), np.float32),
        "n_steps": ((9, 1), np.int64),
        "ids": ((9,), np.int64),
    }
    for name, (shape, dtype) in shapes.items():
        assert (getattr(batch, name).shape, getattr(batch, name).dtype) == (shape, dtype), name
    assert batch.extras["logp"].shape == (9, 1)
    assert batch.extras["logp"].dtype == np.float32


def test_sequences_have_the_shapes_of_the_table() -> None:
    batch = filled(17, 6, extras={"logp": ()}).sample_sequences(4, 7)
    shapes = {
        "observations": ((4, 7, 17), np.float32),
        "actions": ((4, 7, 6), np.float32),
        "rewards": ((4, 7, 1), np.float32),
        "dones": ((4, 7, 1), np.float32),
        "terminations": ((4, 7, 1), np.bool_),
        "truncations": ((4, 7, 1), np.bool_),
        "is_first": ((4, 7, 1), np.bool_),
        "is_last": ((4, 7, 1), np.bool_),
        "ids": ((4, 7), np.int64),
        "start_ids": ((4,), np.int64),
    }
    for name, (shape, dtype) in shapes.items():
        assert (getattr(batch, name).shape, getattr(batch, name).dtype) == (shape, dtype), name
    assert batch.extras["logp"].shape == (4, 7, 1)


def test_batches_unpack_into_the_textbooks_tuples() -> None:
    buffer = filled(3, 2)
    batch = buffer.sample_transitions(5)
    s, a, r, s_next, d = batch
    for part, name in zip(
        (s, a, r, s_next, d), ("observations", "actions", "rewards", "next_observations", "dones"), strict=True
    ):
        assert part is getattr(batch, name)
    assert len(batch) == 5
    assert isinstance(batch, tuple)
    windows = buffer.sample_sequences(5, 4)
    s, a, r, d = windows
    for part, name in zip((s, a, r, d), ("observations", "actions", "rewards", "dones"), strict=True):
        assert part is getattr(windows, name)
    assert len(windows) == 4


def test_the_tuple_is_immutable_and_its_arrays_are_the_callers() -> None:
    batch: Any = filled(3, 2).sample_transitions(5)
    with pytest.raises((AttributeError, TypeError)):
        batch.rewards = None
    with pytest.raises(TypeError):
        batch[0] = None
    batch.rewards[:] = 3
    assert batch[2].tolist() == [[3.0]] * 5


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (vector(4), (4,), np.float32),
        (vector(4, np.float64), (4,), np.float64),
        (vector(4, np.float16), (4,), np.float16),
        (image(8, 9, 3), (8, 9, 3), np.uint8),
        (gym.spaces.Box(-100, 100, (2, 3), np.int8), (2, 3), np.int8),
        (gym.spaces.Box(-1000, 1000, (2,), np.int16), (2,), np.int16),
        (gym.spaces.Box(-1000, 1000, (2,), np.int32), (2,), np.int32),
        (gym.spaces.Box(-1000, 1000, (2,), np.int64), (2,), np.int64),
        (gym.spaces.Box(0, 1000, (2,), np.uint16), (2,), np.uint16),
        (gym.spaces.Box(0, 1000, (2,), np.uint32), (2,), np.uint32),
        (gym.spaces.Box(0, 1000, (2,), np.uint64), (2,), np.uint64),
        (gym.spaces.Box(-9, 9, (), np.float32), (1,), np.float32),
        (gym.spaces.Discrete(5), (1,), np.int64),
        (gym.spaces.Discrete(5, start=-3), (1,), np.int64),
        (gym.spaces.MultiDiscrete([3, 4]), (2,), np.int64),
        (gym.spaces.MultiDiscrete(np.array([[3, 4], [5, 6]])), (2, 2), np.int64),
        (gym.spaces.MultiBinary(6), (6,), np.int8),
        (gym.spaces.MultiBinary((2, 3)), (2, 3), np.int8),
    ],
)
def test_dtype_and_shape_come_from_the_space(space: Space, shape: tuple[int, ...], dtype: Any) -> None:
    buffer = filled(space, space)
    batch = buffer.sample_transitions(7)
    for part in (batch.observations, batch.actions, batch.next_observations):
        assert (part.shape, part.dtype) == ((7, *shape), dtype)
    windows = buffer.sample_sequences(3, 5)
    for part in (windows.observations, windows.actions):
        assert (part.shape, part.dtype) == ((3, 5, *shape), dtype)
    for row, number in zip(batch.observations, batch.ids.tolist(), strict=True):
        np.testing.assert_array_equal(row, np.reshape(counted(space, number), shape).astype(dtype))


def test_nested_spaces_give_the_same_structure_of_arrays() -> None:
    buffer = filled(nested(), gym.spaces.Tuple((gym.spaces.Discrete(3), vector(2))))
    for batch, lead in ((buffer.sample_transitions(6), (6,)), (buffer.sample_sequences(6, 2), (6, 2))):
        observations = batch.observations
        assert set(observations) == {"velocity", "camera", "body", "goal"}
        assert isinstance(observations["body"], tuple)
        assert observations["camera"].dtype == np.uint8
        assert observations["camera"].shape == (*lead, 6, 5, 3)
        assert observations["body"][0].shape == (*lead, 1)
        assert observations["body"][1].dtype == np.int8
        assert observations["goal"]["angle"].shape == (*lead, 1)
        assert observations["goal"]["ticks"].dtype == np.int16
        assert isinstance(batch.actions, tuple)
        assert batch.actions[0].dtype == np.int64
        assert batch.actions[1].shape == (*lead, 2)


def test_leaves_are_matched_by_name_and_not_by_position() -> None:
    space = gym.spaces.Dict({"b": vector(2), "a": vector(2)})
    buffer = ReplayBuffer(9, space, 1)
    one, two = f32([1, 1]), f32([2, 2])
    buffer.add({"a": one, "b": two}, [0.0], 0.0, {"b": two + 2, "a": one + 2}, False)
    buffer.add_batch({"b": two[None] + 2, "a": one[None] + 2}, [[0.0]], [0.0], {"a": one[None], "b": two[None]}, [True])
    batch = buffer.get([0, 1])
    assert batch.observations["a"][:, 0].tolist() == [1, 3]
    assert batch.observations["b"][:, 0].tolist() == [2, 4]
    assert batch.next_observations["a"][:, 0].tolist() == [3, 1]


def test_the_first_item_decides_nothing() -> None:
    buffer = ReplayBuffer(9, gym.spaces.Box(-9, 9, (1,), np.float64), gym.spaces.Box(-9, 9, (1,), np.float32))
    buffer.add([0], [0], 0, [1], False)
    buffer.add([1], [1], 0.5, [1.5], False)
    batch = buffer.get([0, 1])
    assert batch.rewards.tolist() == [[0.0], [0.5]]
    assert batch.rewards.dtype == np.float32
    assert batch.observations.dtype == np.float64
    assert batch.next_observations.tolist() == [[1.0], [1.5]]


@pytest.mark.parametrize(
    "cast", [{"observation": "float32"}, {"observation": np.float32}, {"observation": np.dtype("f4")}]
)
def test_a_cast_changes_the_stored_dtype(cast: Any) -> None:
    buffer = filled(vector(3, np.float64), 1, cast=cast)
    batch = buffer.sample_transitions(5)
    assert batch.observations.dtype == np.float32
    assert batch.next_observations.dtype == np.float32
    assert buffer.sample_sequences(2, 3).observations.dtype == np.float32


def test_a_cast_can_name_one_leaf() -> None:
    space = gym.spaces.Dict({"a": vector(2, np.float64), "b": vector(2, np.float64), "c": image(3)})
    batch = filled(space, 1, cast={"observation/a": "float32", "observation/c": "float32"}).sample_transitions(3)
    assert batch.observations["a"].dtype == np.float32
    assert batch.observations["b"].dtype == np.float64
    assert batch.observations["c"].dtype == np.float32


def test_actions_and_extras_can_be_cast() -> None:
    extras = {"logp": vector(1, np.float64)}
    batch = filled(
        1, vector(2, np.float64), cast={"action": "float32", "logp": "float32"}, extras=extras
    ).sample_transitions(3)
    assert batch.actions.dtype == np.float32
    assert batch.extras["logp"].dtype == np.float32


@pytest.mark.parametrize(
    ("spec", "shape", "dtype"),
    [
        ((), (1,), np.float32),
        ((3,), (3,), np.float32),
        ((2, 3), (2, 3), np.float32),
        (((3,), "float64"), (3,), np.float64),
        (((), np.int64), (1,), np.int64),
        (gym.spaces.Discrete(4), (1,), np.int64),
        (vector(5, np.float16), (5,), np.float16),
        (image(4, 4), (4, 4), np.uint8),
    ],
)
def test_extras_are_declared_by_shape_or_space(spec: Any, shape: tuple[int, ...], dtype: Any) -> None:
    buffer = ReplayBuffer(9, 1, 1, extras={"more": spec})
    given = [np.full(shape, t + 1, dtype) for t in range(3)]
    for t, value in enumerate(given):
        buffer.add([t], [0.0], 0.0, [t + 1], False, extras={"more": value})
    batch = buffer.get([0, 1, 2])
    assert (batch.extras["more"].shape, batch.extras["more"].dtype) == ((3, *shape), dtype)
    np.testing.assert_array_equal(batch.extras["more"], given)
    assert buffer.sample_sequences(1, 3).extras["more"].shape == (1, 3, *shape)


def test_extras_may_be_structures() -> None:
    space = gym.spaces.Dict({"h": vector(3), "c": vector(3)})
    buffer = ReplayBuffer(9, 1, 1, extras={"state_in": space})
    for t in range(3):
        buffer.add([t], [0.0], 0.0, [t + 1], False, extras={"state_in": counted(space, t)})
    batch = buffer.get([2])
    np.testing.assert_array_equal(batch.extras["state_in"]["c"][0], counted(space, 2)["c"])
    np.testing.assert_array_equal(batch.extras["state_in"]["h"][0], counted(space, 2)["h"])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 255, 256])
def test_arrays_are_fresh_writable_and_aligned(size: int) -> None:
    buffer = ReplayBuffer(300, nested(), 3, extras={"logp": ()})
    for t in range(300):
        buffer.add(counted(nested(), t), [t] * 3, t, counted(nested(), t + 1), t % 70 == 69, extras={"logp": t})
    draws = [
        [*arrays(tuple(getattr(batch, name) for name in names))]
        for _ in range(2)
        for batch, names in (
            (
                buffer.sample_transitions(size, n_step=2, gamma=0.9),
                (
                    "observations",
                    "actions",
                    "rewards",
                    "next_observations",
                    "dones",
                    "terminations",
                    "truncations",
                    "discounts",
                    "n_steps",
                    "ids",
                    "extras",
                ),
            ),
            (
                buffer.sample_sequences(size if size < 200 else 200, 2),
                (
                    "observations",
                    "actions",
                    "rewards",
                    "dones",
                    "terminations",
                    "truncations",
                    "is_first",
                    "is_last",
                    "ids",
                    "start_ids",
                    "extras",
                ),
            ),
        )
    ]
    everything = [array for draw in draws for array in draw]
    for array in everything:
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable
        assert array.flags.c_contiguous
    spans = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in everything)
    for (_, end), (begin, _) in pairwise(spans):
        assert end <= begin, "two arrays share memory"


def test_arrays_outlive_the_buffer_and_later_draws() -> None:
    buffer = ReplayBuffer(100, 4, 1, seed=1)
    play(buffer, 0, 100, None, size=4)
    batches = [buffer.sample_transitions(50) for _ in range(5)]
    copies = [batch.observations.copy() for batch in batches]
    for _ in range(100):
        buffer.sample_transitions(50)
    del buffer
    for batch, kept in zip(batches, copies, strict=True):
        np.testing.assert_array_equal(batch.observations, kept)


def test_input_may_be_lists_views_and_other_byte_orders() -> None:
    buffer = ReplayBuffer(20, gym.spaces.Box(-99, 99, (2, 3), np.float32), gym.spaces.Discrete(5))
    want = np.arange(6, dtype=np.float32).reshape(2, 3)
    large = np.zeros((4, 6), np.float64)
    large[::2, ::2] = want
    forms: list[Any] = [
        want,
        want.tolist(),
        want.astype(np.float64),
        want.astype(">f4"),
        np.asfortranarray(want),
        large[::2, ::2],
        want.astype(np.int8),
        want.astype(np.float16),
    ]
    for form in forms:
        action: Any = np.int32(3) if isinstance(form, np.ndarray) else 3
        i = buffer.add(form, action, 1, form, True)
        batch = buffer.get([i])
        np.testing.assert_array_equal(batch.observations[0], want)
        np.testing.assert_array_equal(batch.next_observations[0], want)
        assert batch.actions.tolist() == [[3]]
    read_only = want.copy()
    read_only.setflags(write=False)
    buffer.add(read_only, np.array(3), np.array([1.5]), read_only, np.array(False))
    stacked = np.stack([want] * 3)
    buffer.add_batch(
        stacked[:, ::-1, ::-1], np.array([1, 2, 3], np.uint8), [1, 2, 3], stacked.astype(">f8"), [True] * 3
    )
    np.testing.assert_array_equal(buffer.get([len(buffer) - 1]).observations[0], want[::-1, ::-1])
