"""A list of episodes in two sides, by the rule that splits a buffer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from ringback import _core

__all__ = ["split_episodes"]

_Episode = TypeVar("_Episode")


def split_episodes(
    episodes: Iterable[_Episode], validation: float = 0.1, seed: int = 0
) -> tuple[list[_Episode], list[_Episode]]:
    """Hold out one of every round(1 / validation) episodes, whole.

    Parameters
    ----------
    episodes : iterable
        ``SingleAgentEpisode`` or anything else. Chunks of one episode (the same ``id_``) stay together; what has no
        ``id_`` is an episode of its own.
    validation : float, default 0.1
        Share of the episodes to hold out, in (0, 0.5].
    seed : int, default 0
        Decides which one of each group of consecutive episodes.

    Returns
    -------
    tuple of two lists
        Train and validation, each in the given order; together they are all that was given. Of n episodes and
        k = round(1 / validation), n // k or one more are held out.

    Raises
    ------
    ValueError
        If validation or seed are out of range.

    Notes
    -----
    O(episodes). The same rule as ``buffer.split(validation, seed)``: episodes that are added to a buffer in this order
    lie on the same sides there. A later episode never moves an earlier one.

    Examples
    --------
    >>> train, validation = split_episodes(range(30), validation=0.1)
    >>> len(train), len(validation), sorted(train + validation) == list(range(30))
    (27, 3, True)
    """
    where = "split_episodes"
    groups = split_groups(where, validation)
    seed = split_seed(where, seed)
    given = list(episodes)
    held_out = _core.held_out(_units(given), groups, seed).tolist()
    train = [episode for episode, out in zip(given, held_out, strict=True) if not out]
    return train, [episode for episode, out in zip(given, held_out, strict=True) if out]


def _units(episodes: list[Any]) -> list[int]:
    """Give the episodes their numbers as a buffer does: by their first chunk that has a step."""
    numbers: dict[Any, int] = {}
    names = [(episode.id_,) if hasattr(episode, "id_") else k for k, episode in enumerate(episodes)]
    for with_steps in (True, False):  # those without any come last
        for name, episode in zip(names, episodes, strict=True):
            if name not in numbers and with_steps == (not hasattr(episode, "id_") or len(episode) > 0):
                numbers[name] = len(numbers)
    return [numbers[name] for name in names]


def split_groups(where: str, validation: float) -> int:
    """Return k of "one of every k is held out"."""
    if isinstance(validation, bool) or not isinstance(validation, (int, float, np.floating)):
        raise TypeError(f"{where}: validation must be a number, got {validation!r}")
    if not 0.0 < validation <= 0.5:
        raise ValueError(f"{where}: validation must be in (0, 0.5], got {validation!r}")
    return round(min(1 / validation, 2.0**53))


def split_seed(where: str, seed: int) -> int:
    """Return the seed of a split as a plain number."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"{where}: seed must be an integer, got {seed!r}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"{where}: seed must be in [0, 2**64), got {seed!r}")
    return int(seed)
