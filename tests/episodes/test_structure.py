"""Structures of data: batch, unbatch, comparison, one-hot codes."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback.episodes import batch, one_hot, one_hot_multidiscrete, unbatch
from ringback.episodes.structure import difference
from ringback.errors import EpisodeError

Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    "items",
    [
        [1, 2, 3],
        [1.5, 2.5],
        [np.float32(1.5), np.float32(2.5)],
        [np.array([1, 2]), np.array([3, 4])],
        [{"a": 1, "b": (2, np.array([3.5]))}, {"a": 4, "b": (5, np.array([6.5]))}],
        [Pair(1, {"x": 2}), Pair(3, {"x": 4})],
        ["one", "three"],
        [True, False],
        [{}, {}][:0] or [((1,),), ((2,),)],
    ],
)
def test_unbatch_undoes_batch(items: list[Any]) -> None:
    again = unbatch(batch(items))
    assert len(again) == len(items)
    assert all(difference(x, y) is None for x, y in zip(again, items, strict=True))


def test_batch_keeps_the_structure_and_the_dtypes() -> None:
    got = batch([{"a": np.float32(1), "b": Pair(np.uint8(2), 3)}, {"b": Pair(np.uint8(5), 6), "a": np.float32(4)}])
    assert got["a"].dtype == np.float32
    assert got["a"].tolist() == [1, 4]
    assert isinstance(got["b"], Pair)
    assert got["b"].left.dtype == np.uint8
    assert got["b"].right.tolist() == [3, 6]


def test_batches_are_joined_along_their_own_axis() -> None:
    got = batch([{"a": np.array([1, 2])}, {"a": np.array([3])}], individual_items_already_have_batch_dim=True)
    assert got["a"].tolist() == [1, 2, 3]
    with pytest.raises(EpisodeError, match="fit together"):
        batch([np.zeros((1, 2)), np.zeros((1, 3))], individual_items_already_have_batch_dim=True)


def test_batch_copies() -> None:
    item = np.array([1, 2])
    got = batch([item])
    got[0, 0] = 9
    assert item.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([], "batch: list_of_structs must hold at least one item, got none"),
        ([{"a": 1}, {"b": 1}], r"batch: data must be a dict with the keys \['a'\], got \['b'\]"),
        ([{"a": {"x": 1}}, {"a": 3}], r"batch: data at 'a' must be a dict with the keys \['x'\], got int"),
        ([(1, 2), (1,)], "batch: data must be a tuple of 2, got a tuple of 1"),
        (
            [{"a": np.zeros(2)}, {"a": np.zeros(3)}],
            r"batch: all items at 'a' must have one shape, got \[\(2,\), \(3,\)\]",
        ),
    ],
)
def test_items_that_do_not_go_together_are_named(items: list[Any], what: str) -> None:
    with pytest.raises(EpisodeError, match=f"^{what}$"):
        batch(items)


def test_leaves_of_different_lengths_do_not_unbatch() -> None:
    with pytest.raises(EpisodeError, match=r"unbatch: the leaves must have one leading length, got \[1, 2\]"):
        unbatch({"a": np.zeros(1), "b": np.zeros(2)})


def test_objects_without_a_numpy_type_become_an_array_of_objects() -> None:
    things = [object(), object()]
    assert batch(things).tolist() == things
    ragged = [[1], [1, 2]]
    assert batch(ragged).tolist() == ragged


@pytest.mark.parametrize(
    ("a", "b", "where"),
    [
        (1, 1.0, None),
        (1, 2, ""),
        ("a", "a", None),
        (float("nan"), float("nan"), None),
        (np.array([1, np.nan]), np.array([1, np.nan]), None),
        (np.array([np.nan, 1]), np.array([1, np.nan]), ""),
        (np.zeros(2), np.zeros(3), ""),
        (np.array([1], np.int64), np.array([1], np.int32), None),
        ({"x": 1, "y": (1, 2)}, {"y": (1, 3), "x": 1}, "y/1"),
        ({"x": 1}, {"z": 1}, ""),
        ((1, {"a": np.zeros(2)}), (1, {"a": np.ones(2)}), "1/a"),
        (OrderedDict(x=1), {"x": 1}, None),
        ([np.zeros(2), 1], [np.zeros(2), 1], None),
        ([np.zeros(2), 1], [np.zeros(2), 2], ""),
        (None, None, None),
        (None, np.zeros(1), ""),
        (np.int64(1), np.int64(2), ""),
        (np.float32("nan"), np.float32("nan"), None),
        (np.float32("nan"), np.float32(1), ""),
        (np.array(["a"]), np.array(["b"]), ""),
        (np.array([1 + 1j * np.nan]), np.array([1 + 1j * np.nan]), None),
    ],
)
def test_differences_are_found_leaf_by_leaf(a: Any, b: Any, where: str | None) -> None:
    assert difference(a, b) == where


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_one_hot_codes_stand_at_the_last_axis(dtype: Any) -> None:
    got = one_hot(np.array([[0, 2], [1, 1]], dtype), 3)
    assert got.shape == (2, 2, 3)
    assert got.dtype == np.float32
    assert got.argmax(-1).tolist() == [[0, 2], [1, 1]]
    assert got.sum() == 4
    assert one_hot(-1, 2, start=-2).tolist() == [0, 1]


@pytest.mark.parametrize("bad", [3, -1])
def test_a_value_out_of_range_has_no_code(bad: int) -> None:
    with pytest.raises(EpisodeError, match=rf"one_hot: values must be in \[0, 3\), got {bad}"):
        one_hot([0, bad], 3)
    with pytest.raises(EpisodeError, match="values must be in MultiDiscrete"):
        one_hot_multidiscrete([[0, bad]], gym.spaces.MultiDiscrete([2, 3]))
    with pytest.raises(EpisodeError, match="values must be integers, got float64"):
        one_hot([0.5], 3)


def test_codes_of_several_integers_lie_side_by_side() -> None:
    space = gym.spaces.MultiDiscrete([2, 3], start=[0, 5])
    assert one_hot_multidiscrete([1, 5], space).tolist() == [0, 1, 1, 0, 0]
    assert one_hot_multidiscrete([[0, 7], [1, 6]], space).tolist() == [[1, 0, 0, 0, 1], [0, 1, 0, 1, 0]]
    grid = gym.spaces.MultiDiscrete(np.array([[2, 2], [2, 3]]))
    assert one_hot_multidiscrete([[[0, 1], [1, 2]]], grid).tolist() == [[1, 0, 0, 1, 0, 1, 0, 0, 1]]
