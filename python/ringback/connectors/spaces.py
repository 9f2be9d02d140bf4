"""The spaces of what pieces make, leaf by leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from ringback.episodes.space_rules import LeafRules

__all__ = ["bounds_of", "space_of"]


def space_of(rules: Any, leaf_space: Callable[[LeafRules], gym.Space[Any]]) -> gym.Space[Any]:
    """Build the space of a structure of leaf rules from the spaces of its leaves."""
    if isinstance(rules, dict):
        return gym.spaces.Dict({key: space_of(sub, leaf_space) for key, sub in rules.items()})
    if isinstance(rules, tuple):
        return gym.spaces.Tuple([space_of(sub, leaf_space) for sub in rules])
    return leaf_space(rules)


def bounds_of(rule: LeafRules, where: str) -> tuple[Any, Any]:
    """Return the bounds of a leaf, as arrays of its shape and dtype.

    Raises
    ------
    TypeError
        If it is not made of numbers.
    """
    if rule.dtype is None:
        raise TypeError(f"{where}: the observation space must be made of numbers, got {rule.space}")
    if isinstance(rule.space, gym.spaces.Box):
        return rule.space.low, rule.space.high
    return rule.low, rule.high
