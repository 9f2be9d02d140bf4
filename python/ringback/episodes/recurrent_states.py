"""The state of a recurrent module before each step: what came out of the step before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringback.errors import EpisodeError

from .filling import first_seen, lost_steps_error
from .lookback_buffer import last_items
from .structure import map_structure, stack

if TYPE_CHECKING:
    from .single_agent_episode import SingleAgentEpisode

__all__ = ["STATE_OUT", "newest_states", "states_after", "states_before"]

STATE_OUT = "state_out"


def sees_step_before(episode: SingleAgentEpisode) -> bool:
    """Tell whether the state after the step before a chunk's first one is there; before t = 0 there was no step."""
    started = episode.t_started
    return first_seen(started, episode.extra_model_outputs[STATE_OUT].lookback) < started


def lost_state_error(episode: SingleAgentEpisode, where: str) -> EpisodeError:
    """Word the error for a chunk whose step before its first one is lost."""
    lookback = episode.extra_model_outputs[STATE_OUT].lookback
    return lost_steps_error(where, episode.t_started - 1, episode.t_started, lookback)


def newest_states(episodes: Sequence[SingleAgentEpisode], initial: Callable[[], Any], where: str) -> list[Any]:
    """Give the state before the step that will be taken at each episode's newest observation.

    Parameters
    ----------
    episodes : sequence of SingleAgentEpisode
        In either form.
    initial : callable
        Gives the state that an episode begins with; also taken where no step has a state.
    where : str
        Who asks, for messages.

    Returns
    -------
    list of structure of ndarray, shape (*D)
        Views, or what `initial` gives.

    Raises
    ------
    EpisodeError
        If there was a step before, but it is not in the lookback.
    """
    tracks = []
    begin = []  # the positions of those that begin
    for position, episode in enumerate(episodes):
        track = episode.extra_model_outputs.get(STATE_OUT)
        if track is None or episode.t <= 0:
            begin.append(position)
        elif episode.t == episode.t_started and not sees_step_before(episode):
            raise lost_state_error(episode, where)
        else:
            tracks.append(track)
    states = last_items(tracks)
    for position in begin:
        states.insert(position, initial())
    return states


def states_before(
    episode: SingleAgentEpisode, initial: Callable[[], Any], where: str, *, unseen: Callable[[], Any] | None = None
) -> Any:
    """Give the state before each of the T steps of a chunk, T >= 1.

    Parameters
    ----------
    episode : SingleAgentEpisode
        In either form.
    initial : callable
        Gives the state that an episode begins with; asked at most once. Where no step has a state, it is that before
        every step.
    where : str
        Who asks, for messages.
    unseen : callable, optional
        Gives the state before the first step of a chunk whose step before that is not in the lookback; by default such
        a chunk is an error.

    Returns
    -------
    structure of ndarray, shape (T, *D)
        A view or new arrays.

    Raises
    ------
    EpisodeError
        If there was a step before, but it is not in the lookback; if the states of list form differ in structure or
        shape.
    """
    steps = len(episode)
    if STATE_OUT not in episode.extra_model_outputs:
        return map_structure(lambda leaf: np.repeat(np.asarray(leaf)[None], steps, 0), initial())
    if sees_step_before(episode):
        return _read(episode, slice(-1, steps - 1), where)
    if episode.t_started > 0:
        if unseen is None:
            raise lost_state_error(episode, where)
        initial = unseen
    first = map_structure(lambda leaf: np.asarray(leaf)[None], initial())
    return first if steps == 1 else stack([first, _read(episode, slice(0, steps - 1), where)], where, joined=True)


def states_after(episode: SingleAgentEpisode, initial: Callable[[], Any], where: str) -> Any:
    """Give the state after each of the T steps of a chunk, T >= 1; the initial one where no step has a state."""
    if STATE_OUT not in episode.extra_model_outputs:
        return map_structure(lambda leaf: np.repeat(np.asarray(leaf)[None], len(episode), 0), initial())
    return _read(episode, slice(0, len(episode)), where)


def _read(episode: SingleAgentEpisode, steps: slice, where: str) -> Any:
    rows = episode.get_extra_model_outputs(STATE_OUT, steps, neg_index_as_lookback=True)
    return rows if episode.is_numpy else stack(rows, where)
