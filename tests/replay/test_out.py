"""`out=` fills the caller's arrays instead of fresh ones."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ringback import ReplayBuffer
from tests.replay.playing import assert_consistent, live, play
from tests.replay.twin import SEQUENCES, TRANSITIONS, assert_same, fields_of
from tests.replay.worlds import counted, image, nested


def two(device: Any = None) -> tuple[ReplayBuffer, ReplayBuffer]:
    """Return two equal buffers."""
    buffers = [ReplayBuffer(60, 3, 1, device, seed=4, extras={"logp": ()}) for _ in range(2)]
    for buffer in buffers:
        for t in range(90):
            row = np.full(3, t, np.float32)
            buffer.add(row, [-t], t, row + 1, t % 25 == 24, extras={"logp": t / 2})
    return buffers[0], buffers[1]


def test_an_earlier_batch_is_filled_again() -> None:
    plain, filling = two()
    first = filling.sample_transitions(8, n_step=2, gamma=0.9)
    plain.sample_transitions(8, n_step=2, gamma=0.9)
    again = filling.sample_transitions(8, n_step=2, gamma=0.9, out=first)
    want = plain.sample_transitions(8, n_step=2, gamma=0.9)
    assert_same(fields_of(again, TRANSITIONS), fields_of(want, TRANSITIONS))
    for name in TRANSITIONS:
        if name != "extras":
            assert getattr(again, name) is getattr(first, name), name
    assert again.extras["logp"] is first.extras["logp"]


def test_an_earlier_batch_of_windows_is_filled_again() -> None:
    plain, filling = two()
    first = filling.sample_sequences(4, 6)
    plain.sample_sequences(4, 6)
    again = filling.sample_sequences(4, 6, out=first)
    assert_same(fields_of(again, SEQUENCES), fields_of(plain.sample_sequences(4, 6), SEQUENCES))
    assert again.observations is first.observations
    assert again.ids is first.ids


def test_some_fields_can_be_the_callers_and_the_rest_fresh() -> None:
    plain, filling = two()
    observations = np.empty((8, 3), np.float32)
    batch = filling.sample_transitions(8, out={"observations": observations})
    assert batch.observations is observations
    assert_consistent(batch)
    assert_same(fields_of(batch, TRANSITIONS), fields_of(plain.sample_transitions(8), TRANSITIONS))


def test_rows_of_a_larger_array_can_be_filled() -> None:
    _, filling = two()
    large = np.full((3, 8, 3), -1, np.float32)
    batch = filling.sample_transitions(8, out={"observations": large[1]})
    np.testing.assert_array_equal(large[1][:, :1], batch.rewards)
    assert (large[[0, 2]] == -1).all()


def test_leaves_of_a_structure_can_be_filled() -> None:
    space = nested()
    buffer = ReplayBuffer(20, space, 1)
    for t in range(12):
        buffer.add(counted(space, t), [0.0], t, counted(space, t + 1), False)
    first = buffer.sample_transitions(5)
    camera = first.observations["camera"]
    again = buffer.sample_transitions(5, out={"observations": first.observations})
    assert again.observations["camera"] is camera
    for row, number in zip(camera, again.ids.tolist(), strict=True):
        np.testing.assert_array_equal(row, counted(space, number)["camera"])


def test_images_that_fill_whole_pages_stay_inside_the_callers_array() -> None:
    for shape in ((1, 1, 1), (3, 5, 1), (16, 16), (17, 15), (84, 84)):
        space = image(*shape)
        buffer = ReplayBuffer(9, space, 1)
        for t in range(9):
            buffer.add(counted(space, t), [0.0], t, counted(space, t + 1), False)
        size = int(np.prod(shape))
        guarded = np.full(9 * size + 128, 77, np.uint8)
        inner = guarded[64 : 64 + 9 * size].reshape(9, *shape)
        for field in ("observations", "next_observations"):
            guarded[:] = 77
            batch = buffer.sample_transitions(9, out={field: inner})
            shift = field == "next_observations"
            for row, number in zip(inner, batch.ids.tolist(), strict=True):
                np.testing.assert_array_equal(row, counted(space, number + shift))
            assert (guarded[:64] == 77).all()
            assert (guarded[-64:] == 77).all()
        guarded[:] = 77
        buffer.sample_sequences(1, 9, out={"observations": inner[None]})
        np.testing.assert_array_equal(inner[8], counted(space, 8))
        assert (guarded[:64] == 77).all()
        assert (guarded[-64:] == 77).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 9, 13, 17, 31, 33])
def test_rows_of_any_size_stay_inside_the_callers_array(size: int) -> None:
    buffer = ReplayBuffer(20, size, 1)
    play(buffer, 0, 33, None, size=size)
    guarded = np.full(5 * size + 32, 77, np.float32)
    inner = guarded[16 : 16 + 5 * size].reshape(5, size)
    batch = buffer.sample_transitions(5, out={"observations": inner})
    np.testing.assert_array_equal(inner, np.repeat(batch.rewards, size, axis=1))
    assert (guarded[:16] == 77).all()
    assert (guarded[-16:] == 77).all()


def test_tensors_are_filled_through_their_numpy_view() -> None:
    plain, filling = two("cpu")
    observations, rewards = torch.empty((8, 3)), torch.empty((8, 1))
    batch = filling.sample_transitions(8, out={"observations": observations, "rewards": rewards})
    assert torch.equal(observations, plain.sample_transitions(8).observations)
    assert batch.observations.data_ptr() == observations.data_ptr()
    assert torch.equal(observations[:, :1], rewards)
    again = filling.sample_transitions(8, out=batch)
    assert again.observations.data_ptr() == observations.data_ptr()
    assert torch.equal(again.observations, plain.sample_transitions(8).observations)


@pytest.mark.parametrize(
    "wrong",
    [
        np.empty((8, 4), np.float32),
        np.empty((7, 3), np.float32),
        np.empty((8, 3, 1), np.float32),
        np.empty((8, 3), np.float64),
        np.empty((8, 3), np.int32),
        np.empty((8, 3), ">f4"),
        np.empty((8, 6), np.float32)[:, ::2],
        np.asfortranarray(np.empty((8, 3), np.float32)),
        np.broadcast_to(np.float32(0), (8, 3)),
        torch.empty((8, 4)),
        torch.empty((8, 3), dtype=torch.float64),
        torch.empty((3, 8)).T,
    ],
)
def test_what_does_not_fit_is_refused_and_moves_no_generator(wrong: Any) -> None:
    plain, filling = two()
    with pytest.raises(ValueError, match="out: observation must"):
        filling.sample_transitions(8, out={"observations": wrong})
    np.testing.assert_array_equal(filling.sample_transitions(8).ids, plain.sample_transitions(8).ids)


@pytest.mark.parametrize("wrong", [[0.0] * 24, "x", 3, object(), {"observations": 1}])
def test_what_is_no_array_is_refused(wrong: Any) -> None:
    _, filling = two()
    with pytest.raises(TypeError, match="out"):
        filling.sample_transitions(8, out={"observations": wrong})
    assert len(live(filling)) == 60


def test_a_read_only_array_is_refused() -> None:
    _, filling = two()
    locked = np.zeros((8, 3), np.float32)
    locked.setflags(write=False)
    with pytest.raises(ValueError, match="writable"):
        filling.sample_transitions(8, out={"observations": locked})
    assert (locked == 0).all()


def test_an_unknown_field_is_refused() -> None:
    _, filling = two()
    with pytest.raises(ValueError, match="obs"):
        filling.sample_transitions(8, out={"obs": np.empty((8, 3), np.float32)})


@pytest.mark.parametrize("wrong", [3, "x", [], np.empty((8, 3), np.float32)])
def test_out_is_a_dict_or_a_batch(wrong: Any) -> None:
    _, filling = two()
    with pytest.raises(TypeError, match="out"):
        filling.sample_transitions(8, out=wrong)


def test_a_batch_of_the_other_kind_is_refused() -> None:
    _, filling = two()
    other: Any = filling.sample_sequences(8, 2)
    with pytest.raises(TypeError, match="out"):
        filling.sample_transitions(8, out=other)


def test_discrete_columns_are_filled_in_their_dtype() -> None:
    buffer = ReplayBuffer(20, gym.spaces.Discrete(5), gym.spaces.MultiBinary(3))
    for t in range(9):
        buffer.add(t % 5, [t & 1, t >> 1 & 1, 0], t, (t + 1) % 5, False)
    observations, actions, ids = np.empty((4, 1), np.int64), np.empty((4, 3), np.int8), np.empty(4, np.int64)
    batch = buffer.sample_transitions(4, out={"observations": observations, "actions": actions, "ids": ids})
    assert batch.ids is ids
    assert observations[:, 0].tolist() == [i % 5 for i in ids.tolist()]
    assert actions[:, 0].tolist() == [i & 1 for i in ids.tolist()]
