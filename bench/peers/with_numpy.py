"""What a careful user can write with NumPy alone, tuned by hand: the floor that a library must beat.

Takes go into arrays made once ("out=") or into fresh ones. Indices are drawn with replacement. Nobody charges for the
extra columns that these samplers need, such as how many steps are left in each row's episode.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import checks
import numpy as np
import rows
from rows import Array, Ints, Pictures, Steps, Timeline
from work import BATCH, CLIP, CLIPS, LENGTH, SEQUENCES, STACKS, Job, repeat, td_errors, way

PACKAGES = ("numpy", "torch")
Take = Callable[[Array, Ints], Array]


def columns_of(steps: Steps, size: int) -> list[Array]:
    """Return observations, actions, rewards, successors and terminations in the order of their slots."""
    columns = (steps.observations, steps.actions, steps.rewards, steps.next_observations)
    return [rows.ring(column, size) for column in (*columns, steps.terminations.astype(np.float32))]


@functools.cache
def shared(size: int) -> list[Array]:
    """The columns of the workloads that only read them."""
    return columns_of(rows.mixed_vectors(size), size)


@functools.cache
def frame_ring(size: int) -> tuple[Array, Timeline, Pictures]:
    """Pictures of 64 × 64 × 3 in the order of their slots, and what they are."""
    of, pictures = rows.picture_line(size), Pictures((64, 64, 3))
    frames = np.empty((size, 64, 64, 3), np.uint8)
    for part in of.parts():
        frames[np.arange(part.start, part.stop) % size] = pictures.draw(of.pictures[part])
    return frames, of, pictures


@functools.cache
def frame_row(size: int) -> tuple[Array, Timeline, Pictures]:
    """Pictures of 84 × 84 from the oldest step on, T + 1 an episode, so that each step's successor lies behind it."""
    of, pictures = rows.picture_line(size), Pictures((84, 84))
    low, high = int(of.pictures[len(of) - size]), int(of.pictures[-1]) + 2
    frames = np.empty((high - low, 84, 84), np.uint8)
    for begin in range(low, high, 1000):
        numbers = np.arange(begin, min(begin + 1000, high))
        frames[numbers - low] = pictures.draw(numbers)
    return frames, of, pictures


def forget() -> None:
    """Free what is shared."""
    for made in (shared, frame_ring, frame_row):
        made.cache_clear()


def fresh(column: Array, at: Ints) -> Array:
    """Take rows into a new array."""
    return column.take(at, axis=0)


def into(columns: list[Array], shape: tuple[int, ...]) -> Take:
    """Return a function that takes rows into an array that was made once for each column."""
    outs = {id(column): np.empty((*shape, *column.shape[1:]), column.dtype) for column in columns}

    def take(column: Array, at: Ints) -> Array:
        return column.take(at, axis=0, out=outs[id(column)], mode="clip")

    return take


def transitions(size: int, sample: Callable[[], Any], n_step: int = 1) -> Job:
    """Sample transitions and look at them."""
    steps = rows.mixed_vectors(size)

    def look() -> checks.Findings:
        return checks.transitions(steps, checks.Live(size, len(steps)), *sample(), n_step=n_step)

    return Job(sample, lambda: checks.several(look, 40))


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(size: int, columns: list[Array], rows_a_write: int, check: Callable[[list[Array]], checks.Findings]) -> Job:
    """Five writes into five rings."""
    rings = [np.zeros((size, *column.shape[1 if rows_a_write == 1 else 2 :]), column.dtype) for column in columns]
    observations, actions, rewards, successors, dones = rings
    position = 0

    def add_one(observation: Any, action: Any, reward: Any, successor: Any, done: Any) -> None:
        nonlocal position
        observations[position] = observation
        actions[position] = action
        rewards[position] = reward
        successors[position] = successor
        dones[position] = done
        position = (position + 1) % size

    def add_all(observation: Any, action: Any, reward: Any, successor: Any, done: Any) -> None:
        nonlocal position
        end = position + rows_a_write
        observations[position:end] = observation
        actions[position:end] = action
        rewards[position:end] = reward
        successors[position:end] = successor
        dones[position:end] = done
        position = end % size

    arguments = list(zip(*columns, strict=True))
    run = repeat(add_one if rows_a_write == 1 else add_all, arguments)
    for _ in range(size // (rows_a_write * len(arguments)) + 1):
        run()
    return Job(run, lambda: check(rings), len(arguments))


def look_at_rings(steps: Steps) -> Callable[[list[Array]], checks.Findings]:
    """Return the check of what lies in the rings."""
    return lambda rings: checks.transitions(steps, checks.Live(len(rings[0]), len(steps)), *rings)


@way("W1", "five writes", "")
def add(size: int) -> Job:
    steps = rows.small_vectors()
    columns = [steps.observations, steps.actions, steps.rewards, steps.next_observations, steps.terminations]
    return writer(size, columns, 1, look_at_rings(steps))


@way("W2", "five slice writes", "")
def add_streams(size: int) -> Job:
    steps = rows.stream_vectors()
    columns = [steps.observations, steps.actions, steps.rewards, steps.next_observations, steps.terminations]
    return writer(size, list(map(rows.side_by_side, columns)), rows.STREAMS, look_at_rings(steps))


# ---- transitions -----------------------------------------------------------------------------------------------------


def columns_sampler(size: int, take: Take) -> Callable[[], list[Array]]:
    """Return a function that takes 256 rows of five columns."""
    columns, rng = shared(size), np.random.default_rng(0)

    def sample() -> list[Array]:
        at = rng.integers(0, size, BATCH)
        return [take(column, at) for column in columns]

    return sample


def packed_sampler(size: int, preallocated: bool) -> Callable[[], list[Array]]:
    """Return a function that takes 256 rows of one table, and gives five views."""
    columns = [column if column.ndim == 2 else column[:, None] for column in shared(size)]
    table, rng = np.concatenate(columns, axis=1), np.random.default_rng(0)
    cuts = np.cumsum([0, *(column.shape[1] for column in columns)]).tolist()
    views = [(slice(None), slice(begin, end)) for begin, end in itertools.pairwise(cuts)]
    take = into([table], (BATCH,)) if preallocated else fresh

    def sample() -> list[Array]:
        drawn = take(table, rng.integers(0, size, BATCH))
        return [drawn[view] for view in views]

    return sample


@way("W3", "columns")
def columns_fresh(size: int) -> Job:
    return transitions(size, columns_sampler(size, fresh))


@way("W3", "columns, out=")
def columns_out(size: int) -> Job:
    return transitions(size, columns_sampler(size, into(shared(size), (BATCH,))))


@way("W3", "columns", "torch")
def columns_torch(size: int) -> Job:
    import torch

    sample = columns_sampler(size, fresh)
    return transitions(size, lambda: [torch.from_numpy(column) for column in sample()])


@way("W3", "one packed table")
def packed_fresh(size: int) -> Job:
    return transitions(size, packed_sampler(size, preallocated=False))


@way("W3", "one packed table, out=")
def packed_out(size: int) -> Job:
    return transitions(size, packed_sampler(size, preallocated=True))


@way("W3", "one packed table", "torch")
def packed_torch(size: int) -> Job:
    import torch

    sample = packed_sampler(size, preallocated=False)
    return transitions(size, lambda: [torch.from_numpy(column) for column in sample()])


@way("W7", "3-step at sampling, columns")
def three_step(size: int) -> Job:
    steps, rng = rows.mixed_vectors(size), np.random.default_rng(0)
    observations, actions, rewards, successors, dones = shared(size)
    left = rows.ring(np.minimum(steps.timeline.left, rows.N_STEP), size)

    def sample() -> tuple[Array, ...]:
        at = rng.integers(0, size, BATCH)
        summed = left.take(at)
        total = rewards.take(at)
        for ahead in range(1, rows.N_STEP):
            total += np.float32(rows.GAMMA**ahead) * rewards.take(at + ahead, mode="wrap") * (summed > ahead)
        last = (at + summed - 1) % size
        return observations.take(at, 0), actions.take(at, 0), total, successors.take(last, 0), dones.take(last)

    return transitions(size, sample, rows.N_STEP)


# ---- priorities ------------------------------------------------------------------------------------------------------


class SumTree:
    """A binary tree of sums in one array; every call handles a batch, level by level."""

    def __init__(self, size: int) -> None:
        self.leaves = 1 << (size - 1).bit_length()
        self.levels = self.leaves.bit_length() - 1
        self.sums = np.zeros(2 * self.leaves)

    def set(self, at: Ints, mass: Array) -> None:
        """Set leaves, and the sums above them."""
        nodes = at + self.leaves
        self.sums[nodes] = mass
        for _ in range(self.levels):
            nodes = nodes >> 1
            self.sums[nodes] = self.sums[2 * nodes] + self.sums[2 * nodes + 1]

    def find(self, mass: Array) -> Ints:
        """Return the leaves in which these prefix sums fall."""
        nodes = np.ones(len(mass), np.int64)
        for _ in range(self.levels):
            nodes = 2 * nodes
            left = self.sums[nodes]
            right = mass >= left
            mass = mass - left * right
            nodes += right
        return nodes - self.leaves


@way("W6", "vectorised sum tree, columns")
def priorities(size: int) -> Job:
    steps, rng, errors = rows.mixed_vectors(size), np.random.default_rng(0), td_errors()
    columns, tree, places = shared(size), SumTree(size), np.arange(BATCH)
    lowest = checks.errors_of(np.zeros(1, np.int64)).item() ** checks.ALPHA
    tree.set(np.arange(size), np.ones(size))

    def draw() -> tuple[Ints, list[Array], Array]:
        total = tree.sums[1]
        at = np.minimum(tree.find((places + rng.random(BATCH)) * (total / BATCH)), size - 1)
        weights = (tree.sums[at + tree.leaves] / lowest) ** -checks.BETA
        return at, [column.take(at, 0) for column in columns], weights.astype(np.float32)

    def call() -> object:
        at, batch, weights = draw()
        tree.set(at, next(errors) ** checks.ALPHA)
        return batch, weights

    def check() -> checks.Findings:
        numbers = rows.ring(np.arange(len(steps)), size)
        tree.set(np.arange(size), checks.errors_of(numbers).astype(np.float64) ** checks.ALPHA)
        drawn = (draw() for _ in range(200))
        return checks.priorities(checks.Live(size, len(steps)), ((batch[0], weights) for _, batch, weights in drawn))

    return Job(call, check)


# ---- sequences -------------------------------------------------------------------------------------------------------


class Rejection:
    """Draw half as many starts again as are needed, keep those with enough steps left in their episode."""

    def __init__(self, of: Timeline, size: int, batch: int, length: int) -> None:
        self.left = rows.ring(of.left, size)
        self.size, self.batch, self.length = size, batch, length
        self.ahead = np.arange(length)
        self.rng = np.random.default_rng(0)

    def __call__(self) -> Ints:
        """Return the slots of the windows, (B, L)."""
        while True:
            starts = self.rng.integers(0, self.size, self.batch + self.batch // 2)
            starts = starts[self.left.take(starts) >= self.length][: self.batch]
            if len(starts) == self.batch:
                return (starts[:, None] + self.ahead) % self.size


def windows(size: int, preallocated: bool) -> Job:
    """Windows of four columns."""
    steps = rows.mixed_vectors(size)
    observations, actions, rewards, _, dones = shared(size)
    columns = [observations, actions, rewards, dones]
    draw = Rejection(steps.timeline, size, SEQUENCES, LENGTH)
    take = into(columns, (SEQUENCES, LENGTH)) if preallocated else fresh

    def sample() -> list[Array]:
        at = draw()
        return [take(column, at) for column in columns]

    def look() -> checks.Findings:
        return checks.sequences(steps, checks.Live(size, len(steps)), *sample())

    return Job(sample, lambda: checks.several(look, 20))


@way("W5v", "rejection, columns")
def windows_fresh(size: int) -> Job:
    return windows(size, preallocated=False)


@way("W5v", "rejection, columns, out=")
def windows_out(size: int) -> Job:
    return windows(size, preallocated=True)


def clips(size: int, preallocated: bool, bare: bool) -> Job:
    """Windows of pictures; `bare` takes the pictures only, from starts that were drawn before."""
    frames, of, pictures = frame_ring(size)
    rewards = rows.ring((np.arange(len(of)) % 997).astype(np.float32), size)
    actions, dones = rows.ring(np.arange(len(of)) % 4, size), rows.ring(of.terminations, size)
    draw = Rejection(of, size, CLIPS, CLIP)
    columns = [frames] if bare else [frames, rewards, actions, dones]
    take = into(columns, (CLIPS, CLIP)) if preallocated else fresh
    drawn = [draw() for _ in range(64)]
    turn = 0

    def sample() -> list[Array]:
        nonlocal turn
        turn = (turn + 1) % len(drawn)
        at = drawn[turn] if bare else draw()
        return [take(column, at) for column in columns]

    def look() -> checks.Findings:
        batch = sample()
        shown = rewards[drawn[turn]] if bare else batch[1]
        return checks.picture_sequences(of, pictures, checks.Live(size, len(of)), batch[0], shown)

    return Job(sample, lambda: checks.several(look, 3))


@way("W5i", "rejection, columns")
def clips_fresh(size: int) -> Job:
    return clips(size, preallocated=False, bare=False)


@way("W5i", "rejection, columns, out=")
def clips_out(size: int) -> Job:
    return clips(size, preallocated=True, bare=False)


@way("W5i", "bare take of the pictures, out=")
def clips_bare(size: int) -> Job:
    return clips(size, preallocated=True, bare=True)


# ---- stacks ----------------------------------------------------------------------------------------------------------


def stacks(size: int, preallocated: bool) -> Job:
    """Five pictures for two stacks."""
    frames, of, pictures = frame_row(size)
    first = len(of) - size  # the oldest step; what lies before it is not kept, nor is its stack
    slots = of.pictures[first:] - of.pictures[first]  # of the steps: those of last observations are no steps
    t = of.t[first:]
    rewards = (np.arange(first, len(of)) % 997).astype(np.float32)
    actions, dones = np.arange(first, len(of)) % 4, of.terminations[first:]
    safe = int(np.flatnonzero(t == 0)[0])  # the first episode has lost its beginning
    back = np.arange(rows.STACK, -1, -1) - 1
    rng = np.random.default_rng(0)
    take = into([frames], (STACKS, rows.STACK + 1)) if preallocated else fresh

    def sample() -> tuple[Array, ...]:
        at = rng.integers(safe, size, STACKS)
        drawn = take(frames, slots.take(at)[:, None] - np.minimum(back, t.take(at)[:, None]))
        return drawn[:, :-1], drawn[:, 1:], rewards.take(at), actions.take(at), dones.take(at)

    def look() -> checks.Findings:
        return checks.stacks(of, pictures, checks.Live(size, len(of)), *sample()[:3])

    return Job(sample, lambda: checks.several(look, 10))


@way("W4", "single frames, one take of five, overlapping views")
def stacks_fresh(size: int) -> Job:
    return stacks(size, preallocated=False)


@way("W4", "single frames, one take of five, overlapping views, out=")
def stacks_out(size: int) -> Job:
    return stacks(size, preallocated=True)
