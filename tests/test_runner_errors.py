"""Environments that fail: who and when is named, nothing is lost, nothing hangs, nothing is left running."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ringback import EnvRunner
from ringback.errors import EnvError
from tests.counting import MODES, Counting, CountingDict, CountingImage, by_hand, constant, joined, lanes, plain

# What gymnasium says on its own when a worker process fails.
pytestmark = pytest.mark.filterwarnings("ignore:.*ERROR. ")


class HangError(BaseException):
    """No `except Exception` takes it for an environment's error."""


@pytest.fixture(autouse=True)
def _no_call_may_hang() -> Iterator[None]:
    """End a test that hangs: by the clock, but two orders of magnitude above what it takes."""

    def out_of_time(*_: Any) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Failing(Counting):
    """Counts, and in one lane does something wrong at step 2 of its third episode (lengths 3, 2, 4 there)."""

    def __init__(self, lane: int, wrong: Callable[[], Any], at_reset: bool = False) -> None:
        super().__init__(lane, [3, 2, 4])
        self.wrong = wrong
        self.at_reset = at_reset

    @property
    def due(self) -> bool:
        return self.lane == 1 and self.episode == 2 and (self.t == 0 if self.at_reset else self.t == 2)

    def observe(self) -> Any:
        observation = super().observe()
        if self.due:
            wrong = self.wrong()
            return observation if wrong is None or isinstance(wrong, Reward) else wrong
        return observation

    def reward(self, action: Any) -> Any:
        wrong = self.wrong() if self.due else None
        return wrong.value if isinstance(wrong, Reward) else super().reward(action)


class Reward:
    def __init__(self, value: Any) -> None:
        self.value = value


def raising() -> None:
    raise ZeroDivisionError("lost my way")


def failing(
    count: int, mode: AutoresetMode, wrong: Callable[[], Any], *, vector: Any = SyncVectorEnv, at_reset: bool = False
) -> VectorEnv[Any, Any, Any]:
    return lanes(lambda lane: Failing(lane, wrong, at_reset), count, mode, vector=vector)


def sample_until_error(runner: EnvRunner, **how: int) -> tuple[list[Any], EnvError]:
    chunks: list[Any] = []

    def sample() -> None:
        for _ in range(50):
            chunks.extend(runner.sample(**how))  # type: ignore[arg-type]

    with pytest.raises(EnvError) as caught:
        sample()
    return [*chunks, *caught.value.episodes], caught.value


# Random play that nobody watches is logged as arrays, and must find its episodes again when something goes wrong.
played_both_ways = pytest.mark.parametrize("module", [constant, None])


def without_actions(episodes: list[list[Any]]) -> list[list[Any]]:
    return [[(*row[:2], *row[3:]) for row in rows] for rows in episodes]


# The failing step itself, and what came with it from other lanes, is lost where the environment returned nothing.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("how", [4, 1000])
@played_both_ways
class TestRaising:
    def test_sub_environment_and_step_are_named_and_nothing_is_lost(
        self, module: Any, how: int, vector: Any, mode: AutoresetMode
    ) -> None:
        with EnvRunner(failing(3, mode, raising, vector=vector), module) as runner:
            chunks, error = sample_until_error(runner, num_timesteps=how)
        message = (
            "EnvRunner.sample: sub-environment 1 must not raise, got ZeroDivisionError('lost my way') "
            "at step 2 of its episode"
        )
        assert (str(error), error.env_index, error.step) == (message, 1, 2)
        assert isinstance(error.__cause__, ZeroDivisionError)
        found = joined(chunks)
        # 3 + 2 + 1 steps of lane 1 before it failed; the others got as far, with their own rows of resets.
        assert [list(map(len, found[lane])) for lane in range(3)] == [[3, 2, 1]] * 3
        for lane, episodes in found.items():
            assert without_actions(episodes) == without_actions(by_hand(Counting(lane, [3, 2, 4]), 6))
        assert runner.total_timesteps == 18
        assert runner.total_episodes == 6
        assert len(runner.finished) == sum(episode.is_done for episode in error.episodes)

    def test_reset_is_named_as_such(self, module: Any, how: int, vector: Any, mode: AutoresetMode) -> None:
        with EnvRunner(failing(2, mode, raising, vector=vector, at_reset=True), module) as runner:
            chunks, error = sample_until_error(runner, num_timesteps=how)
        assert (error.env_index, error.step) == (1, 2 if mode is AutoresetMode.SAME_STEP else 0)
        assert sum(map(len, chunks)) == 10 if mode is not AutoresetMode.SAME_STEP else 8


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
@played_both_ways
def test_nan_reward_is_named_and_the_rows_of_the_others_are_kept(module: Any, vector: Any, mode: AutoresetMode) -> None:
    with EnvRunner(failing(3, mode, lambda: Reward(np.nan), vector=vector), module) as runner:
        chunks, error = sample_until_error(runner, num_timesteps=1000)
    message = "EnvRunner.sample: sub-environment 1: the reward must be a number, got nan at step 2 of its episode"
    assert (str(error), error.env_index, error.step) == (message, 1, 2)
    assert {lane: list(map(len, episodes)) for lane, episodes in joined(chunks).items()} == {
        0: [3, 2, 2],
        1: [3, 2, 1],
        2: [3, 2, 2],
    }
    for lane, episodes in joined(chunks).items():
        played = by_hand(Counting(lane, [3, 2, 4]), sum(map(len, episodes)))
        assert without_actions(episodes) == without_actions(played)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: np.zeros(2),
        lambda: np.zeros((1, 1)),
        lambda: {"a": 1},
        lambda: "text",
        lambda: Reward("text"),
        lambda: Reward(np.zeros(3)),
    ],
)
@played_both_ways
def test_what_does_not_fit_is_laid_at_the_door_of_its_sub_environment(
    module: Any, wrong: Callable[[], Any], mode: AutoresetMode
) -> None:
    with EnvRunner(failing(3, mode, wrong), module) as runner:
        chunks, error = sample_until_error(runner, num_timesteps=1000)
    assert (error.env_index, error.step) == (1, 2)
    assert error.__cause__ is not None
    assert sum(map(len, chunks)) == 18


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (CountingDict, {"z": np.array(0.0)}),
        (CountingDict, {"z": np.array(0.0), "a": 1}),
        (CountingDict, {"z": np.array(0.0), "a": (1.5,)}),
        (CountingImage, np.zeros((2, 2, 1), np.float32)),
        (CountingImage, np.zeros((2, 2), np.uint8)),
    ],
)
@played_both_ways
def test_structures_and_dtypes_that_cannot_be_stored(
    module: Any, kind: type[Counting], wrong: Any, mode: AutoresetMode
) -> None:
    class Odd(kind):  # type: ignore[valid-type, misc]
        def observe(self) -> Any:
            return wrong if (self.lane, self.episode, self.t) == (1, 1, 1) else super().observe()

    with EnvRunner(lanes(lambda lane: Odd(lane, [2, 1]), 2, mode), module) as runner:
        _, error = sample_until_error(runner, num_timesteps=1000)
    assert (error.env_index, error.step) == (1, 1)


@played_both_ways
def test_failed_runner_goes_on_after_a_reset_in_this_process(module: Any) -> None:
    with EnvRunner(failing(2, AutoresetMode.DISABLED, raising), module) as runner:
        sample_until_error(runner, num_timesteps=1000)
        episodes = runner.sample(num_episodes=2)
    assert [plain(episode.get_observations(0))[0] % 10_000 for episode in episodes] == [300.0, 300.0]
    assert runner.dropped_timesteps == 0


@pytest.mark.parametrize("vector", [SyncVectorEnv, AsyncVectorEnv])
def test_whole_episodes_so_far_are_handed_back(vector: Any) -> None:
    with EnvRunner(failing(2, AutoresetMode.SAME_STEP, raising, vector=vector), constant) as runner:
        _, error = sample_until_error(runner, num_episodes=20)
    assert [(len(episode), episode.is_done) for episode in error.episodes] == [
        (3, True), (3, True), (2, True), (2, True), (1, False), (1, False),
    ]  # fmt: skip


def test_native_vector_environment_with_a_wrong_shape() -> None:
    class Wide(VectorEnv[Any, Any, Any]):
        num_envs = 2
        metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
        single_observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        single_action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros((2, 3), np.float32), {}

        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            no = np.zeros(2, bool)
            return np.zeros((2, 4), np.float32), np.zeros(2, np.float32), no, no, {}

    with (
        EnvRunner(Wide()) as runner,
        pytest.raises(
            EnvError, match=r"^EnvRunner\.sample: an environment: observations must have shape \(2, 3\), got"
        ),
    ):
        runner.sample(num_timesteps=2)


class TestWorkers:
    @pytest.mark.parametrize("mode", MODES)
    @played_both_ways
    def test_death_without_a_word(self, module: Any, mode: AutoresetMode) -> None:
        env = failing(3, mode, lambda: os._exit(3), vector=AsyncVectorEnv)
        with EnvRunner(env, module) as runner:
            chunks, error = sample_until_error(runner, num_timesteps=1000)
            self.check_ended(env)
            with pytest.raises(RuntimeError, match="the runner must be open, got a closed one"):
                runner.sample(num_timesteps=1)
        message = (
            "EnvRunner.sample: sub-environment 1 must not raise, got the end of its worker process with exit code 3 "
            "at step 2 of its episode"
        )
        assert (str(error), error.env_index, error.step) == (message, 1, 2)
        assert sum(map(len, chunks)) == 18

    def test_error_that_cannot_be_sent(self) -> None:
        class LocalError(Exception):
            """No other process can import this class."""

        def wrong() -> None:
            raise LocalError(lambda: None)

        env = failing(2, AutoresetMode.SAME_STEP, wrong, vector=AsyncVectorEnv)
        with EnvRunner(env, constant) as runner:
            _, error = sample_until_error(runner, num_timesteps=1000)
        assert error.env_index == 1
        self.check_ended(env)

    @pytest.mark.parametrize("way", ["close", "with", "error inside", "forgotten", "nan", "interrupt"])
    def test_no_way_out_leaves_one_running(self, way: str) -> None:
        env = failing(2, AutoresetMode.NEXT_STEP, lambda: Reward(np.nan), vector=AsyncVectorEnv)
        runner = EnvRunner(env, constant)
        runner.sample(num_timesteps=2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if way == "close":
                runner.close()
                runner.close()
            elif way == "with":
                with runner:
                    pass
            elif way == "error inside":
                with pytest.raises(KeyError), runner:
                    raise KeyError
            elif way == "nan":
                sample_until_error(runner, num_timesteps=1000)
            elif way == "interrupt":
                self.interrupt(runner)
            else:
                processes = env.processes  # type: ignore[attr-defined]
                del runner, env
                gc.collect()
                assert not any(process.is_alive() for process in processes)
                return
        self.check_ended(env)

    @staticmethod
    def interrupt(runner: EnvRunner) -> None:
        """Press Ctrl-C while the workers are at work."""
        inner = runner.env.step_wait  # type: ignore[attr-defined]

        def wait(*args: Any) -> Any:
            inner(*args)
            raise KeyboardInterrupt

        runner.env.step_wait = wait  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            runner.sample(num_timesteps=10)

    @staticmethod
    def check_ended(env: Any) -> None:
        assert env.closed
        assert [process.is_alive() for process in env.processes] == [False] * env.num_envs

    def test_runner_frees_itself(self) -> None:
        gc.disable()
        try:
            env = lanes(Counting, 1, AutoresetMode.DISABLED)
            runner = EnvRunner(env, constant)
            runner.sample(num_timesteps=3)
            del runner
            assert env.closed  # without the cyclic collector
        finally:
            gc.enable()


def test_error_can_be_sent_to_another_process() -> None:
    with EnvRunner(failing(2, AutoresetMode.DISABLED, raising), constant) as runner:
        _, error = sample_until_error(runner, num_timesteps=1000)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.env_index, copy.step) == (str(error), 1, 2)
    assert list(map(len, copy.episodes)) == list(map(len, error.episodes))


def test_wrong_environment_names_come_from_gymnasium() -> None:
    with pytest.raises(gym.error.NameNotFound, match=re.escape("NoSuch")):
        EnvRunner("NoSuch-v0")
