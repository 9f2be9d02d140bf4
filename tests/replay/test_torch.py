"""With a device, the same batches come back as torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ringback import ReplayBuffer
from tests.replay.playing import play
from tests.replay.twin import SEQUENCES, TRANSITIONS, assert_same, fields_of
from tests.replay.worlds import counted, nested


def as_arrays(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: as_arrays(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(as_arrays(value) for value in part)
    if part is None:
        return None
    assert isinstance(part, torch.Tensor)
    assert part.device == torch.device("cpu")
    return part.numpy()


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_tensors_hold_what_arrays_hold(device: Any) -> None:
    plain, tensors = (ReplayBuffer(50, nested(), 2, d, seed=3, extras={"logp": ()}) for d in (None, device))
    for t in range(70):
        for buffer in (plain, tensors):
            buffer.add(counted(nested(), t), [t, -t], t, counted(nested(), t + 1), t % 20 == 19, extras={"logp": t})
    for options in ({}, {"n_step": 3, "gamma": 0.9}, {"replace": True}):
        a, b = (buffer.sample_transitions(20, **options) for buffer in (plain, tensors))
        assert_same(as_arrays(fields_of(b, TRANSITIONS)), fields_of(a, TRANSITIONS))
    c, d = (buffer.sample_sequences(9, 4) for buffer in (plain, tensors))
    assert_same(as_arrays(fields_of(d, SEQUENCES)), fields_of(c, SEQUENCES))
    a, b = (buffer.get([30, 60]) for buffer in (plain, tensors))
    assert_same(as_arrays(fields_of(b, TRANSITIONS)), fields_of(a, TRANSITIONS))


def test_the_device_can_be_asked_for() -> None:
    assert ReplayBuffer(5, 1, 1).device is None
    assert str(ReplayBuffer(5, 1, 1, "cpu").device) == "cpu"


def test_tensors_are_fresh_and_writable() -> None:
    buffer = ReplayBuffer(50, 2, 1, "cpu", seed=3)
    play(buffer, 0, 20, size=2)
    one, two = buffer.sample_transitions(20), buffer.sample_transitions(20)
    kept = two.observations.clone()
    one.observations.fill_(-1)
    one.rewards.fill_(-1)
    assert torch.equal(two.observations, kept)
    assert int(buffer.sample_transitions(20).observations.min()) == 0
    assert one.observations.data_ptr() % 64 == 0


def test_tensors_can_be_added() -> None:
    buffer = ReplayBuffer(50, 2, 1, "cpu")
    buffer.add(
        torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor(4.0), torch.tensor([5.0, 6.0]), torch.tensor(True)
    )
    s, a, r, s_next, d = buffer.sample_transitions(1)
    assert (s.tolist(), a.tolist(), r.tolist(), s_next.tolist(), d.tolist()) == (
        [[1, 2]],
        [[3]],
        [[4]],
        [[5, 6]],
        [[1]],
    )
    batch = buffer.sample_transitions(1)
    buffer.set(batch.ids, "reward", batch.rewards + 1)  # what came back can be handed in again
    assert buffer.get(batch.ids).rewards.tolist() == [[5.0]]


@pytest.mark.parametrize("device", ["nowhere", 3.5, "gpu"])
def test_an_unknown_device_is_refused(device: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="device"):
        ReplayBuffer(50, 2, 1, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="speaks of machines without a GPU")
def test_a_device_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises((ValueError, RuntimeError), match="cuda"):
        ReplayBuffer(50, 2, 1, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_lie_on_the_chosen_device() -> None:
    buffer = ReplayBuffer(50, 2, 1, "cuda", seed=3)
    play(buffer, 0, 20, size=2)
    batch = buffer.sample_transitions(8, n_step=2, gamma=0.9)
    for name in ("observations", "actions", "rewards", "next_observations", "dones", "discounts"):
        assert getattr(batch, name).device.type == "cuda"
    np.testing.assert_array_equal(
        batch.observations.cpu()[:, :1], batch.rewards.cpu() * 0 + batch.observations.cpu()[:, 1:]
    )
