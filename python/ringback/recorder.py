"""Write what a vector environment returns into a replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from ringback.episodes.structure import map_pair, map_structure
from ringback.errors import EnvError
from ringback.replay import ReplayBuffer
from ringback.vector_rows import VectorRows, owned

__all__ = ["VectorRecorder"]

WHERE = "VectorRecorder"


class VectorRecorder:
    """Puts the right transitions of a vector environment into a replay buffer, whatever its autoreset mode.

    For training loops of one's own: hand it what ``envs.reset`` and ``envs.step`` returned. Each sub-environment is a
    stream of the buffer. The successor of a step is always the observation that the step led to, never that of the
    reset after it; the row of a reset is never a step.

    Parameters
    ----------
    buffer : ReplayBuffer
        Where the steps go.
    envs : gymnasium.vector.VectorEnv
        Whose steps they are. Only its number of sub-environments E, its spaces and its autoreset mode are read.
    first_stream : int, default 0
        Sub-environment i is stream ``first_stream + i``: for several recorders with one buffer.

    Attributes
    ----------
    streams : ndarray, shape (E,), int64
        The stream of each sub-environment.

    Raises
    ------
    ValueError
        If the vector environment does not say its autoreset mode.

    Notes
    -----
    A step costs one `add_batch`, and a copy of the observations; a loop over sub-environments is only run over those
    whose episode has ended. What is kept is a copy: an environment may reuse its arrays (``copy=False``).

    In mode `SAME_STEP` gymnasium keeps the final observation by reference over the reset: an environment that writes
    each observation into one array has overwritten it. Where it runs in this process that raises; in a worker process
    nobody can see it.

    Not thread-safe, but for the buffer.

    References
    ----------
    gymnasium 1.4, ``gymnasium.vector.AutoresetMode``.

    Examples
    --------
    >>> import gymnasium as gym
    >>> from ringback import ReplayBuffer
    >>> envs = gym.make_vec("CartPole-v1", num_envs=2)
    >>> buffer = ReplayBuffer(1_000, envs.single_observation_space, envs.single_action_space, seed=0)
    >>> recorder = VectorRecorder(buffer, envs)
    >>> observations, infos = envs.reset(seed=0)
    >>> recorder.reset(observations)
    >>> for _ in range(3):
    ...     actions = np.array([0, 1])
    ...     ids = recorder.step(actions, *envs.step(actions))
    >>> ids, len(buffer)
    (array([4, 5]), 6)
    >>> envs.close()
    """

    def __init__(self, buffer: ReplayBuffer, envs: VectorEnv[Any, Any, Any], *, first_stream: int = 0) -> None:
        self._buffer = buffer
        self._rows = VectorRows(envs, WHERE)
        self._observations: Any = None
        self.streams: npt.NDArray[np.int64] = np.arange(first_stream, first_stream + self._rows.num_envs)

    def reset(self, observations: Any, mask: npt.ArrayLike | None = None) -> None:
        """Take note of a reset, and close the episodes that it left open.

        Parameters
        ----------
        observations : structure of ndarray, shape (E, *D)
            What ``envs.reset`` returned first.
        mask : bool array, shape (E,), optional
            The ``reset_mask`` that was given to ``envs.reset``: only these sub-environments have begun an episode. By
            default all have.

        Raises
        ------
        ValueError
            If the mask or the observations do not have one row for each sub-environment, or a mask comes before the
            first reset of all. Nothing has changed then.

        Notes
        -----
        An episode that had not ended is closed as truncated: no sequence goes over the reset.
        """
        where = f"{WHERE}.reset"
        count = self._rows.num_envs
        chosen = None if mask is None else checked_mask(mask, count, where)
        try:
            self._rows.check(observations)
        except EnvError as error:
            raise ValueError(f"{where}: {error}") from None
        if chosen is None:
            kept = owned(observations)
        elif self._observations is None:
            raise ValueError(
                f"{where}: mask must be None for the first reset, got one for {int(chosen.sum())} of {count} "
                "sub-environments"
            )
        else:
            kept = map_pair(lambda old, new, _: merged(old, new, chosen), self._observations, observations, where)
        for stream in self.streams if chosen is None else self.streams[chosen]:
            self._buffer.end_episode(int(stream))
        self._observations = kept
        self._rows.reset(chosen)

    def step(
        self,
        actions: Any,
        observations: Any,
        rewards: Any,
        terminations: Any,
        truncations: Any,
        infos: Mapping[str, Any],
        extras: Mapping[str, Any] | None = None,
    ) -> npt.NDArray[np.int64]:
        """Write one step of each sub-environment, but for those that only began an episode.

        Parameters
        ----------
        actions : structure of array, shape (E, *D)
            What ``envs.step`` was called with.
        observations, rewards, terminations, truncations, infos
            What it returned: ``recorder.step(actions, *envs.step(actions))``.
        extras : mapping of str to array, shape (E, *D), optional
            Columns that the buffer was told to expect.

        Returns
        -------
        ndarray, shape (E,), int64
            The ids of the steps; -1 where the row is no step but the reset of mode `NEXT_STEP`.

        Raises
        ------
        RuntimeError
            If there was no reset yet, or, in mode `DISABLED`, none after an end.
        EnvError
            If a reward is NaN, or the environment hides the final observation of an episode, or that does not fit; it
            is a RuntimeError.
        ValueError
            If there is not one row for each sub-environment, or the data do not fit the buffer's spaces (or a
            TypeError).

        Notes
        -----
        After an error nothing has changed, neither here nor in the buffer: call again with what is right for the same
        step, or reset; the next step of the environment would not follow on the last one written.
        """
        where = f"{WHERE}.step"
        rows = self._rows
        if self._observations is None:
            raise RuntimeError(f"{where}: recorder.reset must be called first, got a step before any reset")
        if rows.must_reset is not None:
            raise RuntimeError(
                f"{where}: sub-environments {np.flatnonzero(rows.must_reset).tolist()} must be reset after the end of "
                "their episodes, got another step; call recorder.reset(observations, mask=...)"
            )
        try:
            rows.check(observations)
            step = rows.read(observations, rewards, terminations, truncations, infos)
            successors = step.successors()
            if (nans := step.nan_rewards()) is not None:
                raise EnvError("the reward must be a number, got nan", int(nans.argmax()))
        except EnvError as error:
            raise in_recorder(error, where) from None
        ids = self._add(step.steps, actions, step.rewards, successors, step.terminations, step.truncations, extras)
        self._observations = step.shown()
        rows.accept(step)
        return ids

    def _add(
        self,
        steps: npt.NDArray[np.bool_] | None,
        actions: Any,
        rewards: Any,
        successors: Any,
        terminations: Any,
        truncations: Any,
        extras: Mapping[str, Any] | None,
    ) -> npt.NDArray[np.int64]:
        add: Callable[..., npt.NDArray[np.int64]] = self._buffer.add_batch
        columns = (self._observations, actions, rewards, successors, terminations, truncations, self.streams)
        if steps is None:
            return add(*columns, extras=extras)
        ids: npt.NDArray[np.int64] = np.full(len(steps), -1, np.int64)
        rows = steps.nonzero()[0]
        if len(rows):
            taken = [map_structure(lambda values: np.asarray(values).take(rows, 0), column) for column in columns]
            more = map_structure(lambda values: np.asarray(values).take(rows, 0), dict(extras)) if extras else None
            ids[rows] = add(*taken, extras=more)
        return ids


def checked_mask(mask: npt.ArrayLike, count: int, where: str) -> npt.NDArray[np.bool_]:
    """Return the mask as an array of `count` bools."""
    array = np.asarray(mask)
    if array.shape != (count,) or array.dtype != bool:
        raise ValueError(
            f"{where}: mask must be {count} bools, one for each sub-environment, "
            f"got shape {array.shape} of dtype {array.dtype}"
        )
    return array


def merged(old: Any, new: Any, chosen: npt.NDArray[np.bool_]) -> Any:
    """Return the new rows where they are chosen and the old ones elsewhere, as a new array."""
    return np.where(chosen.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def in_recorder(error: EnvError, where: str) -> Exception:
    """Return the error with the name of the recorder's method; rows that do not fit are the caller's."""
    if error.env_index is None:
        return ValueError(f"{where}: {error}")
    return EnvError(f"{where}: {error} for sub-environment {error.env_index}", error.env_index)
