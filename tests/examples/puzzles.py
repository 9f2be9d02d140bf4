"""Two small environments: one to be solved by remembering, one by aiming."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

RECALL, RECALL_STEPS = "ringback-tests/Recall-v0", 12
AIM = "ringback-tests/Aim-v0"


class Recall(gym.Env[Any, Any]):
    """A sign is shown once, at t = 0; each of 12 steps gives 1 for the action that answers it, and -1 for the other."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1, 1), np.float32)
    action_space = gym.spaces.Discrete(2, start=3)  # 3 answers -1, 4 answers 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.t = (-1, 1)[int(self.np_random.integers(2))], 0
        return np.full((1, 1), self.sign, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.t += 1
        reward = 1.0 if (action == 4) == (self.sign == 1) else -1.0
        return np.zeros((1, 1), np.float32), reward, self.t == RECALL_STEPS, False, {}


class Aim(gym.Env[Any, Any]):
    """A number is shown; the nearer both numbers of the action are to it, scaled to their bounds, the better."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(np.array([-3.0, 10.0], np.float32), np.array([1.0, 30.0], np.float32))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = self.np_random.uniform(-0.8, 0.8)
        return np.full(1, self.shown, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        wanted = np.array([-1 + 2 * self.shown, 20 + 10 * self.shown])
        misses = np.abs(action - wanted) / [2, 10]
        self.shown = self.np_random.uniform(-0.8, 0.8)
        return np.full(1, self.shown, np.float32), -float(misses.sum()), False, False, {}


class Unbounded(Aim):
    """The same with actions that have no bounds."""

    action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)


def register() -> None:
    """Make the environments known to ``gym.make``; a second call does nothing."""
    kinds: list[tuple[str, type[gym.Env[Any, Any]], float, int | None]] = [
        (RECALL, Recall, RECALL_STEPS, None),
        (AIM, Aim, -1.0, 5),
        ("ringback-tests/Unbounded-v0", Unbounded, -1.0, 5),
    ]
    for name, kind, threshold, limit in kinds:
        if name not in gym.registry:
            entry_point = f"{__name__}:{kind.__name__}"
            gym.register(name, entry_point, reward_threshold=threshold, max_episode_steps=limit)
