"""The acting side's frame stack: the last k observations of an episode, as a replay buffer gives them later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ringback._core import lookback_window
from ringback.errors import EpisodeError

from .filling import first_seen, lost_steps_error
from .structure import batch, leaves, map_pair

if TYPE_CHECKING:
    from .single_agent_episode import SingleAgentEpisode

__all__ = ["stack_last"]


def stack_last(
    episode: SingleAgentEpisode, k: int | Mapping[str, int], fill: Literal["first"] | float = "first"
) -> Any:
    """Stack the last k observations of an episode, oldest first.

    Parameters
    ----------
    episode : SingleAgentEpisode
        In list or in array form, with a lookback of at least k - 1 steps once it was cut.
    k : int or mapping of str to int
        Observations in a stack, at least 1: of every leaf, or of those leaves that the mapping names by their path,
        such as ``{"camera": 4}``; the others are not stacked.
    fill : {"first"} or float, default "first"
        What stands for times before the episode's first step: its first observation, or this number in all places.

    Returns
    -------
    ndarray, shape (k, *D), or a structure of such
        A copy, in the dtype of the observations; (k, 1) for observations that are numbers. Leaves without a stack have
        shape (*D). For a network, put a batch axis in front.

    Raises
    ------
    EpisodeError
        If the episode has no observation, or the stack needs one from a time that was there (t >= 0) but is not in the
        lookback: filling it would show the network what it never sees when it learns.
    ValueError
        If k is below 1 or names no leaf, or the dtype cannot hold the fill.

    Notes
    -----
    O(k). The same stack as ``sample_transitions(..., stack=k, stack_fill=fill)`` gives for the step that is taken at
    this observation: what lies before t = 0 is filled and never read, a lookback from before it neither.

    References
    ----------
    Mnih et al. 2015, "Preprocessing" (the last 4 frames).

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode()
    >>> episode.add_env_reset(observation=np.array([5.0]))
    >>> episode.add_env_step(observation=np.array([6.0]), action=0, reward=0.0)
    >>> stack_last(episode, 3).tolist(), stack_last(episode, 3, fill=0).tolist()
    ([[5.0], [5.0], [6.0]], [[0.0], [5.0], [6.0]])
    """
    where = "stack_last"
    depths = depths_of(k, where)
    check_fill(fill, where)
    if not episode.is_reset:
        raise EpisodeError(f"{where}: the episode must have an observation, got {episode!r}")
    deepest = max(depths.values())
    # In the episode's own time: what there is of it, and what the stack spans.
    lookback = episode.observations.lookback
    begin = first_seen(episode.t_started, lookback)
    first_wanted = episode.t + 1 - deepest
    missing, first, count, _ = lookback_window(begin, episode.t + 1, first_wanted, episode.t + 1)
    if missing and begin:
        raise lost_steps_error(where, first_wanted, episode.t_started, lookback)
    start = first - episode.t_started
    rows = episode.get_observations(slice(start, start + count), neg_index_as_lookback=True)
    if not episode.is_numpy:
        rows = batch(rows)
    unknown = depths.keys() - _paths(rows) if isinstance(k, Mapping) else set()
    if unknown:
        raise ValueError(f"{where}: k must name leaves among {sorted(_paths(rows))}, got {sorted(unknown)}")

    def stacked(leaf: Any, _: Any, path: str) -> Any:
        leaf = leaf[:, None] if leaf.ndim == 1 else leaf
        depth = depths.get(path) if isinstance(k, Mapping) else deepest
        if depth is None:
            return leaf[-1].copy()
        there = leaf[-depth:]
        out = np.empty((depth, *leaf.shape[1:]), leaf.dtype)
        out[depth - len(there) :] = there
        out[: depth - len(there)] = there[0] if fill == "first" else filler(fill, leaf.dtype, where)
        return out

    return map_pair(stacked, rows, rows, where)


def depths_of(k: int | Mapping[str, int], where: str, name: str = "k") -> dict[str, int]:
    """Check how many are to be stacked: a depth for each path, that of all leaves under ``""``."""
    depths = dict(k) if isinstance(k, Mapping) else {"": k}
    for depth in depths.values():
        if isinstance(depth, bool) or not isinstance(depth, (int, np.integer)):
            raise TypeError(f"{where}: {name} must be an int or a mapping of str to int, got {k!r}")
        if depth < 1:
            raise ValueError(f"{where}: {name} must be >= 1, got {k!r}")
    if not depths:
        raise ValueError(f"{where}: {name} must name a leaf, got {k!r}")
    return {path: int(depth) for path, depth in depths.items()}


def check_fill(fill: Any, where: str) -> None:
    """Check what stands for times before the episode."""
    if fill != "first" and (isinstance(fill, (str, bool)) or not isinstance(fill, (int, float, np.number))):
        raise ValueError(f"{where}: fill must be 'first' or a number, got {fill!r}")


def filler(fill: float, dtype: np.dtype[Any], where: str) -> Any:
    """Give a fill in the dtype that it is for."""
    if dtype.kind in "iub":
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not (float(fill).is_integer() and low <= fill <= high):
            raise ValueError(f"{where}: fill must fit the dtype {dtype}, got {fill!r}")
    return np.asarray(fill).astype(dtype)


def _paths(structure: Any) -> set[str]:
    return set(leaves(map_pair(lambda leaf, _, path: path, structure, structure, "stack_last")))
