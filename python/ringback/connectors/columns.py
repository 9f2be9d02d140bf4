"""The columns of a batch while pieces work on it: rows that know which episode they come from."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, MutableMapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ringback.episodes import SingleAgentEpisode
from ringback.episodes.lookback_buffer import rows_at
from ringback.episodes.structure import is_structure, leaves, map_structure, stack, unstack
from ringback.errors import EpisodeError

__all__ = ["BatchedArray", "Columns", "Rows", "episode_key", "replaced", "row_count", "row_keys", "stacked"]

Key: TypeAlias = tuple[Hashable, ...]


class Columns:
    """The names of columns; where RLlib has such a column the name is RLlib's."""

    OBS = "obs"
    INFOS = "infos"
    ACTIONS = "actions"
    ACTIONS_FOR_ENV = "actions_for_env"
    REWARDS = "rewards"
    TERMINATEDS = "terminateds"
    TRUNCATEDS = "truncateds"
    NEXT_OBS = "new_obs"
    EPS_ID = "eps_id"
    AGENT_ID = "agent_id"
    MODULE_ID = "module_id"
    T = "t"
    STATE_IN = "state_in"
    NEXT_STATE_IN = "next_state_in"
    STATE_OUT = "state_out"
    NEXT_STATE_OUT = "next_state_out"
    ACTION_DIST_INPUTS = "action_dist_inputs"
    ACTION_PROB = "action_prob"
    ACTION_LOGP = "action_logp"
    EMBEDDINGS = "embeddings"
    VF_PREDS = "vf_preds"
    VALUES_BOOTSTRAPPED = "values_bootstrapped"
    INTRINSIC_REWARDS = "intrinsic_rewards"
    ADVANTAGES = "advantages"
    VALUE_TARGETS = "value_targets"
    RETURNS_TO_GO = "returns_to_go"
    SEQ_LENS = "seq_lens"
    LOSS_MASK = "loss_mask"
    PREV_ACTIONS = "prev_actions"
    PREV_REWARDS = "prev_rewards"
    DISCOUNTS = "discounts"
    N_STEPS = "n_steps"


class BatchedArray(np.ndarray[Any, Any]):
    """An item of a column that is several rows already: its first axis counts them."""


def episode_key(episode: SingleAgentEpisode) -> Key:
    """Return the key of an episode's rows: its id, and with an agent in it that agent and its module too."""
    if episode.agent_id is None:
        return (episode.id_,)
    return (episode.multi_agent_episode_id, episode.agent_id, episode.module_id)


class Rows(MutableMapping[Key, list[Any]]):
    """Stacked rows of several episodes that read like ``{(episode id,): [row, ...]}``.

    A piece that makes a column for all episodes at once stores it as arrays. A piece that looks at single rows, as one
    written for RLlib does, finds the mapping that it expects: it is made when it is first looked at, and from then on
    it is what counts.

    Parameters
    ----------
    arrays : structure of ndarray, shape (N, *D)
        The rows of all episodes, one after the other.
    keys : sequence of tuple
        One for each episode: ``episode_key(episode)``.
    counts : sequence of int, optional
        How many rows each episode has, N in all: whoever looks finds them as one item, a `BatchedArray` (or a structure
        of such). By default each episode has one row, and whoever looks finds that row.

    Raises
    ------
    ValueError
        If the arrays do not have as many rows as the counts say.

    Notes
    -----
    In a mapping the rows of an episode lie together. Chunks of one episode must therefore be given one behind the
    other, as a pipeline does, or the rows change their order when somebody looks.
    """

    __slots__ = ("_arrays", "_counts", "_items", "_keys")

    def __init__(self, arrays: Any, keys: Sequence[Key], counts: Sequence[int] | None = None) -> None:
        rows = len(keys) if counts is None else sum(counts)
        if type(arrays) is not np.ndarray or len(arrays) != rows:
            for leaf in leaves(arrays):
                if len(leaf) != rows:
                    raise ValueError(f"Rows: arrays must have {rows} rows for {len(keys)} episodes, got {len(leaf)}")
        self._arrays = arrays
        self._keys = keys
        self._counts = counts
        self._items: dict[Key, list[Any]] | None = None

    @classmethod
    def of(cls, items: dict[Key, list[Any]]) -> Rows:
        """Make rows of a mapping, which is kept."""
        rows = cls.__new__(cls)
        rows._arrays, rows._keys, rows._counts, rows._items = None, (), None, items
        return rows

    @property
    def is_stacked(self) -> bool:
        """Whether the rows are arrays; not any more once somebody has looked at single rows."""
        return self._items is None

    @property
    def arrays(self) -> Any:
        """The rows as a structure of arrays, shape (N, *D) each; no copy as long as nobody looked at single rows."""
        return self._arrays if self._items is None else stacked(self._items)

    @property
    def keys_of_rows(self) -> list[Key]:
        """The key of each of the N rows."""
        if self._items is not None:
            return [key for key, items in self._items.items() for item in items for _ in range(rows_in(item))]
        if self._counts is None:
            return list(self._keys)
        return [key for key, count in zip(self._keys, self._counts, strict=True) for _ in range(count)]

    def _mapping(self) -> dict[Key, list[Any]]:
        if self._items is None:
            items: dict[Key, list[Any]] = {}
            if self._counts is None:
                for key, row in zip(self._keys, unstack(self._arrays), strict=True):
                    items.setdefault(key, []).append(row)
            else:
                tagged = map_structure(lambda leaf: np.asarray(leaf).view(BatchedArray), self._arrays)
                end = 0
                for key, count in zip(self._keys, self._counts, strict=True):
                    begin, end = end, end + count
                    if count:
                        items.setdefault(key, []).append(rows_at(tagged, slice(begin, end)))
            self._items = items
            self._arrays = None
        return self._items

    def __getitem__(self, key: Key) -> list[Any]:
        return self._mapping()[key]

    def __setitem__(self, key: Key, items: list[Any]) -> None:
        self._mapping()[key] = items

    def __delitem__(self, key: Key) -> None:
        del self._mapping()[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._mapping() if self._items is not None else dict.fromkeys(self._keys))

    def __len__(self) -> int:
        return len(self._items if self._items is not None else set(self._keys))

    def __repr__(self) -> str:
        form = "arrays" if self._items is None else "items"
        return f"Rows({row_count(self)} rows of {len(self)} episodes, as {form})"


def by_episode(column: Any) -> bool:
    """Tell whether a column is a mapping from episodes to their rows, and no structure of arrays."""
    return isinstance(column, Rows) or (isinstance(column, dict) and isinstance(next(iter(column), ()), tuple))


def stacked(column: Any) -> Any:
    """Turn a column in any form into a structure of arrays with one leading axis.

    Parameters
    ----------
    column : Rows, dict of tuple to list, list, or structure of arrays or tensors
        The column.

    Returns
    -------
    Any
        Arrays of shape (N, *D); those there are, where the column is made of arrays.

    Raises
    ------
    EpisodeError
        If the rows differ in structure or shape, or there are none.
    """
    if type(column) is Rows and column._items is None:
        return column._arrays
    items = items_of(column)
    return column if items is None else stacked_items(items)


def replaced(column: Any, arrays: Any) -> Any:
    """Give a column of other rows, as many as before and of the same episodes."""
    if isinstance(column, Rows) and column._items is None:
        return Rows(arrays, column._keys, column._counts)
    if not by_episode(column):
        return arrays
    items = [(key, item) for key, items in column.items() for item in items]
    several = any(is_batched(item) for _, item in items)
    return Rows(arrays, [key for key, _ in items], [rows_in(item) for _, item in items] if several else None)


def items_of(column: Any) -> list[Any] | None:
    """List a column's items, which may be several rows each; None for a structure of arrays."""
    if isinstance(column, list):
        return column
    if by_episode(column):
        return [item for items in column.values() for item in items]
    return None


def is_batched(item: Any) -> bool:
    """Tell whether an item is several rows already."""
    flat = leaves(item) if is_structure(item) else [item]
    return bool(flat) and isinstance(flat[0], BatchedArray)


def stacked_items(items: list[Any]) -> Any:
    """Stack items, single rows and several rows mixed."""
    if not items:
        raise EpisodeError("stacked: the column must have at least one row, got none")
    if not any(map(is_batched, items)):
        return stack(items, "stacked")
    rows = [item if is_batched(item) else map_structure(lambda leaf: np.asarray(leaf)[None], item) for item in items]
    return map_structure(lambda leaf: leaf.view(np.ndarray), stack(rows, "stacked", joined=True))


def rows_in(item: Any) -> int:
    """Count the rows of one item."""
    return len(leaves(item)[0]) if is_batched(item) else 1


def row_count(column: Any) -> int:
    """Count the rows of a column in any form."""
    if isinstance(column, Rows) and column._items is None:
        return len(leaves(column._arrays)[0])
    items = items_of(column)
    return len(leaves(column)[0]) if items is None else sum(map(rows_in, items))


def row_keys(column: Any) -> list[Key] | None:
    """List the episode key of each row; None for a column that has no episodes."""
    if isinstance(column, Rows):
        return column.keys_of_rows
    return Rows.of(column).keys_of_rows if by_episode(column) else None
