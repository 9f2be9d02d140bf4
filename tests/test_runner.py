"""The runner against a plain loop: the same episodes in every autoreset mode, with one environment or several."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ringback.episodes import SingleAgentEpisode
from ringback.runner import EnvRunner

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
LENGTHS = [3, 1, 4, 2]

Row = tuple[Any, ...]


class Counting(gym.Env[Any, Any]):
    """Observation = 100·episode + t (+ 10000·lane), reward = 1000·episode + t; episodes end in turn in both ways."""

    observation_space: gym.spaces.Space[Any] = gym.spaces.Box(-1.0, 1e6, (1,), np.float64)
    action_space = gym.spaces.Discrete(5, start=2)

    def __init__(self, lane: int = 0, lengths: list[int] | None = None) -> None:
        self.lane = lane
        self.lengths = lengths or LENGTHS[lane:] + LENGTHS[:lane]
        self.episode = -1
        self.t = 0
        self.seeds: list[int | None] = []
        self.closed = False
        self._buffer = np.zeros(1)

    def _observe(self) -> Any:
        self._buffer[0] = 10_000 * self.lane + 100 * self.episode + self.t  # one array, reused, as simulators do
        return self._buffer

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.t = 0
        return self._observe(), {"start": self.episode}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        last = self.t == self.lengths[self.episode % len(self.lengths)]
        terminated = last and self.episode % 2 == 0
        info = {"t": self.t, "nested": {"action": int(action)}} if self.t % 2 else {"even": float(self.t)}
        return self._observe(), 1000.0 * self.episode + self.t, terminated, last and not terminated, info

    def close(self) -> None:
        self.closed = True


class CountingDict(Counting):
    """The same with a structure as observation."""

    observation_space = gym.spaces.Dict(
        {"z": gym.spaces.Box(-1.0, 1e6, (), np.float64), "a": gym.spaces.Tuple([gym.spaces.Discrete(10)])}
    )

    def _observe(self) -> Any:
        return {"z": np.array(super()._observe()[0]), "a": (self.t,)}


class Honest(Counting):
    """The same with a new array for each observation.

    In `SAME_STEP` mode gymnasium itself keeps the final observation by reference over the reset, so that an
    environment that reuses its array overwrites it before anybody can see it.
    """

    def _observe(self) -> Any:
        return super()._observe().copy()


def lanes(
    kind: type[Counting], count: int, mode: AutoresetMode, *, vector: Callable[..., Any] = SyncVectorEnv, **options: Any
) -> VectorEnv[Any, Any, Any]:
    made: VectorEnv[Any, Any, Any] = vector(
        [lambda lane=lane: kind(lane) for lane in range(count)], autoreset_mode=mode, **options
    )
    return made


def by_hand(kind: type[Counting], lane: int, steps: int, action: int = 3) -> list[list[Row]]:
    """The episodes of a plain loop: for each a list of steps (t, obs, action, reward, next obs, flags, infos)."""
    env = kind(lane)
    episodes: list[list[Row]] = []
    observation, info = env.reset()
    observation = plain(observation)
    rows: list[Row] = []
    for _ in range(steps):
        after, reward, terminated, truncated, step_info = env.step(action)
        after = plain(after)
        rows.append((len(rows), observation, action, reward, after, terminated, truncated, info, step_info))
        observation, info = after, step_info
        if terminated or truncated:
            episodes.append(rows)
            rows = []
            observation, info = env.reset()
            observation = plain(observation)
    return [*episodes, rows]


def plain(value: Any) -> Any:
    """Python numbers, so that rows of any kind compare with ==."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return np.asarray(value).tolist()


def rows_of(chunk: SingleAgentEpisode) -> list[Row]:
    observations, infos = chunk.get_observations(), chunk.get_infos()
    actions, rewards = chunk.get_actions(), chunk.get_rewards()
    assert len(observations) == len(infos) == len(chunk) + 1
    last = len(chunk) - 1
    return [
        (
            chunk.t_started + t,
            plain(observations[t]),
            plain(actions[t]),
            rewards[t],
            plain(observations[t + 1]),
            chunk.is_terminated and t == last,
            chunk.is_truncated and t == last,
            plain(infos[t]),
            plain(infos[t + 1]),
        )
        for t in range(len(chunk))
    ]


def join(chunks: list[SingleAgentEpisode], lane_of: dict[str, int]) -> dict[int, list[list[Row]]]:
    """Chunks put together by id: for each lane its episodes, in order of their beginnings."""
    joined: dict[str, list[Row]] = {}
    for chunk in chunks:
        joined.setdefault(str(chunk.id_), []).extend(rows_of(chunk))
    lanes: dict[int, list[list[Row]]] = {}
    for id_, rows in joined.items():
        lanes.setdefault(lane_of[id_], []).append(rows)
    return lanes


def constant(batch: dict[str, Any]) -> dict[str, Any]:
    rows = batch["obs"]
    count = len(rows["z"]) if isinstance(rows, dict) else len(rows)
    return {"actions": np.full(count, 3)}


def lane_of_first(chunk: SingleAgentEpisode) -> int:
    first = chunk.get_observations()[0]
    return int(plain(first["z"] if isinstance(first, dict) else first[0])) // 10_000


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "options"), [(Honest, {}), (Honest, {"copy": False}), (CountingDict, {})])
class TestSameAsPlainLoop:
    def test_chunks_join_to_the_episodes_of_a_plain_loop(
        self, kind: type[Counting], options: dict[str, Any], mode: AutoresetMode, count: int
    ) -> None:
        with EnvRunner(lanes(kind, count, mode, **options), constant) as runner:
            chunks = [chunk for n in (1, 7, 2, 30, 1, 1, 5) for chunk in runner.sample(num_timesteps=n)]
        lane_of = {str(chunk.id_): lane_of_first(chunk) for chunk in chunks}
        for lane, episodes in join(chunks, lane_of).items():
            assert episodes == trimmed(by_hand(kind, lane, sum(map(len, episodes))))

    def test_whole_episodes_are_those_of_a_plain_loop(
        self, kind: type[Counting], options: dict[str, Any], mode: AutoresetMode, count: int
    ) -> None:
        with EnvRunner(lanes(kind, count, mode, **options), constant) as runner:
            episodes = runner.sample(num_episodes=7)
        assert [lane_of_first(episode) for episode in episodes] == [turn % count for turn in range(7)]
        for lane in range(count):
            mine = [rows_of(episode) for episode in episodes if lane_of_first(episode) == lane]
            assert mine == trimmed(by_hand(kind, lane, sum(map(len, mine))))
        assert all(episode.is_done and episode.t_started == 0 for episode in episodes)


def trimmed(episodes: list[list[Row]]) -> list[list[Row]]:
    return [rows for rows in episodes if rows]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_environment_that_reuses_its_array_leaves_final_observations_alone(mode: AutoresetMode) -> None:
    with EnvRunner(lanes(Counting, 2, mode, copy=False), constant) as runner:
        ends = [plain(episode.get_observations()[-1])[0] % 100 for episode in runner.sample(num_episodes=8)]
    assert ends == [3, 1, 1, 4, 4, 2, 2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_worker_processes_give_the_same_episodes(mode: AutoresetMode) -> None:
    sync = EnvRunner(lanes(Honest, 2, mode), constant)
    with sync, EnvRunner(lanes(Honest, 2, mode, vector=AsyncVectorEnv), constant) as runner:
        for asked in (5, 9):
            theirs, ours = (maker.sample(num_timesteps=asked) for maker in (runner, sync))
            assert list(map(rows_of, theirs)) == list(map(rows_of, ours))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("mode", MODES)
def test_timesteps_are_at_most_one_round_more_than_asked(mode: AutoresetMode, count: int) -> None:
    with EnvRunner(lanes(Honest, count, mode)) as runner:
        taken = 0
        for asked in (1, 4, 17, 2):
            steps = sum(map(len, runner.sample(num_timesteps=asked)))
            taken += steps
            assert asked <= steps < asked + count
        assert runner.total_timesteps == taken
        assert runner.dropped_timesteps == 0


def test_reset_step_of_next_step_mode_is_no_data() -> None:
    env = SyncVectorEnv([lambda: Honest(lengths=[3])], autoreset_mode=AutoresetMode.NEXT_STEP)
    with EnvRunner(env) as runner:
        chunks = runner.sample(num_timesteps=6)
    assert [plain(chunk.get_observations()) for chunk in chunks] == [
        [[0.0], [1.0], [2.0], [3.0]],
        [[100.0], [101.0], [102.0], [103.0]],
    ]
    assert [chunk.get_rewards() for chunk in chunks] == [[1.0, 2.0, 3.0], [1001.0, 1002.0, 1003.0]]


@pytest.mark.parametrize("mode", MODES)
def test_continuation_keeps_id_count_and_lookback(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: Honest(lengths=[9])], autoreset_mode=mode)
    with EnvRunner(env, constant, lookback=2) as runner:
        (first,) = runner.sample(num_timesteps=3)
        (second,) = runner.sample(num_timesteps=4)
    assert (second.id_, second.t_started, len(second)) == (first.id_, 3, 4)
    assert plain(second.get_observations([-2, -1, 0], neg_index_as_lookback=True)) == [[1.0], [2.0], [3.0]]
    assert second.get_rewards(slice(-2, 0), neg_index_as_lookback=True) == [2.0, 3.0]
    with pytest.raises(IndexError):
        second.get_rewards(-3, neg_index_as_lookback=True)


def test_returned_chunks_do_not_change_any_more() -> None:
    with EnvRunner(lanes(Honest, 2, AutoresetMode.NEXT_STEP, copy=False), constant) as runner:
        chunks = runner.sample(num_timesteps=5)
        before = list(map(rows_of, chunks))
        runner.sample(num_timesteps=20)
    assert list(map(rows_of, chunks)) == before


def test_whole_episodes_begin_with_a_reset_and_so_does_what_follows() -> None:
    with EnvRunner(lanes(Honest, 1, AutoresetMode.DISABLED), constant) as runner:
        (open_,) = runner.sample(num_timesteps=2)
        (whole,) = runner.sample(num_episodes=1)
        (after,) = runner.sample(num_timesteps=1)
    starts = [plain(episode.get_observations())[0][0] for episode in (open_, whole, after)]
    assert starts == [0.0, 100.0, 300.0]  # episode 2 was begun right after episode 1 and dropped
    assert not open_.is_done
    assert whole.is_done


def test_short_episodes_are_not_preferred() -> None:
    env = SyncVectorEnv([lambda: Honest(0, [1]), lambda: Honest(1, [50])], autoreset_mode=AutoresetMode.SAME_STEP)
    with EnvRunner(env) as runner:
        lengths = [len(episode) for episode in runner.sample(num_episodes=4)]
        assert lengths == [1, 50, 1, 50]
        assert runner.dropped_timesteps == 98


def test_refused_call_changes_nothing() -> None:
    with EnvRunner(lanes(Honest, 1, AutoresetMode.DISABLED), constant) as runner:
        (first,) = runner.sample(num_timesteps=2)
        with pytest.raises(ValueError, match="num_timesteps"):
            runner.sample(num_timesteps=0)
        (second,) = runner.sample(num_timesteps=1)
    assert (second.id_, second.t_started) == (first.id_, 2)


def test_forced_reset_leaves_the_open_episode() -> None:
    with EnvRunner(lanes(Honest, 1, AutoresetMode.DISABLED), constant) as runner:
        (first,) = runner.sample(num_timesteps=2)
        (second,) = runner.sample(num_timesteps=1, force_reset=True)
    assert second.id_ != first.id_
    assert plain(second.get_observations()) == [[100.0], [101.0]]


@pytest.mark.parametrize("mode", MODES)
def test_records_speak_of_whole_episodes(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: Honest(lengths=[3, 4])], autoreset_mode=mode)
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
            counted = np.arange(2) + 10 * len(calls)
            return {"actions": [2, 6], "count": counted, "state": {"h": np.stack([counted, -counted], 1)}}

        with EnvRunner(lanes(Honest, 2, AutoresetMode.NEXT_STEP), module) as runner:
            first, second = sorted(runner.sample(num_timesteps=3), key=lane_of_first)
        assert calls[:2] == [[[0.0], [10_000.0]], [[1.0], [10_001.0]]]
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

        with EnvRunner(lanes(Honest, 1, AutoresetMode.DISABLED), module) as runner:
            (episode,) = runner.sample(num_timesteps=2)
        assert plain(episode.get_actions()) == [4, 4]
        assert plain(episode.get_extra_model_outputs("value")) == [[0.0], [1.0]]
        assert type(episode.get_extra_model_outputs("value")[0]) is np.ndarray

    def test_array_that_the_module_reuses_is_copied(self) -> None:
        class Steered(Honest):
            action_space = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)  # type: ignore[assignment]

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
                TypeError,
                "EnvRunner.sample: module must return a dict with \"actions\", got keys ['action']",
            ),
            (
                {"actions": [3]},
                ValueError,
                'EnvRunner.sample: module\'s "actions" must have one row for each of 2 sub-environments, '
                "got shape (1,)",
            ),
            (
                {"actions": [3, 3], "value": {"a": 1.0}},
                ValueError,
                'EnvRunner.sample: module\'s "value" must have one row for each of 2 sub-environments, got shape ()',
            ),
        ],
    )
    def test_wrong_outputs_are_named(self, outputs: Any, error: type[Exception], message: str) -> None:
        with (
            EnvRunner(lanes(Honest, 2, AutoresetMode.DISABLED), lambda batch: outputs) as runner,
            pytest.raises(error, match=f"^{re.escape(message)}$"),
        ):
            runner.sample(num_timesteps=1)

    def test_failed_call_is_followed_by_a_reset(self) -> None:
        fail = [False]

        def module(batch: dict[str, Any]) -> dict[str, Any]:
            if fail[0] and batch["obs"][0, 0] % 100 == 2:
                raise FloatingPointError("lost")
            return constant(batch)

        with EnvRunner(lanes(Honest, 1, AutoresetMode.DISABLED), module) as runner:
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
        with EnvRunner(lanes(Honest, count, mode), seed=seed) as runner:
            actions: dict[int, list[Any]] = {lane: [] for lane in range(count)}
            for chunk in runner.sample(num_timesteps=40 * count):
                actions[lane_of_first(chunk)] += plain(chunk.get_actions())
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

    def test_environments_are_seeded_once_each_on_its_own(self) -> None:
        def seeds(count: int, seed: Any) -> list[list[int | None]]:
            env = lanes(Honest, count, AutoresetMode.DISABLED)
            with EnvRunner(env, seed=seed) as runner:
                runner.sample(num_episodes=2 * count)
                runner.sample(num_timesteps=1)
            assert isinstance(env, SyncVectorEnv)
            return [lane.unwrapped.seeds for lane in env.envs]  # type: ignore[attr-defined]

        three = seeds(3, 7)
        assert all(isinstance(lane[0], int) and set(lane[1:]) == {None} for lane in three)
        assert len({lane[0] for lane in three}) == 3
        assert seeds(1, 7)[0][0] == three[0][0] != seeds(1, (7, 1))[0][0]

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
        env = Honest()
        with EnvRunner(env) as runner:
            runner.sample(num_timesteps=3)
        assert env.closed
        runner.close()
        with pytest.raises(RuntimeError, match=r"^EnvRunner\.sample: the runner must be open, got a closed one$"):
            runner.sample(num_timesteps=1)

    def test_vector_environment_is_closed_after_an_error(self) -> None:
        env = lanes(Honest, 2, AutoresetMode.SAME_STEP)
        with pytest.raises(ZeroDivisionError), EnvRunner(env):
            raise ZeroDivisionError
        assert env.closed

    def test_time_limit_truncates_and_keeps_the_final_observation(self) -> None:
        def make() -> gym.Env[Any, Any]:
            return gym.wrappers.TimeLimit(Honest(lengths=[100]), 4)

        with EnvRunner(make, num_envs=2) as runner:
            for episode in runner.sample(num_episodes=4):
                assert (episode.is_terminated, episode.is_truncated) == (False, True)
                assert plain(episode.get_observations()[-1])[0] % 100 == 4

    def test_structured_actions_reach_the_environment_and_the_episode(self) -> None:
        class Acting(Honest):
            action_space = gym.spaces.Dict(  # type: ignore[assignment]
                {"z": gym.spaces.Discrete(3), "a": gym.spaces.Box(-1, 1, (2,), np.float32)}
            )
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
            stored = [plain(a) for chunk in chunks if lane_of_first(chunk) == lane for a in chunk.get_actions()]
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
        message = (
            'EnvRunner.sample: infos must have "final_obs" at the end of an episode in SAME_STEP mode, '
            f"got {sorted(infos)} for sub-environment 0"
        )
        with EnvRunner(Declared(infos)) as runner, pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
            runner.sample(num_timesteps=2)


def bad_calls() -> Iterator[Any]:
    def cartpole(**options: Any) -> Any:
        return lambda: EnvRunner("CartPole-v1", **options)

    def sample(**options: Any) -> Any:
        return lambda: EnvRunner(Honest()).sample(**options)

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
        lambda: EnvRunner(Honest(), num_envs=2),
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
    yield sample(num_timesteps=0), ValueError, "EnvRunner: num_timesteps must be >= 1, got 0"
    yield sample(num_episodes=2.0), TypeError, "EnvRunner: num_episodes must be an integer, got 2.0"


@pytest.mark.parametrize(("call", "error", "message"), list(bad_calls()))
def test_wrong_arguments_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()
