"""Pieces for recurrent modules: the state before each step, a time axis, and sequences padded with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ringback.episodes.recurrent_states import STATE_OUT, newest_states, states_after, states_before
from ringback.episodes.structure import leaves, map_structure, stack

from .batching import as_array
from .columns import Columns, Rows, replaced, row_count, stacked
from .connector import Piece
from .own_episodes import single_agent_episodes
from .steps import TIME_WAS_ADDED
from .windows import joined

__all__ = ["AddStates", "AddTimeDim", "RemoveTimeDim"]


class AddStates(Piece):
    """Puts the recurrent state before each step into the column ``"state_in"``: what came out of the step before it.

    That is the episode's extra model output ``"state_out"``, read through the lookback; at t = 0, and for episodes
    without states, the initial state.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    initial_state : structure of ndarray, shape (*D), optional
        The state that an episode begins with, such as ``{"h": ..., "c": ...}``; by default that of the module's
        ``get_initial_state()``, tensors or arrays.
    as_learner_connector : bool, default False
        Acting: the state before the step that is taken at each episode's newest observation, (E, *D). Learning: that
        before all steps, (sum of T, *D); behind `AddTimeDim`, that before the first step of each sequence, (B, *D).
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    EpisodeError
        If the step before is not in the lookback.
    ValueError
        If there is no initial state, but one is needed.

    Notes
    -----
    Nothing is done if the module has an ``is_stateful()`` that says no, or the batch has the column already. Where the
    batch has ``"new_obs"``, learning adds ``"next_state_in"``, the states behind the steps.

    References
    ----------
    RLlib 2.60, ``AddStatesFromEpisodesToBatch``. Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed
    Reinforcement Learning" (stored state).

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5])
    >>> piece = AddStates(initial_state=np.array([0.0]))
    >>> piece(batch={}, episodes=[episode])["state_in"].arrays
    array([[0.]])
    >>> episode.add_env_step(6, 0, 1.0, extra_model_outputs={"state_out": np.array([0.5])})
    >>> piece(batch={}, episodes=[episode])["state_in"].arrays
    array([[0.5]])
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        initial_state: Any = None,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        self.initial_state = None if initial_state is None else map_structure(as_array, initial_state)
        self.as_learner_connector = as_learner_connector
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @property
    def lookback(self) -> int:
        """One step: the state came out of it."""
        return 1

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
        if Columns.STATE_IN in batch or not episodes or not is_stateful(rl_module):
            return batch
        where = "AddStates"
        singles, keys = single_agent_episodes(episodes, self.as_learner_connector)

        def initial() -> Any:
            return self._initial(rl_module)

        if not self.as_learner_connector:
            states = stack(newest_states(singles, initial, where), where)
            batch[Columns.STATE_IN] = Rows(states, keys)
            return batch
        playing = [episode for episode in singles if len(episode)]
        if not playing:
            return batch
        counts = [len(episode) for episode in singles]
        states = joined([states_before(episode, initial, where) for episode in playing], where)
        batch[Columns.STATE_IN] = of_sequences(Rows(states, keys, counts), batch)
        if Columns.NEXT_OBS in batch:
            states = joined([states_after(episode, initial, where) for episode in playing], where)
            batch[Columns.NEXT_STATE_IN] = of_sequences(Rows(states, keys, counts), batch)
        return batch

    def _initial(self, rl_module: Any) -> Any:
        if self.initial_state is not None:
            return self.initial_state
        give = getattr(rl_module, "get_initial_state", None)
        if give is None:
            raise ValueError(
                "AddStates: initial_state must be given for a module without get_initial_state(), "
                f"got {type(rl_module).__name__}"
            )
        return map_structure(as_array, give())


class AddTimeDim(Piece):
    """Puts a time axis behind the batch axis of all columns, as recurrent modules take them.

    Parameters
    ----------
    input_observation_space, input_action_space : Space, optional
        What comes in.
    max_seq_len : int, optional
        Learning: the most steps of a sequence, at least 1; by default the module's ``model_config["max_seq_len"]``, and
        without one each episode is one sequence.
    as_learner_connector : bool, default False
        Acting: columns (E, *D) become (E, 1, *D). Learning: columns with one row a step are cut into sequences, each
        episode for itself, from its first step on: (B, T, *D), where T is `max_seq_len`, or the longest episode where
        there is none. What is left over at the end of an episode is padded with zeros.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If `max_seq_len` is below 1, or given for acting; in learning, if a column does not have one row a step.

    Notes
    -----
    Learning adds ``"loss_mask"`` (B, T), bool, False where there is padding (one that there is, of one flag a step, is
    padded), and ``"seq_lens"`` (B,), int64, the steps of each sequence. ``"state_in"`` and ``"next_state_in"`` get no
    time axis: in learning only the state before each sequence is kept. ``"infos"`` stay as they are.

    Nothing is done if the module has an ``is_stateful()`` that says no. After acting, `RemoveTimeDim` takes the axis
    away again.

    References
    ----------
    RLlib 2.60, ``AddTimeDimToBatchAndZeroPad``.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episode = SingleAgentEpisode("a", observations=[5, 6, 7, 8], actions=[0, 1, 0], rewards=[0.0, 0.0, 0.0],
    ...                              len_lookback_buffer=0)
    >>> batch = {"obs": {("a",): [5, 6, 7]}}
    >>> batch = AddTimeDim(max_seq_len=2, as_learner_connector=True)(batch=batch, episodes=[episode])
    >>> batch["obs"].arrays.tolist(), batch["seq_lens"].arrays.tolist()
    ([[5, 6], [7, 0]], [2, 1])
    """

    def __init__(
        self,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        *,
        max_seq_len: int | None = None,
        as_learner_connector: bool = False,
        **kwargs: Any,
    ) -> None:
        if max_seq_len is not None and max_seq_len < 1:
            raise ValueError(f"AddTimeDim: max_seq_len must be >= 1, got {max_seq_len!r}")
        if max_seq_len is not None and not as_learner_connector:
            raise ValueError(
                f"AddTimeDim: max_seq_len must be None unless as_learner_connector=True, got {max_seq_len!r}"
            )
        self.max_seq_len = max_seq_len
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
        """Add the axis."""
        if not is_stateful(rl_module) or not episodes:
            return batch
        if self.as_learner_connector:
            if any(map(len, episodes)):
                self._cut(batch, episodes, rl_module)
            return batch
        for name, column in batch.items():
            if name not in _WITHOUT_TIME:
                batch[name] = replaced(column, map_structure(lambda leaf: leaf[:, None], stacked(column)))
        if shared_data is not None:
            shared_data[TIME_WAS_ADDED] = True
        return batch

    def _cut(self, batch: dict[str, Any], episodes: Sequence[Any], rl_module: Any) -> None:
        singles, keys = single_agent_episodes(episodes, True)
        lengths = np.array([len(episode) for episode in singles], np.int64)
        longest = self._longest(rl_module, lengths)
        sequences = -(-lengths // longest)
        # Row number `within` of its episode goes to sequence within // longest, place within % longest.
        first_row, first_sequence = np.cumsum(lengths) - lengths, np.cumsum(sequences) - sequences
        within = np.arange(lengths.sum()) - np.repeat(first_row, lengths)
        place = np.repeat(first_sequence, lengths) * longest + within
        total, shape = int(sequences.sum()), (int(sequences.sum()), longest)
        if Columns.LOSS_MASK not in batch:
            batch[Columns.LOSS_MASK] = Rows(np.ones(len(place), np.bool_), keys, lengths.tolist())
        batch[Columns.SEQ_LENS] = Rows(np.bincount(place // longest, minlength=total), keys, sequences.tolist())

        def cut(leaf: Any) -> Any:
            if not isinstance(leaf, np.ndarray):
                raise TypeError(
                    f"AddTimeDim: columns must be arrays, got a {type(leaf).__name__}; put it before ToTensor()"
                )
            rows = np.zeros((total * longest, *leaf.shape[1:]), leaf.dtype)
            rows[place] = leaf
            return rows.reshape(*shape, *leaf.shape[1:])

        for name, column in batch.items():
            if name in (Columns.INFOS, Columns.SEQ_LENS):
                continue
            count = row_count(column)
            if count != len(place):
                raise ValueError(f"AddTimeDim: column {name!r} must have one row a step ({len(place)}), got {count}")
            if name in _WITHOUT_TIME:
                batch[name] = of_sequences(Rows(stacked(column), keys, lengths.tolist()), batch)
            else:
                batch[name] = Rows(map_structure(cut, stacked(column)), keys, sequences.tolist())

    def _longest(self, rl_module: Any, lengths: Any) -> int:
        config = getattr(rl_module, "model_config", None)
        if self.max_seq_len is not None:
            return self.max_seq_len
        if isinstance(config, dict) and config.get("max_seq_len") is not None:
            return int(config["max_seq_len"])
        return max(1, int(lengths.max()))


class RemoveTimeDim(Piece):
    """Takes away the time axis that `AddTimeDim` added for acting, of all that a module returns: (E, 1, *D) to (E, *D).

    Notes
    -----
    ``"state_out"`` has none. Nothing is done if no time axis was added, which ``shared_data`` says.

    Raises
    ------
    ValueError
        If an output has no time axis of one step.

    References
    ----------
    RLlib 2.60, ``RemoveSingleTsTimeRankFromBatch``.

    Examples
    --------
    >>> RemoveTimeDim()(batch={"actions": np.array([[3], [4]])}, episodes=[], shared_data={TIME_WAS_ADDED: True})
    {'actions': array([3, 4])}
    """

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
        """Remove the axis."""
        if shared_data is None or not shared_data.get(TIME_WAS_ADDED, False):
            return batch
        found = {}
        for name, column in batch.items():
            if name not in (STATE_OUT, Columns.INFOS):
                arrays = stacked(column)
                for leaf in leaves(arrays):
                    if len(np.shape(leaf)) < 2 or leaf.shape[1] != 1:
                        raise ValueError(
                            f"RemoveTimeDim: column {name!r} must have a time axis of 1 step behind the batch axis, as "
                            f"a module's inputs have, got shape {tuple(np.shape(leaf))}"
                        )
                found[name] = replaced(column, map_structure(lambda leaf: leaf[:, 0], arrays))
        batch.update(found)
        del shared_data[TIME_WAS_ADDED]
        return batch


_WITHOUT_TIME = (Columns.STATE_IN, Columns.NEXT_STATE_IN, Columns.SEQ_LENS, Columns.INFOS)


def is_stateful(rl_module: Any) -> bool:
    """Tell whether a module is recurrent; one that does not say so is, as somebody put the piece there for it."""
    says = getattr(rl_module, "is_stateful", None)
    return says is None or bool(says())


def of_sequences(states: Rows, batch: dict[str, Any]) -> Any:
    """Keep the states at the beginnings of the sequences, once there are sequences."""
    if Columns.SEQ_LENS not in batch:
        return states
    sequences = batch[Columns.SEQ_LENS]
    lengths = stacked(sequences)
    first = np.cumsum(lengths) - lengths
    return replaced(sequences, map_structure(lambda leaf: leaf[first], states.arrays))
