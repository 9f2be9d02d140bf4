"""Rows, arrays, tensors, and back."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given

from ringback import SingleAgentEpisode
from ringback.connectors import (
    AddObservations,
    BatchedArray,
    BatchItems,
    Connector,
    ConnectorPipeline,
    Flatten,
    ListItems,
    PreviousActionsRewards,
    ToNumpy,
    ToTensor,
    Unbatch,
)
from tests.connectors.making import FORMS, Chunks, assert_same, chunks
from tests.reference import connectors as slow


def rows_of_two() -> dict[str, Any]:
    """A batch as custom pieces make it, one row and several rows at once mixed."""
    batch: dict[str, Any] = {}
    first, second = SingleAgentEpisode("a"), SingleAgentEpisode("b")
    Connector.add_batch_item(batch, "x", {"u": np.array([1, 2])}, first)
    Connector.add_n_batch_items(batch, "x", {"u": np.array([[3, 4], [5, 6]])}, 2, second)
    Connector.add_batch_item(batch, "x", {"u": np.array([7, 8])}, first)
    batch["y"] = [1.5, 2.5]
    batch["infos"] = {("a",): [{"i": 1}], ("b",): [{"i": 2}]}
    batch["done"] = np.array([True])
    return batch


def test_columns_in_any_form_become_arrays() -> None:
    batch = BatchItems()(batch=rows_of_two(), episodes=[])
    assert batch["x"]["u"].tolist() == [[1, 2], [7, 8], [3, 4], [5, 6]]
    assert type(batch["x"]["u"]) is np.ndarray
    assert not isinstance(batch["x"]["u"], BatchedArray)
    assert batch["y"].tolist() == [1.5, 2.5]
    assert batch["infos"] == [{"i": 1}, {"i": 2}]
    assert batch["done"].tolist() == [True]


def test_tensors_are_made_of_what_is_batched_and_what_is_not() -> None:
    batch = ToTensor()(batch=rows_of_two(), episodes=[])
    assert batch["x"]["u"].tolist() == [[1, 2], [7, 8], [3, 4], [5, 6]]
    assert (batch["x"]["u"].dtype, batch["y"].dtype, batch["done"].dtype) == (torch.int64, torch.float32, torch.bool)
    assert batch["infos"] == [{"i": 1}, {"i": 2}]


def test_spaces_are_named_where_a_piece_has_arguments_of_its_own() -> None:
    space: Any = gym.spaces.Discrete(2)
    assert ToTensor("cpu", input_observation_space=space).observation_space == space
    kinds: list[Any] = [ToTensor, Flatten]
    for kind, own in zip(kinds, ("cpu", "obs"), strict=True):
        with pytest.raises(TypeError, match="positional argument"):
            kind(own, space)


def test_what_no_tensor_can_hold_stays() -> None:
    batch = ToTensor()(batch={"eps_id": ["a", "b"], "t": torch.tensor([1])}, episodes=[])
    assert batch["eps_id"].tolist() == ["a", "b"]
    assert batch["t"].tolist() == [1]


@pytest.mark.parametrize("kind", ["read-only", "backwards"])
def test_arrays_that_torch_cannot_share_are_copied(kind: str) -> None:
    array = np.arange(3)
    if kind == "backwards":
        array = array[::-1]
    else:
        array.flags.writeable = False
    batch = ToTensor()(batch={"x": array}, episodes=[])
    assert batch["x"].tolist() == array.tolist()
    batch["x"] += 1  # it is ours to write to
    assert sorted(array.tolist()) == [0, 1, 2]


def test_what_modules_compute_in_is_float32() -> None:
    batch = {"x": np.array([1.5]), "y": torch.tensor([2.5]).double(), "z": np.array([3.5], np.float16)}
    found = ToTensor()(batch=batch, episodes=[])
    assert {name: column.dtype for name, column in found.items()} == {
        "x": torch.float32,
        "y": torch.float32,
        "z": torch.float16,
    }


def test_page_locked_memory_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []

    def pin_memory(tensor: Any) -> Any:
        pinned.append(tensor)
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    ToTensor(pin_memory=True)(batch={"x": np.arange(3), "y": {"z": np.arange(2)}}, episodes=[])
    assert [tensor.tolist() for tensor in pinned] == [[0, 1, 2], [0, 1]]


@pytest.mark.parametrize("piece", [ToTensor("meta"), ToTensor(device="meta")])
def test_tensors_go_to_the_device(piece: ToTensor) -> None:
    batch = piece(batch={"x": np.arange(3.0), "y": torch.zeros(2)}, episodes=[])
    assert {batch["x"].device.type, batch["y"].device.type} == {"meta"}


def in_float32(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return array.astype(np.float32) if array.dtype == np.float64 else array


@given(chunks(), FORMS)
def test_there_and_back(made: Chunks, form: str) -> None:
    pipeline = ConnectorPipeline([AddObservations(), ToTensor(), ToNumpy(), Unbatch()])
    episodes = made.episodes(form)
    batch = pipeline(episodes=episodes)
    rows = [slow.each_leaf(in_float32, cut.story.observations[cut.stop]) for cut in made.cuts]
    for episode, row in zip(episodes, rows, strict=True):
        assert_same(slow.stacked(batch["obs"][(episode.id_,)]), slow.stacked([row]))
    listed = ListItems()(batch={"obs": batch["obs"]}, episodes=episodes)["obs"]
    assert len(listed) == len(rows)
    assert_same(slow.stacked(listed), slow.stacked(rows))


def test_tensors_become_arrays_wherever_they_are() -> None:
    batch = {
        "a": torch.tensor([1.0], requires_grad=True),
        "b": {"c": (torch.tensor([2], dtype=torch.int32),)},
        "d": [torch.tensor([3.0]), torch.tensor([4.0])],
        "e": {("id",): [torch.tensor([5.0])]},
        "f": torch.tensor([6.5], dtype=torch.bfloat16),
        "g": np.array([7]),
        "h": "no array",
    }
    found = ToNumpy()(batch=batch, episodes=[])
    assert type(found["a"]) is np.ndarray
    assert found["b"]["c"][0].dtype == np.int32
    assert [x.tolist() for x in found["d"]] == [[3], [4]]
    assert all(type(x) is np.ndarray for x in found["d"])
    assert type(found["e"][("id",)][0]) is np.ndarray
    assert (found["f"].dtype, found["f"].tolist()) == (np.float32, [6.5])
    assert found["g"].tolist() == [7]
    assert found["h"] == "no array"


def test_rows_go_to_their_episodes_by_position() -> None:
    made = [SingleAgentEpisode("a"), SingleAgentEpisode("b")]
    batch: dict[str, Any] = {"x": np.array([[1], [2]]), "y": [3, 4], "z": {("b",): [5]}}
    batch = Unbatch()(batch=batch, episodes=made)
    assert {key: [x.tolist() for x in rows] for key, rows in batch["x"].items()} == {("a",): [[1]], ("b",): [[2]]}
    assert dict(batch["y"]) == {("a",): [3], ("b",): [4]}
    assert batch["z"] == {("b",): [5]}
    with pytest.raises(ValueError, match=r"Unbatch: column .x. must have a row for each of 2 episodes, got 3"):
        Unbatch()(batch={"x": np.zeros(3)}, episodes=made)


def test_importing_the_pieces_loads_no_torch_and_making_tensors_names_the_extra() -> None:
    program = (
        "import sys, ringback.connectors as c\nassert 'torch' not in sys.modules\nsys.modules['torch'] = None\n"
        "try:\n    c.ToTensor()\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "ToTensor: needs the extra 'train' (torch); pip install 'ringback[train]'"


@pytest.mark.parametrize("last", [BatchItems(), ToTensor()])
def test_columns_of_different_rows_are_refused(last: Connector) -> None:
    """As when a piece of a learner's pipeline was not told that it learns."""
    episode = SingleAgentEpisode(
        "a", observations=[100, 101, 102], actions=[1, 0], rewards=[0.5, 1.5], len_lookback_buffer=0
    )
    pieces = [AddObservations(as_learner_connector=True), PreviousActionsRewards(one_hot=False)]
    with pytest.raises(
        ValueError, match=r"all columns must have one number of rows, got .*'obs': 2, 'prev_actions': 1"
    ):
        ConnectorPipeline([*pieces, last])(episodes=[episode])
    pieces[1] = PreviousActionsRewards(one_hot=False, as_learner_connector=True)
    assert len(ConnectorPipeline([*pieces, last])(episodes=[episode])["prev_actions"]) == 2
