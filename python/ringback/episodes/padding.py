"""What an episode holds at steps for which an extra model output is missing: zeros like its other items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .structure import map_structure

if TYPE_CHECKING:
    from .lookback_buffer import InfiniteLookbackBuffer

__all__ = ["pad_item", "pad_rows"]


def pad_item(like: Any) -> Any:
    """Make zeros in the structure, shape and dtype of an item; None for leaves that are no numbers.

    Parameters
    ----------
    like : Any
        An item.

    Returns
    -------
    Any
        A new one.

    Examples
    --------
    >>> pad_item({"h": 3.5, "name": "left"})
    {'h': 0.0, 'name': None}
    """
    return map_structure(pad_leaf, like)


def pad_leaf(leaf: Any) -> Any:
    """Make the zero of a leaf."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return np.zeros_like(leaf) if leaf.dtype.kind not in "OSU" else None
    return type(leaf)(0) if isinstance(leaf, (bool, int, float, complex)) else None


def pad_array(rows: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Make that many zeros like an array's rows; None in arrays of objects."""
    if rows.dtype.kind == "O":
        return np.full((count, *rows.shape[1:]), None, object)
    return np.zeros((count, *rows.shape[1:]), rows.dtype)


def pad_rows(track: InfiniteLookbackBuffer, count: int) -> Any:
    """Make that many items for a track whose key is missing: a list, or a structure of arrays, as the track is.

    Parameters
    ----------
    track : InfiniteLookbackBuffer
        The track.
    count : int
        How many.

    Returns
    -------
    list, or structure of ndarray (count, *D)
        New ones.
    """
    if track.finalized:
        return map_structure(lambda a: pad_array(a, count), track.data)
    like = track.example()
    return [pad_item(like) for _ in range(count)]
