"""The episodes that one call of a pipeline works on."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeAlias

from ringback.episodes import SingleAgentEpisode

from .columns import Key, episode_key
from .connector import Connector

__all__ = ["OwnEpisodes", "single_agent_episodes", "together"]

_ID, _AGENT = attrgetter("id_"), attrgetter("agent_id")
_SINGLE, _NOBODY = {SingleAgentEpisode}, {None}


class OwnEpisodes(list[Any]):
    """A list of episodes that belongs to a pipeline, so that its pieces, pipelines among them, may change it."""

    _singles: list[Any] | None = None  # the list's items when they were found to be single-agent episodes
    _keys: list[Key]  # and their keys

    def keys(self) -> list[Key] | None:
        """Return the episodes' keys; None unless all are of one agent."""
        if self._singles is None or self._singles != self:
            if set(map(type, self)) != _SINGLE:
                return None
            self._singles, self._keys = self[:], keys_of(self)
        return self._keys


def keys_of(singles: Sequence[Any]) -> list[Key]:
    """List the keys of single-agent episodes."""
    if set(map(_AGENT, singles)) == _NOBODY:
        return list(zip(map(_ID, singles), strict=True))
    return [episode_key(one) for one in singles]


def single_agent_episodes(episodes: Sequence[Any], learner: bool) -> tuple[Sequence[SingleAgentEpisode], Sequence[Key]]:
    """List the episodes to read, and their keys.

    Parameters
    ----------
    episodes : sequence
        As a piece gets them.
    learner : bool
        Whether all are read, or of multi-agent episodes only those of the agents that stepped.
    """
    if type(episodes) is OwnEpisodes:
        keys = episodes.keys()
        if keys is not None:
            return episodes, keys
    singles = list(Connector.single_agent_episode_iterator(episodes, agents_that_stepped_only=not learner))
    return singles, keys_of(singles)


# The ids of the episodes of a call, and their keys.
Known: TypeAlias = tuple[tuple[Any, ...], list[Key]]


def together(episodes: Sequence[Any], known: Known = ((), [])) -> tuple[OwnEpisodes, Known]:
    """List the episodes, the chunks of each one behind each other, so that all columns have their rows in one order.

    Parameters
    ----------
    episodes : sequence
        As the pipeline gets them.
    known : tuple
        What the last call returned: who acts has the same episodes again and again, so that their keys need not be
        made anew.

    Returns
    -------
    OwnEpisodes
        The list.
    tuple
        The ids and keys; empty unless these are single-agent episodes without agents, one chunk of each.
    """
    if isinstance(episodes, OwnEpisodes):
        return episodes, known
    ids = tuple(map(_ID, episodes))
    own = OwnEpisodes(episodes)
    if ids and ids == known[0]:
        own._singles, own._keys = own[:], known[1]
        return own, known
    several = len(set(ids)) < len(ids)
    if several and not any(hasattr(one, "agent_episodes") for one in episodes):
        groups: dict[Key, list[Any]] = {}
        for episode in episodes:
            groups.setdefault(episode_key(episode), []).append(episode)
        own = OwnEpisodes([episode for group in groups.values() for episode in group])
    keys = own.keys()
    if several or keys is None or len(keys[0]) != 1:
        return own, ((), [])
    return own, (ids, keys)
