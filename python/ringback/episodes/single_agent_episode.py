"""The trajectory of one agent, or a chunk of it, with a lookback into what came before."""

from __future__ import annotations

import builtins
import copy
import os
from collections.abc import Hashable, Sequence
from importlib import import_module
from time import perf_counter
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from ringback._core import lookback_positions, lookback_take
from ringback.errors import EpisodeError, EpisodeKeyError, MissingExtraError

from .filling import reader, refuse_lost_steps
from .lookback_buffer import REWARD_SPACE, InfiniteLookbackBuffer, rows_at
from .padding import pad_item, pad_rows
from .rows import common_length
from .structure import difference

__all__ = ["SingleAgentEpisode"]


class SingleAgentEpisode:
    """T steps of one agent's episode: T+1 observations and infos, T actions, rewards and extra model outputs.

    An episode grows step by step (:meth:`add_env_reset`, :meth:`add_env_step`, :meth:`add_env_steps`), is read through
    one getter for each kind of data, all with the same index rules (:class:`InfiniteLookbackBuffer`), and is handed on
    in chunks (:meth:`cut`), each of which still shows the last steps before it: its lookback.

    Whether it is in **list form** (any Python objects) or in **array form** (:meth:`to_numpy`), and whether it is
    **done**, are independent of each other.

    Parameters
    ----------
    id_ : str, optional
        Its name; by default 32 hexadecimal digits from the operating system, unique across processes, whatever is
        seeded.
    observations : list, structure of ndarray (N+1, *D), or InfiniteLookbackBuffer, optional
        The observations so far, those of the lookback first. Arrays make an episode in array form.
    observation_space : Space, optional
        What they are from.
    infos : list of dict, optional
        As many as observations; by default empty ones. They stay a list in both forms.
    actions : list, structure of ndarray (N, *D), or InfiniteLookbackBuffer, optional
        The actions.
    action_space : Space, optional
        What they are from.
    rewards : list, ndarray (N,), or InfiniteLookbackBuffer, optional
        The rewards, undiscounted.
    terminated, truncated : bool, default False
        Whether the episode has ended, in a terminal state or by a limit.
    extra_model_outputs : dict of str to list, structure of ndarray (N, *D), or InfiniteLookbackBuffer, optional
        Further data, one item an action, such as ``action_logp``.
    t_started : int, optional
        The env step that the first step after the lookback is; 0 by default.
    len_lookback_buffer : int or "auto", default "auto"
        How many of the given steps are lookback, at most all of them; ``"auto"`` is all of them.
    agent_id : hashable, optional
        Whose episode this is.
    module_id : str, optional
        Which module acts for the agent.
    multi_agent_episode_id : optional
        The id of the multi-agent episode that this one is a part of.

    Raises
    ------
    EpisodeError
        If the lengths of the data do not go together.

    Attributes
    ----------
    id_, agent_id, module_id, multi_agent_episode_id
        As given.
    t, t_started : int
        The env steps done at the end and at the start (after the lookback).
    is_terminated, is_truncated : bool
        How the episode has ended, if it has.
    observations, actions, rewards, infos : InfiniteLookbackBuffer
        The data.
    extra_model_outputs : dict of str to InfiniteLookbackBuffer
        More data.
    custom_data : dict
        Anything that the user wants to go with the episode.

    Notes
    -----
    **Extra model outputs** may come and go: for steps at which a key is missing, the episode holds zeros in the
    structure, shape and dtype of the key's other items (None for leaves that are no numbers).

    **Checks.** Given spaces, data is checked by :meth:`to_numpy`, by :meth:`validate` and whenever something is added
    or set in array form; list form takes anything. NaN is inside of all bounds.

    References
    ----------
    RLlib 2.60, ``rllib.env.single_agent_episode.SingleAgentEpisode``.

    Examples
    --------
    >>> episode = SingleAgentEpisode()
    >>> episode.add_env_reset(observation=0)
    >>> for t in range(3):
    ...     episode.add_env_step(observation=t + 1, action=10 * t, reward=float(t), terminated=t == 2)
    >>> len(episode), episode.is_done, episode.get_observations(-1), episode.get_rewards([0, -1])
    (3, True, 3, [0.0, 2.0])
    >>> episode[1:].get_rewards(slice(-1, None), neg_index_as_lookback=True, fill=-1.0)
    [-1.0, 1.0, 2.0]
    """

    __slots__ = (
        "_action_space",
        "_last_step_time",
        "_observation_space",
        "_start_time",
        "actions",
        "agent_id",
        "custom_data",
        "extra_model_outputs",
        "id_",
        "infos",
        "is_terminated",
        "is_truncated",
        "module_id",
        "multi_agent_episode_id",
        "observations",
        "rewards",
        "t",
        "t_started",
    )

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: Any = None,
        observation_space: gym.Space[Any] | None = None,
        infos: Any = None,
        actions: Any = None,
        action_space: gym.Space[Any] | None = None,
        rewards: Any = None,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: dict[str, Any] | None = None,
        t_started: int | None = None,
        len_lookback_buffer: int | str = "auto",
        agent_id: Hashable | None = None,
        module_id: str | None = None,
        multi_agent_episode_id: Any = None,
    ) -> None:
        self.id_ = new_id() if id_ is None else id_
        self.agent_id = agent_id
        self.module_id = module_id
        self.multi_agent_episode_id = multi_agent_episode_id
        self._observation_space = observation_space
        self._action_space = action_space
        self.is_terminated = terminated
        self.is_truncated = truncated
        self.custom_data: dict[Any, Any] = {}
        self._start_time: float | None = None
        self._last_step_time: float | None = None
        self.extra_model_outputs: dict[str, InfiniteLookbackBuffer]

        steps = given_length(rewards)
        lookback = steps if len_lookback_buffer == "auto" else min(int(len_lookback_buffer), steps)
        if lookback < 0:
            raise EpisodeError(
                f"SingleAgentEpisode: len_lookback_buffer must be 'auto' or >= 0, got {len_lookback_buffer!r}"
            )
        self.t_started = self.t = 0 if t_started is None else t_started
        if observations is None and infos is None and actions is None and rewards is None and not extra_model_outputs:
            # As most episodes begin: there is nothing to check.
            self._take_lists([], [], [], [])
            return
        self.observations = as_buffer(observations, lookback, observation_space)
        self.actions = as_buffer(actions, lookback, action_space)
        self.rewards = as_buffer(rewards, lookback, REWARD_SPACE)
        if infos is None:
            infos = [{} for _ in range(self.observations.len_incl_lookback())]
        self.infos = as_buffer(list(infos) if isinstance(infos, tuple) else infos, lookback, None)
        self.extra_model_outputs = {
            key: as_buffer(values, lookback, None) for key, values in (extra_model_outputs or {}).items()
        }
        self.t = self.t_started + len(self.rewards)
        if self.observations.finalized or self.rewards.finalized:
            self.to_numpy()
        self._check_lengths("SingleAgentEpisode")

    @classmethod
    def _of_steps(
        cls,
        observations: list[Any],
        actions: list[Any],
        rewards: list[Any],
        infos: list[dict[str, Any]],
        *,
        observation_space: gym.Space[Any] | None,
        action_space: gym.Space[Any] | None,
        how: tuple[bool, bool],
        began: float,
        at: float,
    ) -> SingleAgentEpisode:
        """Make the episode that a reset and T steps make, in list form: what `add_env_steps` does, and faster.

        Parameters
        ----------
        observations, actions, rewards, infos : list
            T+1 observations and infos, T actions and rewards, unchecked; the lists are kept.
        observation_space, action_space : Space or None
            What they are from.
        how : tuple of bool
            Whether the episode is terminated, and truncated.
        began, at : float
            When the reset and the last step were, by ``time.perf_counter``.
        """
        out = cls.__new__(cls)
        out.id_ = new_id()
        out.agent_id = out.module_id = out.multi_agent_episode_id = None
        out._observation_space, out._action_space = observation_space, action_space
        out._take_lists(observations, actions, rewards, infos)
        out.t_started, out.t = 0, len(rewards)
        out.is_terminated, out.is_truncated = how
        out.custom_data = {}
        out._start_time, out._last_step_time = began, at if rewards else None
        return out

    def _take_lists(self, observations: list[Any], actions: list[Any], rewards: list[Any], infos: list[Any]) -> None:
        """Take lists over as all data, without lookback."""
        keep = InfiniteLookbackBuffer.of_list
        self.observations, self.actions = keep(observations, self._observation_space), keep(actions, self._action_space)
        self.rewards, self.infos, self.extra_model_outputs = keep(rewards, REWARD_SPACE), keep(infos, None), {}

    # -- what it is ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.t - self.t_started)

    def __repr__(self) -> str:
        return f"SingleAgentEpisode(len={len(self)} done={self.is_done} R={self.get_return()} id_={self.id_})"

    @property
    def observation_space(self) -> gym.Space[Any] | None:
        """The space of the observations; setting it sets it for the data there is, too."""
        return self._observation_space

    @observation_space.setter
    def observation_space(self, space: gym.Space[Any] | None) -> None:
        self._observation_space = self.observations.space = space

    @property
    def action_space(self) -> gym.Space[Any] | None:
        """The space of the actions; setting it sets it for the data there is, too."""
        return self._action_space

    @action_space.setter
    def action_space(self, space: gym.Space[Any] | None) -> None:
        self._action_space = self.actions.space = space

    @property
    def is_reset(self) -> bool:
        """Whether there is a first observation."""
        return self.observations.len_incl_lookback() > 0

    @property
    def is_done(self) -> bool:
        """Whether the episode is terminated or truncated."""
        return bool(self.is_terminated or self.is_truncated)

    @property
    def is_numpy(self) -> bool:
        """Whether the data is in array form."""
        return self.rewards.finalized

    def env_steps(self) -> int:
        """Count the env steps, T."""
        return len(self)

    def agent_steps(self) -> int:
        """Count the agent steps, T."""
        return len(self)

    def get_return(self) -> float:
        """Sum up the rewards, those of the lookback left out.

        Returns
        -------
        float
            0.0 for an episode of length 0. O(T).
        """
        track = self.rewards
        if track.finalized:
            return float(track.get().sum())
        return float(sum(track._store[track.lookback :]))

    def get_duration_s(self) -> float:
        """Measure the seconds between the reset and the last step that were added here; 0.0 before the first step."""
        if self._last_step_time is None or self._start_time is None:
            return 0.0
        return self._last_step_time - self._start_time

    def validate(self) -> None:
        """Check that all lengths go together, and that the data is in the spaces, if there are any.

        Raises
        ------
        EpisodeError
            If anything does not.

        Notes
        -----
        O(T). In list form the data is stacked for the check and the stacks are thrown away.
        """
        where = "SingleAgentEpisode.validate"
        self._check_lengths(where)
        for buffer in (self.observations, self.actions):
            if buffer._rules is not None and buffer.len_incl_lookback():
                buffer._rules.conform(buffer.as_arrays(where) if not buffer.finalized else buffer.data, where)

    def _check_lengths(self, where: str) -> None:
        steps = self.rewards.len_incl_lookback()
        observations = self.observations.len_incl_lookback()
        if observations == 0 and steps == 0 and self.infos.len_incl_lookback() == 0:
            return  # before the reset
        wrong = {
            "observations": (observations, steps + 1),
            "infos": (self.infos.len_incl_lookback(), steps + 1),
            "actions": (self.actions.len_incl_lookback(), steps),
            **{
                f"extra_model_outputs[{k!r}]": (b.len_incl_lookback(), steps)
                for k, b in self.extra_model_outputs.items()
            },
        }
        for name, (got, want) in wrong.items():
            if got != want:
                raise EpisodeError(f"{where}: {name} must hold {want} items for {steps} rewards, got {got}")
        if self.t - self.t_started != len(self.rewards):
            raise EpisodeError(
                f"{where}: t must be t_started + the rewards ({self.t_started + len(self.rewards)}), got {self.t}"
            )

    # -- growing ------------------------------------------------------------------------------------------------------

    def add_env_reset(self, observation: Any, infos: dict[str, Any] | None = None, *, at: float | None = None) -> None:
        """Add what the environment's ``reset`` gave.

        Parameters
        ----------
        observation : Any
            The first observation.
        infos : dict, optional
            The first info.
        at : float, optional
            When that was, by ``time.perf_counter``; now by default.

        Raises
        ------
        EpisodeError
            If there is an observation already, or the episode is done.
        """
        if self.is_terminated or self.is_truncated:
            raise EpisodeError(f"SingleAgentEpisode.add_env_reset: the episode must not be done, got {self!r}")
        if self.is_reset or len(self):
            raise EpisodeError(f"SingleAgentEpisode.add_env_reset: the episode must not be reset yet, got {self!r}")
        if self.observations.finalized:
            self.observations.take_over(self.observations.place(observation, "SingleAgentEpisode.add_env_reset"), 1)
        else:
            self.observations._store.append(observation)
        self.infos._store.append({} if infos is None else infos)
        self._start_time = perf_counter() if at is None else at

    def add_env_step(
        self,
        observation: Any,
        action: Any,
        reward: SupportsFloat,
        infos: dict[str, Any] | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: dict[str, Any] | None = None,
    ) -> None:
        """Add what the environment's ``step`` gave.

        Parameters
        ----------
        observation : Any
            The next observation.
        action : Any
            The action that led to it.
        reward : float
            Its reward.
        infos : dict, optional
            The next info.
        terminated, truncated : bool, default False
            Whether the episode has ended with this step.
        extra_model_outputs : dict of str to Any, optional
            Further data of this step; keys may appear and be missing, as the class says.

        Raises
        ------
        EpisodeError
            If the episode is done or not reset, or, in array form, the data does not fit. Nothing is changed then.

        Notes
        -----
        O(1) amortised in both forms.
        """
        if self.is_terminated or self.is_truncated:
            raise EpisodeError(f"SingleAgentEpisode.add_env_step: the episode must not be done, got {self!r}")
        observations = self.observations
        if observations.finalized or self.actions.finalized or self.rewards.finalized:
            self._add_arrays(observation, action, reward, extra_model_outputs)
        else:
            if not observations._store:
                raise EpisodeError(
                    "SingleAgentEpisode.add_env_step: the episode must be reset first, got no observation"
                )
            tracks = self.extra_model_outputs
            if extra_model_outputs or tracks:
                if extra_model_outputs is None or extra_model_outputs.keys() != tracks.keys():
                    extra_model_outputs = self._completed(extra_model_outputs or {})
                for key, item in extra_model_outputs.items():
                    track = tracks[key]
                    if track.finalized:
                        track.append(item)
                    else:
                        track._store.append(item)
            observations._store.append(observation)
            self.actions._store.append(action)
            self.rewards._store.append(reward)
        self.infos._store.append({} if infos is None else infos)
        self.t += 1
        if terminated or truncated:
            self.is_terminated, self.is_truncated = bool(terminated), bool(truncated)
        self._last_step_time = perf_counter()

    def add_env_steps(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        infos: Sequence[dict[str, Any]] | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: dict[str, Any] | None = None,
        at: float | None = None,
    ) -> None:
        """Add k >= 1 steps at once: what k calls of `add_env_step` add.

        Parameters
        ----------
        observations, actions, rewards : list, or structure of ndarray (k, *D)
            The next observations, the actions that led to them and their rewards, in order.
        infos : sequence of dict, optional
            The next infos; by default empty ones.
        terminated, truncated : bool, default False
            Whether the episode has ended with the last of the steps.
        extra_model_outputs : dict of str to list or structure of ndarray (k, *D), optional
            Further data of these steps; keys may appear and be missing, as the class says.
        at : float, optional
            When the last step was, by ``time.perf_counter``; now by default.

        Raises
        ------
        EpisodeError
            If the episode is done or not reset, if there are not k of everything, or, in array form, the data does not
            fit. Nothing is changed then.

        Notes
        -----
        O(k) amortised in both forms. In list form the items themselves are kept, of arrays their rows as views.
        """
        where = "SingleAgentEpisode.add_env_steps"
        if self.is_terminated or self.is_truncated:
            raise EpisodeError(f"{where}: the episode must not be done, got {self!r}")
        if not self.is_reset:
            raise EpisodeError(f"{where}: the episode must be reset first, got no observation")
        count = len(rewards)
        if count < 1:
            raise EpisodeError(f"{where}: rewards must hold at least one item, got none")
        infos = [{} for _ in range(count)] if infos is None else infos if isinstance(infos, list) else list(infos)
        tracks, extras = self.extra_model_outputs, extra_model_outputs or {}
        given = {"observations": observations, "actions": actions, "infos": infos}
        given.update({f"extra_model_outputs[{key!r}]": values for key, values in extras.items()} if extras else ())
        for name, values in given.items():
            found = len(values) if type(values) is list else common_length(values, where)
            if found != count:
                raise EpisodeError(f"{where}: {name} must hold {count} items for {count} rewards, got {found}")
        columns = [(self.observations, observations), (self.actions, actions), (self.rewards, rewards)]
        in_arrays = self.observations.finalized or self.actions.finalized or self.rewards.finalized
        if in_arrays and not all(track.finalized for track, _ in columns):
            self.to_numpy()
        if extras or tracks:
            tracks = self._with_new_tracks(extras, in_arrays, where)
            columns += [(track, extras[k] if k in extras else pad_rows(track, count)) for k, track in tracks.items()]
        if in_arrays:
            # All is checked before anything counts.
            ready = [(track, *track.prepared(rows, where)) for track, rows in columns]
            for track, store, _ in ready:
                track.take_over(store, count)
        else:
            for track, rows in columns:
                track.extend(rows)
        self.extra_model_outputs = tracks
        self.infos.extend(infos)
        self.t += count
        self.is_terminated, self.is_truncated = bool(terminated), bool(truncated)
        self._last_step_time = perf_counter() if at is None else at

    def _with_new_tracks(
        self, extras: dict[str, Any], in_arrays: bool, where: str
    ) -> dict[str, InfiniteLookbackBuffer]:
        """Give the tracks in the form that the episode has, with those of new keys among them."""
        firsts = {key: values[0] if isinstance(values, list) else rows_at(values, 0) for key, values in extras.items()}
        if in_arrays:
            return self._tracks_for(firsts, where)
        steps = self.rewards.len_incl_lookback()
        tracks = self.extra_model_outputs
        new = {key: new_track(item, steps, self.rewards) for key, item in firsts.items() if key not in tracks}
        return {**tracks, **new}

    def _completed(self, extras: dict[str, Any]) -> dict[str, Any]:
        """Start tracks for new keys, and add what is to stand for missing ones."""
        tracks = self.extra_model_outputs
        steps = self.rewards.len_incl_lookback()
        for key in extras.keys() - tracks.keys():
            tracks[key] = new_track(extras[key], steps, self.rewards)
        return {key: extras[key] if key in extras else pad_rows(track, 1)[0] for key, track in tracks.items()}

    def _add_arrays(self, observation: Any, action: Any, reward: Any, extras: dict[str, Any] | None) -> None:
        where = "SingleAgentEpisode.add_env_step"
        observations, actions, rewards = self.observations, self.actions, self.rewards
        if not (observations.finalized and actions.finalized and rewards.finalized):
            self.to_numpy()
        if not observations._size:
            raise EpisodeError(f"{where}: the episode must be reset first, got no observation")
        # All is checked before anything counts.
        tracks = self.extra_model_outputs
        ready = [
            (observations, observations.place(observation, where)),
            (actions, actions.place(action, where)),
            (rewards, rewards.place(reward, where)),
        ]
        if extras or tracks:
            tracks = self._tracks_for(extras or {}, where)
            for key, track in tracks.items():
                item = extras[key] if extras and key in extras else rows_at(pad_rows(track, 1), 0)
                ready.append((track, track.place(item, where)))
        for track, store in ready:
            track.take_over(store, 1)
        self.extra_model_outputs = tracks

    def _tracks_for(self, extras: dict[str, Any], where: str) -> dict[str, InfiniteLookbackBuffer]:
        """Give the tracks of array form, with those of new keys among them."""
        tracks = self.extra_model_outputs
        steps = self.rewards._size
        if not extras.keys() <= tracks.keys():
            new = {key: new_track(extras[key], steps, self.rewards) for key in extras.keys() - tracks.keys()}
            tracks = {**tracks, **new}
        for track in tracks.values():
            if not track.finalized:
                track.adopt(track.as_arrays(where))
        return tracks

    # -- reading ------------------------------------------------------------------------------------------------------

    def get_observations(
        self,
        indices: Any = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Read observations; index 0 is the first after the lookback, there are T+1.

        Parameters
        ----------
        indices, neg_index_as_lookback, fill, one_hot_discrete
            As in :meth:`InfiniteLookbackBuffer.get`, which also says what comes back and what is raised.
        """
        where = "SingleAgentEpisode.get_observations"
        if fill is not None and reader() is not None:
            self._refuse_lost(self.observations, indices, neg_index_as_lookback, where)
        return self.observations.read(indices, neg_index_as_lookback, fill, one_hot_discrete, where)

    def get_infos(self, indices: Any = None, *, neg_index_as_lookback: bool = False, fill: Any = None) -> Any:
        """Read infos, a list in both forms; index 0 goes with observation 0, there are T+1.

        Parameters
        ----------
        indices, neg_index_as_lookback, fill
            As in :meth:`InfiniteLookbackBuffer.get`, which also says what comes back and what is raised; but a fill is
            taken as it is.
        """
        buffer = self.infos
        where = "SingleAgentEpisode.get_infos"
        if fill is None:
            return lookback_take(buffer._store, buffer.lookback, indices, neg_index_as_lookback, where)
        if reader() is not None:
            self._refuse_lost(buffer, indices, neg_index_as_lookback, where)
        return lookback_take(buffer._store, buffer.lookback, indices, neg_index_as_lookback, where, fill)

    def get_actions(
        self,
        indices: Any = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Read actions; index 0 is the one taken at observation 0, there are T.

        Parameters
        ----------
        indices, neg_index_as_lookback, fill, one_hot_discrete
            As in :meth:`InfiniteLookbackBuffer.get`, which also says what comes back and what is raised.
        """
        where = "SingleAgentEpisode.get_actions"
        if fill is not None and reader() is not None:
            self._refuse_lost(self.actions, indices, neg_index_as_lookback, where)
        return self.actions.read(indices, neg_index_as_lookback, fill, one_hot_discrete, where)

    def get_rewards(
        self, indices: Any = None, *, neg_index_as_lookback: bool = False, fill: float | None = None
    ) -> Any:
        """Read rewards; index 0 is the one for action 0, there are T.

        Parameters
        ----------
        indices, neg_index_as_lookback, fill
            As in :meth:`InfiniteLookbackBuffer.get`, which also says what comes back and what is raised.
        """
        where = "SingleAgentEpisode.get_rewards"
        if fill is not None and reader() is not None:
            self._refuse_lost(self.rewards, indices, neg_index_as_lookback, where)
        return self.rewards.read(indices, neg_index_as_lookback, fill, False, where)

    def get_extra_model_outputs(
        self, key: str, indices: Any = None, *, neg_index_as_lookback: bool = False, fill: Any = None
    ) -> Any:
        """Read extra model outputs; index 0 is the one for action 0, there are T of each key.

        Parameters
        ----------
        key : str
            Which.
        indices, neg_index_as_lookback, fill
            As in :meth:`InfiniteLookbackBuffer.get`, which also says what comes back and what is raised.

        Raises
        ------
        KeyError
            If the episode has no such key.
        """
        where = "SingleAgentEpisode.get_extra_model_outputs"
        track = self._extra(key, where)
        if fill is not None and reader() is not None:
            self._refuse_lost(track, indices, neg_index_as_lookback, where)
        return track.read(indices, neg_index_as_lookback, fill, False, where)

    def _refuse_lost(self, track: InfiniteLookbackBuffer, indices: Any, neg: bool, where: str) -> None:
        """Raise if a fill would stand for a step that there was, as long as there is a `READER`."""
        refuse_lost_steps(track.len_incl_lookback(), track.lookback, self.t_started, indices, neg, where)

    def _extra(self, key: str, where: str) -> InfiniteLookbackBuffer:
        track = self.extra_model_outputs.get(key)
        if track is None:
            known = sorted(self.extra_model_outputs)
            raise EpisodeKeyError(f"{where}: key must be one of {known}, got {key!r}")
        return track

    # -- writing ------------------------------------------------------------------------------------------------------

    def set_observations(self, *, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Put other observations in the place of some.

        Parameters
        ----------
        new_data, at_indices, neg_index_as_lookback
            As in :meth:`InfiniteLookbackBuffer.set`, which also says what is raised.
        """
        self.observations.write(new_data, at_indices, neg_index_as_lookback, "SingleAgentEpisode.set_observations")

    def set_actions(self, *, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Put other actions in the place of some.

        Parameters
        ----------
        new_data, at_indices, neg_index_as_lookback
            As in :meth:`InfiniteLookbackBuffer.set`, which also says what is raised.
        """
        self.actions.write(new_data, at_indices, neg_index_as_lookback, "SingleAgentEpisode.set_actions")

    def set_rewards(self, *, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Put other rewards in the place of some.

        Parameters
        ----------
        new_data, at_indices, neg_index_as_lookback
            As in :meth:`InfiniteLookbackBuffer.set`, which also says what is raised.
        """
        self.rewards.write(new_data, at_indices, neg_index_as_lookback, "SingleAgentEpisode.set_rewards")

    def set_extra_model_outputs(
        self, *, key: str, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Put other extra model outputs in the place of some.

        Parameters
        ----------
        key : str
            Which.
        new_data, at_indices, neg_index_as_lookback
            As in :meth:`InfiniteLookbackBuffer.set`, which also says what is raised.

        Raises
        ------
        EpisodeKeyError
            If the episode has no such key.
        """
        where = "SingleAgentEpisode.set_extra_model_outputs"
        self._extra(key, where).write(new_data, at_indices, neg_index_as_lookback, where)

    def to_numpy(self) -> SingleAgentEpisode:
        """Turn all data but the infos into arrays, in place; nothing happens if it is in array form already.

        Returns
        -------
        SingleAgentEpisode
            Itself.

        Raises
        ------
        EpisodeError
            If items do not fit their space, or one another. Nothing is changed then.

        Notes
        -----
        O(T). An episode without steps turns too: its actions and rewards become arrays of length 0.
        """
        where = "SingleAgentEpisode.to_numpy"
        buffers = [self.observations, self.actions, self.rewards, *self.extra_model_outputs.values()]
        arrays = [buffer.as_arrays(where) for buffer in buffers]
        for buffer, data in zip(buffers, arrays, strict=True):
            buffer.adopt(data)
        return self

    # -- chunks -------------------------------------------------------------------------------------------------------

    def _derived(self, first: int, count: int, lookback: int) -> SingleAgentEpisode:
        """Make a piece of the steps first <= t < first + count with that much lookback; it is not done."""
        out = SingleAgentEpisode.__new__(SingleAgentEpisode)
        out.id_, out.agent_id, out.module_id = self.id_, self.agent_id, self.module_id
        out.multi_agent_episode_id = self.multi_agent_episode_id
        out._observation_space, out._action_space = self._observation_space, self._action_space
        out._start_time = out._last_step_time = None
        out.is_terminated = out.is_truncated = False
        begin = self.rewards.lookback + first - lookback
        end = begin + lookback + count
        out.observations = self.observations.piece(begin, end + 1, lookback)
        out.infos = self.infos.piece(begin, end + 1, lookback)
        out.actions = self.actions.piece(begin, end, lookback)
        out.rewards = self.rewards.piece(begin, end, lookback)
        out.extra_model_outputs = {
            key: buffer.piece(begin, end, lookback) for key, buffer in self.extra_model_outputs.items()
        }
        out.t_started = self.t_started + first
        out.t = out.t_started + count
        return out

    def cut(self, len_lookback_buffer: int = 0) -> SingleAgentEpisode:
        """Make the chunk that goes on where this one ends.

        Parameters
        ----------
        len_lookback_buffer : int, default 0
            How many of the last steps it can still see, those of this chunk's own lookback among them; fewer if there
            are not as many.

        Returns
        -------
        SingleAgentEpisode
            Of length 0 and the same id, form, spaces and ids, with ``t_started`` = this one's ``t``. It starts with
            this one's last observation and info. ``custom_data`` is a deep copy.

        Raises
        ------
        EpisodeError
            If the episode is done, or not reset.

        Notes
        -----
        O(lookback). Arrays are shared until one of the two writes.
        """
        if self.is_terminated or self.is_truncated:
            raise EpisodeError(f"SingleAgentEpisode.cut: the episode must not be done, got {self!r}")
        if not self.is_reset:
            raise EpisodeError("SingleAgentEpisode.cut: the episode must be reset first, got no observation")
        if len_lookback_buffer < 0:
            raise EpisodeError(f"SingleAgentEpisode.cut: len_lookback_buffer must be >= 0, got {len_lookback_buffer}")
        lookback = min(len_lookback_buffer, self.rewards.len_incl_lookback())
        out = self._derived(len(self.rewards), 0, lookback)
        out.custom_data = copy.deepcopy(self.custom_data) if self.custom_data else {}
        return out

    def slice(self, slice_: builtins.slice, *, len_lookback_buffer: int | None = None) -> SingleAgentEpisode:
        """Make an episode of some of the steps; ``episode[a:b]`` is the short form.

        Parameters
        ----------
        slice_ : slice
            The steps a <= t < b, and with them the observations a .. b. Absent and negative bounds as in a list of T
            steps; what is not there is left out. The step must be 1.
        len_lookback_buffer : int, optional
            How many steps before a the result shall see; by default as many as this episode does. Fewer if there are
            not as many.

        Returns
        -------
        SingleAgentEpisode
            With the same id, form, spaces and ids; ``t_started`` is this one's plus a. It is done if this one is, and
            the last step is in it. ``custom_data`` is a shallow copy.

        Raises
        ------
        NotImplementedError
            If it is no slice, or its step is not 1.
        EpisodeError
            If the episode is not reset.

        Notes
        -----
        O(b - a) in list form, O(1) in array form: arrays are shared until one of the two writes.
        """
        where = "SingleAgentEpisode.slice"
        if not isinstance(slice_, slice) or slice_.step not in (None, 1):
            raise NotImplementedError(f"{where}: slice_ must be a slice of step 1, got {slice_!r}")
        if not self.is_reset:
            raise EpisodeError(f"{where}: the episode must be reset first, got no observation")
        length = len(self.rewards)
        _, rows, count, _ = lookback_positions(length, 0, slice_, False, False, where)
        first = rows.start if count else empty_at(slice_, length, where)
        wanted = self.rewards.lookback if len_lookback_buffer is None else len_lookback_buffer
        if wanted < 0:
            raise EpisodeError(f"{where}: len_lookback_buffer must be >= 0, got {wanted}")
        out = self._derived(first, count, min(wanted, self.rewards.lookback + first))
        if first + count == length and (count or not length):
            out.is_terminated, out.is_truncated = self.is_terminated, self.is_truncated
        out.custom_data = dict(self.custom_data)
        return out

    def __getitem__(self, item: builtins.slice) -> SingleAgentEpisode:
        return self.slice(item)

    def concat_episode(self, other: SingleAgentEpisode) -> None:
        """Add the chunk that goes on where this one ends, in place.

        Parameters
        ----------
        other : SingleAgentEpisode
            Of the same id, starting at this one's ``t`` with this one's last observation, in either form; its lookback
            is left out. It stays as it is.

        Raises
        ------
        EpisodeError
            If it does not go on where this one ends; if this one is done (and the other has steps). Nothing is changed
            then.

        Notes
        -----
        O(steps added), amortised. Its last info at the seam wins, its custom data is added to this one's. Extra model
        outputs that only one of the two has are filled up as the class says.
        """
        where = "SingleAgentEpisode.concat_episode"
        self._check_joins(other, where)
        steps = self.rewards.len_incl_lookback()
        count = len(other.rewards)
        added: dict[str, InfiniteLookbackBuffer] = {}
        for key, theirs in other.extra_model_outputs.items():
            if key not in self.extra_model_outputs and count:
                added[key] = new_track_of(theirs, steps, self.rewards)
        tracks: list[tuple[InfiniteLookbackBuffer, InfiniteLookbackBuffer | None]]
        tracks = [(self.observations, other.observations), (self.actions, other.actions), (self.rewards, other.rewards)]
        tracks += [
            (ours, other.extra_model_outputs.get(k)) for k, ours in {**self.extra_model_outputs, **added}.items()
        ]
        if self.rewards.finalized:
            ready = []
            for ours, more in tracks:
                skip = 1 if ours is self.observations else 0
                rows = (
                    ours.prepared(pad_rows(ours, count), where)
                    if more is None
                    else ours.prepared_from(more, skip, where)
                )
                ready.append((ours, *rows))
            for ours, store, added_rows in ready:
                ours.take_over(store, added_rows)
        else:
            for ours, more in tracks:
                skip = 1 if ours is self.observations else 0
                ours.extend(pad_rows(ours, count) if more is None else more.get(slice(skip, None)))
        self.extra_model_outputs.update(added)
        infos = other.infos.get()
        self.infos._store[-1:] = infos
        self.t = other.t
        if other.is_terminated or other.is_truncated:
            self.is_terminated, self.is_truncated = other.is_terminated, other.is_truncated
        self.custom_data.update(other.custom_data)
        if other._last_step_time is not None:
            self._last_step_time = other._last_step_time

    def _check_joins(self, other: SingleAgentEpisode, where: str) -> None:
        if not isinstance(other, SingleAgentEpisode):
            raise TypeError(f"{where}: other must be a SingleAgentEpisode, got {other!r}")
        if other.id_ != self.id_:
            raise EpisodeError(f"{where}: other must have the id {self.id_!r}, got {other.id_!r}")
        if self.is_done and len(other.rewards):
            raise EpisodeError(
                f"{where}: the episode {self.id_!r} must not be done, "
                f"got steps {other.t_started} to {other.t} after its end"
            )
        if other.t_started != self.t:
            raise EpisodeError(
                f"{where}: other must start at t = {self.t}, where episode {self.id_!r} ends, got {other.t_started}"
            )
        if not self.is_reset or not other.is_reset:
            raise EpisodeError(f"{where}: both chunks of episode {self.id_!r} must be reset, got no observation")
        differs = difference(self.observations.get(-1), other.observations.get(0))
        if differs is not None:
            at = f" at {differs!r}" if differs else ""
            raise EpisodeError(
                f"{where}: other must start with the last observation of episode {self.id_!r}, "
                f"got one that differs{at} at t = {self.t}"
            )

    # -- as other things ----------------------------------------------------------------------------------------------

    def get_data_dict(self) -> dict[str, Any]:
        """Give all T steps as columns.

        Returns
        -------
        dict
            ``obs`` and ``infos`` (those before each action), ``actions``, ``rewards``, ``terminateds`` and
            ``truncateds`` (True at most at the last step), ``t``, ``eps_id``, and each extra model output: lists in
            list form, arrays of leading length T (views of the data where there is any) in array form.
        """
        steps = len(self)
        ends: list[Any] = [[False] * steps, [False] * steps]
        if steps:
            ends[0][-1], ends[1][-1] = bool(self.is_terminated), bool(self.is_truncated)
        times: Any = list(range(self.t_started, self.t))
        ids: Any = [self.id_] * steps
        if self.is_numpy:
            ends = [np.array(flags, bool) for flags in ends]
            times, ids = np.arange(self.t_started, self.t), np.full(steps, self.id_)
        return {
            "obs": self.get_observations(slice(0, steps)),
            "infos": self.get_infos(slice(0, steps)),
            "actions": self.get_actions(),
            "rewards": self.get_rewards(),
            "terminateds": ends[0],
            "truncateds": ends[1],
            "t": times,
            "eps_id": ids,
            **{key: buffer.get() for key, buffer in self.extra_model_outputs.items()},
        }

    def get_sample_batch(self) -> Any:
        """Give all T steps as RLlib's ``SampleBatch``.

        Returns
        -------
        SampleBatch
            Of :meth:`get_data_dict`.

        Raises
        ------
        MissingExtraError
            If ray is not installed.
        """
        try:
            module = import_module("ray.rllib.policy.sample_batch")
        except ImportError:
            raise MissingExtraError("SingleAgentEpisode.get_sample_batch", "rllib", "ray") from None
        return module.SampleBatch(self.get_data_dict())

    def get_state(self) -> dict[str, Any]:
        """Give everything as nested dicts, lists and arrays.

        Returns
        -------
        dict
            A snapshot: later changes of the episode do not show in it. List items are the same objects, arrays are
            shared until the episode writes.
        """
        return {
            "id_": self.id_,
            "agent_id": self.agent_id,
            "module_id": self.module_id,
            "multi_agent_episode_id": self.multi_agent_episode_id,
            "observations": self.observations.get_state(),
            "actions": self.actions.get_state(),
            "rewards": self.rewards.get_state(),
            "infos": self.infos.get_state(),
            "extra_model_outputs": {key: buffer.get_state() for key, buffer in self.extra_model_outputs.items()},
            "is_terminated": self.is_terminated,
            "is_truncated": self.is_truncated,
            "t_started": self.t_started,
            "t": self.t,
            "_observation_space": self._observation_space,
            "_action_space": self._action_space,
            "_start_time": self._start_time,
            "_last_step_time": self._last_step_time,
            "custom_data": dict(self.custom_data),
        }

    @staticmethod
    def from_state(state: dict[str, Any]) -> SingleAgentEpisode:
        """Make an episode from what :meth:`get_state` gave.

        Parameters
        ----------
        state : dict
            The state.

        Returns
        -------
        SingleAgentEpisode
            The same as the one that gave it.
        """
        out = SingleAgentEpisode.__new__(SingleAgentEpisode)
        for name in ("id_", "agent_id", "module_id", "multi_agent_episode_id", "is_terminated", "is_truncated"):
            setattr(out, name, state[name])
        out.t_started, out.t = state["t_started"], state["t"]
        out._observation_space, out._action_space = state["_observation_space"], state["_action_space"]
        out._start_time, out._last_step_time = state["_start_time"], state["_last_step_time"]
        out.custom_data = dict(state.get("custom_data", {}))
        restore = InfiniteLookbackBuffer.from_state
        out.observations, out.actions = restore(state["observations"]), restore(state["actions"])
        out.rewards, out.infos = restore({**state["rewards"], "space": REWARD_SPACE}), restore(state["infos"])
        out.extra_model_outputs = {key: restore(track) for key, track in state["extra_model_outputs"].items()}
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> SingleAgentEpisode:
        # The spaces are not copied: they are what the data is from, no data.
        out = SingleAgentEpisode.__new__(SingleAgentEpisode)
        memo[id(self)] = out
        for name in SingleAgentEpisode.__slots__:
            value = getattr(self, name)
            setattr(out, name, value if name in ("_observation_space", "_action_space") else copy.deepcopy(value, memo))
        return out

    def __copy__(self) -> SingleAgentEpisode:
        out = self._derived(0, len(self.rewards), self.rewards.lookback)
        for name in ("is_terminated", "is_truncated", "_start_time", "_last_step_time", "t", "t_started"):
            setattr(out, name, getattr(self, name))
        out.custom_data = dict(self.custom_data)
        return out


def new_id() -> str:
    """Make a name that no other process makes: 32 hexadecimal digits from the operating system."""
    return os.urandom(16).hex()


def given_length(data: Any) -> int:
    """Count the items in the data of a track."""
    if data is None:
        return 0
    return data.len_incl_lookback() if isinstance(data, InfiniteLookbackBuffer) else len(data)


def as_buffer(data: Any, lookback: int, space: gym.Space[Any] | None) -> InfiniteLookbackBuffer:
    """Make a track of an episode from what its constructor got; a buffer stays as it is."""
    if isinstance(data, InfiniteLookbackBuffer):
        if data.space is None and space is not None:
            data.space = space
        return data
    return InfiniteLookbackBuffer(data, lookback, space)


def empty_at(slice_: slice, length: int, where: str) -> int:
    """Find where an empty slice of a list of that length lies: its start, clipped."""
    _, _, before, _ = lookback_positions(length, 0, slice(0, slice_.start or 0), False, False, where)
    return int(before)


def new_track(item: Any, steps: int, like: InfiniteLookbackBuffer) -> InfiniteLookbackBuffer:
    """Make a track for a key first seen after some steps, in the form and with the lookback of another track."""
    track = InfiniteLookbackBuffer([pad_item(item) for _ in range(steps)], like.lookback)
    if like.finalized:
        track.finalize()
    return track


def new_track_of(theirs: InfiniteLookbackBuffer, steps: int, like: InfiniteLookbackBuffer) -> InfiniteLookbackBuffer:
    """Make the same for a key that another chunk has."""
    return new_track(theirs.get(0), steps, like)
