"""What pieces must put into a batch, written down step by step from whole episodes: loops over time, no cleverness.

A story is a whole episode: all that ever happened in it, in plain lists. A chunk sees a part of it; what a row must
hold is read off the story, whatever the chunk is. Rows are dicts and tuples of arrays; `stacked` makes columns of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np


@dataclass
class Story:
    """A whole episode; there is one more observation than there are actions."""

    observations: list[Any]
    actions: list[Any]
    rewards: list[float]
    states: list[Any] = field(default_factory=list)  # what came out of each step

    @property
    def steps(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Cut:
    """The steps start <= t < stop of a story, and how many before them the chunk still sees."""

    story: Story
    start: int
    stop: int
    lookback: int

    @property
    def oldest(self) -> int:
        return self.start - self.lookback


def times(cut: Cut, learner: bool) -> list[int]:
    """The times of a chunk's rows."""
    return list(range(cut.start, cut.stop)) if learner else [cut.stop]


def each_leaf(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Apply a function to the leaves of dicts and tuples side by side."""
    if isinstance(first, dict):
        return {key: each_leaf(function, first[key], *(other[key] for other in others)) for key in first}
    if isinstance(first, tuple):
        return tuple(each_leaf(function, *parts) for parts in zip(first, *others, strict=True))
    return function(first, *others)


def stacked(rows: Sequence[Any]) -> Any:
    """One column of many rows."""
    return each_leaf(lambda *leaves: np.array([np.asarray(leaf) for leaf in leaves]), *rows)


def frames(story: Story, t: int, k: int, fill: Any) -> Any:
    """The observations at t-k+1 .. t; numbers as (k, 1)."""
    chosen = [story.observations[max(time, 0)] for time in range(t - k + 1, t + 1)]

    def stack(*leaves: Any) -> Any:
        out = np.array([np.asarray(leaf) for leaf in leaves])
        for position, time in enumerate(range(t - k + 1, t + 1)):
            if time < 0 and fill != "first":
                out[position] = fill
        return out[:, None] if out.ndim == 1 else out

    return each_leaf(stack, *chosen)


def code(space: Any, value: Any) -> Any:
    """The one-hot code of a leaf, 0 in all places for None."""
    if isinstance(space, gym.spaces.Discrete):
        out = np.zeros(int(space.n), np.float32)
        if value is not None:
            out[int(value) - int(space.start)] = 1
        return out
    if isinstance(space, gym.spaces.MultiDiscrete):
        codes = []
        start = np.broadcast_to(space.start, space.nvec.shape).ravel()
        for place, n in enumerate(space.nvec.ravel()):
            part = np.zeros(int(n), np.float32)
            if value is not None:
                part[int(np.ravel(value)[place]) - int(start[place])] = 1
            codes.append(part)
        return np.concatenate(codes)
    return np.zeros(space.shape, space.dtype) if value is None else np.asarray(value, space.dtype)


def over_space(function: Callable[[Any, Any], Any], space: Any, value: Any) -> Any:
    """Apply a function of (leaf space, leaf) to a value, or to None in all places."""
    if isinstance(space, gym.spaces.Dict):
        return {k: over_space(function, sub, None if value is None else value[k]) for k, sub in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        parts = [None] * len(space.spaces) if value is None else value
        return tuple(over_space(function, sub, part) for sub, part in zip(space.spaces, parts, strict=True))
    return function(space, value)


def raw(space: Any, value: Any) -> Any:
    """A leaf as it is, 0 for None."""
    return np.zeros(space.shape, space.dtype) if value is None else np.asarray(value, space.dtype)


def previous_actions(story: Story, t: int, n: int, space: Any, one_hot: bool) -> Any:
    """The actions at t-n .. t-1."""
    chosen = [story.actions[time] if time >= 0 else None for time in range(t - n, t)]
    return stacked([over_space(code if one_hot else raw, space, action) for action in chosen])


def previous_rewards(story: Story, t: int, n: int) -> Any:
    """The rewards at t-n .. t-1."""
    return np.array([story.rewards[time] if time >= 0 else 0.0 for time in range(t - n, t)], np.float32)


def state_before(story: Story, t: int, initial: Any) -> Any:
    """What came out of the step before, the initial state at t = 0."""
    return story.states[t - 1] if t > 0 else initial


def sequences(rows: Sequence[Any], lengths: Sequence[int], longest: int) -> tuple[Any, Any, Any, list[int]]:
    """Cut the rows of chunks of these lengths into sequences.

    Returns
    -------
    column, mask, seq_lens, first rows of the sequences
    """
    padding = each_leaf(lambda leaf: np.zeros_like(np.asarray(leaf)), rows[0])
    column, mask, lens, first = [], [], [], []
    begin = 0
    for length in lengths:
        for start in range(0, length, longest):
            size = min(longest, length - start)
            column.append(
                stacked([rows[begin + start + place] if place < size else padding for place in range(longest)])
            )
            mask.append([place < size for place in range(longest)])
            lens.append(size)
            first.append(begin + start)
        begin += length
    return stacked(column), np.array(mask), np.array(lens), first


def flat(space: Any, value: Any) -> Any:
    """One vector of an observation."""
    if isinstance(space, gym.spaces.Dict):
        return np.concatenate([flat(sub, value[key]) for key, sub in space.spaces.items()])
    if isinstance(space, gym.spaces.Tuple):
        return np.concatenate([flat(sub, part) for sub, part in zip(space.spaces, value, strict=True)])
    return np.asarray(code(space, value)).astype(np.float32).ravel()


def log_probability(space: Any, inputs: Any, action: Any) -> float:
    """The logarithm of the probability, or density, of an action under the distribution of these inputs."""
    if isinstance(space, gym.spaces.Discrete):
        weights = [math.exp(x - max(inputs)) for x in inputs]
        return math.log(weights[int(action) - int(space.start)] / sum(weights))
    if isinstance(space, gym.spaces.MultiDiscrete):
        total, begin = 0.0, 0
        start = np.broadcast_to(space.start, space.nvec.shape).ravel()
        for place, n in enumerate(space.nvec.ravel()):
            one = gym.spaces.Discrete(int(n), start=int(start[place]))
            total += log_probability(one, inputs[begin : begin + n], np.ravel(action)[place])
            begin += n
        return total
    if isinstance(space, gym.spaces.MultiBinary):
        return sum(-math.log(1 + math.exp(-x if one else x)) for x, one in zip(inputs, np.ravel(action), strict=True))
    if isinstance(space, gym.spaces.Box):
        half = len(inputs) // 2
        total = 0.0
        for mean, log_std, x in zip(inputs[:half], inputs[half:], np.ravel(action), strict=True):
            total -= 0.5 * ((float(x) - mean) / math.exp(log_std)) ** 2 + log_std + 0.5 * math.log(2 * math.pi)
        return total
    subs = list(space.spaces.items()) if isinstance(space, gym.spaces.Dict) else list(enumerate(space.spaces))
    total, begin = 0.0, 0
    for key, sub in subs:
        size = inputs_of(sub)
        total += log_probability(sub, inputs[begin : begin + size], action[key])
        begin += size
    return total


def inputs_of(space: Any) -> int:
    """How many inputs a distribution over a space has."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(sum(space.nvec.ravel()))
    if isinstance(space, gym.spaces.MultiBinary):
        return int(np.prod(space.shape))
    if isinstance(space, gym.spaces.Box):
        return 2 * int(np.prod(space.shape))
    subs = space.spaces.values() if isinstance(space, gym.spaces.Dict) else space.spaces
    return sum(inputs_of(sub) for sub in subs)


def unsquashed(space: Any, action: Any) -> Any:
    """An action in [-1, 1], brought to the bounds of its space."""
    if not isinstance(space, gym.spaces.Box):
        return np.asarray(action)
    out = np.array(action, space.dtype)
    for at in np.ndindex(*space.shape):
        low, high = float(space.low[at]), float(space.high[at])
        x = float(action[at])
        if math.isfinite(low) and math.isfinite(high):
            x = low + (x + 1) / 2 * (high - low)
        out[at] = min(max(x, low), high)
    return out


def clipped(space: Any, action: Any) -> Any:
    """An action, moved to the nearest place inside of its space."""
    if not isinstance(space, gym.spaces.Box):
        return np.asarray(action)
    out = np.array(action, space.dtype)
    for at in np.ndindex(*space.shape):
        out[at] = min(max(float(action[at]), float(space.low[at])), float(space.high[at]))
    return out


def normalised(rows: Sequence[Any], seen: Sequence[Any], clip: float | None) -> Any:
    """Rows less the mean of what was seen, divided by its standard deviation; two passes over all of it."""
    everything = np.array([np.asarray(row, np.float64) for row in seen])
    mean = everything.mean(0)
    std = everything.std(0, ddof=1) if len(everything) > 1 else np.ones_like(mean)
    std = np.where(everything.max(0) > everything.min(0), std, 1.0)
    out = np.array([(np.asarray(row, np.float64) - mean) / std for row in rows])
    return out if clip is None else np.clip(out, -clip, clip)
