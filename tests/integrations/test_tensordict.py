"""Batches as TensorDicts. These need ``tensordict`` (the extra of that name), all but the first two."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from ringback import ReplayBuffer
from ringback.errors import MissingExtraError
from ringback.integrations.tensordict import to_tensordict
from tests.integrations.test_jax import filled


def test_without_tensordict_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensordict", None)
    with pytest.raises(
        MissingExtraError, match=r"^to_tensordict: needs the extra 'tensordict' \(tensordict\); pip inst"
    ):
        to_tensordict(filled().sample_transitions(3))


def test_only_batches_are_taken() -> None:
    wrong: Any = (1, 2)
    with pytest.raises(TypeError, match=r"^to_tensordict: batch must be Transitions or Sequences, got tuple$"):
        to_tensordict(wrong)


def theirs() -> Any:
    return pytest.importorskip("tensordict")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_transitions_under_the_names_that_torchrl_reads(device: Any) -> None:
    theirs()
    batch = filled(device).sample_transitions(20, n_step=3, gamma=0.9)
    data = to_tensordict(batch)
    assert data.batch_size == (20,)
    assert data.device == torch.device("cpu")
    for key, value in {
        "action": batch.actions,
        ("next", "reward"): batch.rewards,
        ("next", "terminated"): batch.terminations,
        ("next", "truncated"): batch.truncations,
        ("observation", "camera"): batch.observations["camera"],
        ("observation", "body", "0"): batch.observations["body"][0],
        ("next", "observation", "goal", "cell"): batch.next_observations["goal"]["cell"],
        "steps_to_next_obs": batch.n_steps,
        "discounts": batch.discounts,
        "index": batch.ids,
        "logp": batch.extras["logp"],
    }.items():
        tensor = value if device else torch.from_numpy(value)
        assert data[key].data_ptr() == tensor.data_ptr(), key
        torch.testing.assert_close(data[key], tensor, rtol=0, atol=0, equal_nan=True)
    ended = np.asarray(batch.terminations) | np.asarray(batch.truncations)
    assert data["next", "done"].tolist() == ended.tolist()
    assert ended.any()
    assert "is_init" not in data.keys()  # noqa: SIM118 - iterating a TensorDict gives rows


def test_windows_have_two_batch_axes() -> None:
    theirs()
    batch = filled().sample_sequences(6, 4)
    data = to_tensordict(batch)
    assert data.batch_size == (6, 4)
    assert data["is_init"].tolist() == batch.is_first.tolist()
    assert data["index"].tolist() == batch.ids.tolist()
    np.testing.assert_array_equal(data["start_ids"], np.repeat(batch.start_ids[:, None], 4, axis=1))
    assert data["start_ids"].data_ptr() == torch.from_numpy(batch.start_ids).data_ptr()
    assert data[2, 1]["next", "reward"].item() == batch.rewards[2, 1, 0]
    assert data[:, 2:]["observation", "camera"].shape == (6, 2, 6, 5, 3)


def test_an_extra_must_not_take_the_place_of_something_else() -> None:
    theirs()
    buffer = ReplayBuffer(5, 1, 1, extras={"index": ()})
    buffer.add([0], [0], 0, [1], False, extras={"index": 1})
    with pytest.raises(ValueError, match=r"^to_tensordict: extras must have names of their own, got 'index'$"):
        to_tensordict(buffer.sample_transitions(1))
