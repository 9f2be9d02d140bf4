"""Counting data: every value says which step it belongs to, in any space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from tests.reference.replay import children

Space = gym.Space[Any]


def vector(size: int, dtype: Any = np.float32) -> Space:
    """Return a space of unbounded vectors."""
    return gym.spaces.Box(-np.inf, np.inf, (size,), dtype)


def f32(values: Any) -> NDArray[np.float32]:
    """Return a float32 array of these values."""
    return np.array(values, np.float32)


def image(*shape: int) -> Space:
    """Return a space of bytes."""
    return gym.spaces.Box(0, 255, shape, np.uint8)


def nested() -> Space:
    """Return a space with every kind of leaf, two levels deep."""
    return gym.spaces.Dict(
        {
            "velocity": vector(3, np.float64),
            "camera": image(6, 5, 3),
            "body": gym.spaces.Tuple((gym.spaces.Discrete(7, start=-2), gym.spaces.MultiBinary(5), vector(2))),
            "goal": gym.spaces.Dict(
                {
                    "cell": gym.spaces.MultiDiscrete([5, 4, 3]),
                    "angle": gym.spaces.Box(-np.inf, np.inf, (), np.float32),
                    "ticks": gym.spaces.Box(-(2**15), 2**15 - 1, (2, 2), np.int16),
                }
            ),
        }
    )


def counted(space: Space, number: int, nan: bool = False) -> Any:
    """Return the value of a space that says `number`; with `nan`, the last item of each float array is NaN."""
    parts = children(space)
    if parts is not None:
        values = {name: counted(part, number + 3 * place, nan) for place, (name, part) in enumerate(parts)}
        return tuple(values.values()) if isinstance(space, gym.spaces.Tuple) else values
    if isinstance(space, gym.spaces.Discrete):
        return int(space.start) + number % int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return (number + np.arange(space.nvec.size)).reshape(space.nvec.shape) % space.nvec
    assert space.shape is not None
    assert space.dtype is not None
    places = np.arange(int(np.prod(space.shape))).reshape(space.shape)
    if isinstance(space, gym.spaces.MultiBinary):
        return ((number >> places) & 1).astype(np.int8)
    if space.dtype.kind == "f":
        value = np.asarray(number + places / 16, space.dtype)
        if nan:
            value.reshape(-1)[-1] = np.nan
        return value
    info = np.iinfo(space.dtype)
    return ((number + places) % min(int(info.max), 2**62)).astype(space.dtype)


def counted_batch(space: Space, numbers: Sequence[int], nan: bool = False) -> Any:
    """Return counted values stacked along a new first axis."""
    return stacked(space, [counted(space, number, nan) for number in numbers])


def stacked(space: Space, values: Sequence[Any]) -> Any:
    """Stack structured values leaf by leaf."""
    parts = children(space)
    if parts is None:
        return np.stack([np.asarray(value, space.dtype) for value in values])
    if isinstance(space, gym.spaces.Tuple):
        return tuple(stacked(part, [value[place] for value in values]) for place, (_, part) in enumerate(parts))
    return {name: stacked(part, [value[name] for value in values]) for name, part in parts}


class Chunk:
    """A piece of an episode that can be read like a `SingleAgentEpisode`."""

    def __init__(
        self,
        id_: str,
        t_started: int,
        observations: Sequence[Any],
        actions: Sequence[Any],
        rewards: Sequence[float],
        terminated: bool = False,
        truncated: bool = False,
        extras: dict[str, Sequence[Any]] | None = None,
        arrays_of: tuple[Space, Space] | None = None,
    ) -> None:
        self.id_, self.t_started = id_, t_started
        self.is_terminated, self.is_truncated = terminated, truncated
        self.extra_model_outputs = {name: list(values) for name, values in (extras or {}).items()}
        self._observations, self._actions, self._rewards = list(observations), list(actions), list(rewards)
        self._spaces = arrays_of

    @property
    def is_numpy(self) -> bool:
        """Tell whether the getters give structures of arrays instead of lists of items."""
        return self._spaces is not None

    @property
    def is_done(self) -> bool:
        """Tell whether the episode ends with this chunk."""
        return self.is_terminated or self.is_truncated

    def __len__(self) -> int:
        return len(self._actions)

    def get_observations(self, indices: Any = None) -> Any:
        """Return the T + 1 observations, or a slice of them."""
        return self._read(self._observations, indices, None if self._spaces is None else self._spaces[0])

    def get_actions(self, indices: Any = None) -> Any:
        """Return the T actions, or a slice of them."""
        return self._read(self._actions, indices, None if self._spaces is None else self._spaces[1])

    def get_rewards(self, indices: Any = None) -> Any:
        """Return the T rewards, or a slice of them."""
        values = self._read(self._rewards, indices, None)
        return values if self._spaces is None else np.array(values, np.float64)

    def get_extra_model_outputs(self, key: str | None = None, indices: Any = None) -> Any:
        """Return the T values of one extra, or of all."""
        if key is None:
            return {name: self.get_extra_model_outputs(name, indices) for name in self.extra_model_outputs}
        values = self._read(self.extra_model_outputs[key], indices, None)
        return values if self._spaces is None else np.array(values)

    @staticmethod
    def _read(values: list[Any], indices: Any, space: Space | None) -> Any:
        part = values if indices is None else values[indices]
        return part if space is None else Chunk._arrays(space, part)

    def observation_at(self, t: int) -> Any:
        """Return one observation as an item."""
        return self._observations[t]

    def action_at(self, t: int) -> Any:
        """Return one action as an item."""
        return self._actions[t]

    def reward_at(self, t: int) -> float:
        """Return one reward."""
        return self._rewards[t]

    def extra_at(self, name: str, t: int) -> Any:
        """Return one value of an extra."""
        return self.extra_model_outputs[name][t]

    @staticmethod
    def _arrays(space: Space, values: Sequence[Any]) -> Any:
        if values:
            return stacked(space, values)
        parts = children(space)
        if parts is None:
            return np.empty((0, *(space.shape or ())), space.dtype)
        empty = {name: Chunk._arrays(part, []) for name, part in parts}
        return tuple(empty.values()) if isinstance(space, gym.spaces.Tuple) else empty


def vectors(numbers: Sequence[float] | NDArray[Any], size: int = 1) -> NDArray[np.float32]:
    """Return one float32 vector a number, filled with it."""
    return np.repeat(np.asarray(numbers, np.float32).reshape(-1, 1), size, axis=1)
