"""One track of an episode: items of the steps so far, and some from before."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ringback._core import lookback_positions, lookback_take, rows_put
from ringback.errors import EpisodeError

from .rows import (
    common_length,
    deep_copied,
    extended,
    fill_leaf,
    fill_like,
    has_objects,
    padded_leaf,
    put_leafwise,
    refilled_leaf,
    roomier,
    widened,
    with_fill,
)
from .space_rules import SpaceRules, rules_for, space_struct_of
from .structure import difference, leaves, map_pair, map_structure, stack, unstack

__all__ = ["REWARD_SPACE", "InfiniteLookbackBuffer"]

Array = np.ndarray[Any, Any]

# The space that rewards are said to be from. It decides nothing: rewards keep the dtype that they came with.
REWARD_SPACE = gym.spaces.Box(-np.inf, np.inf, (), np.float32)

_NOTHING = np.zeros((0,))


def rows_at(arrays: Any, rows: int | slice) -> Any:
    """Take one row, or the view of a slice, out of a structure of arrays."""
    return arrays[rows] if type(arrays) is np.ndarray else map_structure(lambda a: a[rows], arrays)


def last_items(tracks: Sequence[InfiniteLookbackBuffer]) -> list[Any]:
    """Take the last item of each track, as ``get(-1)`` does one by one."""
    try:
        items = [track._store[-1] for track in tracks if not track.finalized]
    except IndexError:
        items = []
    return items if len(items) == len(tracks) else [track.get(-1) for track in tracks]


def set_last_items(tracks: Sequence[InfiniteLookbackBuffer], items: Sequence[Any], where: str) -> None:
    """Put another item in the place of the last one of each track, as ``set(item, at_indices=-1)`` does."""
    for track, item in zip(tracks, items, strict=True):
        if track.finalized or not track._store:
            track.write(item, -1, False, where)
        else:
            track._store[-1] = item


def last_windows(tracks: Sequence[InfiniteLookbackBuffer], count: int) -> list[Any] | None:
    """List the last `count` items of all tracks, which there must be; None if not all tracks are in list form."""
    if any([track.finalized for track in tracks]):
        return None
    return [item for track in tracks for item in track._store[-count:]]


class Unknown:
    """The type of :data:`UNKNOWN`, one object in every copy of it."""

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


class InfiniteLookbackBuffer:
    """A list of items, or a structure of arrays, whose first rows are a lookback.

    In **list form** the items are any Python objects. In **array form** (:attr:`finalized`) they are one structure of
    arrays with a leading time axis, and room to grow, so that appending k items costs O(k).

    Every read takes ``indices`` in one sense:

    - an index i >= 0 counts from the first item after the lookback and never reaches the lookback;
    - a negative one counts from the end, and reaches the lookback if it is far enough back; with
      ``neg_index_as_lookback`` it counts from there into the lookback, -1 being its youngest item;
    - a slice reads its bounds in the same way and clips, as Python's do; absent bounds leave the lookback out;
    - a list, tuple or integer array is read index by index.

    With ``fill``, what lies outside is filled instead of an ``IndexError`` or a shorter answer.

    Parameters
    ----------
    data : list, or structure of ndarray (N, *D), optional
        A list is copied, arrays are not (they are copied before the first change).
    lookback : int, default 0
        How many of the first items are lookback; at most all of them.
    space : Space, optional
        What the items are from; it decides shapes and dtypes, fills and one-hot codes.

    Attributes
    ----------
    lookback : int
        L, how many of the items are lookback.
    finalized : bool
        Whether the data is in array form.

    References
    ----------
    RLlib 2.60, ``rllib.env.utils.infinite_lookback_buffer.InfiniteLookbackBuffer``.

    Examples
    --------
    >>> b = InfiniteLookbackBuffer([5, 6, 7, 8, 9], lookback=2)
    >>> len(b), b[0], b[-1], b.get(-1, neg_index_as_lookback=True)
    (3, 7, 9, 6)
    >>> b.get(slice(-3, 1), neg_index_as_lookback=True, fill=0)
    [0, 5, 6, 7]
    """

    # _store: the list, or the structure of arrays with at least _size rows (array form only). _borrowed: the arrays may
    # be seen by others too, so they are copied before a row that is in use changes. _like: in an empty list, an item of
    # the buffer that this one is a piece of, to say what items look like. C++ reads _store and finalized by name:
    # rows_newest in cpp/bindings/episode_rows.cpp.
    __slots__ = ("_borrowed", "_like", "_rules", "_size", "_space", "_store", "finalized", "lookback")

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: Any = None, lookback: int = 0, space: gym.Space[Any] | None = None) -> None:
        self._set_data([] if data is None else data)
        self.lookback: int = max(0, min(int(lookback), self.len_incl_lookback()))
        self.space = space

    @classmethod
    def of_list(cls, items: list[Any], space: gym.Space[Any] | None) -> InfiniteLookbackBuffer:
        """Make a buffer of a list, which it keeps, without lookback: what the constructor does, and faster."""
        out = cls.__new__(cls)
        out._store, out._size, out.finalized, out._borrowed, out._like = items, 0, False, True, UNKNOWN
        out.lookback = 0
        out._space = space
        out._rules = None if space is None or space is REWARD_SPACE else rules_for(space)
        return out

    # -- what it is ---------------------------------------------------------------------------------------------------

    def _set_data(self, data: Any) -> None:
        self.finalized: bool = not isinstance(data, list)
        self._borrowed: bool = True
        self._like: Any = UNKNOWN
        if self.finalized:
            self._store: Any = map_structure(np.asarray, data)
            self._size: int = common_length(self._store, "InfiniteLookbackBuffer")
        else:
            self._store, self._size = list(data), 0

    @property
    def data(self) -> Any:
        """All items, the lookback too: the list itself, or a structure of views of the arrays, shape (N, *D)."""
        if not self.finalized:
            return self._store
        return map_structure(lambda a: a if len(a) == self._size else a[: self._size], self._store)

    @data.setter
    def data(self, data: Any) -> None:
        self._set_data(data)

    @property
    def space(self) -> gym.Space[Any] | None:
        """The space that the items are from."""
        return self._space

    @space.setter
    def space(self, space: gym.Space[Any] | None) -> None:
        self._space = space
        self._rules: SpaceRules | None = None if space is None or space is REWARD_SPACE else rules_for(space)

    @property
    def space_struct(self) -> Any:
        """The space as a structure of its leaf spaces."""
        return space_struct_of(self._space)

    def __len__(self) -> int:
        size = self._size if self.finalized else len(self._store)
        return max(0, size - self.lookback)

    def len_incl_lookback(self) -> int:
        """Count all items, those of the lookback too."""
        return self._size if self.finalized else len(self._store)

    def __repr__(self) -> str:
        items = self._store if not self.finalized else unstack(self.data)
        return (
            f"InfiniteLookbackBuffer({items[: self.lookback]} <- lookback({self.lookback}) | {items[self.lookback :]})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InfiniteLookbackBuffer):
            return NotImplemented
        if (self.lookback, self.finalized, self._space) != (other.lookback, other.finalized, other._space):
            return False
        a, b = self.data, other.data
        if self.finalized:
            return difference(a, b) is None
        return len(a) == len(b) and all(difference(x, y) is None for x, y in zip(a, b, strict=True))

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(
        self,
        indices: Any = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Read items.

        Parameters
        ----------
        indices : None, int, slice, or sequence of int
            Which ones, as the class says; None is everything after the lookback.
        neg_index_as_lookback : bool, default False
            Whether negative indices count from the first item after the lookback.
        fill : Any, optional
            Stands for what is not there, in the shape, dtype and structure of the other items. One number is for all
            leaves. A number that the dtype cannot hold widens the dtype of the answer.
        one_hot_discrete : bool, default False
            Whether Discrete and MultiDiscrete leaves are given as one-hot codes (float32); a fill is then that value
            in all places.

        Returns
        -------
        Any
            One item for an int. Else a list (list form), or a structure of arrays with a leading axis (array form): a
            **view** for a slice that fills nothing, a copy otherwise.

        Raises
        ------
        IndexError
            If an index is out of range, and no fill is given.
        EpisodeError
            If one-hot codes are asked for without a space.
        TypeError
            If indices are of another type.

        Notes
        -----
        O(items asked for), whatever the buffer's length.
        """
        return self.read(indices, neg_index_as_lookback, fill, one_hot_discrete, "InfiniteLookbackBuffer.get")

    def read(self, indices: Any, neg: bool, fill: Any, coded: bool, where: str) -> Any:
        """Do what :meth:`get` does, for callers with a name of their own in messages."""
        if fill is None and not coded and not self.finalized:
            return lookback_take(self._store, self.lookback, indices, neg, where)
        if coded and self._rules is None:
            raise EpisodeError(f"{where}: one_hot_discrete must come with a space, got space None")
        if not self.finalized:
            return self._read_list(indices, neg, fill, coded, where)
        found = lookback_positions(self._size, self.lookback, indices, neg, fill is not None, where)
        if isinstance(found, tuple):
            left, rows, count, right = found
            if not count and (left or right):
                return self._fill_rows(left + right, fill, coded)
            return self._window(rows, left, right, fill, coded, where)
        if not isinstance(found, int):
            return self._picked(found, fill, coded, where)
        if found < 0:
            return rows_at(self._fill_rows(1, fill, coded), 0)
        if not coded:
            return rows_at(self._store, found)
        return rows_at(self._window(slice(found, found + 1), 0, 0, fill, coded, where), 0)

    def _window(self, rows: slice, left: int, right: int, fill: Any, coded: bool, where: str) -> Any:
        """Read a slice of the rows, with fills on both sides; a view if there are none, and no codes."""
        data = rows_at(self._store, rows)
        if coded:
            data = self._coded(data, where)
        return data if not (left or right) else with_fill(lambda a, f: padded_leaf(a, left, right, f), data, fill)

    def _picked(self, positions: list[int], fill: Any, coded: bool, where: str) -> Any:
        """Read rows at positions, -1 for a fill; a copy."""
        missing = [] if fill is None else [k for k, position in enumerate(positions) if position < 0]
        if missing:
            there = max(positions)
            if there < 0:
                return self._fill_rows(len(missing), fill, coded)
            # A missing row is read like another one, and then filled.
            positions = [there if position < 0 else position for position in positions]
        at = np.array(positions, np.intp)
        store = self._store
        data = store.take(at, 0) if type(store) is np.ndarray else map_structure(lambda a: a.take(at, 0), store)
        if coded:
            data = self._coded(data, where)
        return data if not missing else with_fill(lambda a, f: refilled_leaf(a, missing, f), data, fill)

    def _coded(self, data: Any, where: str) -> Any:
        rules: Any = self._rules
        return rules.one_hot(data, where)

    def _fill_rows(self, count: int, fill: Any, coded: bool) -> Any:
        """Make fill rows as a structure of arrays; the other rows decide what they are like where no space does."""
        if self._rules is not None:
            return self._rules.fill(fill, count, coded)
        return with_fill(lambda a, f: fill_leaf(a, count, f), self._store, fill)

    def _read_list(self, indices: Any, neg: bool, fill: Any, coded: bool, where: str) -> Any:
        found = lookback_positions(len(self._store), self.lookback, indices, neg, fill is not None, where)
        if isinstance(found, tuple):
            left, rows, _, right = found
            items = self._store[rows]
            if coded and items:
                items = self._coded_items(items, where)
            if left or right:
                items = [*self._fill_items(left, fill, coded), *items, *self._fill_items(right, fill, coded)]
            return items
        if isinstance(found, int):
            if found < 0:
                return self._fill_items(1, fill, coded)[0]
            item = self._store[found]
            return self._coded_items([item], where)[0] if coded else item
        return [self._read_one(k, fill, coded, where) for k in found]

    def _read_one(self, position: int, fill: Any, coded: bool, where: str) -> Any:
        if position < 0:
            return self._fill_items(1, fill, coded)[0]
        return self._coded_items([self._store[position]], where)[0] if coded else self._store[position]

    def _coded_items(self, items: list[Any], where: str) -> list[Any]:
        assert self._rules is not None
        return unstack(self._rules.one_hot(self._rules.stack(items, where), where))

    def _fill_items(self, count: int, fill: Any, coded: bool) -> list[Any]:
        """Make fill items, each an object of its own."""
        if count == 0:
            return []
        if self._rules is not None:
            return unstack(self._rules.fill(fill, count, coded))
        like = self.example()
        return [copy.copy(fill) if like is UNKNOWN else fill_like(like, fill) for _ in range(count)]

    def example(self) -> Any:
        """Give some item, list form only; UNKNOWN if there never was one."""
        return self._store[-1] if self._store else self._like

    def __getitem__(self, indices: Any) -> Any:
        return self.read(indices, False, None, False, "InfiniteLookbackBuffer.get")

    def __iter__(self) -> Iterator[Any]:
        data = self.get()
        return iter(data if not self.finalized else unstack(data))

    # -- writing ------------------------------------------------------------------------------------------------------

    def set(self, new_data: Any, *, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Put other items in the place of some.

        Parameters
        ----------
        new_data : Any
            One item for an int; else as many items as the indices name: a list, or a structure of arrays.
        at_indices : None, int, slice, or sequence of int
            Which ones, in the sense of :meth:`get`; None is everything after the lookback.
        neg_index_as_lookback : bool, default False
            Whether negative indices count from the first item after the lookback.

        Raises
        ------
        IndexError
            If an index is out of range, or there are not as many items as indices. Nothing is changed then.
        EpisodeError
            If, in array form, the items do not fit the space or the other items. Nothing is changed then.
        """
        self.write(new_data, at_indices, neg_index_as_lookback, "InfiniteLookbackBuffer.set")

    def write(self, new_data: Any, indices: Any, neg: bool, where: str) -> None:
        """Do what :meth:`set` does, for callers with a name of their own in messages."""
        size = self.len_incl_lookback()
        found = lookback_positions(size, self.lookback, indices, neg, False, where)
        if isinstance(found, int):
            rows: Any = found
            items = [new_data]
        else:
            rows = found[1] if isinstance(found, tuple) else found
            items = new_data
            count = found[2] if isinstance(found, tuple) else len(found)
            given = len(items) if isinstance(items, list) else common_length(items, where)
            if given != count:
                raise IndexError(f"{where}: new_data must hold one item for each of the {count} indices, got {given}")
        if not self.finalized:
            self._write_list(rows, items)
        elif size:
            self._write_arrays([rows] if isinstance(rows, int) else rows, self._as_arrays(items, where), where)

    def _write_list(self, rows: Any, items: Any) -> None:
        values = items if isinstance(items, list) else unstack(items)
        if isinstance(rows, int):
            self._store[rows] = values[0]
        elif isinstance(rows, slice):
            for position, value in zip(range(*rows.indices(len(self._store))), values, strict=True):
                self._store[position] = value
        else:
            for position, value in zip(rows, values, strict=True):
                self._store[position] = value

    def _as_arrays(self, items: Any, where: str) -> Any:
        """Turn items, a list or arrays, into a checked structure of arrays that fits the store's."""
        if self._rules is not None:
            return self._rules.stack(items, where) if isinstance(items, list) else self._rules.conform(items, where)
        return stack(items, where) if isinstance(items, list) else map_structure(np.asarray, items)

    def _write_arrays(self, rows: Any, arrays: Any, where: str) -> None:
        store = map_pair(lambda a, new, path: widened(a, new, self._size, where, path), self._store, arrays, where)
        for old, new in zip(leaves(self._store), leaves(store), strict=True):
            if self._borrowed and new is old:
                store = map_structure(np.copy, store)
                break
        map_pair(lambda a, new, _: a.__setitem__(rows, new), store, arrays, where)
        self._store, self._borrowed = store, False

    def __setitem__(self, indices: Any, new_data: Any) -> None:
        self.write(new_data, indices, False, "InfiniteLookbackBuffer.set")

    def append(self, item: Any) -> None:
        """Add one item at the end.

        Parameters
        ----------
        item : Any
            In array form it is copied, and checked against the space or the other items.

        Raises
        ------
        EpisodeError
            If it does not fit, in array form. Nothing is changed then.

        Notes
        -----
        O(1) amortised in both forms.
        """
        if not self.finalized:
            self._store.append(item)
        else:
            self.take_over(self.place(item, "InfiniteLookbackBuffer.append"), 1)

    def extend(self, items: Any) -> None:
        """Add several items at the end: a list, a structure of arrays, or a buffer less its lookback.

        Parameters
        ----------
        items : list, structure of ndarray (k, *D), or InfiniteLookbackBuffer
            The items, in order.

        Raises
        ------
        EpisodeError
            If they do not fit, in array form. Nothing is changed then.

        Notes
        -----
        O(k) amortised in both forms.
        """
        where = "InfiniteLookbackBuffer.extend"
        if isinstance(items, InfiniteLookbackBuffer):
            items = items.get()
        elif not isinstance(items, (list, tuple, dict, np.ndarray)):
            items = list(items)
        if not self.finalized:
            self._store.extend(items if isinstance(items, list) else unstack(items))
        else:
            self.take_over(*self.prepared(items, where))

    def concat(self, other: InfiniteLookbackBuffer) -> None:
        """Add the other buffer's items, its lookback left out, at the end.

        Parameters
        ----------
        other : InfiniteLookbackBuffer
            In either form; it stays what it is.

        Raises
        ------
        EpisodeError
            If its items do not fit, in array form. Nothing is changed then.
        """
        if not isinstance(other, InfiniteLookbackBuffer):
            raise TypeError(f"InfiniteLookbackBuffer.concat: other must be an InfiniteLookbackBuffer, got {other!r}")
        self.extend(other.get())

    # Adding in two moves (array form only), so that several tracks can be checked before any is changed: place (one
    # item), prepared and prepared_from (several) put rows behind the last one, where nobody sees them, and give the
    # store that has them, None for the present one; take_over makes them count.

    def place(self, item: Any, where: str) -> Any:
        """Check one item and put it behind the last row."""
        size = self._size
        if size:
            store = self._store
            rules = None if self._rules is None else self._rules.struct
            if type(store) is np.ndarray:
                if size == len(store):
                    self._store = store = roomier(store, size)
                    self._borrowed = False
                if rules is None:
                    if rows_put(store, size, item, None, None):
                        return None
                elif rows_put(store, size, item, rules.low, rules.high):
                    return None
            else:
                if size == len(leaves(store)[0]):
                    self._store = store = map_structure(lambda a: roomier(a, size), store)
                    self._borrowed = False
                if put_leafwise(store, rules, size, item):
                    return None
        return self._grown(self._as_arrays([item], where), 1, where)

    def prepared(self, items: Any, where: str) -> tuple[Any, int]:
        """Check items, a list or arrays, and put them behind the last row."""
        if isinstance(items, list) and not items:
            return None, 0
        arrays = self._as_arrays(items, where)
        count = common_length(arrays, where)
        return self._grown(arrays, count, where), count

    def prepared_from(self, other: InfiniteLookbackBuffer, skip: int, where: str) -> tuple[Any, int]:
        """Do the same with another buffer's items after its lookback, less the first ``skip``."""
        if not other.finalized or other._rules is not self._rules:
            return self.prepared(other.get(slice(skip, None)), where)
        first = other.lookback + skip
        count = other._size - first  # and they have been checked
        return self._grown(rows_at(other._store, slice(first, other._size)), count, where), count

    def _grown(self, arrays: Any, count: int, where: str) -> Any:
        """Put checked rows behind the last one: in place if there is room for them, else in larger or wider arrays."""
        if count == 0:
            return None
        if self._size == 0:
            return map_structure(np.copy, arrays)  # there is no item yet to say what the items are like
        store, used, size = self._store, self._size, self._size + count
        if type(store) is np.ndarray and type(arrays) is np.ndarray:
            return extended(store, arrays, used, size, where, "")
        return map_pair(lambda a, new, path: extended(a, new, used, size, where, path), store, arrays, where)

    def take_over(self, store: Any, count: int) -> None:
        """Make rows count that were put behind the last one."""
        if store is not None and store is not self._store:
            if self._borrowed:
                self._borrowed = any(a is b for a, b in zip(leaves(self._store), leaves(store), strict=False))
            self._store = store
        self._size += count

    def pop(self, index: int = -1) -> Any:
        """Remove one item.

        Parameters
        ----------
        index : int, default -1
            In the sense of :meth:`get`; removing an item of the lookback shortens the lookback.

        Returns
        -------
        Any
            The item.

        Raises
        ------
        IndexError
            If it is out of range.

        Notes
        -----
        O(1) at the end, else O(N).
        """
        position = lookback_positions(
            self.len_incl_lookback(), self.lookback, index, False, False, "InfiniteLookbackBuffer.pop"
        )
        if not isinstance(position, int):
            raise TypeError(f"InfiniteLookbackBuffer.pop: index must be an int, got {index!r}")
        if self.finalized:
            item = map_structure(lambda a: a[position].copy(), self._store)
            if position != self._size - 1:
                self._store = map_structure(lambda a: np.delete(a[: self._size], position, axis=0), self._store)
                self._borrowed = False
            elif self._borrowed:
                # The next append must not write into a row that others see.
                self._store = map_structure(lambda a: a[:position], self._store)
            self._size -= 1
        else:
            item = self._store.pop(position)
        if position < self.lookback:
            self.lookback -= 1
        return item

    def finalize(self) -> None:
        """Turn the list of items into a structure of arrays, for good; the space's dtypes where there is one.

        Raises
        ------
        EpisodeError
            If items do not have the structure, shapes and dtypes of the space, or of one another. Nothing is changed
            then.

        Notes
        -----
        Whether the values are in the space is not checked here, but by an episode's ``to_numpy``.
        """
        if not self.finalized:
            self.adopt(self.as_arrays("InfiniteLookbackBuffer.finalize", checked=False))

    def as_arrays(self, where: str, *, checked: bool = True) -> Any:
        """Make arrays of the items; ``checked`` to be in the space."""
        if self.finalized:
            return self._store
        if self._rules is not None:
            return self._rules.stack(self._store, where, checked=checked)
        return stack(self._store, where) if self._store else _NOTHING

    def adopt(self, arrays: Any) -> None:
        """Take arrays over as the data; nobody else may hold them."""
        if not self.finalized:
            self._store, self._size = arrays, len(self._store)
            self.finalized, self._borrowed = True, arrays is _NOTHING

    def __add__(self, other: Any) -> InfiniteLookbackBuffer:
        if self.finalized:
            raise RuntimeError("InfiniteLookbackBuffer.__add__: the buffer must be in list form, got array form")
        if isinstance(other, (InfiniteLookbackBuffer, list, tuple)):
            data = self._store + list(other)
        else:
            data = [item + other for item in self._store]
        return InfiniteLookbackBuffer(data, self.lookback, self._space)

    # -- derived ones ------------------------------------------------------------------------------------------------

    def piece(self, first: int, last: int, lookback: int) -> InfiniteLookbackBuffer:
        """Make a buffer of the items first <= position < last; arrays are shared until one side writes."""
        out = InfiniteLookbackBuffer.__new__(InfiniteLookbackBuffer)
        out.lookback, out.finalized, out._borrowed = lookback, self.finalized, True
        out._space, out._rules = self._space, self._rules
        if self.finalized:
            out._store = rows_at(self._store, slice(first, last))
            out._size = min(last, self._size) - first
            self._borrowed = True
        else:
            out._store, out._size = self._store[first:last], 0
        out._like = UNKNOWN if self.finalized else self.example()
        return out

    def __copy__(self) -> InfiniteLookbackBuffer:
        return self.piece(0, self.len_incl_lookback(), self.lookback)

    def __deepcopy__(self, memo: dict[int, Any]) -> InfiniteLookbackBuffer:
        out = self.piece(0, self.len_incl_lookback(), self.lookback)
        if self.finalized:
            out._store = (
                copy.deepcopy(out._store, memo) if has_objects(out._store) else map_structure(np.copy, out._store)
            )
            out._borrowed = False
        else:
            out._store = [deep_copied(item, memo) for item in self._store]
            out._like = copy.deepcopy(self._like, memo)
        return out

    def get_state(self) -> dict[str, Any]:
        """Give the content as a dict: ``data``, ``lookback``, ``finalized``, ``space``.

        Returns
        -------
        dict
            A snapshot: later changes of the buffer do not show in it. List items are the same objects.
        """
        data = list(self._store) if not self.finalized else self.data
        self._borrowed = True
        return {"data": data, "lookback": self.lookback, "finalized": self.finalized, "space": self._space}

    @staticmethod
    def from_state(state: dict[str, Any]) -> InfiniteLookbackBuffer:
        """Make a buffer from what :meth:`get_state` gave.

        Parameters
        ----------
        state : dict
            The state.

        Returns
        -------
        InfiniteLookbackBuffer
            Equal to the one that gave it.
        """
        return InfiniteLookbackBuffer(state["data"], state["lookback"], state["space"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.get_state()
        if not self.finalized and not self._store and self._like is not UNKNOWN:
            state["like"] = self._like
        if self._space is REWARD_SPACE:
            state["space"] = "rewards"  # so that it is that very object again
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_data(state["data"])
        self.lookback = state["lookback"]
        self._like = state.get("like", UNKNOWN)
        self.space = REWARD_SPACE if isinstance(state["space"], str) else state["space"]
