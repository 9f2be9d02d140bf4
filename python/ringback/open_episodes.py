"""Episodes while they are being played."""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ringback.episodes import SingleAgentEpisode
from ringback.vector_rows import VectorStep, is_array_space

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


class StepLog:
    """Steps of E sub-environments in the arrays that they came in, until episodes are made of them.

    Where nobody looks at episodes while they are played, this is cheaper than adding to each of them at each step: ends
    are looked at, and rows taken apart, for many steps at once.

    Parameters
    ----------
    observation_space, action_space : gymnasium.Space
        Those of one sub-environment; `suits` must hold for them.
    """

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self._observation_space = observation_space
        self._action_space = action_space
        self._observations: list[Any] = []
        self._actions: list[Any] = []
        self._rewards: list[Any] = []
        self._infos: dict[int, list[dict[str, Any]]] = {}  # of the steps that have any
        self._ends: list[tuple[int, float, Any, Any, Any]] = []
        self._starts: list[tuple[int, float, Any, Any, Any]] = []

    @staticmethod
    def suits(*spaces: gym.Space[Any]) -> bool:
        """Tell whether values of these spaces can be logged: small arrays."""
        return all(
            is_array_space(space) and np.dtype(space.dtype).itemsize * np.prod(space.shape or ()) <= LOGGED_BYTES
            for space in spaces
        )

    def __len__(self) -> int:
        return len(self._rewards)

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
            self._infos[len(self)] = step.step_infos()
        self._observations.append(successors)
        self._actions.append(actions)
        self._rewards.append(step.rewards.copy())
        if step.num_ended:
            self._ends.append(
                (len(self), perf_counter(), step.ended, step.terminations.copy(), step.truncations.copy())
            )
        if step.starts is not None:
            self.add_starts(step.starts, step.shown(), step.start_infos() if step.has_infos else None)

    def add_starts(self, starts: Any, observations: Any, infos: list[dict[str, Any]] | None) -> None:
        """Log the starts that came with the last step, or after it; the arrays are kept."""
        self._starts.append((len(self), perf_counter(), starts, observations, infos))

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
        lanes = {episode.env_index: (episode, 0) for episode in live}
        columns = [np.array(column) for column in (self._observations, self._actions, self._rewards)]
        ended = []
        starts = iter([*self._starts, (len(self) + 1, 0.0, None, None, None)])
        position, began, starting, first, infos = next(starts)

        def begin_until(end: int) -> None:
            nonlocal position, began, starting, first, infos
            while position < end:
                for index in starting.nonzero()[0].tolist():
                    chunk = SingleAgentEpisode(
                        observation_space=self._observation_space, action_space=self._action_space
                    )
                    chunk.add_env_reset(first[index].copy(), {} if infos is None else infos[index], at=began)
                    lanes[index] = OpenEpisode(index, chunk, began), position
                position, began, starting, first, infos = next(starts)

        for end, now, ends, terminations, truncations in self._ends:
            begin_until(end)
            for index in ends.nonzero()[0].tolist():
                episode, begin = lanes.pop(index)
                how = bool(terminations[index]), bool(truncations[index])
                self._fill(episode, columns, begin, end, now, how)
                episode.finish(now)
                ended.append(episode)
        begin_until(len(self) + 1)
        for episode, begin in lanes.values():
            self._fill(episode, columns, begin, len(self), perf_counter(), (False, False))
        return ended, [lanes[index][0] for index in sorted(lanes)]

    def _fill(
        self, episode: OpenEpisode, columns: list[Any], begin: int, end: int, now: float, how: tuple[bool, bool]
    ) -> None:
        """Add the steps that are in a part of the log to an open episode."""
        if begin == end:
            return
        index = episode.env_index
        observations, actions, rewards = columns
        infos = None
        if self._infos:
            infos = [self._infos[k][index] if k in self._infos else {} for k in range(begin, end)]
        terminated, truncated = how
        episode.chunk.add_env_steps(
            list(observations[begin:end, index].copy()),  # views of an array that no other episode sees
            list(actions[begin:end, index].copy()),
            rewards[begin:end, index].tolist(),
            infos,
            terminated=terminated,
            truncated=truncated,
            at=now,
        )
