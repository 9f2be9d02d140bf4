"""Pieces that put observations into the batch and change what they look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from .columns import Columns, Rows
from .connector import Piece
from .own_episodes import single_agent_episodes
from .steps import chunks_of, refuse_time_axis, rows_of
from .windows import newest

__all__ = ["AddObservations", "changed_by", "note_change"]

# In the shared data: the piece that made something else of the observations in the batch, and that column.
CHANGED_BY = "observations_changed_by"


def note_change(shared_data: dict[str, Any] | None, batch: dict[str, Any], name: str) -> None:
    """Say that a piece changed the observations in the batch, so that they are no more those of the episodes."""
    if shared_data is not None:
        shared_data[CHANGED_BY] = name, batch[Columns.OBS]


def changed_by(shared_data: dict[str, Any] | None, batch: dict[str, Any]) -> str | None:
    """Return the piece that changed the observations in the batch, if one did."""
    name, column = (shared_data or {}).get(CHANGED_BY, (None, None))
    return name if column is not None and batch.get(Columns.OBS) is column else None


class AddObservations(Piece):
    """Puts the observations into the column ``"obs"``.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    as_learner_connector : bool, default False
        Acting: each episode's newest observation, (E, *D). Learning: those of all steps t = 0 .. T-1 of the chunk,
        (sum of T, *D), episode after episode.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        Behind `AddTimeDim`, if the column is missing.

    Notes
    -----
    The column is a copy, in the dtype of the episodes' observation space where they have one. A batch that has the
    column already is left as it is.

    References
    ----------
    RLlib 2.60, ``AddObservationsFromEpisodesToBatch``.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7], actions=[0, 1], rewards=[0.0, 0.0])
    >>> AddObservations()(batch={}, episodes=[episode])["obs"].arrays
    array([7])
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7], actions=[0, 1], rewards=[0.0, 0.0],
    ...                              len_lookback_buffer=0)
    >>> AddObservations(as_learner_connector=True)(batch={}, episodes=[episode])["obs"].arrays
    array([5, 6])
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        self.as_learner_connector = as_learner_connector
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __call__(
        self,
        *,
        rl_module: Any = None,
        batch: dict[str, Any],
        episodes: Sequence[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Add the column."""
        if Columns.OBS in batch or not episodes:
            return batch
        where = "AddObservations"
        refuse_time_axis(batch, shared_data, where)
        if self.as_learner_connector:
            chunks, keys_of_chunks, counts = chunks_of(episodes)
            if chunks:
                batch[Columns.OBS] = Rows(rows_of(chunks, "observations", where), keys_of_chunks, counts)
            return batch
        singles, keys = single_agent_episodes(episodes, False)
        if singles:
            batch[Columns.OBS] = Rows(newest(singles, "observations", where), keys)
        return batch
