"""Episodes to and from RLlib's new API stack (the optional extra ``rllib``).

>>> from ringback.integrations.rllib import from_rllib, to_rllib  # doctest: +SKIP
>>> theirs = to_rllib(episode)  # doctest: +SKIP
>>> ours = from_rllib(theirs)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium as gym
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
    return _converted(episode, episode_class, buffer_class)


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

    converted: SingleAgentEpisode = _converted(episode, SingleAgentEpisode, InfiniteLookbackBuffer)
    return converted


def _converted(episode: Any, episode_class: Any, buffer_class: Any) -> Any:
    """Make an episode of the one library of one of the other; they have the same constructors and attributes."""

    def track(buffer: Any, space: gym.Space[Any] | None) -> Any:
        out = buffer_class(_copied(buffer.data), buffer.lookback, space)
        out.lookback = buffer.lookback  # RLlib's constructor takes the number of keys of a dict for its length
        return out

    out = episode_class(
        **{name: getattr(episode, name) for name in _SAME_NAME},
        observations=track(episode.observations, episode.observation_space),
        observation_space=episode.observation_space,
        infos=track(episode.infos, episode.infos.space),
        actions=track(episode.actions, episode.action_space),
        action_space=episode.action_space,
        rewards=track(episode.rewards, REWARD_SPACE),
        terminated=episode.is_terminated,
        truncated=episode.is_truncated,
        extra_model_outputs={
            key: track(outputs, outputs.space) for key, outputs in episode.extra_model_outputs.items()
        },
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
