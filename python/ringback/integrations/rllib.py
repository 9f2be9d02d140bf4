"""Episodes to and from RLlib's new API stack (the optional extra ``rllib``).

>>> from ringback.integrations.rllib import from_rllib, to_rllib  # doctest: +SKIP
>>> theirs = to_rllib(episode)  # doctest: +SKIP
>>> ours = from_rllib(theirs)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.episodes.lookback_buffer import REWARD_SPACE
from ringback.episodes.structure import map_structure
from ringback.errors import MissingExtraError

__all__ = ["from_rllib", "to_rllib"]

_SAME_NAME = ("id_", "agent_id", "module_id", "multi_agent_episode_id")
_TRACKS = ("observations", "infos", "actions", "rewards")


def to_rllib(episode: SingleAgentEpisode) -> Any:
    """Make RLlib's episode of one of ours.

    Parameters
    ----------
    episode : SingleAgentEpisode
        In either form; it stays as it is.

    Returns
    -------
    ray.rllib.env.single_agent_episode.SingleAgentEpisode
        With the same data, lookback, spaces, times, flags, ids, custom data and form. Arrays and lists are copies, list
        items are the same objects.

    Raises
    ------
    MissingExtraError
        If ray is not installed.

    Notes
    -----
    O(T). Nothing is lost: ``from_rllib(to_rllib(episode))`` has all that ``episode`` has.

    References
    ----------
    RLlib 2.60, ``rllib.env.single_agent_episode.SingleAgentEpisode``.
    """
    episode_class = _theirs("ray.rllib.env.single_agent_episode", "SingleAgentEpisode", "to_rllib")
    buffer_class = _theirs("ray.rllib.env.utils.infinite_lookback_buffer", "InfiniteLookbackBuffer", "to_rllib")

    def track(ours: InfiniteLookbackBuffer) -> Any:
        theirs = buffer_class(data=_copied(ours.data), lookback=ours.lookback, space=ours.space)
        theirs.lookback = ours.lookback  # their constructor takes the number of keys of a dict for its length
        return theirs

    out = episode_class(
        **{name: getattr(episode, name) for name in _SAME_NAME},
        **{name: track(getattr(episode, name)) for name in _TRACKS},
        extra_model_outputs={key: track(ours) for key, ours in episode.extra_model_outputs.items()},
        observation_space=episode.observation_space,
        action_space=episode.action_space,
        terminated=episode.is_terminated,
        truncated=episode.is_truncated,
        t_started=episode.t_started,
        len_lookback_buffer=episode.rewards.lookback,
    )
    out.custom_data.update(episode.custom_data)
    out._start_time, out._last_step_time = episode._start_time, episode._last_step_time
    return out


def from_rllib(episode: Any) -> SingleAgentEpisode:
    """Make one of our episodes of RLlib's.

    Parameters
    ----------
    episode : ray.rllib.env.single_agent_episode.SingleAgentEpisode
        In either form; it stays as it is.

    Returns
    -------
    SingleAgentEpisode
        With the same data, lookback, spaces, times, flags, ids, custom data and form. Arrays and lists are copies, list
        items are the same objects.

    Raises
    ------
    TypeError
        If it is no single-agent episode.

    Notes
    -----
    O(T). An episode of theirs in array form but without steps has lists of actions and rewards; ours then has arrays of
    length 0. ray itself is not needed.
    """
    if isinstance(episode, SingleAgentEpisode) or not all(hasattr(episode, name) for name in (*_SAME_NAME, *_TRACKS)):
        raise TypeError(f"from_rllib: episode must be a SingleAgentEpisode of RLlib, got {episode!r}")

    def track(theirs: Any, space: Any) -> InfiniteLookbackBuffer:
        return InfiniteLookbackBuffer(_copied(theirs.data), theirs.lookback, space)

    out = SingleAgentEpisode(
        episode.id_,
        agent_id=episode.agent_id,
        module_id=episode.module_id,
        multi_agent_episode_id=episode.multi_agent_episode_id,
        observations=track(episode.observations, episode.observation_space),
        infos=track(episode.infos, None),
        actions=track(episode.actions, episode.action_space),
        rewards=track(episode.rewards, REWARD_SPACE),
        extra_model_outputs={key: track(theirs, None) for key, theirs in episode.extra_model_outputs.items()},
        observation_space=episode.observation_space,
        action_space=episode.action_space,
        terminated=episode.is_terminated,
        truncated=episode.is_truncated,
        t_started=episode.t_started,
        len_lookback_buffer=episode.rewards.lookback,
    )
    out.custom_data.update(episode.custom_data)
    out._start_time, out._last_step_time = episode._start_time, episode._last_step_time
    return out


def _copied(data: Any) -> Any:
    return list(data) if isinstance(data, list) else map_structure(np.copy, data)


def _theirs(module: str, name: str, where: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError:
        raise MissingExtraError(where, "rllib", "ray") from None
