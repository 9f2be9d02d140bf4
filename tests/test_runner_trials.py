"""What a trial of the runner by strangers came upon."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ringback import EnvRunner, ReplayBuffer, VectorRecorder
from ringback.connectors import AddObservations, AddTimeDim, ToTensor
from ringback.errors import EnvError

BOX = gym.spaces.Box(0, 1_000, (1,), np.float32)


class Counting(gym.Env[Any, Any]):
    """Episodes of three steps; the observation is 100 * episode + t."""

    observation_space: gym.Space[Any] = BOX
    action_space = gym.spaces.Discrete(2)

    def __init__(self, in_place: bool = False, dicts: bool = False, nothing_at: int | None = None) -> None:
        self.episode, self.t, self.in_place, self.dicts, self.nothing_at = -1, 0, in_place, dicts, nothing_at
        self.shown = np.zeros(1, np.float32)
        if dicts:
            self.observation_space = gym.spaces.Dict({"x": BOX})

    def _observation(self) -> Any:
        if self.nothing_at == self.t:
            return None
        self.shown = self.shown if self.in_place else np.zeros(1, np.float32)
        self.shown[0] = 100 * self.episode + self.t
        return {"x": self.shown} if self.dicts else self.shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._observation(), 1.0, self.t == 3, False, {}


@pytest.mark.parametrize("dicts", [False, True])
def test_a_final_observation_that_the_reset_has_overwritten_is_refused(dicts: bool) -> None:
    def made(in_place: bool) -> Any:
        return SyncVectorEnv([lambda: Counting(in_place, dicts)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)

    with (
        EnvRunner(made(in_place=True), seed=0) as runner,
        pytest.raises(EnvError, match="the last observation of an episode must not be in the array of the next") as got,
    ):
        runner.sample(num_timesteps=8)
    assert (got.value.env_index, got.value.step) == (0, 3)
    with EnvRunner(made(in_place=False), seed=0) as runner:
        ended = runner.sample(num_timesteps=6)[0].get_observations(-1)
    assert (ended["x"] if dicts else ended).tolist() == [3.0]

    envs = made(in_place=True)
    recorder = VectorRecorder(ReplayBuffer(10, envs.single_observation_space, envs.single_action_space), envs)
    recorder.reset(envs.reset(seed=0)[0])
    actions = np.array([0, 1])
    for _ in range(2):
        recorder.step(actions, *envs.step(actions))
    with pytest.raises(EnvError, match="the last observation of an episode must not be in the array of the next"):
        recorder.step(actions, *envs.step(actions))


def test_who_gives_no_observation_is_named() -> None:
    envs = SyncVectorEnv([lambda: Counting(nothing_at=2), Counting, Counting])
    with EnvRunner(envs, seed=0) as runner, pytest.raises(EnvError) as got:
        runner.sample(num_timesteps=9)
    assert (got.value.env_index, got.value.step) == (0, 2)


def test_rows_in_a_list_may_be_tensors_with_a_gradient() -> None:
    weight = torch.ones((), requires_grad=True)

    def module(batch: dict[str, Any]) -> dict[str, Any]:
        rows = range(len(batch["obs"]))
        return {"actions": [torch.tensor(1) for _ in rows], "value": [weight * k for k in rows]}

    with EnvRunner(Counting, module, num_envs=2, seed=0) as runner:
        episodes = runner.sample(num_timesteps=4)
    assert [episode.get_extra_model_outputs("value") for episode in episodes] == [[0.0, 0.0], [1.0, 1.0]]


def test_a_time_axis_for_the_module_is_gone_behind_it() -> None:
    shapes = []

    def module(batch: dict[str, Any]) -> dict[str, Any]:
        shapes.append(tuple(batch["obs"].shape))
        return {"action_dist_inputs": torch.zeros(*batch["obs"].shape[:2], 2)}

    pieces = [AddObservations(), AddTimeDim(), ToTensor()]
    with EnvRunner(Counting, module, num_envs=2, seed=0, env_to_module=pieces) as runner:
        episodes = runner.sample(num_timesteps=4)
    assert set(shapes) == {(2, 1, 1)}
    assert np.shape(episodes[0].get_actions()) == (2,)


def test_runners_are_not_copied() -> None:
    with EnvRunner(Counting, seed=0) as runner:
        for refused in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="EnvRunner cannot be copied or pickled"):
                refused(runner)
        assert len(runner.sample(num_timesteps=2)[0]) == 2
