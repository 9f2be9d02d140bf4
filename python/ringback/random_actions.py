"""Random actions for the sub-environments of a vector environment."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

__all__ = ["RandomActions", "stack_actions"]

Array = np.ndarray[Any, Any]

BLOCK_ACTIONS, BLOCK_BYTES = 256, 2**16  # a lane's block is no more than either


class RandomActions:
    """Draws as the action space's ``sample`` does, with one generator for each sub-environment.

    The actions of a sub-environment depend on its generator alone: not on how many others there are, and not on rows
    that are no steps, which take none.

    Parameters
    ----------
    space : gymnasium.Space
        Of one action.
    generators : sequence of numpy.random.Generator
        One for each of E sub-environments. Plain spaces draw blocks of actions, so they run ahead.
    """

    def __init__(self, space: gym.Space[Any], generators: Sequence[np.random.Generator]) -> None:
        if block(space, np.random.default_rng(0), 1) is None:
            self._source: Blocks | Samples = Samples(space, generators)
        else:
            self._source = Blocks(space, generators)

    def draw(self, playing: Array | None) -> Any:
        """Return E actions, batched.

        Parameters
        ----------
        playing : ndarray, shape (E,), bool, or None
            Which of them are used up; the others are there to fill the batch. None: all are.
        """
        return self._source.draw(playing)


class Blocks:
    """Actions of a plain space, drawn many at a time."""

    def __init__(self, space: gym.Space[Any], generators: Sequence[np.random.Generator]) -> None:
        self._space = space
        self._generators = generators
        first = drawn(space, generators[0], 0)
        self._length = max(1, min(BLOCK_ACTIONS, BLOCK_BYTES // max(1, first.itemsize * first[:1].size)))
        lanes = len(generators)
        self._blocks: Array = np.empty((lanes * self._length, *first.shape[1:]), first.dtype)  # one after the other
        self._ends = np.arange(1, lanes + 1) * self._length
        self._next = self._ends.copy()
        self._one = np.ones_like(self._next)
        self._sure = 0  # so many draws need no new block

    def draw(self, playing: Array | None) -> Array:
        """Return E actions."""
        if not self._sure:
            self._refill()
        self._sure -= 1
        actions: Array = self._blocks[self._next]
        # Twice as quick as += 1, which makes an array of the 1 each time.
        np.add(self._next, self._one if playing is None else playing, out=self._next)
        return actions

    def _refill(self) -> None:
        for lane in (self._next == self._ends).nonzero()[0].tolist():
            begin = lane * self._length
            self._blocks[begin : begin + self._length] = drawn(self._space, self._generators[lane], self._length)
            self._next[lane] = begin
        self._sure = int((self._ends - self._next).min())


class Samples:
    """Actions of any space, one by one."""

    def __init__(self, space: gym.Space[Any], generators: Sequence[np.random.Generator]) -> None:
        self._space = space
        self._lanes = [copy.deepcopy(space) for _ in generators]
        for lane, generator in zip(self._lanes, generators, strict=True):
            lane.seed(int(generator.integers(2**31)))
        self._waiting = [lane.sample() for lane in self._lanes]

    def draw(self, playing: Array | None) -> Any:
        """Return E actions."""
        actions = stack_actions(self._space, self._waiting)
        for row in range(len(self._lanes)) if playing is None else playing.nonzero()[0].tolist():
            self._waiting[row] = self._lanes[row].sample()
        return actions


def stack_actions(space: gym.Space[Any], actions: Sequence[Any]) -> Any:
    """Return actions as a vector environment takes them."""
    empty: Any = create_empty_array(space, n=len(actions))
    return concatenate(space, actions, empty)


def drawn(space: gym.Space[Any], generator: np.random.Generator, count: int) -> Array:
    """Draw from a plain space."""
    actions = block(space, generator, count)
    assert actions is not None
    return actions


def block(space: gym.Space[Any], generator: np.random.Generator, count: int) -> Array | None:
    """Draw `count` values from a space, shape (count, *D); None if that is no plain space."""
    # The types themselves: a space derived from one of them may mean something else by `sample`.
    if type(space) is spaces.Discrete:
        return np.add(space.start, generator.integers(space.n, size=count, dtype=space.dtype))
    if type(space) is spaces.MultiDiscrete:
        size = (count, *space.nvec.shape)
        start = getattr(space, "start", 0)
        return (generator.integers(space.nvec, size=size, dtype=np.int64) + start).astype(space.dtype)
    if type(space) is spaces.MultiBinary:
        return generator.integers(2, size=(count, *space.shape), dtype=space.dtype)
    if type(space) is spaces.Box and space.dtype.itemsize < 8 + (space.dtype.kind == "f"):
        # Not for integers of 64 bits: they go through float64, which does not hold them.
        return box_block(space, generator, count)
    return None


def box_block(space: spaces.Box, generator: np.random.Generator, count: int) -> Array:
    """Draw from a Box: uniform between two bounds, exponential beyond one, normal without any."""
    below, above = space.bounded_below, space.bounded_above
    size = (count, *space.shape)
    whole = space.dtype.kind != "f"
    low = np.where(below, space.low, 0).astype(np.float64)
    high = np.where(above, space.high, 0).astype(np.float64) + (1 if whole else 0)
    if (below & above).all():
        values = generator.uniform(low, high, size)
    else:
        values = generator.normal(size=size)
        beyond = generator.exponential(size=size)
        values = np.where(below, low + beyond, np.where(above, high - beyond, values))
        values = np.where(below & above, generator.uniform(low, np.where(below & above, high, low), size), values)
    if whole:
        values = np.floor(values)
    # Rounding to the dtype must not lead out of the bounds, nor wrap around.
    limits: Any = (np.iinfo if whole else np.finfo)(space.dtype)  # type: ignore[type-var]
    fitting = np.clip(values, float(limits.min), float(limits.max)).astype(space.dtype)
    return np.clip(fitting, space.low, space.high)
