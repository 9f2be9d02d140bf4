"""Seeds for the sub-environments of a vector environment and for random choices in them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

__all__ = ["SeedPlan", "as_index", "reset_seed"]


class SeedPlan:
    """Independent seeds for each sub-environment, the same however many there are.

    Parameters
    ----------
    seed : int, tuple of int, or None
        What all of them come from; None takes fresh entropy.

    Raises
    ------
    TypeError
        If it is anything else.
    ValueError
        If it is negative.
    """

    def __init__(self, seed: int | tuple[int, ...] | None) -> None:
        parts: tuple[int, ...] | None
        try:
            parts = None if seed is None else tuple(map(as_index, seed if isinstance(seed, tuple) else (seed,)))
        except TypeError:
            parts = ()
        if parts == ():
            raise TypeError(f"EnvRunner: seed must be an integer, a tuple of integers or None, got {seed!r}")
        if parts is not None and min(parts) < 0:
            raise ValueError(f"EnvRunner: seed must be >= 0, got {seed!r}")
        entropy = np.random.SeedSequence(parts[0] if parts else None).entropy
        self._root = (entropy, tuple(parts[1:]) if parts else ())

    def of(self, index: int, reset: int = 0) -> tuple[int, int]:
        """Return the seeds of sub-environment `index`: for that reset of the environment, and for random choices."""
        entropy, key = self._root
        place = (*key, index, reset) if reset else (*key, index)
        words = np.random.SeedSequence(entropy, spawn_key=place).generate_state(2)
        # 31 bits: some environments hand their seed to generators that take no more.
        return int(words[0]) >> 1, int(words[1]) >> 1


def reset_seed(env: VectorEnv[Any, Any, Any], seeds: SeedPlan, reset: int) -> int | list[int]:
    """Return the seed for a reset of all sub-environments: new ones each time, so that what was played is forgotten."""
    if isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return [seeds.of(index, reset)[0] for index in range(env.num_envs)]
    return seeds.of(0, reset)[0]  # a native vector environment has one generator


def as_index(value: Any) -> int:
    """Return an integer that is no bool."""
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)
