"""One-hot codes of Discrete and MultiDiscrete values."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from ringback.errors import EpisodeError

__all__ = ["one_hot", "one_hot_multidiscrete"]


def one_hot(values: Any, n: int, start: int = 0) -> np.ndarray[Any, Any]:
    """Code integers as one-hot rows.

    Parameters
    ----------
    values : int or array_like of int, shape (...,)
        Each in [start, start + n).
    n : int
        How many values there are.
    start : int, default 0
        The smallest one.

    Returns
    -------
    ndarray, shape (..., n), float32
        A new array.

    Raises
    ------
    EpisodeError
        If a value is no integer or out of range.

    Examples
    --------
    >>> one_hot([2, 0], 3)
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iub" and array.size:
        raise EpisodeError(f"one_hot: values must be integers, got {array.dtype}")
    index = array.astype(np.int64) - start
    if index.size and (index.min() < 0 or index.max() >= n):
        bad = array[(index < 0) | (index >= n)].ravel()[0]
        raise EpisodeError(f"one_hot: values must be in [{start}, {start + n}), got {bad}")
    out = np.zeros((index.size, n), np.float32)
    out[np.arange(index.size), index.ravel()] = 1.0
    return out.reshape(*index.shape, n)


def one_hot_multidiscrete(values: Any, space: gym.spaces.MultiDiscrete) -> np.ndarray[Any, Any]:
    """Code rows of several integers as their one-hot rows side by side.

    Parameters
    ----------
    values : array_like of int, shape (..., *space.shape)
        The values.
    space : MultiDiscrete
        Their space.

    Returns
    -------
    ndarray, shape (..., sum(nvec)), float32
        A new array.

    Raises
    ------
    EpisodeError
        If a value is no integer or out of range.
    """
    nvec = space.nvec.ravel()
    start = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape).ravel()
    array = np.asarray(values)
    if array.dtype.kind not in "iub" and array.size:
        raise EpisodeError(f"one_hot: values must be integers, got {array.dtype}")
    leading = array.shape[: array.ndim - space.nvec.ndim]
    index = array.reshape(-1, nvec.size).astype(np.int64) - start
    if index.size and ((index < 0).any() or (index >= nvec).any()):
        row = array.reshape(-1, nvec.size)[((index < 0) | (index >= nvec)).any(axis=1)][0]
        raise EpisodeError(f"one_hot: values must be in {space}, got {row.tolist()}")
    out = np.zeros((len(index), int(nvec.sum())), np.float32)
    offset = np.concatenate([[0], np.cumsum(nvec)[:-1]])
    np.put_along_axis(out, index + offset, 1.0, axis=1)
    return out.reshape(*leading, out.shape[-1])
