"""The arrays of an episode's track, leaf by leaf: filling, padding, growing, widening."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ringback._core import rows_put
from ringback.errors import EpisodeError

from .space_rules import dtype_holding
from .structure import leaves, map_pair, map_structure

__all__ = [
    "common_length",
    "deep_copied",
    "extended",
    "fill_leaf",
    "fill_like",
    "has_objects",
    "padded_leaf",
    "put_leafwise",
    "refilled_leaf",
    "roomier",
    "widened",
    "with_fill",
]

Array = np.ndarray[Any, Any]


def common_length(structure: Any, where: str) -> int:
    """Find the leading length that all leaves have."""
    if isinstance(structure, np.ndarray):
        if structure.ndim == 0:
            raise EpisodeError(f"{where}: data must have a leading time axis, got shape ()")
        return len(structure)
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in leaves(structure)}
    if len(lengths) != 1 or None in lengths:
        raise EpisodeError(f"{where}: the leaves of data must have one leading length, got {sorted(map(str, lengths))}")
    return int(next(iter(lengths)) or 0)


def has_objects(structure: Any) -> bool:
    """Tell whether any leaf is an array of Python objects."""
    return any(leaf.dtype.hasobject for leaf in leaves(structure))


_SHARED_BY_COPIES = (int, float, bool, str, bytes, type(None), np.float32, np.float64, np.int64, np.int32, np.bool_)


def deep_copied(item: Any, memo: dict[int, Any]) -> Any:
    """Do what ``copy.deepcopy`` does, quickly for what episodes mostly hold."""
    kind = type(item)
    if kind in _SHARED_BY_COPIES:
        return item
    if kind is np.ndarray and item.dtype.kind != "O":
        if id(item) not in memo:
            memo[id(item)] = item.copy()
        return memo[id(item)]
    if kind is dict:
        known = memo.get(id(item))
        if known is None:
            known = memo[id(item)] = {}
            for key, value in item.items():
                known[deep_copied(key, memo)] = deep_copied(value, memo)
        return known
    return copy.deepcopy(item, memo)


def with_fill(function: Callable[[Array, Any], Array], rows: Any, fill: Any) -> Any:
    """Apply a function of (rows, fill) to each leaf; the fill is one for all leaves, or a structure of its own."""
    if isinstance(fill, (dict, tuple)):
        return map_pair(lambda leaf, value, _: function(leaf, value), rows, fill, "fill")
    return map_structure(lambda leaf: function(leaf, fill), rows)


def fill_leaf(like: Array, count: int, fill: Any) -> Array:
    """Make rows (count, *D) of one value, for the rows (T, *D) of ``like``."""
    return padded_leaf(like[:0], count, 0, fill)


def padded_leaf(rows: Array, left: int, right: int, fill: Any) -> Array:
    """Put rows (T, *D) between fills; a new array."""
    end = left + len(rows)
    out = np.empty((end + right, *rows.shape[1:]), dtype_holding(rows.dtype, fill))
    out[left:end] = rows
    if rows.dtype.kind == "O":
        put_each(out, (*range(left), *range(end, len(out))), fill)
    else:
        if left:
            out[:left] = fill
        if right:
            out[end:] = fill
    return out


def refilled_leaf(rows: Array, missing: list[int], fill: Any) -> Array:
    """Put a fill in the place of some rows; in place, or in a copy of a dtype that holds it."""
    dtype = dtype_holding(rows.dtype, fill)
    out = rows if dtype == rows.dtype else rows.astype(dtype)
    put_each(out, missing, fill)
    return out


def put_each(rows: Array, positions: Iterable[int], fill: Any) -> None:
    """Write one value to each of the places; an object, a list say, is not taken apart for that."""
    for position in positions:
        rows[position] = fill


def fill_like(item: Any, fill: Any) -> Any:
    """Make a fill in the structure, shape and dtype of an item."""
    if isinstance(item, (dict, tuple)):
        if isinstance(fill, (dict, tuple)):
            return map_pair(lambda leaf, value, _: fill_like(leaf, value), item, fill, "fill")
        return map_structure(lambda leaf: fill_like(leaf, fill), item)
    if isinstance(item, np.ndarray) and item.dtype != object:
        return np.full(item.shape, fill, dtype_holding(item.dtype, fill))
    if isinstance(item, np.generic):
        return dtype_holding(item.dtype, fill).type(fill)
    if isinstance(item, (bool, int, float)) and isinstance(fill, (bool, int, float)) and type(item)(fill) == fill:
        return type(item)(fill)
    return copy.copy(fill)


def common_dtype(array: Array, new: Array, where: str, path: str) -> np.dtype[Any]:
    """Find the dtype that holds what is there and what is new; that of what is there if it can."""
    dtype: np.dtype[Any] = array.dtype
    if dtype == new.dtype:
        return dtype
    if dtype.kind == "O":
        return dtype
    if dtype.kind in "USV" or new.dtype.kind in "OUSV":
        if dtype.kind != new.dtype.kind:
            at = f" at {path!r}" if path else ""
            raise EpisodeError(f"{where}: data{at} must fit {dtype}, got {new.dtype}")
        return np.dtype(np.result_type(array.dtype, new.dtype))
    if np.can_cast(new.dtype, array.dtype, "same_kind"):
        return dtype
    with np.errstate(all="ignore"):
        if np.array_equal(new.astype(dtype), new):
            return dtype
    return np.dtype(np.result_type(array.dtype, new.dtype))


def check_shape(array: Array, new: Any, where: str, path: str) -> None:
    """Raise if the new rows are no array, or differ in shape."""
    at = f" at {path!r}" if path else ""
    if not isinstance(new, np.ndarray):
        raise EpisodeError(f"{where}: data{at} must be no structure, got a {type(new).__name__}")
    if array.shape[1:] != new.shape[1:]:
        raise EpisodeError(f"{where}: data{at} must have shape {array.shape[1:]} a step, got {new.shape[1:]}")


def widened(array: Array, new: Array, size: int, where: str, path: str) -> Array:
    """Give the array itself, or a copy with a dtype that can hold the new rows too."""
    check_shape(array, new, where, path)
    dtype = common_dtype(array, new, where, path)
    return array if dtype == array.dtype else array[:size].astype(dtype)


def roomier(array: Array, used: int) -> Array:
    """Copy the used rows into a larger array."""
    out = np.empty((used + 8 + (used >> 1), *array.shape[1:]), array.dtype)
    out[:used] = array[:used]
    return out


def put_leafwise(store: Any, rules: Any, row: int, item: Any) -> bool:
    """Write an item's leaves into a row; False if it takes a closer look."""
    if isinstance(store, np.ndarray):
        low, high = (None, None) if rules is None else (rules.low, rules.high)
        return bool(rows_put(store, row, item, low, high))
    if isinstance(store, dict):
        if not isinstance(item, dict) or item.keys() != store.keys():
            return False
        return all(put_leafwise(a, rules and rules[key], row, item[key]) for key, a in store.items())
    if not isinstance(item, tuple) or len(item) != len(store):
        return False
    return all(put_leafwise(a, rules and rules[k], row, item[k]) for k, a in enumerate(store))


def extended(array: Array, new: Array, used: int, size: int, where: str, path: str) -> Array:
    """Put rows behind the used ones, in place if there is room and the dtype holds them, else in a larger copy."""
    dtype: np.dtype[Any] = array.dtype
    if type(new) is not np.ndarray or array.shape[1:] != new.shape[1:] or new.dtype != dtype:
        check_shape(array, new, where, path)
        dtype = common_dtype(array, new, where, path)
    if size <= len(array) and dtype == array.dtype:
        array[used:size] = new
        return array
    out = np.empty((max(size + 8, size + (size >> 1)), *array.shape[1:]), dtype)
    out[:used] = array[:used]
    out[used:size] = new
    return out
