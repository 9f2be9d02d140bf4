"""InfiniteLookbackBuffer: growing, writing, joining, copying."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.episodes.structure import difference
from ringback.errors import EpisodeError
from tests.episodes.making import NESTED, VECTOR, nested, vector

FORMS = pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])


def buffer(items: list[Any], lookback: int = 0, numpy: bool = False, space: Any = None) -> InfiniteLookbackBuffer:
    out = InfiniteLookbackBuffer(items, lookback, space)
    if numpy:
        out.finalize()
    return out


def everything(b: InfiniteLookbackBuffer) -> list[Any]:
    data = b.data
    return data.tolist() if isinstance(data, np.ndarray) else list(data)


@pytest.mark.parametrize(
    ("given", "size", "kept"), [(0, 3, 0), (1, 3, 1), (3, 3, 3), (10, 3, 3), (10, 0, 0), (-2, 3, 0)]
)
def test_the_lookback_is_at_most_what_is_there(given: int, size: int, kept: int) -> None:
    b = InfiniteLookbackBuffer(list(range(size)), lookback=given)
    assert b.lookback == kept
    assert len(b) == size - kept
    assert b.len_incl_lookback() == size


@FORMS
def test_appending_keeps_the_lookback(numpy: bool) -> None:
    b = buffer([5, 6, 7], 2, numpy)
    for k in range(8, 40):
        b.append(k)
    b.extend([40, 41])
    assert everything(b) == list(range(5, 42))
    assert b.lookback == 2
    assert b[0] == 7
    assert b[-1] == 41


@FORMS
def test_pop_takes_an_item_and_shortens_the_lookback_only_for_its_own_items(numpy: bool) -> None:
    b = buffer([5, 6, 7, 8, 9], 2, numpy)
    assert b.pop() == 9
    assert b.pop(0) == 7
    assert everything(b) == [5, 6, 8]
    assert b.lookback == 2
    assert b.pop(-3) == 5
    assert everything(b) == [6, 8]
    assert b.lookback == 1
    with pytest.raises(IndexError):
        b.pop(1)
    b.append(10)
    assert everything(b) == [6, 8, 10]


@FORMS
def test_popping_does_not_let_the_next_item_into_a_copy(numpy: bool) -> None:
    b = buffer([5, 6, 7], 0, numpy)
    shared = copy.copy(b)
    b.pop()
    b.append(99)
    assert everything(shared) == [5, 6, 7]
    assert everything(b) == [5, 6, 99]


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_concat_leaves_the_others_lookback_out_in_every_form(mine: bool, other: bool) -> None:
    a, b = buffer([5, 6], 1, mine), buffer([7, 8, 9], 1, other)
    a.concat(b)
    assert everything(a) == [5, 6, 8, 9]
    assert everything(b) == [7, 8, 9]
    assert a.finalized is mine


@FORMS
def test_nested_items_grow_leaf_by_leaf(numpy: bool) -> None:
    b = buffer([nested(0)], 0, numpy, NESTED)
    b.append(nested(1))
    b.extend([nested(2), nested(3)])
    b.append({"n": np.int64(4), "x": vector(4)})  # the order of the keys does not matter
    got = [b.get(k) for k in range(5)]
    assert [int(item["n"]) for item in got] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal([item["x"] for item in got], [vector(k) for k in range(5)])


@FORMS
@pytest.mark.parametrize(
    ("indices", "neg", "new", "want"),
    [
        (0, False, 99, [5, 6, 99, 8, 9]),
        (-1, False, 99, [5, 6, 7, 8, 99]),
        (-5, False, 99, [99, 6, 7, 8, 9]),
        (-1, True, 99, [5, 99, 7, 8, 9]),
        (None, False, [97, 98, 99], [5, 6, 97, 98, 99]),
        (slice(1, None), False, [98, 99], [5, 6, 7, 98, 99]),
        (slice(1, 100), False, [98, 99], [5, 6, 7, 98, 99]),
        (slice(2, 0, -1), False, [98, 99], [5, 6, 7, 99, 98]),
        (slice(-2, 1), True, [97, 98, 99], [97, 98, 99, 8, 9]),
        ([0, -1], False, [98, 99], [5, 6, 98, 8, 99]),
        (slice(7, 9), False, [], [5, 6, 7, 8, 9]),
    ],
)
def test_set_puts_items_where_get_reads_them(numpy: bool, indices: Any, neg: bool, new: Any, want: list[int]) -> None:
    b = buffer([5, 6, 7, 8, 9], 2, numpy)
    b.set(np.array(new, int) if numpy and isinstance(new, list) else new, at_indices=indices, neg_index_as_lookback=neg)
    assert everything(b) == want


@FORMS
def test_item_assignment_is_set(numpy: bool) -> None:
    b = buffer([5, 6, 7], 1, numpy)
    b[0] = 98
    b[1:] = [99]
    assert everything(b) == [5, 98, 99]


@FORMS
@pytest.mark.parametrize(
    ("indices", "new"),
    [(3, 1), (-6, 1), ([0, 3], [1, 2]), (slice(0, 2), [1]), (None, [1, 2]), (slice(7, 9), [1, 2]), ([0], [1, 2])],
)
def test_set_out_of_range_or_of_another_length_changes_nothing(numpy: bool, indices: Any, new: Any) -> None:
    b = buffer([5, 6, 7, 8, 9], 2, numpy)
    with pytest.raises(IndexError):
        b.set(new, at_indices=indices)
    assert everything(b) == [5, 6, 7, 8, 9]


def test_arrays_given_are_never_written_to() -> None:
    mine = np.array([5, 6, 7])
    b = InfiniteLookbackBuffer(mine)
    b[0] = 99
    b.append(8)
    assert mine.tolist() == [5, 6, 7]
    assert everything(b) == [99, 6, 7, 8]


def test_a_leaf_that_stays_shared_while_another_widens_is_not_written_to() -> None:
    b = InfiniteLookbackBuffer([{"n": 1, "x": 0.5}])
    b.finalize()
    b.append({"n": 2, "x": 1.5})  # with room for more
    twin = copy.copy(b)
    b.append({"n": 2.5, "x": 2.5})
    b[0] = {"n": 9, "x": 9.5}
    assert list(twin) == [{"n": 1, "x": 0.5}, {"n": 2, "x": 1.5}]
    assert list(b) == [{"n": 9, "x": 9.5}, {"n": 2, "x": 1.5}, {"n": 2.5, "x": 2.5}]


def test_lists_given_are_never_written_to() -> None:
    mine = [5, 6, 7]
    b = InfiniteLookbackBuffer(mine)
    b[0] = 99
    b.append(8)
    assert mine == [5, 6, 7]


def test_an_item_that_the_dtype_cannot_hold_widens_it() -> None:
    b = buffer([1, 2], 0, True)
    b.append(0.5)
    assert everything(b) == [1, 2, 0.5]
    b = InfiniteLookbackBuffer(np.array([1, 2], np.uint8))
    b[0] = -300
    assert everything(b) == [-300, 2]
    b = buffer(["a", "b"], 0, True)
    b.append("long")
    b[0] = "longer still"
    assert everything(b) == ["longer still", "b", "long"]


@pytest.mark.parametrize(
    ("item", "what"),
    [
        (np.zeros(3, np.float32), r"must have shape \(2,\) a step, got \(3,\)"),
        (np.array([2e6, 0], np.float32), "must be in Box"),
        (np.array(["a", "b"]), "must fit float32"),
    ],
)
@pytest.mark.parametrize("how", ["append", "extend", "set", "set slice"])
def test_array_form_with_a_space_refuses_what_is_not_in_it(item: Any, what: str, how: str) -> None:
    b = buffer([vector(1), vector(2)], 0, True, VECTOR)
    before = b.data.copy()
    calls = {
        "append": lambda: b.append(item),
        "extend": lambda: b.extend([item]),
        "set": lambda: b.set(item, at_indices=0),
        "set slice": lambda: b.set([item], at_indices=slice(0, 1)),
    }
    with pytest.raises(EpisodeError, match=what):
        calls[how]()
    np.testing.assert_array_equal(b.data, before)
    b.append(vector(3))
    assert len(b) == 3


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (gym.spaces.Discrete(3, start=5), 7, 8),
        (gym.spaces.Discrete(3, start=5), np.int64(5), np.int64(4)),
        (gym.spaces.Discrete(3), 2, 0.5),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 2]), np.array([1, 3])),
        (gym.spaces.MultiBinary(2), np.array([0, 1], np.int8), np.array([0, 2], np.int8)),
        (gym.spaces.Box(0, 255, (2,), np.uint8), np.array([0, 255], np.uint8), np.array([0, 256])),
        (gym.spaces.Box(0, 255, (2,), np.uint8), np.array([0, 255]), np.array([-1, 0])),
        (gym.spaces.Box(-1, 1, (), np.float64), -1.0, -1.25),
        (gym.spaces.Text(3), "abc", "abcd"),
    ],
)
def test_every_kind_of_space_knows_its_own(space: Any, good: Any, bad: Any) -> None:
    b = buffer([good], 0, True, space)
    b.append(good)
    assert len(b) == 2
    with pytest.raises(EpisodeError):
        b.append(bad)
    e = SingleAgentEpisode(observations=[good, bad], observation_space=space, actions=[0], rewards=[0.0])
    for check in (e.to_numpy, e.validate):
        with pytest.raises(EpisodeError):
            check()
    assert e.get_observations(-1) is bad


@pytest.mark.parametrize(
    ("space", "items"),
    [
        (gym.spaces.Discrete(3), [2, 3, -1]),
        (gym.spaces.Box(-1, 1, (), np.float32), [0.5, 2.0]),
        (gym.spaces.Dict({"n": gym.spaces.MultiDiscrete([2, 2])}), [{"n": np.array([1, 5])}]),
        (gym.spaces.Text(3), ["abcd"]),
    ],
)
def test_turning_a_buffer_into_arrays_leaves_values_outside_of_the_space_to_the_episode(space: Any, items: Any) -> None:
    b = buffer(items, 0, True, space)
    assert b == InfiniteLookbackBuffer(b.data, 0, space)
    assert difference(tuple(b), tuple(items)) is None
    with pytest.raises(EpisodeError):
        b.append(items[-1])


def test_nan_is_inside_of_all_bounds() -> None:
    b = buffer([np.array([np.nan, 0], np.float32)], 0, True, VECTOR)
    b.append(np.array([0, np.nan], np.float32))
    assert len(b) == 2


def test_the_space_decides_the_dtype_of_the_arrays() -> None:
    b = buffer([[1.0, 2.0], [3.0, 4.0]], 0, True, VECTOR)
    assert b.data.dtype == np.float32


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([nested(0), {"x": vector(1)}], r"finalize: data must be a dict with the keys \['n', 'x'\], got \['x'\]"),
        ([nested(0), {"x": np.zeros(3, np.float32), "n": 1}], "'x'"),
    ],
)
def test_items_of_other_structure_or_shape_are_named(items: list[Any], what: str) -> None:
    for space in (None, NESTED):
        b = InfiniteLookbackBuffer(items, 0, space)
        with pytest.raises(EpisodeError, match=what):
            b.finalize()
        assert not b.finalized
        assert b.data == items


@pytest.mark.parametrize("item", [{"x": 1.0}, (1.0,), {"x": (1.0, 2.0)}])
@pytest.mark.parametrize("how", ["append", "extend", "set"])
def test_a_structure_is_no_item_of_a_track_of_leaves(item: Any, how: str) -> None:
    b = InfiniteLookbackBuffer(np.array([0.5, 1.5]))
    calls = {
        "append": lambda: b.append(item),
        "extend": lambda: b.extend([item]),
        "set": lambda: b.set(item, at_indices=0),
    }
    with pytest.raises(EpisodeError, match=rf"^InfiniteLookbackBuffer\.{how}: data must be no structure, got a "):
        calls[how]()
    assert everything(b) == [0.5, 1.5]


def test_any_object_can_be_an_item() -> None:
    class Thing:
        pass

    things = [Thing(), Thing(), Thing()]
    b = InfiniteLookbackBuffer(things[:2])
    b.append(things[2])
    assert b.get([0, 2]) == [things[0], things[2]]
    assert b.get(7, fill="nothing") == "nothing"
    b.finalize()
    assert list(b) == things


@FORMS
@pytest.mark.parametrize("space", [None, VECTOR])
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("how", ["state", "pickle", "copy", "deepcopy"])
def test_copies_are_equal_and_independent(numpy: bool, space: Any, size: int, how: str) -> None:
    b = buffer([vector(k) for k in range(size)], 1, numpy, space)
    ways: dict[str, Callable[[], Any]] = {
        "state": lambda: InfiniteLookbackBuffer.from_state(b.get_state()),
        "pickle": lambda: pickle.loads(pickle.dumps(b)),
        "copy": lambda: copy.copy(b),
        "deepcopy": lambda: copy.deepcopy(b),
    }
    twin = ways[how]()
    assert twin == b
    twin.append(vector(8))
    assert twin != b
    b.append(vector(9))
    assert len(twin) == len(b)
    assert twin[-1][0] == 8
    assert b[-1][0] == 9
    if size:
        twin[0] = vector(77)
        b[1] = vector(88)
        assert b[0][0] == 1
        assert twin[1][0] == 2


def test_a_state_is_a_snapshot() -> None:
    for numpy in (False, True):
        b = buffer([1, 2, 3], 1, numpy)
        state = b.get_state()
        b[0] = 99
        b.append(4)
        assert InfiniteLookbackBuffer.from_state(state) == buffer([1, 2, 3], 1, numpy)
    assert set(state) == {"data", "lookback", "finalized", "space"}


def test_buffers_differ_in_data_lookback_form_and_space() -> None:
    b = buffer([1, 2], 1)
    assert b == buffer([1, 2], 1)
    assert b != buffer([1, 3], 1)
    assert b != buffer([1, 2, 3], 1)
    assert b != buffer([1, 2], 0)
    assert b != buffer([1, 2], 1, True)
    assert b != buffer([1, 2], 1, False, gym.spaces.Discrete(3))
    assert b != [1, 2]
    nan = buffer([{"x": np.array([np.nan])}])
    assert nan == buffer([{"x": np.array([np.nan])}])


def test_plus_joins_lists_and_buffers_and_adds_numbers() -> None:
    b = buffer([1, 2, 3], 1)
    more = [4]
    assert (b + more).data == [1, 2, 3, 4]
    assert (b + buffer([8, 9], 1)).data == [1, 2, 3, 9]
    assert (b + 10).data == [11, 12, 13]
    assert b.data == [1, 2, 3]
    with pytest.raises(RuntimeError, match="must be in list form"):
        buffer([1], 0, True) + more


@FORMS
def test_iterating_leaves_the_lookback_out(numpy: bool) -> None:
    assert list(buffer([1, 2, 3], 1, numpy)) == [2, 3]
    assert repr(buffer([1, 2, 3], 1)) == "InfiniteLookbackBuffer([1] <- lookback(1) | [2, 3])"


def test_the_structure_of_the_space_is_there() -> None:
    assert buffer([], 0, False, NESTED).space_struct == {"n": gym.spaces.Discrete(1000), "x": VECTOR}
    assert buffer([]).space_struct is None


def test_an_array_without_a_time_axis_is_refused() -> None:
    with pytest.raises(EpisodeError, match="leading time axis"):
        InfiniteLookbackBuffer(np.float32(3))
    with pytest.raises(EpisodeError, match=r"must have one leading length, got \['1', '2'\]"):
        InfiniteLookbackBuffer({"a": np.zeros(1), "b": np.zeros(2)})


def test_appending_to_arrays_copies_each_row_a_constant_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    real = np.empty

    def counted(shape: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal copied
        copied += shape[0] if isinstance(shape, tuple) else 0
        return real(shape, *args, **kwargs)

    b = buffer([vector(0)], 0, True)
    monkeypatch.setattr(np, "empty", counted)
    for k in range(1, 4001):
        b.append(vector(k))
    assert copied < 5 * 4001
    assert b[4000][0] == 4000


@FORMS
def test_extending_by_a_buffer_leaves_its_lookback_out(numpy: bool) -> None:
    b = buffer([1, 2], 0, numpy)
    b.extend(buffer([7, 8, 9], 1, not numpy))
    assert everything(b) == [1, 2, 8, 9]


@pytest.mark.parametrize("space", [None, VECTOR])
def test_an_empty_array_takes_the_shape_of_its_first_items(space: Any) -> None:
    b = InfiniteLookbackBuffer(np.zeros((0,)), 0, space)
    b.append(vector(1))
    b.extend([vector(2)])
    np.testing.assert_array_equal(b.data, [vector(1), vector(2)])
    assert b.data.dtype == np.float32


@FORMS
@pytest.mark.parametrize("space", [None, VECTOR])
def test_a_fill_may_be_an_item(numpy: bool, space: Any) -> None:
    b = buffer([vector(1)], 0, numpy, space)
    got = b.get(slice(-2, None), fill=np.array([7, 8], np.float32))
    np.testing.assert_array_equal(np.stack(list(got)), [[7, 8], vector(1)])
    np.testing.assert_array_equal(b.get(5, fill=np.array([7, 8], np.float32)), [7, 8])


def test_a_deep_copy_keeps_what_is_one_object_one_object() -> None:
    shared, nested_one = vector(1), {"x": vector(2)}
    twin = copy.deepcopy(buffer([shared, shared, nested_one, nested_one, "text", 3, None]))
    assert twin[0] is twin[1]
    assert twin[0] is not shared
    assert twin[2] is twin[3]
    assert twin[2]["x"] is not nested_one["x"]
    assert twin.data[4:] == ["text", 3, None]
