"""The index rules: one statement for ints, lists and slices, in list form and in array form."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import _core
from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.errors import EpisodeError
from tests.episodes.making import VECTOR, episode, vector

FORMS = pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])


def buffer(items: list[Any], lookback: int, numpy: bool, space: gym.Space[Any] | None = None) -> InfiniteLookbackBuffer:
    out = InfiniteLookbackBuffer(items, lookback, space)
    if numpy:
        out.finalize()
    return out


def got(answer: Any) -> Any:
    return answer.tolist() if isinstance(answer, (np.ndarray, np.generic)) else answer


@FORMS
@pytest.mark.parametrize(
    ("indices", "neg", "want"),
    [
        (None, False, [8, 9, 10, 11]),
        (0, False, 8),
        (3, False, 11),
        (-1, False, 11),
        (-4, False, 8),
        (-5, False, 7),  # from the end, into the lookback
        (-7, False, 5),
        (-1, True, 7),
        (-3, True, 5),
        (2, True, 10),
        ([0, -1, -7], False, [8, 11, 5]),
        ((0, -1), False, [8, 11]),
        ([-1, 0, -3], True, [7, 8, 5]),
        ([], False, []),
        (slice(None), False, [8, 9, 10, 11]),
        (slice(None), True, [8, 9, 10, 11]),
        (slice(-2, None), False, [10, 11]),
        (slice(-2, 2), True, [6, 7, 8, 9]),
        (slice(-6, -2), False, [6, 7, 8, 9]),
        (slice(0, 100), False, [8, 9, 10, 11]),
        (slice(-100, 1), True, [5, 6, 7, 8]),
        (slice(2, 1), False, []),
        (slice(100, 200), False, []),
        (slice(None, None, -1), False, [11, 10, 9, 8]),
        (slice(None, None, 2), False, [8, 10]),
        (slice(1, -3, -1), True, [9, 8, 7, 6]),
        (slice(100, None, -2), False, [11, 9]),
        (slice(-100, None, 3), False, [5, 8, 11]),
    ],
)
def test_indices_name_these_items(numpy: bool, indices: Any, neg: bool, want: Any) -> None:
    b = buffer([5, 6, 7, 8, 9, 10, 11], 3, numpy)
    assert got(b.get(indices, neg_index_as_lookback=neg)) == want


@FORMS
@pytest.mark.parametrize("as_index", [np.int64, np.int32, np.uint8, lambda i: np.array(i)])
def test_numpy_integers_are_indices(numpy: bool, as_index: Any) -> None:
    b = buffer([5, 6, 7, 8], 2, numpy)
    assert got(b.get(as_index(1))) == 8
    assert got(b.get([as_index(0), as_index(1)])) == [7, 8]
    assert got(b.get(slice(as_index(0), as_index(1)))) == [7]


@FORMS
def test_an_integer_array_is_a_list_of_indices(numpy: bool) -> None:
    b = buffer([5, 6, 7, 8], 2, numpy)
    assert got(b.get(np.array([1, -4, 0]))) == [8, 5, 7]


@FORMS
@pytest.mark.parametrize(
    ("indices", "neg", "low", "bad"),
    [
        (4, False, -7, 4),
        (-8, False, -7, -8),
        (-4, True, -3, -4),
        (4, True, -3, 4),
        ([0, 7], False, -7, 7),
        ([0, -9, 7], True, -3, -9),
        (10**30, False, -7, 10**30),
    ],
)
def test_an_index_out_of_range_names_the_valid_range(numpy: bool, indices: Any, neg: bool, low: int, bad: int) -> None:
    b = buffer([5, 6, 7, 8, 9, 10, 11], 3, numpy)
    with pytest.raises(IndexError) as error:
        b.get(indices, neg_index_as_lookback=neg)
    assert str(error.value) == (
        f"InfiniteLookbackBuffer.get: indices must be in [{low}, 4) with 3 lookback steps, got {bad}; pass fill= to pad"
    )


@FORMS
@pytest.mark.parametrize(
    "indices", ["0", 1.0, [1.0], np.array([0.5]), np.array([True]), {0: 1}, slice("a", None), b"0"]
)
def test_other_types_are_refused(numpy: bool, indices: Any) -> None:
    with pytest.raises(TypeError, match=r"^InfiniteLookbackBuffer\.get: indices must be None, an int, a slice, or a"):
        buffer([5, 6], 0, numpy).get(indices)


@FORMS
def test_a_slice_of_step_zero_is_refused(numpy: bool) -> None:
    with pytest.raises(ValueError, match="the step of a slice must not be 0"):
        buffer([5, 6], 0, numpy).get(slice(0, 1, 0))


@FORMS
def test_index_zero_of_a_chunk_of_length_zero_is_out_of_range(numpy: bool) -> None:
    e = SingleAgentEpisode(observations=[3, 4, 5, 6], actions=[10, 11, 12], rewards=[0.5, 1.5, 2.5])
    if numpy:
        e.to_numpy()
    assert len(e) == 0
    with pytest.raises(IndexError):
        e.get_actions(0)
    assert e.get_actions(-1, neg_index_as_lookback=True) == 12
    with pytest.raises(IndexError):
        e.get_actions(-4, neg_index_as_lookback=True)
    assert e.get_observations(0) == 6
    assert got(e.get_actions([-4, -1, 0], neg_index_as_lookback=True, fill=-1)) == [-1, 12, -1]


@FORMS
@pytest.mark.parametrize(
    ("indices", "neg", "want"),
    [
        (9, False, -7),
        (1, False, 8),
        ([-9, 0, 9], False, [-7, 7, -7]),
        (slice(-6, None), False, [-7, -7, 5, 6, 7, 8]),
        (slice(0, 4), False, [7, 8, -7, -7]),
        (slice(-4, 4), True, [-7, -7, 5, 6, 7, 8, -7, -7]),
        (slice(-9, -6), False, [-7, -7, -7]),
        (slice(5, 9), False, [-7] * 4),
        (slice(9, 5), False, [-7] * 4),  # wholly outside: as many as lie between the bounds, whichever way
        (slice(9, 5, -1), False, [-7] * 4),
        (slice(-9, -6, -1), False, [-7] * 3),
        (slice(3, -5, -1), True, [-7, -7, 8, 7, 6, 5, -7, -7]),
        (slice(-5, 3, 2), True, [-7, -7, 6, 8]),
        (slice(0, 2), False, [7, 8]),
        (slice(1, 0), False, []),
    ],
)
def test_a_fill_stands_for_what_is_not_there(numpy: bool, indices: Any, neg: bool, want: Any) -> None:
    b = buffer([5, 6, 7, 8], 2, numpy)
    assert got(b.get(indices, neg_index_as_lookback=neg, fill=-7)) == want


@FORMS
def test_a_fill_has_the_shape_dtype_and_structure_of_the_space(numpy: bool) -> None:
    space = gym.spaces.Dict({"x": gym.spaces.Box(0, 9, (2,), np.float32), "n": gym.spaces.Discrete(9)})
    b = buffer([{"x": np.array([1, 2], np.float32), "n": np.int64(3)}], 0, numpy, space)
    for answer in (b.get(4, fill=7.0), b.get([4], fill=7.0), b.get(slice(1, 2), fill=7.0)):
        item = answer[0] if isinstance(answer, list) else answer
        np.testing.assert_array_equal(np.ravel(item["x"]), [7, 7])
        assert np.shape(item["x"])[-1:] == (2,)
        assert item["x"].dtype == np.float32
        assert np.asarray(item["n"]).dtype == np.int64
        assert np.ravel(item["n"]) == [7]


@FORMS
def test_a_fill_without_a_space_looks_like_the_other_items(numpy: bool) -> None:
    b = buffer([(np.array([1, 2], np.uint8), np.float32(0.5))], 0, numpy)
    item = b.get(5, fill=3)
    assert item[0].dtype == np.uint8
    assert item[0].tolist() == [3, 3]
    assert item[1].dtype == np.float32
    assert item[1] == 3


@FORMS
def test_a_fill_that_the_dtype_cannot_hold_widens_the_answer(numpy: bool) -> None:
    b = buffer([np.array([1, 2], np.uint8)], 0, numpy)
    assert np.asarray(b.get(slice(0, 2), fill=-1.5)[1]).tolist() == [-1.5, -1.5]


@FORMS
@pytest.mark.parametrize("space", [None, VECTOR])
def test_fills_are_objects_of_their_own(numpy: bool, space: Any) -> None:
    b = buffer([vector(1)], 0, numpy, space)
    first, second = b.get([5, 6], fill=3.0)
    first[0] = 99.0
    assert second.tolist() == [3.0, 3.0]
    assert b.get(5, fill=3.0).tolist() == [3.0, 3.0]
    b.get(5, fill=3.0)[0] = 98.0
    assert got(b.get(slice(4, 6), fill=3.0)[1]) == [3.0, 3.0]


@FORMS
def test_one_fill_after_another_is_itself(numpy: bool) -> None:
    b = buffer([1, 2], 0, numpy, gym.spaces.Discrete(4))
    answers = [b.get(9, fill=value) for value in (0, 0.5, 0, -1, 0.0, 2.5, True)]
    assert [got(answer) for answer in answers] == [0, 0.5, 0, -1, 0, 2.5, 1]
    assert [got(b.get(9, fill=1, one_hot_discrete=coded)) for coded in (True, False, True)] == [[1] * 4, 1, [1] * 4]
    pair = np.array([1.0, 2.0], np.float32)
    pairs = buffer([vector(1)], 0, numpy, VECTOR)
    assert got(pairs.get(9, fill=pair)) == [1, 2]
    pair[0] = 7
    assert got(pairs.get(9, fill=pair)) == [7, 2]
    floats = buffer([1.0], 0, numpy, gym.spaces.Box(-9, 9, (), np.float64))
    assert [str(got(floats.get(9, fill=value))) for value in (0.0, -0.0)] == ["0.0", "-0.0"]


@FORMS
def test_a_list_of_indices_takes_any_fill(numpy: bool) -> None:
    things = buffer([{1}, "b"], 0, numpy)  # no numbers
    assert list(things.get([5, 1, -3], fill="none")) == ["none", "b", "none"]
    assert list(things.get(slice(-3, 4), fill="none")) == ["none", {1}, "b", "none", "none"]
    numbers = buffer([3, 4], 0, numpy, gym.spaces.Discrete(9))
    assert got(numbers.get([7, 1, -9, 0], fill=-1.5)) == [-1.5, 4, -1.5, 3]
    assert got(numbers.get([7, 8], fill=-1.5)) == [-1.5, -1.5]
    nested = buffer([(np.int64(1), vector(2))], 0, numpy)
    answer = nested.get([4, 0], fill=(7, 0.5))
    rows = answer if isinstance(answer, list) else list(zip(*answer, strict=True))
    assert [(got(n), got(x)) for n, x in rows] == [(7, [0.5, 0.5]), (1, [2, -2])]


@FORMS
def test_a_square_of_choices_is_coded_in_its_order(numpy: bool) -> None:
    space = gym.spaces.MultiDiscrete(np.array([[2, 3], [3, 2]]))
    b = buffer([np.array([[1, 2], [0, 1]]), np.array([[0, 0], [2, 0]])], 0, numpy, space)
    codes = [[0, 1, 0, 0, 1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0, 0, 1, 1, 0]]
    np.testing.assert_array_equal(np.stack(list(b.get(one_hot_discrete=True))), codes)
    np.testing.assert_array_equal(b.get(5, one_hot_discrete=True, fill=0.5), [0.5] * 10)
    answer = b.get([-9, 1], one_hot_discrete=True, fill=0.0)
    np.testing.assert_array_equal(np.stack(list(answer)), [[0] * 10, codes[1]])
    assert len(b.get(slice(2, 2), one_hot_discrete=True)) == 0


@FORMS
def test_the_last_items_cost_the_same_however_long_the_episode(numpy: bool) -> None:
    def seconds(steps: int) -> float:
        e = SingleAgentEpisode(
            observations=[0.5] * (steps + 1),
            actions=[1] * steps,
            rewards=[1.0] * steps,
            action_space=gym.spaces.Discrete(3),
            len_lookback_buffer=0,
        )
        if numpy:
            e.to_numpy()
        reads: list[Callable[[], Any]] = [
            lambda: e.get_observations(-1),
            lambda: e.get_observations(slice(-4, None)),
            lambda: e.get_rewards(slice(-4, steps + 4), fill=0.0),
            lambda: e.get_actions([-1, -2, steps], fill=0),
            lambda: e.get_actions(slice(-4, None), one_hot_discrete=True),
            lambda: e.get_infos(-1),
            lambda: e.cut(4),
            lambda: e.cut(4).get_actions(-1, neg_index_as_lookback=True, one_hot_discrete=True),
        ]
        times = []
        for _ in range(20):
            start = time.perf_counter()
            for read in reads:
                read()
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(400_000) < 50 * seconds(40)  # ten thousand times the steps


@FORMS
@pytest.mark.parametrize("derive", ["itself", "slice", "cut", "pickle"])
def test_a_fill_keeps_its_shape_in_derived_episodes(numpy: bool, derive: str) -> None:
    e = episode(4, numpy=numpy)
    ways: dict[str, Callable[[], SingleAgentEpisode]] = {
        "itself": lambda: e[0:3],
        "slice": lambda: e[0:4][0:3],
        "cut": lambda: e[0:3].cut(3)[0:0].slice(slice(0, 0), len_lookback_buffer=3),
        "pickle": lambda: pickle.loads(pickle.dumps(e))[0:3],
    }
    piece = ways[derive]()
    at = [-5, -4, -3] if derive == "cut" else [-2, -1, 0]
    window = np.stack(list(piece.get_observations(at, neg_index_as_lookback=True, fill=0)))
    assert window.dtype == np.float32
    np.testing.assert_array_equal(window, [[0, 0], [0, 0], vector(0)])


@FORMS
def test_infos_stay_a_list_and_take_a_fill_as_it_is(numpy: bool) -> None:
    e = episode(2, 1, numpy=numpy)
    assert e.get_infos() == [{"step": 1}, {"step": 2}]
    assert e.get_infos(slice(1, 4), fill={}) == [{"step": 2}, {}, {}]
    assert e.get_infos(-1, neg_index_as_lookback=True) == {"step": 0}


@FORMS
def test_the_previous_action_of_the_first_step_is_a_fill(numpy: bool) -> None:
    e = SingleAgentEpisode(
        observations=[0, 1, 2, 3],
        actions=[0, 2, 1],
        rewards=[1.0, 2.0, 3.0],
        action_space=gym.spaces.Discrete(3),
        len_lookback_buffer=0,
    )
    if numpy:
        e.to_numpy()
    previous = e.get_actions(slice(-1, 2), neg_index_as_lookback=True, fill=-1)
    assert got(previous) == [-1, 0, 2]
    coded = e.get_actions(slice(-1, 2), neg_index_as_lookback=True, fill=0.0, one_hot_discrete=True)
    np.testing.assert_array_equal(np.stack(list(coded)), [[0, 0, 0], [1, 0, 0], [0, 0, 1]])
    assert got(e.get_actions(slice(-1, 1), neg_index_as_lookback=True, fill=-1)) == [-1, 0]


@FORMS
def test_a_window_slides_over_global_time(numpy: bool) -> None:
    e = episode(6, 3, numpy=numpy)
    for t in range(3):
        window = e.get_rewards(slice(t - 2, t + 1), neg_index_as_lookback=True)
        assert got(window) == [1000.0 + 3 + t + k for k in (-2, -1, 0)]


@FORMS
@pytest.mark.parametrize("start", [0, -2])
def test_one_hot_codes_of_a_discrete_space_with_any_start(numpy: bool, start: int) -> None:
    space = gym.spaces.Discrete(3, start=start)
    b = buffer([start + 2, start, start + 1], 1, numpy, space)
    np.testing.assert_array_equal(b.get(0, one_hot_discrete=True), [1, 0, 0])
    np.testing.assert_array_equal(np.stack(list(b.get(one_hot_discrete=True))), [[1, 0, 0], [0, 1, 0]])
    codes = b.get([-1, 0], neg_index_as_lookback=True, one_hot_discrete=True)
    np.testing.assert_array_equal(np.stack(list(codes)), [[0, 0, 1], [1, 0, 0]])
    filled = b.get(slice(-2, None), neg_index_as_lookback=True, one_hot_discrete=True, fill=-1)
    np.testing.assert_array_equal(np.stack(list(filled)), [[-1, -1, -1], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert b.get(9, one_hot_discrete=True, fill=0.0).dtype == np.float32


@FORMS
def test_one_hot_codes_of_nested_actions(numpy: bool) -> None:
    space = gym.spaces.Dict(
        {"a": gym.spaces.Discrete(3), "b": gym.spaces.MultiDiscrete([2, 3]), "c": gym.spaces.Box(-1, 1, (2,))}
    )
    items = [
        {"a": np.int64(2), "b": np.array([1, 2]), "c": np.array([0.5, -0.5], np.float32)},
        {"a": np.int64(0), "b": np.array([0, 1]), "c": np.array([0.25, 0.75], np.float32)},
    ]
    answer = buffer(items, 0, numpy, space).get(slice(-3, None), one_hot_discrete=True, fill=0.0)
    rows = answer if isinstance(answer, list) else [{k: v[t] for k, v in answer.items()} for t in range(3)]
    assert [r["a"].tolist() for r in rows] == [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert [r["b"].tolist() for r in rows] == [[0] * 5, [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]
    assert [r["c"].tolist() for r in rows] == [[0, 0], [0.5, -0.5], [0.25, 0.75]]


@FORMS
def test_one_hot_codes_need_a_space(numpy: bool) -> None:
    with pytest.raises(EpisodeError, match=r"one_hot_discrete must come with a space, got space None"):
        buffer([1, 2], 0, numpy).get(one_hot_discrete=True)


@FORMS
def test_a_value_outside_of_its_discrete_space_has_no_one_hot_code(numpy: bool) -> None:
    b = InfiniteLookbackBuffer(np.array([1, 5]) if numpy else [1, 5], 0, gym.spaces.Discrete(3))
    with pytest.raises(EpisodeError, match=r"\[0, 3\)|Discrete\(3\)"):
        b.get(one_hot_discrete=True)


def test_slices_of_arrays_are_views_and_lists_of_indices_are_copies() -> None:
    b = buffer([vector(k) for k in range(4)], 1, True)
    assert np.shares_memory(b.get(slice(0, 2)), b.data)
    assert not np.shares_memory(b.get([0, 1]), b.data)
    assert not np.shares_memory(b.get(slice(0, 9), fill=0.0), b.data)


def test_the_boundary_rules_are_the_cores() -> None:
    assert _core.lookback_window(-2, 3, -5, 9) == (3, -2, 5, 6)
    assert _core.lookback_take([5, 6, 7], 1, slice(-2, 2), True, "W", None) == [None, 5, 6, 7]
    assert _core.lookback_positions(3, 1, slice(None, None, -1), False, False, "W") == (0, slice(2, 0, -1), 2, 0)


@pytest.mark.parametrize("lookback", [-1, 4])
def test_the_core_refuses_a_lookback_longer_than_the_data(lookback: int) -> None:
    with pytest.raises(ValueError, match=r"lookback must be in \[0, 3\]"):
        _core.lookback_take([5, 6, 7], lookback, 0, False, "W")
    with pytest.raises(ValueError, match=r"lookback must be in \[0, 3\]"):
        _core.lookback_positions(3, lookback, 0, False, False, "W")


def test_an_index_that_changes_the_list_while_it_is_read_does_no_harm() -> None:
    items = [[k] for k in range(1000)]

    class Shrinking:
        def __index__(self) -> int:
            items.clear()
            return 999

    with pytest.raises(IndexError):
        _core.lookback_take(items, 0, Shrinking(), False, "W")
    items[:] = [[k] for k in range(1000)]
    with pytest.raises(IndexError):
        _core.lookback_take(items, 0, [Shrinking()], False, "W")
    items[:] = [[k] for k in range(1000)]
    with pytest.raises((IndexError, RuntimeError)):
        _core.lookback_take(items, 0, slice(Shrinking(), None), False, "W")
