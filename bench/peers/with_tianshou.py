"""tianshou: NumPy in and out, wrapped in its Batch.

Buffers that are only read are loaded in bulk: by the arrays that `add` would have filled, in the same slots.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import checks
import numpy as np
import rows
import torch
from rows import Ints, Pictures, Steps, Timeline
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer, VectorReplayBuffer
from work import BATCH, CLIP, CLIPS, LENGTH, SEQUENCES, STACKS, Job, repeat, td_errors, way

PACKAGES = ("tianshou", "numpy", "torch", "numba")
torch.set_num_threads(1)


def load(buffer: Any, of: Timeline, **columns: Any) -> Any:
    """Give a buffer the columns, as it would have them after all the steps were added one by one."""
    size = buffer.maxsize
    flags = {"terminated": of.terminations, "truncated": of.truncations, "done": of.ends}
    buffer.set_batch(Batch(**{name: rows.ring(column, size) for name, column in (columns | flags).items()}))
    buffer._size = size
    buffer._insertion_idx = len(of) % size
    buffer.last_index[0] = (len(of) - 1) % size
    return buffer


def loaded(buffer: Any, steps: Steps) -> Any:
    """Give a buffer the steps' columns."""
    return load(
        buffer,
        steps.timeline,
        obs=steps.observations,
        act=steps.actions,
        rew=steps.rewards.astype(np.float64),  # what `add` would have made of them
        obs_next=steps.next_observations,
    )


def look(steps: Steps, size: int, batch: Any) -> checks.Findings:
    """Look at one batch."""
    columns = (batch.obs, batch.act, batch.rew, batch.obs_next, batch.terminated)
    return checks.transitions(steps, checks.Live(size, len(steps)), *columns)


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(size: int, steps: Steps, buffer: Any, columns: list[Any]) -> Job:
    """Write the same steps round and round; a Batch is made for each write, as the caller has to."""

    def one(observation: Any, action: Any, reward: Any, successor: Any, terminated: Any, truncated: Any) -> None:
        buffer.add(
            Batch(
                obs=observation,
                act=action,
                rew=reward,
                obs_next=successor,
                terminated=terminated,
                truncated=truncated,
                info={},
            )
        )

    run = repeat(one, zip(*columns, strict=True))
    for _ in range(size // len(steps) + 1):
        run()
    check = lambda: checks.several(lambda: look(steps, len(steps), buffer.sample(BATCH)[0]), 10)  # noqa: E731
    return Job(run, check, len(columns[0]))


@way("W1", "add", "")
def add(size: int) -> Job:
    steps = rows.small_vectors()
    columns = [steps.observations, steps.actions, steps.rewards, steps.next_observations]
    return writer(size, steps, ReplayBuffer(size), [*columns, steps.terminations, steps.truncations])


@way("W2", "VectorReplayBuffer.add", "")
def add_streams(size: int) -> Job:
    steps = rows.stream_vectors()
    columns = [steps.observations, steps.actions, steps.rewards, steps.next_observations]
    side_by_side = list(map(rows.side_by_side, [*columns, steps.terminations, steps.truncations]))
    return writer(size, steps, VectorReplayBuffer(size, rows.STREAMS), side_by_side)


# ---- transitions -----------------------------------------------------------------------------------------------------


@way("W3", "sample")
def uniform(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    sample = functools.partial(loaded(ReplayBuffer(size), steps).sample, BATCH)
    return Job(sample, lambda: checks.several(lambda: look(steps, size, sample()[0]), 40))


@way("W7", "compute_nstep_return", "numpy, torch")
def three_step(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    buffer = loaded(ReplayBuffer(size), steps)
    successors: list[Any] = []

    def no_value(of: Any, at: Ints) -> torch.Tensor:
        """Take the observation that the network would see, and value it at 0."""
        successors[:] = [of.obs_next[at], of.terminated[at]]
        return torch.zeros(len(at), 1)

    def sample() -> Any:
        batch, at = buffer.sample(BATCH)
        return Algorithm.compute_nstep_return(batch, buffer, at, no_value, rows.GAMMA, rows.N_STEP)

    def look_at_sums() -> checks.Findings:
        batch = sample()
        columns = (batch.obs, batch.act, batch.returns, *successors)
        return checks.transitions(steps, checks.Live(size, len(steps)), *columns, n_step=rows.N_STEP)

    return Job(sample, lambda: checks.several(look_at_sums, 40))


@way("W6", "sample, update_weight")
def priorities(size: int) -> Job:
    steps, errors = rows.mixed_vectors(size), td_errors()
    buffer = loaded(PrioritizedReplayBuffer(size, alpha=checks.ALPHA, beta=checks.BETA), steps)
    buffer.init_weight(np.arange(size))

    def call() -> Any:
        batch, at = buffer.sample(BATCH)
        buffer.update_weight(at, next(errors))
        return batch

    def check() -> checks.Findings:
        numbers = rows.ring(np.arange(len(steps)), size)
        buffer.update_weight(np.arange(size), checks.errors_of(numbers))
        draws = (buffer.sample(BATCH)[0] for _ in range(200))
        return checks.priorities(checks.Live(size, len(steps)), ((batch.obs, batch.weight) for batch in draws))

    return Job(call, check)


# ---- sequences: stacks of observations, used for all columns ---------------------------------------------------------


def by_sample_avail(buffer: Any, batch: int, length: int) -> Callable[[], Ints]:
    """Draw the last steps of windows from a list of all that have enough steps before them."""
    return functools.partial(buffer.sample_indices, batch)


def by_prev(buffer: Any, batch: int, length: int) -> Callable[[], Ints]:
    """Draw twice as many last steps as are needed, and keep those from which `prev` gets far enough."""
    rng = np.random.default_rng(0)

    def draw() -> Ints:
        while True:
            at = now = rng.integers(0, len(buffer), 2 * batch)
            whole = np.ones(len(at), np.bool_)
            for _ in range(length - 1):
                before = buffer.prev(now)
                whole &= before != now
                now = before
            if whole.sum() >= batch:
                return np.asarray(at[whole][:batch])

    return draw


Drawing = Callable[[Any, int, int], Callable[[], Ints]]


def windows(size: int, drawing: Drawing) -> Job:
    """Windows of four columns."""
    steps = rows.mixed_vectors(size)
    buffer = loaded(ReplayBuffer(size, stack_num=LENGTH, sample_avail=True), steps)
    draw = drawing(buffer, SEQUENCES, LENGTH)

    def sample() -> list[Any]:
        at = draw()
        return [buffer.get(at, name) for name in ("obs", "act", "rew", "terminated")]

    def look_at_windows() -> checks.Findings:
        return checks.sequences(steps, checks.Live(size, len(steps)), *sample())

    return Job(sample, lambda: checks.several(look_at_windows, 5))


@way("W5v", "sample_avail, get")
def windows_by_sample_avail(size: int) -> Job:
    return windows(size, by_sample_avail)


@way("W5v", "rejection by prev, get")
def windows_by_prev(size: int) -> Job:
    return windows(size, by_prev)


def clips(size: int, drawing: Drawing) -> Job:
    """Windows of pictures."""
    of, pictures = rows.picture_line(size), Pictures((64, 64, 3))
    buffer = ReplayBuffer(size, stack_num=CLIP, sample_avail=True, ignore_obs_next=True)
    number = np.arange(len(of))
    load(buffer, of, obs=pictures.draw(of.pictures), act=number % 4, rew=(number % 997).astype(np.float64))
    draw = drawing(buffer, CLIPS, CLIP)

    def sample() -> list[Any]:
        at = draw()
        return [buffer.get(at, name) for name in ("obs", "rew", "act", "terminated")]

    def look_at_windows() -> checks.Findings:
        return checks.picture_sequences(of, pictures, checks.Live(size, len(of)), *sample()[:2])

    return Job(sample, lambda: checks.several(look_at_windows, 3))


@way("W5i", "sample_avail, get")
def clips_by_sample_avail(size: int) -> Job:
    return clips(size, by_sample_avail)


@way("W5i", "rejection by prev, get")
def clips_by_prev(size: int) -> Job:
    return clips(size, by_prev)


# ---- stacks ----------------------------------------------------------------------------------------------------------


@way("W4", "stack_num=4, ignore_obs_next")
def stacks(size: int) -> Job:
    of, pictures = rows.picture_line(size), Pictures((84, 84))
    buffer = ReplayBuffer(size, stack_num=rows.STACK, ignore_obs_next=True)
    load(buffer, of, obs=pictures.draw(of.pictures), act=np.arange(len(of)) % 4, rew=np.arange(len(of)) % 997.0)
    sample = functools.partial(buffer.sample, STACKS)

    def look_at_stacks() -> checks.Findings:
        batch = sample()[0]
        return checks.stacks(of, pictures, checks.Live(size, len(of)), batch.obs, batch.obs_next, batch.rew)

    return Job(sample, lambda: checks.several(look_at_stacks, 10))
