"""The episodes that one call of a pipeline works on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from ringback.episodes import SingleAgentEpisode

from .columns import Key, episode_key
from .connector import Connector

__all__ = ["OwnEpisodes", "single_agent_episodes", "together"]

_ID, _AGENT = attrgetter("id_"), attrgetter("agent_id")
_SINGLE, _NOBODY = {SingleAgentEpisode}, {None}


class OwnEpisodes(list[Any]):
    """A list of episodes that belongs to a pipeline, so that its pieces, pipelines among them, may change it."""

    _singles: list[Any] | None = None  # the list's items when they were found to be single-agent episodes
    _keys: Keys | None = None

    def keys(self) -> Keys | None:
        """Return the episodes' keys; None unless all are of one agent."""
        if self._singles is None or self._singles != self:
            if set(map(type, self)) != _SINGLE:
                return None
            self._singles, self._keys = self[:], None
        if self._keys is None:
            self._keys = Keys(self._singles)
        return self._keys


class Keys(Sequence[Key]):
    """The keys of single-agent episodes, found when somebody asks for them."""

    __slots__ = ("_found", "_singles")

    def __init__(self, singles: Sequence[Any]) -> None:
        self._singles = singles
        self._found: list[Key] | None = None

    def found(self) -> list[Key]:
        """List the keys."""
        if self._found is None:
            self._found = keys_of(self._singles)
        return self._found

    def __len__(self) -> int:
        return len(self._singles)

    def __getitem__(self, position: Any) -> Any:
        return self.found()[position]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.found())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return list, (self.found(),)


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


def together(episodes: Sequence[Any], known: tuple[Any, ...] = ()) -> tuple[OwnEpisodes, tuple[Any, ...]]:
    """List the episodes, the chunks of each one behind each other, so that all columns have their rows in one order.

    Parameters
    ----------
    episodes : sequence
        As the pipeline gets them.
    known : tuple
        What the last call returned.

    Returns
    -------
    OwnEpisodes
        The list.
    tuple
        The ids, if they are those of single-agent episodes, one chunk of each. Who acts has the same ones again and
        again, so that this need not be found out anew.
    """
    if isinstance(episodes, OwnEpisodes):
        return episodes, known
    ids = tuple(map(_ID, episodes))
    own = OwnEpisodes(episodes)
    if ids and ids == known:
        own._singles = own[:]
        return own, known
    several = len(set(ids)) < len(ids)
    if several and not any(hasattr(one, "agent_episodes") for one in episodes):
        groups: dict[Key, list[Any]] = {}
        for episode in episodes:
            groups.setdefault(episode_key(episode), []).append(episode)
        own = OwnEpisodes([episode for group in groups.values() for episode in group])
    return own, () if several or own.keys() is None else ids
