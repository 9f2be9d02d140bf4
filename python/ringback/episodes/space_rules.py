"""What a gymnasium space says about episode data: dtypes, shapes, bounds, one-hot codes, fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ringback._core import rows_inside, rows_one_hot, rows_one_hots, rows_stack
from ringback.errors import EpisodeError

from .one_hot import one_hot, one_hot_multidiscrete
from .structure import as_objects, children, map_pair, map_structure, rebuild, stack_leaf

__all__ = ["LeafRules", "SpaceRules", "rules_for"]

Array = np.ndarray[Any, Any]


class LeafRules:
    """The rules of one leaf of a space.

    Attributes
    ----------
    space : Space
        The leaf itself.
    path : str
        Where it is, such as ``"camera/left"``; ``""`` for a space that is no structure.
    dtype : dtype or None
        The dtype of its arrays; None where items are kept as objects (Text, Graph, Sequence, spaces of others).
    shape : tuple of int
        The shape of one item.
    low, high : ndarray of shape ``shape``, or None
        The bounds, of the leaf's dtype; None where no value of that dtype is outside.
    n, start : int or ndarray
        Of a Discrete space: how many values, and the smallest; of a MultiDiscrete space those of each place, in a row.
    """

    __slots__ = ("_last_fill", "dtype", "high", "low", "n", "path", "shape", "space", "start")

    def __init__(self, space: gym.Space[Any], path: str) -> None:
        self.space = space
        self.path = path
        self._last_fill: tuple[Any, bool, Any] = (None, False, None)  # value, coded, row
        known = isinstance(
            space, (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
        )
        self.dtype: np.dtype[Any] | None = np.dtype(space.dtype) if known and space.dtype is not None else None
        self.shape: tuple[int, ...] = tuple(space.shape or ()) if known else ()
        self.low: Any = None
        self.high: Any = None
        self.n: Any = None
        self.start: Any = None
        if isinstance(space, gym.spaces.Box):
            self.low, self.high = bounds_that_bind(space)
        elif isinstance(space, gym.spaces.Discrete):
            self.low, self.high = space.start, space.start + space.n - 1
            self.n, self.start = int(space.n), int(space.start)
        elif isinstance(space, gym.spaces.MultiDiscrete):
            self.low = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape)
            self.high = self.low + space.nvec - 1
            self.n = np.ascontiguousarray(space.nvec.ravel(), np.int64)
            self.start = np.array(np.ravel(self.low), np.int64)
        elif isinstance(space, gym.spaces.MultiBinary):
            self.low, self.high = 0, 1
        if self.low is not None:
            self.low = np.array(np.broadcast_to(self.low, self.shape), self.dtype, order="C")
        if self.high is not None:
            self.high = np.array(np.broadcast_to(self.high, self.shape), self.dtype, order="C")

    def _at(self) -> str:
        return f" at {self.path!r}" if self.path else ""

    def stack(self, items: Sequence[Any], where: str, *, checked: bool = True) -> Array:
        """Turn items (T,) into an array (T, *shape) of the space's dtype, checked to be in the space; a new array."""
        if self.dtype is None:
            for item in items:
                if checked and not self.space.contains(item):
                    raise EpisodeError(f"{where}: data{self._at()} must be in {self.space}, got {item!r}")
            return as_objects(items)
        if not len(items):
            return np.zeros((0, *self.shape), self.dtype)
        array = self._cast(stack_leaf(items, where, self.path), where)
        if checked:
            self.check_bounds(array, where)
        return array

    def conform(self, rows: Any, where: str) -> Array:
        """Check rows (T, *shape), and give them in the space's dtype: the same array if it has it already."""
        array = np.asarray(rows)
        if self.dtype is None:
            return array
        array = self._cast(array, where)
        self.check_bounds(array, where)
        return array

    def _cast(self, array: Array, where: str) -> Array:
        """Give rows (T, *shape) in the space's dtype: the same array if it has it already."""
        assert self.dtype is not None
        if array.shape[1:] != self.shape:
            got = array.shape[1:]
            raise EpisodeError(f"{where}: data{self._at()} must have shape {self.shape} a step, got {got}")
        if array.dtype == self.dtype:
            return array
        if np.can_cast(array.dtype, self.dtype, "same_kind"):
            return array.astype(self.dtype)
        if array.dtype.kind in "iub" and self.dtype.kind in "iub":
            cast = array.astype(self.dtype)
            if np.array_equal(cast, array):
                return cast
        raise EpisodeError(f"{where}: data{self._at()} must fit {self.dtype} of {self.space}, got {array.dtype}")

    def check_bounds(self, array: Array, where: str) -> None:
        """Check that rows (T, *shape) are inside the bounds; NaN is outside of none.

        Raises
        ------
        EpisodeError
            If a value is not in the space.
        """
        low, high = self.low, self.high
        if (low is None and high is None) or rows_inside(array, low, high):
            return
        outside = None
        if low is not None and (array < low).any():
            outside = array < low
        elif high is not None and (array > high).any():
            outside = array > high
        if outside is not None:
            at = np.argwhere(outside)[0]
            raise EpisodeError(
                f"{where}: data{self._at()} must be in {self.space}, "
                f"got {array[tuple(at)]} at item {at[0]} of {len(array)}"
            )

    def one_hot(self, rows: Any) -> Any:
        """Code rows (T, *shape) as float32 (T, n) or (T, sum(nvec)); other leaves come back as they are."""
        if isinstance(self.space, gym.spaces.Discrete):
            coded = rows_one_hot(rows, self.n, self.start)
            if coded is not None:
                return coded
            return one_hot(rows, self.n, self.start)
        if isinstance(self.space, gym.spaces.MultiDiscrete):
            array = np.asarray(rows)
            coded = rows_one_hots(array.reshape(len(array), self.n.size), self.n, self.start)
            return one_hot_multidiscrete(array, self.space) if coded is None else coded
        return rows

    def fill(self, value: Any, count: int, coded: bool) -> Any:
        """Make fill rows (count, *shape), all of that value; with ``coded`` shaped like one-hot codes."""
        if self.dtype is None:
            return as_objects([value] * count)
        last = self._last_fill
        if last[0] is not value or last[1] is not coded:
            last = (value, coded, self._fill_row(value, coded))
            if type(value) is float or type(value) is int:  # whoever fills, fills with the same number again and again
                self._last_fill = last
        row = last[2]
        rows = rows_stack([row] * count)
        return np.repeat(row[np.newaxis], count, 0) if rows is None else rows

    def _fill_row(self, value: Any, coded: bool) -> Array:
        if coded and isinstance(self.space, gym.spaces.Discrete):
            return np.full(self.n, value, np.float32)
        if coded and isinstance(self.space, gym.spaces.MultiDiscrete):
            return np.full(self.n.sum(), value, np.float32)
        assert self.dtype is not None
        row = np.empty(self.shape, dtype_holding(self.dtype, value))
        row[...] = value
        return row


def bounds_that_bind(space: gym.spaces.Box) -> tuple[Any, Any]:
    """Give the bounds of a Box, None for those that no value of its dtype can break."""
    low, high = np.asarray(space.low), np.asarray(space.high)
    if space.dtype is not None and np.dtype(space.dtype).kind in "iu":
        info = np.iinfo(np.dtype(space.dtype).str)
        return (None if (low == info.min).all() else low), (None if (high == info.max).all() else high)
    return (None if np.isneginf(low).all() else low), (None if np.isposinf(high).all() else high)


def dtype_holding(dtype: np.dtype[Any], value: Any) -> np.dtype[Any]:
    """Give the dtype itself if it can hold the value, else one that holds both."""
    kind = dtype.kind
    if type(value) is float or type(value) is int:
        if kind == "f" and (type(value) is float or abs(value) <= 1 << 11):
            return dtype
        if kind in "iu" and value == value // 1 and (0 if kind == "u" else -128) <= value <= 127:
            return dtype
    given = np.asarray(value)
    if dtype.kind in "OUS" or given.dtype.kind in "OUS":
        return np.result_type(dtype, given.dtype) if dtype.kind != "O" else dtype
    if given.dtype.kind in "fc" and dtype.kind in "fc" and given.dtype.kind <= dtype.kind:
        return dtype
    with np.errstate(all="ignore"):
        if np.array_equal(given.astype(dtype), given):
            return dtype
    return np.result_type(dtype, given.dtype)


class SpaceRules:
    """The rules of a whole space, leaf by leaf.

    Parameters
    ----------
    space : Space
        Dict and Tuple spaces are structures, all others leaves.
    """

    __slots__ = ("space", "struct")

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.struct = rules_tree(space, "")

    def stack(self, items: Sequence[Any], where: str, *, checked: bool = True) -> Any:
        """Turn a list of T items into a structure of arrays (T, *shape), checked to be in the space."""
        return stack_up_to(self.struct, items, where, checked)

    def conform(self, data: Any, where: str) -> Any:
        """Check a structure of arrays (T, *shape) and give it in the space's dtypes."""
        return map_pair(lambda rule, rows, _: rule.conform(rows, where), self.struct, data, where)

    def one_hot(self, data: Any, where: str) -> Any:
        """One-hot code a structure of arrays (T, *shape)."""
        if isinstance(self.struct, LeafRules):
            return self.struct.one_hot(data)
        return map_pair(lambda rule, rows, _: rule.one_hot(rows), self.struct, data, where)

    def fill(self, value: Any, count: int, coded: bool) -> Any:
        """Make a structure of fill rows; the value may be one for all leaves, or a structure of values."""
        struct = self.struct
        if isinstance(struct, LeafRules):
            return struct.fill(value, count, coded)
        if isinstance(value, (dict, tuple)):
            return map_pair(lambda rule, v, _: rule.fill(v, count, coded), struct, value, "fill")
        return map_structure(lambda rule: rule.fill(value, count, coded), struct)


def rules_tree(space: gym.Space[Any], path: str) -> Any:
    """Build the structure of a space with rules as its leaves."""
    if isinstance(space, gym.spaces.Dict):
        return {key: rules_tree(sub, f"{path}/{key}" if path else str(key)) for key, sub in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(rules_tree(sub, f"{path}/{k}" if path else str(k)) for k, sub in enumerate(space.spaces))
    return LeafRules(space, path)


def space_struct_of(space: Any) -> Any:
    """Take a space apart into a structure of its leaf spaces; None stays None."""
    if isinstance(space, gym.spaces.Dict):
        return {key: space_struct_of(sub) for key, sub in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(space_struct_of(sub) for sub in space.spaces)
    return space


def stack_up_to(rules: Any, items: Sequence[Any], where: str, checked: bool, path: str = "") -> Any:
    """Stack items leaf by leaf as the rules are structured."""
    if isinstance(rules, LeafRules):
        return rules.stack(items, where, checked=checked)
    if isinstance(rules, dict):
        for item in items:
            if not isinstance(item, dict) or item.keys() != rules.keys():
                list(children(rules, item, where, path))  # it words the error
    else:
        for item in items:
            if not isinstance(item, tuple) or len(item) != len(rules):
                list(children(rules, item, where, path))
    keys = list(rules) if isinstance(rules, dict) else range(len(rules))
    columns = [
        stack_up_to(rules[k], [item[k] for item in items], where, checked, f"{path}/{k}" if path else str(k))
        for k in keys
    ]
    return rebuild(rules, columns)


_known: dict[int, SpaceRules] = {}


def rules_for(space: gym.Space[Any]) -> SpaceRules:
    """Look up the rules of a space, made once for each space object.

    Parameters
    ----------
    space : Space
        The space; it must not be changed afterwards.

    Returns
    -------
    SpaceRules
        Shared by all who ask for the same object.

    Notes
    -----
    The rules hold the space itself, so that its ``id`` stays its own; the table is emptied once it has 256 entries.
    """
    found = _known.get(id(space))
    if found is None:
        if len(_known) >= 256:
            _known.clear()
        found = _known[id(space)] = SpaceRules(space)
    return found
