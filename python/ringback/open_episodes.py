"""Episodes while they are being played."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ringback.episodes import SingleAgentEpisode
from ringback.vector_rows import VectorStep, is_array_space, rows_of_all

__all__ = ["EpisodeRecord", "OpenEpisode", "StepLog"]

LOGGED_BYTES = 1024  # of an observation or an action; larger ones cost more to copy once more than the log saves


class EpisodeRecord(NamedTuple):
    """What is known of a finished episode, also where its steps left the runner in several chunks.

    Attributes
    ----------
    id_ : str
        The id of the episode and of all its chunks.
    env_index : int
        The sub-environment that played it.
    return_ : float
        Sum of all its rewards, undiscounted.
    length : int
        Its number of env steps.
    seconds : float
        From its start to its end, by the clock.
    """

    id_: str
    env_index: int
    return_: float
    length: int
    seconds: float


class OpenEpisode:
    """An episode being played: its present chunk, and what is known of its earlier ones.

    Parameters
    ----------
    env_index : int
        The sub-environment that plays it.
    chunk : SingleAgentEpisode
        Its first chunk, with its first observation.
    began : float, optional
        When that was, by ``perf_counter``; now by default.

    Attributes
    ----------
    env_index : int
        As given.
    chunk : SingleAgentEpisode
        The present chunk.
    record : EpisodeRecord or None
        What is known of it at its end.
    """

    __slots__ = ("_began", "_return", "chunk", "env_index", "record")

    def __init__(self, env_index: int, chunk: SingleAgentEpisode, began: float | None = None) -> None:
        self.env_index = env_index
        self.chunk = chunk
        self.record: EpisodeRecord | None = None
        self._return = 0.0
        self._began = perf_counter() if began is None else began

    def cut(self, lookback: int) -> SingleAgentEpisode:
        """Return the present chunk and go on with its continuation."""
        chunk = self.chunk
        self._return += chunk.get_return()
        self.chunk = chunk.cut(len_lookback_buffer=lookback)
        return chunk

    def finish(self, now: float | None = None) -> None:
        """Take down what is known of the episode, whose steps are all there."""
        chunk = self.chunk
        seconds = (perf_counter() if now is None else now) - self._began
        self.record = EpisodeRecord(str(chunk.id_), self.env_index, self._return + chunk.get_return(), chunk.t, seconds)


class Starts(NamedTuple):
    """Starts of episodes in a `StepLog`: after how many steps, when, of whom, with which observations and infos."""

    position: int
    at: float
    who: Any
    observations: Any
    infos: list[dict[str, Any]] | None


class Ends(NamedTuple):
    """Ends of episodes in a `StepLog`: after how many steps, when, of whom, and how."""

    position: int
    at: float
    who: Any
    terminations: list[bool]
    truncations: list[bool]


class StepLog:
    """Steps of E sub-environments in the arrays that they came in, until episodes are made of them.

    Where nobody looks at episodes while they are played, this is cheaper than adding to each of them at each step: ends
    are looked at, and rows taken apart, for many steps at once.

    Parameters
    ----------
    num_envs : int
        E.
    observation_space, action_space : gymnasium.Space
        Those of one sub-environment; `suits` must hold for them.
    """

    def __init__(self, num_envs: int, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self._num_envs = num_envs
        self._observation_space = observation_space
        self._action_space = action_space
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[Any] = []  # E of each step, one step after the other
        self._infos: dict[int, list[dict[str, Any]]] = {}  # of the steps that have any
        self._events: list[Starts | Ends] = []

    @staticmethod
    def suits(*spaces: gym.Space[Any]) -> bool:
        """Tell whether values of these spaces can be logged: small arrays."""
        return all(
            is_array_space(space) and np.dtype(space.dtype).itemsize * np.prod(space.shape or ()) <= LOGGED_BYTES
            for space in spaces
        )

    def add(self, step: VectorStep, successors: Any, actions: Any) -> None:
        """Log a step of each sub-environment.

        Parameters
        ----------
        step : VectorStep
            The step.
        successors, actions : ndarray, shape (E, *D)
            What the steps led to, and what was done. They are kept.
        """
        if step.has_infos:
            self._infos[len(self._actions)] = step.step_infos()
        self._observations.append(successors)
        self._actions.append(actions)
        self._rewards += step.reward_items
        if step.num_ended:
            how = step.terminations.tolist(), step.truncations.tolist()
            self._events.append(Ends(len(self._actions), perf_counter(), step.ended, *how))
        if step.starts is not None:
            self.add_starts(step.starts, step.shown(), step.start_infos() if step.has_infos else None)

    def add_starts(self, starts: Any, observations: Any, infos: list[dict[str, Any]] | None) -> None:
        """Log the starts that came with the last step, or after it; the arrays are kept."""
        self._events.append(Starts(len(self._actions), perf_counter(), starts, observations, infos))

    def episodes(self, live: list[OpenEpisode]) -> tuple[list[OpenEpisode], list[OpenEpisode]]:
        """Make episodes of the log.

        Parameters
        ----------
        live : list of OpenEpisode
            Those that were open at its beginning.

        Returns
        -------
        ended, live : list of OpenEpisode
            Those that ended, in this order, and those that are open, by sub-environment.
        """
        columns = rows_of_all(self._observations), rows_of_all(self._actions), self._rewards
        ended: list[OpenEpisode] = []
        lanes: dict[int, OpenEpisode | Starts] = {episode.env_index: episode for episode in live}
        for event in self._events:
            for index in event.who.nonzero()[0].tolist():
                if isinstance(event, Starts):
                    lanes[index] = event
                else:
                    how = event.terminations[index], event.truncations[index]
                    episode = self._played(index, lanes.pop(index), columns, event.position, event.at, how)
                    episode.finish(event.at)
                    ended.append(episode)
        end, now = len(self._actions), perf_counter()
        return ended, [self._played(index, lanes[index], columns, end, now) for index in sorted(lanes)]

    def _played(
        self,
        index: int,
        origin: OpenEpisode | Starts,
        columns: Iterable[list[Any]],
        end: int,
        at: float,
        how: tuple[bool, bool] = (False, False),
    ) -> OpenEpisode:
        """Return an episode that was open, or that began in the log, with its steps from there to the end."""
        begin = origin.position if isinstance(origin, Starts) else 0
        count = self._num_envs
        mine = slice(begin * count + index, end * count, count)
        observations, actions, rewards = [column[mine] for column in columns]
        infos: list[dict[str, Any]] = [{} for _ in rewards]
        if self._infos:
            infos = [self._infos[k][index] if k in self._infos else {} for k in range(begin, end)]
        if isinstance(origin, Starts):
            chunk = SingleAgentEpisode._of_steps(
                [origin.observations[index].copy(), *observations],
                actions,
                rewards,
                [{} if origin.infos is None else origin.infos[index], *infos],
                observation_space=self._observation_space,
                action_space=self._action_space,
                how=how,
                began=origin.at,
                at=at,
            )
            return OpenEpisode(index, chunk, origin.at)
        if rewards:
            origin.chunk.add_env_steps(
                observations, actions, rewards, infos, terminated=how[0], truncated=how[1], at=at
            )
        return origin
