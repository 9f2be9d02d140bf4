"""Nested data: dicts and tuples of leaves, walked leaf by leaf.

A structure is a ``dict`` or a ``tuple`` (named tuples included), nested to any depth; everything else, a list too, is a
leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ringback._core import rows_same, rows_stack
from ringback.errors import EpisodeError

__all__ = ["batch", "difference", "is_structure", "leaves", "map_structure", "stack_leaf", "unbatch"]


def is_structure(value: Any) -> bool:
    """Tell whether a value is a structure, and no leaf."""
    return isinstance(value, (dict, tuple))


def rebuild(like: Any, values: Iterable[Any]) -> Any:
    """Put children, in order, into a structure of the kind of ``like``.

    Parameters
    ----------
    like : dict or tuple
        Its keys, or its type (named tuples stay what they are), are taken over.
    values : iterable
        One child for each of its children.

    Returns
    -------
    dict or tuple
        A new structure.
    """
    if isinstance(like, dict):
        return dict(zip(like, values, strict=True))
    return type(like)(*values) if hasattr(like, "_fields") else tuple(values)


def children(like: Any, other: Any, where: str, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Walk over the children of two structures side by side.

    Parameters
    ----------
    like, other : dict or tuple
        The structures.
    where : str
        Who asks, for the message.
    path : str
        Where the two are, for the message.

    Yields
    ------
    (str, Any, Any)
        Path, child, other child.

    Raises
    ------
    EpisodeError
        If the two differ in kind, keys or length.
    """
    if isinstance(like, dict):
        if not isinstance(other, dict) or like.keys() != other.keys():
            got = sorted(map(str, other)) if isinstance(other, dict) else type(other).__name__
            at = f" at {path!r}" if path else ""
            raise EpisodeError(f"{where}: data{at} must be a dict with the keys {sorted(map(str, like))}, got {got}")
        for key, value in like.items():
            yield (f"{path}/{key}" if path else str(key)), value, other[key]
    else:
        if not isinstance(other, tuple) or len(other) != len(like):
            got = f"a tuple of {len(other)}" if isinstance(other, tuple) else type(other).__name__
            at = f" at {path!r}" if path else ""
            raise EpisodeError(f"{where}: data{at} must be a tuple of {len(like)}, got {got}")
        for k, value in enumerate(like):
            yield (f"{path}/{k}" if path else str(k)), value, other[k]


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Apply a function to each leaf.

    Parameters
    ----------
    function : callable
        From leaf to leaf.
    structure : Any
        A structure or a leaf.

    Returns
    -------
    Any
        A new structure of the results.
    """
    if not isinstance(structure, (dict, tuple)):
        return function(structure)
    values = structure.values() if isinstance(structure, dict) else structure
    return rebuild(structure, [map_structure(function, value) for value in values])


def map_pair(function: Callable[[Any, Any, str], Any], like: Any, other: Any, where: str, path: str = "") -> Any:
    """Apply a function of (leaf, other leaf, path) to two structures of the same shape.

    Parameters
    ----------
    function : callable
        From two leaves and their path to a leaf.
    like : Any
        The structure that says what is a leaf.
    other : Any
        It is taken apart as ``like`` is.
    where : str
        Who asks, for the message.
    path : str, default ""
        The path of the two.

    Returns
    -------
    Any
        A new structure of the results.

    Raises
    ------
    EpisodeError
        If the structures differ.
    """
    if isinstance(like, dict):
        if not isinstance(other, dict) or like.keys() != other.keys():
            list(children(like, other, where, path))  # it words the error
        return {
            key: map_pair(function, value, other[key], where, f"{path}/{key}" if path else str(key))
            for key, value in like.items()
        }
    if isinstance(like, tuple):
        return rebuild(like, [map_pair(function, a, b, where, at) for at, a, b in children(like, other, where, path)])
    return function(like, other, path)


def leaves(structure: Any) -> list[Any]:
    """List the leaves, in order."""
    if not isinstance(structure, (dict, tuple)):
        return [structure]
    values = structure.values() if isinstance(structure, dict) else structure
    return [leaf for value in values for leaf in leaves(value)]


def leaf_equal(a: Any, b: Any) -> bool:
    """Tell whether two leaves are the same: shape and values, NaN being equal to NaN."""
    if a is b or rows_same(a, b):
        return True
    if type(a) is type(b) and isinstance(a, np.number):
        return bool(a == b or (a != a and b != b))
    if isinstance(a, (np.ndarray, np.generic)) or isinstance(b, (np.ndarray, np.generic)):
        try:
            x, y = np.asarray(a), np.asarray(b)
        except ValueError:  # ragged lists
            return False
        if x.shape != y.shape:
            return False
        same = x == y
        if np.all(same):
            return True
        if x.dtype.kind in "fc" and y.dtype.kind in "fc":
            return bool(np.all(same | (np.isnan(x) & np.isnan(y))))
        return False
    try:
        return bool(a == b) or bool(a != a and b != b)
    except (ValueError, TypeError, RuntimeError):  # no plain truth value, as for lists of arrays
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(leaf_equal(x, y) for x, y in zip(a, b, strict=True))
        return False


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Find where two structures first differ.

    Parameters
    ----------
    a, b : Any
        Structures or leaves. NaN equals NaN.
    path : str, default ""
        The path of the two.

    Returns
    -------
    str or None
        The path of a leaf such as ``"camera/left"`` (``""`` if they are leaves themselves); None if they are equal.
    """
    if not isinstance(a, (dict, tuple)) or not isinstance(b, (dict, tuple)):
        return None if leaf_equal(a, b) else path
    try:
        pairs = list(children(a, b, "", path))
    except EpisodeError:
        return path
    for at, x, y in pairs:
        found = difference(x, y, at)
        if found is not None:
            return found
    return None


def as_objects(items: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Put the items themselves into an array of objects, shape (T,)."""
    out = np.empty(len(items), dtype=object)
    for k, item in enumerate(items):
        out[k] = item
    return out


def stack_leaf(items: Sequence[Any], where: str = "batch", path: str = "") -> np.ndarray[Any, Any]:
    """Stack leaves along a new leading axis.

    Parameters
    ----------
    items : sequence
        T leaves: numbers, arrays, nested lists of numbers, strings, or any objects.
    where, path : str
        For the message.

    Returns
    -------
    ndarray, shape (T, *D)
        A new array. Leaves that NumPy knows no type for become an array of objects, shape (T,).

    Raises
    ------
    EpisodeError
        If the shapes differ.
    """
    try:
        found = rows_stack(items if isinstance(items, list) else list(items))
        return np.array(items) if found is None else found
    except ValueError:
        shapes = {np.shape(item) for item in items if isinstance(item, (np.ndarray, np.generic, int, float))}
        if len(shapes) > 1:
            at = f" at {path!r}" if path else ""
            raise EpisodeError(f"{where}: all items{at} must have one shape, got {sorted(shapes)}") from None
        return as_objects(items)


def stack(items: Sequence[Any], where: str, path: str = "", *, joined: bool = False) -> Any:
    """Turn a list of structures into a structure of arrays; :func:`batch` is its public face."""
    first = items[0]
    if isinstance(first, dict):
        for item in items:
            if not isinstance(item, dict) or item.keys() != first.keys():
                list(children(first, item, where, path))
        return {k: stack([i[k] for i in items], where, f"{path}/{k}" if path else str(k), joined=joined) for k in first}
    if isinstance(first, tuple):
        for item in items:
            if not isinstance(item, tuple) or len(item) != len(first):
                list(children(first, item, where, path))
        paths = [f"{path}/{k}" if path else str(k) for k in range(len(first))]
        columns = [stack([i[k] for i in items], where, at, joined=joined) for k, at in enumerate(paths)]
        return rebuild(first, columns)
    if joined:
        try:
            return np.concatenate([np.asarray(item) for item in items])
        except ValueError as error:
            at = f" at {path!r}" if path else ""
            raise EpisodeError(f"{where}: items{at} must be arrays that fit together ({error})") from None
    return stack_leaf(items, where, path)


def batch(list_of_structs: Sequence[Any], *, individual_items_already_have_batch_dim: bool = False) -> Any:
    """Turn a list of structures into one structure of arrays with a leading batch axis.

    Parameters
    ----------
    list_of_structs : sequence
        B items of one structure.
    individual_items_already_have_batch_dim : bool, default False
        The items' leaves have a batch axis already: join along it instead of making a new one.

    Returns
    -------
    Any
        The structure of ndarrays, shape (B, *D) each; new arrays (copies).

    Raises
    ------
    EpisodeError
        If there is no item, or the items differ in structure or in a leaf's shape.

    References
    ----------
    RLlib 2.60, ``rllib.utils.spaces.space_utils.batch``.

    Examples
    --------
    >>> batch([{"a": 1, "b": (2, 3)}, {"a": 4, "b": (5, 6)}])
    {'a': array([1, 4]), 'b': (array([2, 5]), array([3, 6]))}
    """
    items = list_of_structs if isinstance(list_of_structs, (list, tuple)) else list(list_of_structs)
    if not items:
        raise EpisodeError("batch: list_of_structs must hold at least one item, got none")
    return stack(items, "batch", joined=individual_items_already_have_batch_dim)


def unbatch(batches_struct: Any) -> list[Any]:
    """Turn a structure of arrays into the list of its items, the inverse of :func:`batch`.

    Parameters
    ----------
    batches_struct : Any
        A structure whose leaves have one leading length B: arrays, or any sequences.

    Returns
    -------
    list
        B structures. Their leaves are views of the arrays' rows; rows of one-dimensional arrays are NumPy scalars.

    Raises
    ------
    EpisodeError
        If there is no leaf, or the leaves differ in length.

    References
    ----------
    RLlib 2.60, ``rllib.utils.spaces.space_utils.unbatch``.

    Examples
    --------
    >>> unbatch({"a": np.array([1, 4]), "b": np.array([2, 5])}) == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]
    True
    """
    if not isinstance(batches_struct, (dict, tuple)):
        return list(batches_struct)
    flat = leaves(batches_struct)
    lengths = {len(leaf) for leaf in flat}
    if len(lengths) != 1:
        raise EpisodeError(f"unbatch: the leaves must have one leading length, got {sorted(lengths)}")
    return unstack(batches_struct)


def unstack(structure: Any) -> list[Any]:
    """List the items of a structure of sequences of one length."""
    if isinstance(structure, dict):
        names = list(structure)
        return [dict(zip(names, row, strict=True)) for row in zip(*map(unstack, structure.values()), strict=True)]
    if isinstance(structure, tuple):
        return [rebuild(structure, row) for row in zip(*map(unstack, structure), strict=True)]
    return list(structure)
