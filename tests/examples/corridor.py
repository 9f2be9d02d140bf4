"""A small environment whose best policy is known: walk right."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

CORRIDOR = "ringback-tests/Corridor-v0"
BEST = -5.0  # from the far end; it counts as solved


class Corridor(gym.Env[Any, Any]):
    """Six cells, the last is the end; -1 a step. Observations are small images, and no action is 0."""

    observation_space = gym.spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = gym.spaces.Discrete(2, start=3)  # 3: left, 4: right

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.cell = 0
        self.steps = 0
        self.interrupt_at = interrupt_at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(3))
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        if self.steps == self.interrupt_at:
            raise KeyboardInterrupt
        self.cell = min(max(self.cell + (1 if action == 4 else -1), 0), 5)
        return self._observe(), -1.0, self.cell == 5, False, {}

    def _observe(self) -> Any:
        image = np.zeros(6, np.uint8)
        image[self.cell] = 255
        return image.reshape(2, 3)


class Continuous(Corridor):
    """The same with actions that DQN cannot choose."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)  # type: ignore[assignment]


class Numbered(Corridor):
    """The same with observations that are no arrays of features."""

    observation_space = gym.spaces.Discrete(6)  # type: ignore[assignment]


def register() -> None:
    """Make the environments known to ``gym.make``; a second call does nothing."""
    kinds: list[tuple[str, type[Corridor], dict[str, Any]]] = [
        (CORRIDOR, Corridor, {}),
        ("ringback-tests/Interrupted-v0", Corridor, {"interrupt_at": 300}),
        ("ringback-tests/Continuous-v0", Continuous, {}),
        ("ringback-tests/Numbered-v0", Numbered, {}),
    ]
    for name, kind, kwargs in kinds:
        if name not in gym.registry:
            entry_point = f"{__name__}:{kind.__name__}"
            gym.register(name, entry_point, reward_threshold=BEST, max_episode_steps=20, kwargs=kwargs)
