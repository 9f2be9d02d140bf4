"""The data of every workload: rows that say in their columns which step they are, so that a wrong row is seen.

Observation column 0 counts all steps, column 1 the episodes, column 2 the steps of the episode; a successor carries the
same numbers one step on, and column 3 is 1 in the last observation of an episode only. Rewards count steps, 0 to 996,
round and round. Pictures have their number in their first eight bytes; an episode of T steps has T + 1 of them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OBSERVATION = 17
ACTION = 6
STACK = 4
STREAMS = 16
N_STEP = 3
GAMMA = 0.99


@dataclass(frozen=True)
class Timeline:
    """M steps in the order of writing: where each stands, and how the episodes end.

    Episodes end in turn by termination and by truncation. The last one is open where `open_end` was asked for.
    """

    episode: Ints
    t: Ints
    length: Ints
    terminations: Bools
    truncations: Bools

    def __len__(self) -> int:
        return len(self.t)

    @property
    def ends(self) -> Bools:
        """Whether the episode ends with this step."""
        return self.terminations | self.truncations

    @property
    def pictures(self) -> Ints:
        """The number of the picture that each step begins with; the step leads to the next number."""
        return np.arange(len(self)) + self.episode

    @property
    def left(self) -> Ints:
        """How many steps of its own episode there are from each step on, itself included."""
        return self.length[self.episode] - self.t

    def parts(self, longest: int = 1000) -> list[slice]:
        """Cut the steps at the ends of episodes, and into pieces of at most `longest`."""
        ends = np.append(np.flatnonzero(self.ends) + 1, len(self)).tolist()
        begins = [0, *ends[:-1]]
        return [
            slice(at, min(at + longest, end))
            for begin, end in zip(begins, ends, strict=True)
            for at in range(begin, end, longest)
        ]


@dataclass(frozen=True, eq=False)
class Steps:
    """The columns of a timeline's steps. Two are the same only if they are one object."""

    timeline: Timeline
    observations: Array
    actions: Array
    rewards: npt.NDArray[np.float32]
    next_observations: Array

    def __len__(self) -> int:
        return len(self.timeline)

    @property
    def terminations(self) -> Bools:
        return self.timeline.terminations

    @property
    def truncations(self) -> Bools:
        return self.timeline.truncations


def timeline(lengths: Ints, open_end: bool = True) -> Timeline:
    """Return episodes of these lengths, one after the other."""
    ends = np.cumsum(lengths)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    terminations, truncations = np.zeros(ends[-1], np.bool_), np.zeros(ends[-1], np.bool_)
    last = (ends - 1)[:-1] if open_end else ends - 1
    terminations[last[::2]] = True
    truncations[last[1::2]] = True
    return Timeline(episode, np.arange(ends[-1]) - (ends - lengths)[episode], lengths, terminations, truncations)


def lengths(count: int, shortest: int, longest: int) -> Ints:
    """Draw lengths of episodes that make up `count` steps; the last is cut short."""
    drawn = np.random.default_rng(0).integers(shortest, longest + 1, count // shortest + 1)
    ends = np.cumsum(drawn)
    ends = np.append(ends[ends < count], count)
    return np.diff(ends, prepend=0)


def rare_lengths(count: int, length: int) -> Ints:
    """Return episodes of 20 steps, and in every 10,000 steps one that gives 5 starts for windows of `length`."""
    every, rare = min(10_000, count // 2), length + 4
    short, rest = divmod(every - rare, 20)
    group = [20] * (short // 2) + [rare] + [20] * (short - short // 2) + ([rest] if rest else [])
    return np.array(group * -(-count // every))


def vectors(of: Timeline, observation: int = OBSERVATION, action: int | None = ACTION) -> Steps:
    """Return float32 vectors for these steps; an `action` of None stands for Discrete(2)."""
    rng = np.random.default_rng(1)
    count = len(of)
    observations = rng.random((count, observation), np.float32)
    observations[:, 0] = np.arange(count)
    observations[:, 1] = of.episode
    observations[:, 2] = of.t
    observations[:, 3] = 0
    successors = np.empty_like(observations)
    successors[:-1] = observations[1:]
    last = np.append(np.flatnonzero(of.ends), count - 1)
    successors[last] = observations[last]
    successors[last, 0] += 1
    successors[last, 2] += 1
    successors[last, 3] = 1
    actions: Array
    if action is None:
        actions = np.arange(count) % 2
    else:
        actions = rng.random((count, action), np.float32)
        actions[:, 0] = np.arange(count)
    return Steps(of, observations, actions, (np.arange(count) % 997).astype(np.float32), successors)


class Pictures:
    """Pictures that are made when they are needed: one of a few backgrounds with its number stamped on."""

    KINDS = 31

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.pool = np.random.default_rng(2).integers(0, 256, (self.KINDS, *shape), np.uint8)

    def draw(self, numbers: Ints) -> npt.NDArray[np.uint8]:
        """Return the pictures with these numbers."""
        out = self.pool[numbers % self.KINDS]
        stamps = np.ascontiguousarray(numbers, "<i8").view(np.uint8)
        out.reshape(-1, self.pool[0].size)[:, :8] = stamps.reshape(-1, 8)
        return out

    def read(self, pictures: Array, axes: int) -> tuple[Ints, Bools]:
        """Return the number of each picture behind `axes` leading axes, and whether it is whole."""
        flat = np.ascontiguousarray(pictures).reshape(-1, self.pool[0].size)
        numbers = np.ascontiguousarray(flat[:, :8]).view("<i8").reshape(-1).astype(np.int64)
        whole = np.all(flat[:, 8:] == self.pool[numbers % self.KINDS].reshape(len(flat), -1)[:, 8:], axis=1)
        return numbers.reshape(pictures.shape[:axes]), whole.reshape(pictures.shape[:axes])


def stack_numbers(of: Timeline, steps: Ints, ahead: int = 0, depth: int = STACK) -> Ints:
    """Return the picture numbers of the stack at these steps (`ahead` = 1: of what they lead to), oldest first.

    Before an episode's first picture that one is repeated.
    """
    back = np.arange(depth - 1, -1, -1) - ahead
    return of.pictures[steps][:, None] - np.minimum(back, of.t[steps][:, None])


# ---- the data of each workload, made once in each worker -------------------------------------------------------------


@functools.cache
def mixed_vectors(size: int) -> Steps:
    """A quarter more steps than `size`, of 17 + 6 float32, in episodes of 50 to 1000."""
    return vectors(timeline(lengths(size + size // 4, 50, 1000)))


@functools.cache
def short_vectors(size: int) -> Steps:
    """The same in episodes of 20 steps."""
    return vectors(timeline(lengths(size + size // 4, 20, 20)))


@functools.cache
def rare_vectors(size: int, length: int) -> Steps:
    """The same in episodes of 20 steps, but that 0.05 % of the steps may begin a window of `length`."""
    return vectors(timeline(rare_lengths(size + size // 4, length)))


@functools.cache
def equal_vectors(size: int, length: int) -> Steps:
    """The same in episodes of exactly `length` steps."""
    return vectors(timeline(lengths(size + size // 4, length, length)))


@functools.cache
def small_vectors() -> Steps:
    """500 steps of 4 float32 and a Discrete(2) action in closed episodes, to be written round and round."""
    return vectors(timeline(np.full(5, 100), open_end=False), 4, None)


@functools.cache
def stream_vectors() -> Steps:
    """1,000 steps of each of 16 streams in closed episodes, one stream after the other."""
    return vectors(timeline(np.full(10 * STREAMS, 100), open_end=False))


def side_by_side(column: Array) -> Array:
    """Return a column of `stream_vectors` as (1000, STREAMS, ...): what a vector environment gives step by step."""
    return np.ascontiguousarray(np.swapaxes(column.reshape(STREAMS, -1, *column.shape[1:]), 0, 1))


@functools.cache
def picture_line(size: int) -> Timeline:
    """A quarter more steps than `size` in episodes of 200 to 1000, for pictures."""
    return timeline(lengths(size + size // 4, min(200, size // 10), min(1000, size // 2)))


def forget() -> None:
    """Free the data."""
    for made in (mixed_vectors, short_vectors, rare_vectors, equal_vectors, small_vectors, stream_vectors):
        made.cache_clear()
    picture_line.cache_clear()


def ring(column: Array, size: int) -> Array:
    """Return the last `size` rows where a ring that began at slot 0 keeps them."""
    slots = np.arange(len(column) - size, len(column)) % size
    out = np.empty((size, *column.shape[1:]), column.dtype)
    out[slots] = column[-size:]
    return out
