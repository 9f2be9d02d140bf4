"""From spaces to the columns of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

Spec = tuple[Any, ...]
"""What the core reads.

``("leaf", path, dtype, shape)``, ``("dict", path, ((key, spec), ...))`` or ``("tuple", path, (spec, ...))``.
"""

_LEAVES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
_MOST_DIMENSIONS = 2**24  # a Box holds arrays of its bounds
_DTYPES = frozenset(
    ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
)


def as_space(space: gym.Space[Any] | int, name: str) -> gym.Space[Any]:
    """Return the space itself, or for an int the float32 vectors of that size.

    Parameters
    ----------
    space : gymnasium.Space or int
    name : str
        For messages.

    Raises
    ------
    TypeError
        Neither a space nor an int.
    ValueError
        An int below 1.
    """
    if isinstance(space, gym.Space):
        return space
    if isinstance(space, bool) or not isinstance(space, (int, np.integer)):
        raise TypeError(f"ReplayBuffer: {name} must be a gymnasium space or a number of dimensions, got {space!r}")
    if space < 1:
        raise ValueError(f"ReplayBuffer: {name} must be >= 1 dimension, got {space!r}")
    if space > _MOST_DIMENSIONS:
        raise ValueError(f"ReplayBuffer: {name} must be <= {_MOST_DIMENSIONS} dimensions, got {space!r}")
    return gym.spaces.Box(-np.inf, np.inf, (int(space),), np.float32)


class Cast:
    """The caller's ``cast``: dtypes by leaf path, or by the name of a part for all its leaves.

    Parameters
    ----------
    cast : mapping of str to dtype, optional
    """

    def __init__(self, cast: Mapping[str, Any] | None) -> None:
        if cast is not None and not isinstance(cast, Mapping):
            raise TypeError(f"ReplayBuffer: cast must be a mapping of field to dtype, got {cast!r}")
        self._dtypes = dict(cast or {})
        self._used: set[str] = set()

    def get(self, path: str, dtype: Any) -> Any:
        """Return the dtype for a leaf; the longest path that names it wins, else ``dtype``."""
        parts = path.split("/")
        for end in range(len(parts), 0, -1):
            name = "/".join(parts[:end])
            if name in self._dtypes:
                self._used.add(name)
                return self._dtypes[name]
        return dtype

    def check_used(self) -> None:
        """Raise ValueError if a name has matched no leaf."""
        for name in self._dtypes:
            if name not in self._used:
                raise ValueError(f"ReplayBuffer: cast must name a stored field, got {name!r}")


def spec_of_space(space: gym.Space[Any], path: str, cast: Cast) -> Spec:
    """Return the spec of a space; leaves are named by their path, such as ``observation/camera``.

    Parameters
    ----------
    space : gymnasium.Space
        Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these, nested.
    path : str
        The name of the space itself.
    cast : Cast
        Dtypes that replace the spaces' own.

    Raises
    ------
    TypeError
        A space whose values have no fixed size.
    """
    if isinstance(space, gym.spaces.Dict):
        items = tuple((key, spec_of_space(part, f"{path}/{key}", cast)) for key, part in space.spaces.items())
        return ("dict", path, items)
    if isinstance(space, gym.spaces.Tuple):
        parts = tuple(spec_of_space(part, f"{path}/{i}", cast) for i, part in enumerate(space.spaces))
        return ("tuple", path, parts)
    if not isinstance(space, _LEAVES):
        raise TypeError(
            f"ReplayBuffer: {path} must be a Box, Discrete, MultiDiscrete or MultiBinary space, or a Dict or Tuple of "
            f"these, got {space!r}"
        )
    return _leaf(path, cast.get(path, space.dtype), space.shape or ())


def spec_of_extras(extras: Mapping[str, Any], cast: Cast) -> Spec:
    """Return the spec of named per-step columns.

    Parameters
    ----------
    extras : mapping
        Name to a shape tuple (float32), a pair ``(shape, dtype)``, or a space.
    cast : Cast
        Dtypes that replace the declared ones.
    """
    if not isinstance(extras, Mapping):
        raise TypeError(f"ReplayBuffer: extras must be a mapping of name to shape, got {extras!r}")
    items = []
    for name, declared in extras.items():
        if not isinstance(name, str) or name in ("observation", "action", "reward", "") or "/" in name:
            raise ValueError(f"ReplayBuffer: an extra's name must be a new word without '/', got {name!r}")
        if isinstance(declared, gym.Space):
            items.append((name, spec_of_space(declared, name, cast)))
        else:
            shape, dtype = _shape_and_dtype(name, declared)
            items.append((name, _leaf(name, cast.get(name, dtype), shape)))
    return ("dict", "extras", tuple(items))


def _shape_and_dtype(name: str, declared: Any) -> tuple[tuple[int, ...], Any]:
    if isinstance(declared, tuple):
        if len(declared) == 2 and isinstance(declared[0], tuple):
            return declared[0], declared[1]
        return declared, np.float32
    raise TypeError(
        f"ReplayBuffer: extra {name!r} must be declared as a shape, a pair (shape, dtype) or a space, got {declared!r}"
    )


def _leaf(path: str, dtype: Any, shape: tuple[int, ...]) -> Spec:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise TypeError(f"ReplayBuffer: {path} must have a dtype that NumPy knows, got {dtype!r}") from None
    if name not in _DTYPES:
        raise TypeError(f"ReplayBuffer: {path} must be bool, an integer or a float of 16 to 64 bits, got {name}")
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in shape):
        raise TypeError(f"ReplayBuffer: {path} must have a shape of integers, got {shape!r}")
    return ("leaf", path, name, tuple(int(n) for n in shape))
