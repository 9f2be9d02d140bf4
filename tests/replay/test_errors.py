"""Each refusal is one sentence that names argument, rule and value, and leaves the buffer as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from ringback import ReplayBuffer

DICT = gym.spaces.Dict(
    {"camera": gym.spaces.Box(0, 255, (4, 4), np.uint8), "speed": gym.spaces.Box(-9, 9, (2,), np.float32)}
)
DISCRETE = gym.spaces.Discrete(5)
GOOD = {"camera": np.zeros((4, 4), np.uint8), "speed": np.zeros(2, np.float32)}


def small(**options: Any) -> ReplayBuffer:
    """Return a buffer of vectors with ids 4 to 8 live, all of one open episode."""
    buffer = ReplayBuffer(5, 2, DISCRETE, **options)
    for t in range(9):
        buffer.add([t, t], t % 5, t, [t + 1, t + 1], False)
    return buffer


def pictured() -> ReplayBuffer:
    """Return a buffer of a structure."""
    buffer = ReplayBuffer(5, DICT, DISCRETE)
    buffer.add(GOOD, 1, 0.0, GOOD, True)
    return buffer


def with_extras() -> ReplayBuffer:
    """Return an empty buffer with two extras."""
    return ReplayBuffer(5, 2, DISCRETE, extras={"logp": (), "state": (3,)})


Z = [0.0, 0.0]
NAN = float("nan")
REFUSALS: list[tuple[Callable[[], ReplayBuffer], Callable[[ReplayBuffer], Any], type[Exception], str]] = []


def refuses(
    make: Callable[[], ReplayBuffer], call: Callable[[ReplayBuffer], Any], kind: type[Exception], text: str
) -> None:
    REFUSALS.append((make, call, kind, text))
