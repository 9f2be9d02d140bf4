"""All steps of all chunks as flat arrays: what the learner's pieces read from episodes, and where it is in a batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.episodes.lookback_buffer import rows_at

from .batching import as_array
from .columns import Columns, Key, Rows, by_episode, replaced, stacked
from .own_episodes import single_agent_episodes
from .windows import joined, stacked_items_of

__all__ = [
    "MASK_WAS_ADDED",
    "TIME_WAS_ADDED",
    "OneStepLonger",
    "Steps",
    "chunks_of",
    "ends_of",
    "extras_of",
    "next_observations_of",
    "refuse_time_axis",
    "rewards_of",
    "rows_of",
    "steps_in",
]

Array: TypeAlias = np.ndarray[Any, Any]

# In the shared data, RLlib's words to the pieces behind: that acting has a time axis, and that learning has a row more
# for each chunk, which the loss mask tells.
TIME_WAS_ADDED = "_added_single_ts_time_rank"
MASK_WAS_ADDED = "_added_loss_mask_for_valid_episode_ts"


def refuse_time_axis(batch: dict[str, Any], shared_data: dict[str, Any] | None, where: str) -> None:
    """Raise if `AddTimeDim` was there already: a column with one row a step would not go with the others.

    Raises
    ------
    ValueError
        If there is a time axis.
    """
    if Columns.SEQ_LENS in batch or (shared_data is not None and shared_data.get(TIME_WAS_ADDED)):
        raise ValueError(f"{where}: batch must have no time axis yet, got one; put it before AddTimeDim()")


def steps_in(seq_lens: Array, longest: int) -> Array:
    """Tell the steps of padded sequences from the padding.

    Parameters
    ----------
    seq_lens : ndarray, shape (B,), int
        Steps of each sequence.
    longest : int
        T.

    Returns
    -------
    ndarray, shape (B, T), bool
        False where there is padding.
    """
    steps: Array = np.arange(longest) < seq_lens[:, None]
    return steps


def chunks_of(episodes: Sequence[Any]) -> tuple[list[SingleAgentEpisode], list[Key], list[int]]:
    """List the chunks that have steps, their keys and their lengths."""
    singles, keys = single_agent_episodes(episodes, True)
    there = [(episode, key, len(episode)) for episode, key in zip(singles, keys, strict=True) if len(episode)]
    return [episode for episode, _, _ in there], [key for _, key, _ in there], [count for _, _, count in there]


class OneStepLonger(SingleAgentEpisode):
    """A copy of a chunk with one more step at its last observation, which repeats its last items; the reward is 0.

    Parameters
    ----------
    chunk : SingleAgentEpisode
        Of at least one step. It stays as it is.

    Notes
    -----
    A track is copied when somebody first looks at it. Those who only put its rows into a batch (:func:`rows_of`) read
    that of the chunk instead.
    """

    __slots__ = ("_chunk", "_copied")

    def __init__(self, chunk: SingleAgentEpisode) -> None:
        self._chunk = chunk
        self._copied: set[str] = set()
        for name in _NO_TRACKS:
            setattr(self, name, getattr(chunk, name))
        self.custom_data = dict(chunk.custom_data)
        self.is_truncated = bool(chunk.is_truncated or not chunk.is_terminated)
        self.t += 1

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not set.
        if name not in _TRACKS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        tracks = getattr(self._chunk, name)
        if name == "extra_model_outputs":
            made: Any = {key: one_item_longer(track) for key, track in tracks.items()}
        else:
            made = one_item_longer(tracks, 0.0 if name == "rewards" else None)
        self._copied.add(name)
        setattr(self, name, made)
        return made

    def holding(self, name: str) -> SingleAgentEpisode:
        """Return who has the track: the chunk, as long as nobody has looked at the copy."""
        return self if name in self._copied else self._chunk


_LAST = slice(-1, None)
_TRACKS = ("observations", "actions", "rewards", "infos", "extra_model_outputs")
_NO_TRACKS = tuple(name for name in SingleAgentEpisode.__slots__ if name not in (*_TRACKS, "custom_data"))


def one_item_longer(track: InfiniteLookbackBuffer, item: Any = None) -> InfiniteLookbackBuffer:
    """Copy a track with one more item, its last one by default."""
    out = copy.copy(track)
    out.append(track.get(-1) if item is None else item)
    return out


def rows_of(chunks: Sequence[SingleAgentEpisode], name: str, where: str, first: int = 0, key: str | None = None) -> Any:
    """Put the items first <= t < first + T of all chunks one after the other.

    Parameters
    ----------
    chunks : sequence of SingleAgentEpisode
        In list or array form, of at least one step each, T of them.
    name : str
        The track: an attribute of the episodes.
    where : str
        Who reads, for messages.
    first : int, default 0
        0, or 1 to read observations that steps led to.
    key : str, optional
        Which of the extra model outputs.

    Returns
    -------
    structure of ndarray, shape (N, *D)
        A copy.
    """
    # A chunk has one observation more than steps: enough for the step that was added, but not for what that led to.
    enough = name == "observations" and not first
    parts = []
    for chunk in chunks:
        holder = chunk.holding(name) if type(chunk) is OneStepLonger else chunk
        track = getattr(holder, name) if key is None else getattr(holder, name)[key]
        items = track.get(slice(first, first + len(chunk)))
        rows = items if track.finalized else stacked_items_of(track, items, where)
        parts.append(rows)
        if holder is not chunk and not enough:
            parts.append(np.zeros(1, rows.dtype) if name == "rewards" else rows_at(rows, _LAST))
    return joined(parts, where)


def extras_of(chunk: SingleAgentEpisode) -> dict[str, InfiniteLookbackBuffer]:
    """Return the extra model outputs of a chunk, to see which there are."""
    holder = chunk.holding("extra_model_outputs") if type(chunk) is OneStepLonger else chunk
    return holder.extra_model_outputs


def rewards_of(chunks: Sequence[SingleAgentEpisode], where: str) -> Array:
    """Return the rewards of all steps, (N,), float32."""
    rewards: Array = rows_of(chunks, "rewards", where).astype(np.float32, copy=False)
    return rewards


def next_observations_of(chunks: Sequence[SingleAgentEpisode], where: str) -> Any:
    """Return the observations that all steps led to, (N, *D)."""
    return rows_of(chunks, "observations", where, 1)


def ends_of(chunks: Sequence[SingleAgentEpisode], counts: Sequence[int]) -> dict[str, Array]:
    """Return the two flags of all steps, (N,), bool: True at most at the last row of a chunk."""
    last = np.cumsum(counts) - 1
    flags = {name: np.zeros(int(last[-1]) + 1, bool) for name in (Columns.TERMINATEDS, Columns.TRUNCATEDS)}
    flags[Columns.TERMINATEDS][last] = [bool(chunk.is_terminated) for chunk in chunks]
    flags[Columns.TRUNCATEDS][last] = [bool(chunk.is_truncated) for chunk in chunks]
    return flags


class Steps:
    """The steps of the chunks of a batch, N in all, in whatever form its columns are.

    A batch may have a time axis (the column ``"seq_lens"`` says so), whose rows are then sequences padded with zeros;
    its steps, read row by row, are in the same order.

    Parameters
    ----------
    batch : dict
        The batch.
    episodes : sequence
        What its rows are from.
    where : str
        Who asks, for messages.
    """

    def __init__(self, batch: dict[str, Any], episodes: Sequence[Any], where: str) -> None:
        self.batch = batch
        self.where = where
        self.chunks, self.keys, self.counts = chunks_of(episodes)
        self.total = sum(self.counts)
        lengths = batch.get(Columns.SEQ_LENS)
        self.seq_lens: Array | None = None if lengths is None else np.asarray(as_array(stacked(lengths))).reshape(-1)

    @property
    def last(self) -> Array:
        """The last row of each chunk, (E,)."""
        return np.cumsum(self.counts) - 1

    def flat(self, name: str, column: Any = None) -> Array:
        """Return a column of numbers as an array (N,); one that the batch lacks is read from the episodes."""
        if column is None:
            column = self.batch.get(name)
        if column is None:
            if name == Columns.REWARDS:
                return rewards_of(self.chunks, self.where)
            return ends_of(self.chunks, self.counts)[name]
        array: Array = np.asarray(as_array(stacked(column)))
        shape = array.shape
        if self.seq_lens is not None and array.shape[:1] == self.seq_lens.shape and array.ndim > 1:
            array = array[steps_in(self.seq_lens, array.shape[1])]
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.shape != (self.total,):
            raise ValueError(
                f"{self.where}: column {name!r} must have one number for each of the {self.total} steps of "
                f"{len(self.chunks)} chunks, got shape {shape}"
            )
        return array

    def given_back(self, flat: Array, like: Any) -> Any:
        """Bring an array (N,) into the form of a column: padded as it is, by episode, an array or a tensor."""
        out = flat
        if self.seq_lens is not None:
            valid = steps_in(self.seq_lens, np.shape(as_array(stacked(like)))[1])
            out = np.zeros(valid.shape, flat.dtype)
            out[valid] = flat
        if hasattr(like, "detach"):
            import torch

            return torch.from_numpy(out).to(like.device)
        return replaced(like, out) if by_episode(like) else out

    def rows(self, arrays: Any) -> Rows:
        """Make a column of arrays (N, *D)."""
        return Rows(arrays, self.keys, self.counts)
