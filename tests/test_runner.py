"""The runner against a plain loop: the same episodes in every autoreset mode, with one environment or several."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ringback.connectors import FrameStack
from ringback.errors import EnvError
from ringback.runner import EnvRunner
from tests.counting import (
    MODES,
    Counting,
    CountingDict,
    CountingImage,
    CountingTuple,
    Drawing,
    Reusing,
    by_hand,
    constant,
    joined,
    lane_of,
    lanes,
    plain,
    rows_of,
)

KINDS = [Counting, CountingDict, CountingTuple, CountingImage]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
class TestSameAsPlainLoop:
    @pytest.mark.parametrize("options", [{}, {"copy": False}])
    @pytest.mark.parametrize("count", [1, 2, 3, 5])
    def test_chunks_join_to_the_episodes_of_a_plain_loop(
        self, kind: type[Counting], count: int, options: dict[str, Any], mode: AutoresetMode
    ) -> None:
        with EnvRunner(lanes(kind, count, mode, **options), constant) as runner:
            check_chunks(runner, kind)

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
    def test_whole_episodes_are_those_of_a_plain_loop(
        self, kind: type[Counting], mode: AutoresetMode, count: int
    ) -> None:
        with EnvRunner(lanes(kind, count, mode, copy=False), constant) as runner:
            check_episodes(runner, kind, count)


def check_chunks(runner: EnvRunner, kind: type[Counting]) -> None:
    chunks = [chunk for n in (1, 7, 2, 30, 1, 1, 5) for chunk in runner.sample(num_timesteps=n)]
    found = joined(chunks)
    assert sorted(found) == list(range(runner.num_envs))
    for lane, episodes in found.items():
        assert episodes == by_hand(kind(lane), sum(map(len, episodes)))


def check_episodes(runner: EnvRunner, kind: type[Counting], count: int) -> None:
    episodes = runner.sample(num_episodes=7)
    assert [lane_of(episode) for episode in episodes] == [turn % count for turn in range(7)]
    assert all(episode.is_done and episode.t_started == 0 for episode in episodes)
    for lane, mine in joined(episodes).items():
        assert mine == by_hand(kind(lane), sum(map(len, mine)))


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("mode", MODES)
def test_worker_processes_give_the_episodes_of_a_plain_loop(mode: AutoresetMode, count: int) -> None:
    kind = KINDS[count % len(KINDS)]
    options = {"copy": False, "shared_memory": count != 5}
    with EnvRunner(lanes(kind, count, mode, vector=AsyncVectorEnv, **options), constant) as runner:
        if count == 2:
            check_episodes(runner, kind, count)
        else:
            check_chunks(runner, kind)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_environment_that_reuses_its_array_leaves_final_observations_alone(mode: AutoresetMode) -> None:
    with EnvRunner(lanes(Reusing, 2, mode, copy=False), constant) as runner:
        ends = [plain(episode.get_observations()[-1])[0] % 100 for episode in runner.sample(num_episodes=8)]
    assert ends == [3, 1, 1, 4, 4, 2, 2, 5]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("mode", MODES)
def test_timesteps_are_at_most_one_round_more_than_asked(mode: AutoresetMode, count: int) -> None:
    with EnvRunner(lanes(Counting, count, mode)) as runner:
        taken = 0
        for asked in (1, 4, 17, 2):
            steps = sum(map(len, runner.sample(num_timesteps=asked)))
            taken += steps
            assert asked <= steps < asked + count
        assert runner.total_timesteps == taken
        assert runner.dropped_timesteps == 0


def test_reset_step_of_next_step_mode_is_no_data() -> None:
    env = SyncVectorEnv([lambda: Counting(lengths=[3])], autoreset_mode=AutoresetMode.NEXT_STEP)
    with EnvRunner(env) as runner:
        chunks = runner.sample(num_timesteps=6)
    assert [plain(chunk.get_observations()) for chunk in chunks] == [
        [[0.0], [1.0], [2.0], [3.0]],
        [[100.0], [101.0], [102.0], [103.0]],
    ]
    assert [chunk.get_rewards() for chunk in chunks] == [[1.0, 2.0, 3.0], [1001.0, 1002.0, 1003.0]]


@pytest.mark.parametrize("mode", MODES)
def test_continuation_keeps_id_count_and_lookback(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: Counting(lengths=[9])], autoreset_mode=mode)
    with EnvRunner(env, constant, lookback=2) as runner:
        (first,) = runner.sample(num_timesteps=3)
        (second,) = runner.sample(num_timesteps=4)
    assert (second.id_, second.t_started, len(second)) == (first.id_, 3, 4)
    assert plain(second.get_observations([-2, -1, 0], neg_index_as_lookback=True)) == [[1.0], [2.0], [3.0]]
    assert second.get_rewards(slice(-2, 0), neg_index_as_lookback=True) == [2.0, 3.0]
    with pytest.raises(IndexError):
        second.get_rewards(-3, neg_index_as_lookback=True)


def test_returned_chunks_do_not_change_any_more() -> None:
    with EnvRunner(lanes(Counting, 2, AutoresetMode.NEXT_STEP, copy=False), constant) as runner:
        chunks = runner.sample(num_timesteps=5)
        before = list(map(rows_of, chunks))
        runner.sample(num_timesteps=20)
    assert list(map(rows_of, chunks)) == before


def test_whole_episodes_begin_with_a_reset_and_so_does_what_follows() -> None:
    with EnvRunner(lanes(Counting, 1, AutoresetMode.DISABLED), constant) as runner:
        (open_,) = runner.sample(num_timesteps=2)
        (whole,) = runner.sample(num_episodes=1)
        (after,) = runner.sample(num_timesteps=1)
    starts = [plain(episode.get_observations())[0][0] for episode in (open_, whole, after)]
    assert starts == [0.0, 100.0, 200.0]
    assert not open_.is_done
    assert whole.is_done


def test_short_episodes_are_not_preferred() -> None:
    env = SyncVectorEnv([lambda: Counting(0, [1]), lambda: Counting(1, [50])], autoreset_mode=AutoresetMode.SAME_STEP)
    with EnvRunner(env) as runner:
        lengths = [len(episode) for episode in runner.sample(num_episodes=4)]
        assert lengths == [1, 50, 1, 50]
        assert runner.dropped_timesteps == 98


def test_refused_call_changes_nothing() -> None:
    with EnvRunner(lanes(Counting, 1, AutoresetMode.DISABLED), constant) as runner:
        (first,) = runner.sample(num_timesteps=2)
        with pytest.raises(ValueError, match="num_timesteps"):
            runner.sample(num_timesteps=0)
        (second,) = runner.sample(num_timesteps=1)
    assert (second.id_, second.t_started) == (first.id_, 2)


def test_forced_reset_leaves_the_open_episode() -> None:
    with EnvRunner(lanes(Counting, 1, AutoresetMode.DISABLED), constant) as runner:
        (first,) = runner.sample(num_timesteps=2)
        (second,) = runner.sample(num_timesteps=1, force_reset=True)
    assert second.id_ != first.id_
    assert plain(second.get_observations()) == [[100.0], [101.0]]


@pytest.mark.parametrize("mode", MODES)
def test_records_speak_of_whole_episodes(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: Counting(lengths=[3, 4])], autoreset_mode=mode)
    with EnvRunner(env) as runner:
        chunks = runner.sample(num_timesteps=2)
        assert runner.finished == []
        chunks += runner.sample(num_timesteps=1)
        assert [(r.id_, r.env_index, r.return_, r.length) for r in runner.finished] == [(chunks[0].id_, 0, 6.0, 3)]
        runner.sample(num_timesteps=4)
        assert [(r.return_, r.length) for r in runner.finished] == [(4010.0, 4)]
        assert (runner.total_episodes, runner.total_timesteps) == (2, 7)


class TestModule:
    def test_further_outputs_become_extra_model_outputs(self) -> None:
        calls: list[Any] = []

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            calls.append(plain(batch["obs"]))
            counted = np.arange(len(batch["obs"])) + 10 * len(calls)
            actions = [2, 6][: len(counted)]
            return {"actions": actions, "count": counted, "state": {"h": np.stack([counted, -counted], 1)}}

        with EnvRunner(lanes(Counting, 2, AutoresetMode.NEXT_STEP), module) as runner:
            first, second = sorted(runner.sample(num_timesteps=3), key=lane_of)
        assert calls == [[[0.0], [10_000.0]], [[1.0]]]  # nothing is asked for the row that waits for its reset
        assert plain(first.get_extra_model_outputs("count")) == [10, 20]
        assert plain(second.get_extra_model_outputs("count")) == [11]
        assert [plain(state["h"]) for state in second.get_extra_model_outputs("state")] == [[11, -11]]
        assert plain(first.get_actions()) == [2, 2]
        assert plain(second.get_actions()) == [6]

    def test_tensors_are_taken(self) -> None:
        import torch

        weight = torch.nn.Parameter(torch.ones(1))

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            rows = torch.as_tensor(batch["obs"], dtype=torch.float32)
            return {"actions": torch.full((len(rows),), 4), "value": rows * weight}

        with EnvRunner(lanes(Counting, 1, AutoresetMode.DISABLED), module) as runner:
            (episode,) = runner.sample(num_timesteps=2)
        assert plain(episode.get_actions()) == [4, 4]
        assert plain(episode.get_extra_model_outputs("value")) == [[0.0], [1.0]]
        assert type(episode.get_extra_model_outputs("value")[0]) is np.ndarray

    def test_array_that_the_module_reuses_is_copied(self) -> None:
        class Steered(Counting):
            action_space = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)

            def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
                return super().step(0)

        shared = np.zeros((1, 2), np.float32)

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            shared[:] += 1
            return {"actions": shared, "again": shared}

        with EnvRunner(Steered(lengths=[9]), module) as runner:
            (episode,) = runner.sample(num_timesteps=3)
        assert plain(episode.get_actions()) == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
        assert plain(episode.get_extra_model_outputs("again")) == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]

    @pytest.mark.parametrize(
        ("outputs", "error", "message"),
        [
            ([3], TypeError, 'EnvRunner.sample: module must return a dict with "actions", got list'),
            (
                {"action": [3]},
                ValueError,
                "SampleActions: batch must have 'actions' or 'action_dist_inputs', got columns ['action']",
            ),
            (
                {"actions": [3]},
                ValueError,
                'EnvRunner.sample: module\'s "actions" must have one row for each of 2 open episodes, got shape (1,)',
            ),
            (
                {"actions": [3, 3], "value": {"a": 1.0}},
                ValueError,
                'EnvRunner.sample: module\'s "value" must have one row for each of 2 open episodes, got shape ()',
            ),
        ],
    )
    def test_wrong_outputs_are_named(self, outputs: Any, error: type[Exception], message: str) -> None:
        with (
            EnvRunner(lanes(Counting, 2, AutoresetMode.DISABLED), lambda batch: outputs) as runner,
            pytest.raises(error, match=f"^{re.escape(message)}$"),
        ):
            runner.sample(num_timesteps=1)

    def test_failed_call_is_followed_by_a_reset(self) -> None:
        fail = [False]

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            if fail[0] and batch["obs"][0, 0] % 100 == 2:
                raise FloatingPointError("lost")
            return constant(batch)

        with EnvRunner(lanes(Counting, 1, AutoresetMode.DISABLED), module) as runner:
            runner.sample(num_timesteps=1)
            fail[0] = True
            with pytest.raises(FloatingPointError):
                runner.sample(num_timesteps=5)
            fail[0] = False
            (chunk,) = runner.sample(num_timesteps=1)
            assert plain(chunk.get_observations()) == [[100.0], [101.0]]
            assert runner.dropped_timesteps == 1


class TestSeeds:
    @staticmethod
    def play(mode: AutoresetMode, count: int, seed: Any) -> dict[int, list[Any]]:
        """Random actions of each lane, in order."""
        with EnvRunner(lanes(Counting, count, mode), seed=seed) as runner:
            actions: dict[int, list[Any]] = {lane: [] for lane in range(count)}
            for chunk in runner.sample(num_timesteps=40 * count):
                actions[lane_of(chunk)] += plain(chunk.get_actions())
        return {lane: list(row[:30]) for lane, row in actions.items()}

    def test_random_actions_are_the_same_in_every_mode_and_number_of_lanes(self) -> None:
        want = self.play(AutoresetMode.DISABLED, 3, 5)
        assert set(want[0]) == {2, 3, 4, 5, 6}
        assert want[0] != want[1] != want[2]
        for mode in MODES:
            assert self.play(mode, 3, 5) == want
            assert self.play(mode, 1, 5)[0] == want[0]

    def test_another_seed_or_rank_gives_other_actions(self) -> None:
        rows = [self.play(AutoresetMode.DISABLED, 1, seed)[0] for seed in (5, 6, (5, 0), (5, 1), None, None)]
        assert all(rows[i] != rows[j] for i in range(len(rows)) for j in range(i))

    def test_environments_are_seeded_at_each_reset_of_all_each_on_its_own(self) -> None:
        def seeds(count: int, seed: Any) -> list[list[int | None]]:
            env = lanes(Counting, count, AutoresetMode.DISABLED)
            with EnvRunner(env, seed=seed) as runner:
                runner.sample(num_episodes=2 * count)
                runner.sample(num_timesteps=1)
            assert isinstance(env, SyncVectorEnv)
            return [lane.unwrapped.seeds for lane in env.envs]  # type: ignore[attr-defined]

        three = seeds(3, 7)
        for first, *others, last in three:
            assert isinstance(first, int)
            assert isinstance(last, int)
            assert others
            assert set(others) == {None}
        assert len({seed for lane in three for seed in (lane[0], lane[-1])}) == 6
        one = seeds(1, 7)[0]
        assert (one[0], one[-1]) == (three[0][0], three[0][-1])
        assert one[0] != seeds(1, (7, 1))[0][0]

    @pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
    def test_episodes_are_the_same_to_the_last_bit_in_all_modes(self, vector: Callable[..., Any]) -> None:
        """Random actions decide rewards and the environments' own generators decide observations."""

        def play(mode: AutoresetMode, count: int, vector: Callable[..., Any]) -> dict[int, list[Any]]:
            kept: dict[int, list[Any]] = {lane: [] for lane in range(count)}
            with EnvRunner(lanes(Drawing, count, mode, vector=vector), seed=11) as runner:
                for _ in range(3):
                    for episode in runner.sample(num_episodes=4 * count):
                        lane = [record.env_index for record in runner.finished if record.id_ == episode.id_]
                        kept[lane[0]].append(
                            [array.tobytes() for array in (*episode.get_observations(), *episode.get_actions())]
                            + episode.get_rewards()
                        )
            return kept

        want = play(AutoresetMode.DISABLED, 3, SyncVectorEnv)
        assert [len(episode) for episode in want[0][:4]] == [3 * length + 1 for length in (3, 1, 4, 2)]
        assert len({str(episode) for lane in want.values() for episode in lane}) == 36
        for mode in MODES:
            assert play(mode, 3, vector) == want
            assert play(mode, 1, vector)[0] == want[0]

    def test_native_vector_environment_is_seeded(self) -> None:
        def starts(seed: int) -> Any:
            with EnvRunner(gym.make_vec("CartPole-v1", num_envs=2), seed=seed) as runner:
                return [plain(chunk.get_observations()) for chunk in runner.sample(num_timesteps=60)]

        assert starts(1) == starts(1) != starts(2)


class TestEnvironments:
    @pytest.mark.parametrize("env", ["CartPole-v1", lambda: gym.make("CartPole-v1")])
    def test_ids_and_functions_make_as_many_as_asked(self, env: Any) -> None:
        with EnvRunner(env, num_envs=3, seed=1) as runner:
            assert runner.num_envs == 3
            episodes = runner.sample(num_episodes=5)
        assert all(episode.get_observations()[0].dtype == np.float32 for episode in episodes)
        assert all(len(episode.get_observations()) == len(episode) + 1 for episode in episodes)

    def test_single_environment_is_taken_over_and_closed(self) -> None:
        env = Counting()
        with EnvRunner(env) as runner:
            runner.sample(num_timesteps=3)
        assert env.closed
        runner.close()
        with pytest.raises(RuntimeError, match=r"^EnvRunner\.sample: the runner must be open, got a closed one$"):
            runner.sample(num_timesteps=1)

    def test_vector_environment_is_closed_after_an_error(self) -> None:
        env = lanes(Counting, 2, AutoresetMode.SAME_STEP)
        with pytest.raises(ZeroDivisionError), EnvRunner(env):
            raise ZeroDivisionError
        assert env.closed

    @pytest.mark.parametrize(
        "wrong",
        [
            {"callbacks": 3},
            {"env_to_module": 3},
            {"seed": "a"},
            {"lookback": -1},
            {"num_envs": 3},
            {"env_to_module": FrameStack({"camera": 4})},
        ],
    )
    def test_environment_is_left_alone_by_a_runner_that_could_not_be_made(self, wrong: Any) -> None:
        env, single = lanes(Counting, 2, AutoresetMode.SAME_STEP), Counting()
        for given in (env, single):
            with pytest.raises((TypeError, ValueError)):
                EnvRunner(given, **wrong)
        gc.collect()
        assert not env.closed
        assert not single.closed

    def test_environment_that_was_made_for_nothing_is_closed(self) -> None:
        made: list[Counting] = []

        def make() -> Counting:
            made.append(Counting())
            return made[-1]

        with pytest.raises(ValueError, match="FrameStack"):
            EnvRunner(make, num_envs=2, env_to_module=FrameStack({"camera": 4}))
        assert len(made) >= 2
        assert [env.closed for env in made[:2]] == [True, True]

    def test_time_limit_truncates_and_keeps_the_final_observation(self) -> None:
        def make() -> gym.Env[Any, Any]:
            return gym.wrappers.TimeLimit(Counting(lengths=[100]), 4)

        with EnvRunner(make, num_envs=2) as runner:
            for episode in runner.sample(num_episodes=4):
                assert (episode.is_terminated, episode.is_truncated) == (False, True)
                assert plain(episode.get_observations()[-1])[0] % 100 == 4

    def test_structured_actions_reach_the_environment_and_the_episode(self) -> None:
        class Acting(Counting):
            action_space = gym.spaces.Dict({"z": gym.spaces.Discrete(3), "a": gym.spaces.Box(-1, 1, (2,), np.float32)})
            got: list[Any]

            def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
                self.got = [*getattr(self, "got", []), plain(action)]
                return super().step(0)

        envs = [Acting(lane) for lane in range(2)]
        with EnvRunner(
            SyncVectorEnv([lambda: envs[0], lambda: envs[1]], autoreset_mode=AutoresetMode.DISABLED)
        ) as runner:
            chunks = runner.sample(num_timesteps=10)
        for lane, env in enumerate(envs):
            stored = [plain(a) for chunk in chunks if lane_of(chunk) == lane for a in chunk.get_actions()]
            assert len(stored) == 5
            assert stored == env.got


class Declared(VectorEnv[Any, Any, Any]):
    """A vector environment of two lanes that gives back what it was told to, in `SAME_STEP` mode."""

    num_envs = 2
    metadata: dict[str, Any] = {"autoreset_mode": "SameStep"}  # noqa: RUF012
    single_observation_space = gym.spaces.Box(-1.0, 1e6, (1,), np.float64)
    single_action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(-1.0, 1e6, (2, 1), np.float64)
    action_space = gym.spaces.MultiDiscrete([2, 2])

    def __init__(self, infos: dict[str, Any]) -> None:
        self.infos = infos

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.array([[2.0], [7.0]]), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        flags = np.array([True, False])
        return np.array([[0.0], [8.0]]), np.array([3.0, 8.0], np.float32), flags, ~flags & False, self.infos


def objects(*items: Any) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


class TestSameStep:
    @pytest.mark.parametrize("key", ["final_obs", "final_observation"])
    @pytest.mark.parametrize("final", [objects(np.array([3.0]), None), np.array([[3.0], [99.0]])])
    def test_final_observation_under_both_names_and_in_both_containers(self, key: str, final: Any) -> None:
        with EnvRunner(Declared({key: final, f"_{key}": np.array([True, False])})) as runner:
            ended, other = runner.sample(num_timesteps=2)
        assert plain(ended.get_observations()) == [[2.0], [3.0]]
        assert ended.is_terminated
        assert plain(other.get_observations()) == [[7.0], [8.0]]
        assert not other.is_done

    @pytest.mark.parametrize("infos", [{}, {"final_obs": objects(None, None)}])
    def test_missing_final_observation_is_an_error(self, infos: dict[str, Any]) -> None:
        got = "None" if infos else "infos with []"
        message = (
            'EnvRunner.sample: sub-environment 0: infos["final_obs"] must hold the last observation of an episode, '
            f"got {got} at step 1 of its episode"
        )
        with EnvRunner(Declared(infos)) as runner, pytest.raises(EnvError, match=f"^{re.escape(message)}$"):
            runner.sample(num_timesteps=2)


def bad_calls() -> Iterator[Any]:
    def cartpole(**options: Any) -> Any:
        return lambda: EnvRunner("CartPole-v1", **options)

    def sample(**options: Any) -> Any:
        return lambda: EnvRunner(Counting()).sample(**options)

    both = "EnvRunner.sample: exactly one of num_timesteps and num_episodes must be given, got "
    undeclared = Declared({})
    undeclared.metadata = {}
    yield cartpole(num_envs=0), ValueError, "EnvRunner: num_envs must be >= 1, got 0"
    yield cartpole(num_envs=True), TypeError, "EnvRunner: num_envs must be an integer, got True"
    yield cartpole(lookback=-1), ValueError, "EnvRunner: lookback must be >= 0, got -1"
    yield cartpole(lookback=1.0), TypeError, "EnvRunner: lookback must be an integer, got 1.0"
    for seed in ("a", 1.5, (), (1, "a"), True):
        message = f"EnvRunner: seed must be an integer, a tuple of integers or None, got {seed!r}"
        yield cartpole(seed=seed), TypeError, message
    yield cartpole(seed=(1, -2)), ValueError, "EnvRunner: seed must be >= 0, got (1, -2)"
    yield (
        lambda: EnvRunner(Declared({}), num_envs=3),
        ValueError,
        "EnvRunner: num_envs must be that of the vector environment (2), got 3",
    )
    yield (
        lambda: EnvRunner(Counting(), num_envs=2),
        ValueError,
        "EnvRunner: num_envs must be 1 for one environment, got 2; pass a function that makes one",
    )
    yield (
        lambda: EnvRunner(3),  # type: ignore[arg-type]
        TypeError,
        "EnvRunner: env must be an id, a function that makes an environment, an environment or a vector environment, "
        "got int",
    )
    yield (
        lambda: EnvRunner(undeclared),
        ValueError,
        'EnvRunner: env.metadata["autoreset_mode"] must be a gymnasium.vector.AutoresetMode, got None; '
        "without it the ends of episodes cannot be read",
    )
    yield sample(), ValueError, f"{both}num_timesteps=None and num_episodes=None"
    yield sample(num_timesteps=1, num_episodes=2), ValueError, f"{both}num_timesteps=1 and num_episodes=2"
    yield sample(num_timesteps=0), ValueError, "EnvRunner.sample: num_timesteps must be >= 1, got 0"
    yield sample(num_episodes=2.0), TypeError, "EnvRunner.sample: num_episodes must be an integer, got 2.0"


@pytest.mark.parametrize(("call", "error", "message"), list(bad_calls()))
def test_wrong_arguments_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
