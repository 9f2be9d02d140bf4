"""Rows of a vector environment: steps, starts, successors and infos, in every container that simulators use."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from ringback.errors import EnvError
from ringback.vector_rows import SMALL, VectorRows, VectorStep, row_splitter, rows_of_all
from tests.counting import MODES, Counting, CountingDict, CountingTuple, lanes, plain

NEXT_STEP, SAME_STEP, DISABLED = MODES


def objects(*items: Any) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def flags(*values: int) -> Any:
    return np.array(values, bool)


class Given(VectorEnv[Any, Any, Any]):
    def __init__(self, mode: Any, space: gym.spaces.Space[Any], count: int = 3) -> None:
        self.num_envs = count
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = space
        self.single_action_space = gym.spaces.Discrete(2)


BOX = gym.spaces.Box(-1.0, 1e6, (1,), np.float32)


def rows(mode: Any, space: gym.spaces.Space[Any] = BOX, count: int = 3) -> VectorRows:
    return VectorRows(Given(mode, space, count), "Test")


def read(
    reader: VectorRows, observations: Any, ends: Any, infos: dict[str, Any] | None = None, *, accept: bool = True
) -> VectorStep:
    count = len(ends)
    step = reader.read(observations, np.arange(count, dtype=np.float32), ends, np.zeros(count, bool), infos or {})
    if accept:
        reader.accept(step)
    return step


def column(*numbers: float) -> Any:
    return np.array(numbers, np.float32)[:, None]


class TestStepsAndStarts:
    def test_next_step(self) -> None:
        reader = rows(NEXT_STEP)
        step = read(reader, column(3, 7, 8), flags(1, 0, 0))
        assert (step.steps, step.starts, step.ended.tolist()) == (None, None, [True, False, False])
        step = read(reader, column(100, 8, 9), flags(0, 1, 0))
        assert step.steps is not None
        assert step.starts is not None
        assert (step.steps.tolist(), step.starts.tolist()) == ([False, True, True], [True, False, False])
        step = read(reader, column(101, 200, 9), flags(0, 0, 0))
        assert step.starts is not None
        assert step.starts.tolist() == [False, True, False]
        step = read(reader, column(102, 201, 9), flags(0, 0, 0))
        assert (step.steps, step.starts) == (None, None)

    def test_next_step_does_not_believe_the_flags_of_a_reset(self) -> None:
        reader = rows(NEXT_STEP)
        read(reader, column(3, 7, 8), flags(1, 0, 0))
        step = read(reader, column(100, 8, 9), flags(1, 0, 0))
        assert step.num_ended == 0
        assert read(reader, column(101, 9, 10), flags(0, 0, 0)).steps is None

    def test_reading_is_not_taking_note(self) -> None:
        reader = rows(NEXT_STEP)
        read(reader, column(3, 7, 8), flags(1, 0, 0), accept=False)
        assert read(reader, column(3, 7, 8), flags(1, 0, 0)).steps is None
        assert read(reader, column(100, 8, 9), flags(0, 0, 0)).steps is not None

    def test_same_step(self) -> None:
        reader = rows(SAME_STEP)
        final = objects(None, np.array([8], np.float32), None)
        observations = column(3, 100, 8)
        step = read(reader, observations, flags(0, 1, 0), {"final_obs": final})
        assert (step.steps, plain(step.starts)) == (None, [False, True, False])
        assert step.successors().tolist() == [[3], [8], [8]]
        assert plain(tuple(step.successor_rows())) == ([3], [8], [8])
        assert observations.tolist() == [[3], [100], [8]]
        assert read(reader, column(4, 101, 9), flags(0, 0, 0)).starts is None

    def test_disabled_waits_for_the_reset(self) -> None:
        reader = rows(DISABLED)
        step = read(reader, column(3, 7, 8), flags(1, 0, 1))
        assert (step.steps, step.starts) == (None, None)
        assert reader.waiting.tolist() == [True, False, True]
        reader.reset(flags(1, 0, 0))
        assert reader.waiting.tolist() == [False, False, True]
        reader.reset()
        assert not reader.waiting.any()

    def test_only_disabled_asks_for_resets(self) -> None:
        final = objects(np.array([3], np.float32), None, None)
        for mode in MODES:
            reader = rows(mode)
            assert (reader.must_reset, read(reader, column(1, 2, 3), flags(0, 0, 0)).to_reset) == (None, None)
            step = read(reader, column(3, 7, 8), flags(1, 0, 0), {"final_obs": final})
            for mask in (step.to_reset, reader.must_reset):
                assert plain(mask) == ([True, False, False] if mode is DISABLED else None)
        reader.reset(flags(1, 0, 0))
        assert reader.must_reset is None

    def test_nan_is_looked_for_in_steps_only(self) -> None:
        def nans(rewards: Any, ends: Any) -> Any:
            step = reader.read(column(3, 7, 8), np.array(rewards), ends, flags(0, 0, 0), {})
            reader.accept(step)
            return plain(step.nan_rewards())

        nan, inf = np.nan, np.inf
        reader = rows(NEXT_STEP)
        assert nans([1.0, 2.0, 3.0], flags(0, 0, 0)) is None
        assert nans([inf, -inf, 3.0], flags(0, 0, 0)) is None
        assert nans([1.0, nan, 3.0], flags(1, 0, 0)) == [False, True, False]
        assert nans([nan, 2.0, 3.0], flags(0, 1, 0)) is None
        assert nans([nan, nan, nan], flags(0, 0, 0)) == [True, False, True]

    def test_what_is_shown_is_the_successor_but_for_ends_of_same_step(self) -> None:
        final = objects(None, np.array([8], np.float32), None)
        for mode in MODES:
            observations = column(3, 100, 8)
            step = read(rows(mode), observations, flags(0, 1, 0), {"final_obs": final})
            after, shown = step.successors(), step.shown()
            after_rows, shown_rows = step.successor_rows(), step.shown_rows()
            observations[:] = -1.0
            led_to = [[3], [8], [8]] if mode is SAME_STEP else [[3], [100], [8]]
            assert (plain(after), plain(shown)) == (led_to, [[3], [100], [8]])
            assert (list(map(plain, after_rows)), list(map(plain, shown_rows))) == (led_to, [[3], [100], [8]])

    @pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
    def test_mode_may_be_declared_by_its_name(self, mode: str) -> None:
        assert rows(mode).mode is AutoresetMode(mode)


class TestFinalObservations:
    @pytest.mark.parametrize("key", ["final_obs", "final_observation"])
    @pytest.mark.parametrize(
        "final",
        [
            objects({"a": (np.int64(3),), "z": np.array(103.0)}, None),
            {"z": np.array([103.0, 9.0]), "a": (np.array([3, 9]),)},
            {"z": objects(np.array(103.0), None), "a": (objects(3, None),)},
            [{"z": np.float32(103.0), "a": (3,)}, None],
        ],
    )
    def test_dicts_of_tuples_in_all_containers(self, key: str, final: Any) -> None:
        reader = rows(SAME_STEP, CountingDict.observation_space, 2)
        observations = {"a": (np.array([0, 4]),), "z": np.array([200.0, 304.0])}
        step = read(reader, observations, flags(1, 0), {key: final, f"_{key}": flags(1, 0)})
        assert plain(step.successors()) == {"a": ([3, 4],), "z": [103.0, 304.0]}
        first, second = step.successor_rows()
        assert plain((first, second)) == ({"a": (3,), "z": 103.0}, {"a": (4,), "z": 304.0})
        assert type(first["a"][0]) is np.int64
        assert type(first["z"]) is np.float64
        assert plain(observations) == {"a": ([0, 4],), "z": [200.0, 304.0]}

    def test_tuples(self) -> None:
        space = CountingTuple.observation_space
        reader = rows(SAME_STEP, space, 2)
        observations = (np.zeros((2, 2), np.float32), np.ones((2, 3), np.int8), np.array([7, 8]))
        for final in (
            objects((np.array([5.0, 6.0]), np.array([0, 1, 0], np.int8), 9), None),
            (np.array([[5.0, 6.0], [0, 0]]), np.array([[0, 1, 0], [0, 0, 0]], np.int8), np.array([9, 0])),
        ):
            step = read(reader, observations, flags(1, 0), {"final_obs": final})
            assert plain(step.successors()) == ([[5, 6], [0, 0]], [[0, 1, 0], [1, 1, 1]], [9, 8])
            assert plain(step.successor_rows()[0]) == ([5, 6], [0, 1, 0], 9)
            assert step.successor_rows()[0][0].dtype == np.float32

    @pytest.mark.parametrize(
        ("final", "message"),
        [
            (np.zeros((2, 1)), r"shape \(1,\) and dtype float32, got shape \(2, 1\) and dtype float64"),
            (np.array(["a"]), r"shape \(1,\) and dtype float32, got shape \(1,\) and dtype <U1"),
        ],
    )
    def test_what_does_not_fit(self, final: Any, message: str) -> None:
        step = read(rows(SAME_STEP), column(1, 2, 3), flags(0, 1, 0), {"final_obs": objects(None, final, None)})
        for successors in (step.successors, step.successor_rows):
            with pytest.raises(EnvError, match=f"^the final observation must have {message}$") as caught:
                successors()
            assert caught.value.env_index == 1

    def test_what_lies_in_rows_that_did_not_end_is_not_looked_at(self) -> None:
        final = np.array([[5.0], [6.0], [7.0]])
        step = read(rows(SAME_STEP), column(1, 2, 3), flags(0, 1, 0), {"final_obs": final})
        assert step.successors().ravel().tolist() == [1, 6, 3]
        assert read(rows(SAME_STEP), column(1, 2, 3), flags(0, 0, 0), {"final_obs": final}).finals == {}


class TestInfos:
    def test_masks_say_what_is_there_and_zeros_may_be(self) -> None:
        infos = {
            "n": np.array([0, 5, 0]), "_n": flags(1, 1, 0),
            "deep": {"x": np.array([1.5, 0.0, 2.5]), "_x": flags(1, 0, 1)}, "_deep": flags(1, 0, 1),
            "arrays": np.arange(6).reshape(3, 2), "_arrays": flags(0, 0, 1),
            "texts": objects("a", None, "c"), "_texts": flags(1, 1, 0),
        }  # fmt: skip
        step = read(rows(NEXT_STEP), column(1, 2, 3), flags(0, 0, 0), infos)
        assert [plain(info) for info in step.step_infos()] == [
            {"n": 0, "deep": {"x": 1.5}, "texts": "a"},
            {"n": 5, "texts": None},
            {"deep": {"x": 2.5}, "arrays": [4, 5]},
        ]

    def test_native_environments_need_no_masks(self) -> None:
        infos = {"speed": np.array([1.0, 2.0, 3.0]), "names": ["a", "b", "c"], "tick": 7, "_hidden": np.arange(3)}
        step = read(rows(NEXT_STEP), column(1, 2, 3), flags(0, 0, 0), infos)
        assert [plain(info) for info in step.step_infos()] == [
            {"speed": 1.0, "names": "a", "tick": 7, "_hidden": 0},
            {"speed": 2.0, "names": "b", "tick": 7, "_hidden": 1},
            {"speed": 3.0, "names": "c", "tick": 7, "_hidden": 2},
        ]

    def test_nothing_is_shared(self) -> None:
        shared = [1]
        infos = {"list": objects(shared, shared, shared), "array": np.zeros((3, 2)), "lock": threading.Lock()}
        first, second, _ = read(rows(NEXT_STEP), column(1, 2, 3), flags(0, 0, 0), infos).step_infos()
        first["list"].append(2)
        first["array"][:] = 5
        assert (shared, second["list"], infos["array"].sum()) == ([1], [1], 0.0)
        empty = read(rows(NEXT_STEP), column(1, 2, 3), flags(0, 0, 0)).step_infos()
        empty[0]["mine"] = 1
        assert empty[1] == {}

    @pytest.mark.parametrize(
        "final_info",
        [
            {"t": np.array([0, 4, 0]), "_t": flags(0, 1, 0)},
            objects(None, {"t": 4}, None),
        ],
    )
    def test_same_step_tells_the_last_info_from_the_first(self, final_info: Any) -> None:
        infos = {
            "final_obs": objects(None, np.array([8], np.float32), None), "_final_obs": flags(0, 1, 0),
            "final_info": final_info, "_final_info": flags(0, 1, 0),
            "t": np.array([3, 0, 2]), "_t": flags(1, 0, 1),
            "start": np.array([0, 6, 0]), "_start": flags(0, 1, 0),
        }  # fmt: skip
        step = read(rows(SAME_STEP), column(3, 100, 8), flags(0, 1, 0), infos)
        assert [plain(info) for info in step.step_infos()] == [{"t": 3}, {"t": 4}, {"t": 2}]
        assert plain(step.start_infos()[1]) == {"start": 6}

    @pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
    def test_statistics_of_the_vector_wrapper_are_those_of_the_step(self, mode: AutoresetMode) -> None:
        envs = RecordEpisodeStatistics(
            SyncVectorEnv([lambda: Counting(lengths=[2])], autoreset_mode=mode),
        )
        reader = VectorRows(envs, "Test")
        envs.reset()
        infos = []
        starts = []
        for _ in range(4):
            step = reader.read(*envs.step(np.array([3])))
            infos += step.step_infos() if step.steps is None or step.steps[0] else []
            starts += step.start_infos() if step.starts is not None and step.starts[0] else []
            reader.accept(step)
        assert [plain(info["episode"])["r"] if "episode" in info else None for info in infos][:3] == [None, 3.0, None]
        assert starts
        assert all("episode" not in info and "start" in info for info in starts)


class TestMisfits:
    @pytest.mark.parametrize(
        ("space", "values", "message"),
        [
            (BOX, np.zeros((3, 2), np.float32), "observations must have shape (3, 1), got shape (3, 2)"),
            (BOX, np.zeros((2, 1), np.float32), "observations must have shape (3, 1), got shape (2, 1)"),
            (BOX, [[0.0]] * 3, "observations must have shape (3, 1), got list"),
            (BOX, np.zeros((3, 1), object), "observations must have a dtype that fits float32, got object"),
            (
                gym.spaces.Box(0, 255, (1,), np.uint8),
                np.zeros((3, 1)),
                "observations must have a dtype that fits uint8, got float64",
            ),
            (gym.spaces.Discrete(3), np.zeros((3, 1), int), "observations must have shape (3,), got shape (3, 1)"),
            (
                gym.spaces.Dict({"a": BOX}),
                {"b": column(1, 2, 3)},
                "observations must have the keys ['a'], got ['b']",
            ),
            (gym.spaces.Dict({"a": BOX}), column(1, 2, 3), "observations must have the keys ['a'], got shape (3, 1)"),
            (
                gym.spaces.Dict({"a": gym.spaces.Tuple([BOX])}),
                {"a": (column(1),)},
                "observations/a/0 must have shape (3, 1), got shape (1, 1)",
            ),
            (
                gym.spaces.Tuple([BOX]),
                (column(1), column(2)),
                "observations must be a tuple of 1, got a tuple of 2",
            ),
            (gym.spaces.Text(4), ("a", "b"), "observations must have 3 rows, got 2"),
        ],
    )
    def test_are_named(self, space: gym.spaces.Space[Any], values: Any, message: str) -> None:
        with pytest.raises(EnvError) as caught:
            rows(NEXT_STEP, space).check(values)
        assert str(caught.value) == message

    @pytest.mark.parametrize("values", [np.zeros((3, 1), np.uint8), np.zeros((3, 1)), np.zeros((3, 1), bool)])
    def test_dtypes_that_the_space_can_hold_are_taken(self, values: Any) -> None:
        rows(NEXT_STEP).check(values)
        assert {row.dtype for row in rows(NEXT_STEP).split(values)} == {values.dtype}


class TestSplit:
    def test_rows_share_no_memory(self) -> None:
        z = np.arange(6.0).reshape(3, 2)
        values = {"a": (np.arange(3),), "z": z}
        items = row_splitter(gym.spaces.Dict({"z": BOX, "a": gym.spaces.Tuple([gym.spaces.Discrete(9)])}))(values)
        z[:] = -1
        assert [plain(item) for item in items] == [
            {"a": (0,), "z": [0.0, 1.0]}, {"a": (1,), "z": [2.0, 3.0]}, {"a": (2,), "z": [4.0, 5.0]},
        ]  # fmt: skip
        large = row_splitter(gym.spaces.Box(0.0, 1.0, (50, 50)))(np.zeros((2, 50, 50)))
        assert all(row.base is None for row in large)  # one that is kept keeps no other alive

    @pytest.mark.parametrize("shape", [(3,), (3, 2), (100, 2), (3, 50, 50)])
    @pytest.mark.parametrize("count", [0, 1, 200])
    def test_rows_of_many_arrays_keep_little_alive(self, shape: tuple[int, ...], count: int) -> None:
        arrays = [np.random.default_rng(k).normal(size=shape) for k in range(count)]
        rows = rows_of_all(arrays)
        assert len(rows) == count * shape[0]
        assert all((row == arrays[k // shape[0]][k % shape[0]]).all() for k, row in enumerate(rows))
        assert all(isinstance(row, np.ndarray) == (len(shape) > 1) for row in rows)
        assert all(row.base is None or row.base.nbytes <= SMALL for row in rows)

    def test_spaces_without_arrays(self) -> None:
        assert row_splitter(gym.spaces.Text(5))(("ab", "c")) == ["ab", "c"]
        lists = ([1], [2])
        items = row_splitter(gym.spaces.Sequence(gym.spaces.Discrete(3)))(lists)
        items[0].append(5)
        assert lists == ([1], [2])

    def test_whole_environments(self) -> None:
        envs = lanes(CountingTuple, 2, NEXT_STEP, copy=False)
        items = VectorRows(envs, "Test").split(envs.reset()[0])
        assert plain(tuple(items)) == (([0, -0.5], [0, 0, 0], 0), ([10_000, -0.5], [0, 0, 0], 10_000))
