"""cpprb: NumPy in and out, everything by keyword."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import checks
import numpy as np
import rows
from cpprb import PrioritizedReplayBuffer, ReplayBuffer
from rows import Pictures, Steps
from work import BATCH, STACKS, Job, repeat, td_errors, way

PACKAGES = ("cpprb", "numpy")
UNSUPPORTED = {"W5v": "no sequence sampling", "W5i": "no sequence sampling"}

Fields = dict[str, dict[str, Any]]


def fields(observation: int, action: Any, successor: bool = True) -> Fields:
    """Declare the columns; without `successor` the buffer derives it (`next_of`)."""
    declared: Fields = {"obs": {"shape": observation}, "act": action, "rew": {}, "done": {}}
    return declared | ({"next_obs": {"shape": observation}} if successor else {})


VECTORS = fields(rows.OBSERVATION, {"shape": rows.ACTION})


def filled(steps: Steps, buffer: Any) -> Any:
    """Write the steps episode by episode."""
    for part in steps.timeline.parts(10_000):
        buffer.add(
            obs=steps.observations[part],
            act=steps.actions[part],
            rew=steps.rewards[part].copy(),  # n-step writes its sums into the caller's array
            next_obs=steps.next_observations[part],
            done=steps.terminations[part],
        )
        if steps.timeline.ends[part.stop - 1]:
            buffer.on_episode_end()
    return buffer


def look(steps: Steps, size: int, batch: dict[str, Any], n_step: int = 1) -> checks.Findings:
    """Look at one batch."""
    columns = (batch[name] for name in ("obs", "act", "rew", "next_obs", "done"))
    live = checks.Live(size + n_step - 1, len(steps))  # the newest n - 1 wait for their sums outside of the ring
    return checks.transitions(steps, live, *columns, n_step=n_step)


def sampling(steps: Steps, size: int, buffer: Any, n_step: int = 1) -> Job:
    """Sample transitions and look at them."""
    sample = functools.partial(buffer.sample, BATCH)
    return Job(sample, lambda: checks.several(lambda: look(steps, size, sample(), n_step), 40))


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(size: int, steps: Steps, buffer: Any, columns: list[Any], add: Callable[..., None], writes: int) -> Job:
    """Write the same steps round and round; the first rounds fill the buffer."""
    run = repeat(add, zip(*columns, strict=True))
    for _ in range(size // len(steps) + 1):
        run()
    check = lambda: checks.several(lambda: look(steps, len(steps), buffer.sample(BATCH)), 10)  # noqa: E731
    return Job(run, check, writes)


@way("W1", "add", "")
def add(size: int) -> Job:
    steps = rows.small_vectors()
    buffer = ReplayBuffer(size, fields(4, {"dtype": np.int64}))

    def one(observation: Any, action: Any, reward: float, successor: Any, done: bool) -> None:
        buffer.add(obs=observation, act=action, rew=reward, next_obs=successor, done=done)

    columns = [
        steps.observations,
        steps.actions.tolist(),
        steps.rewards.tolist(),
        steps.next_observations,
        steps.terminations.tolist(),
    ]
    return writer(size, steps, buffer, columns, one, len(steps))


@way("W1", "add, next_of", "")
def add_next_of(size: int) -> Job:
    steps = rows.small_vectors()
    buffer = ReplayBuffer(size, fields(4, {"dtype": np.int64}, successor=False), next_of="obs")

    def one(observation: Any, action: Any, reward: float, successor: Any, done: bool, ended: bool) -> None:
        buffer.add(obs=observation, act=action, rew=reward, next_obs=successor, done=done)
        if ended:
            buffer.on_episode_end()

    columns = [
        steps.observations,
        steps.actions.tolist(),
        steps.rewards.tolist(),
        steps.next_observations,
        steps.terminations.tolist(),
        steps.timeline.ends.tolist(),
    ]
    return writer(size, steps, buffer, columns, one, len(steps))


@way("W2", "add of 16 rows", "")
def add_streams(size: int) -> Job:
    steps = rows.stream_vectors()
    buffer = ReplayBuffer(size, VECTORS)

    def one(observation: Any, action: Any, reward: Any, successor: Any, done: Any) -> None:
        buffer.add(obs=observation, act=action, rew=reward, next_obs=successor, done=done)

    columns = [steps.observations, steps.actions, steps.rewards, steps.next_observations, steps.terminations]
    side_by_side = list(map(rows.side_by_side, columns))
    return writer(size, steps, buffer, side_by_side, one, len(side_by_side[0]))


# ---- transitions -----------------------------------------------------------------------------------------------------


@way("W3", "sample")
def uniform(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    return sampling(steps, size, filled(steps, ReplayBuffer(size, VECTORS)))


@way("W3", "sample, next_of")
def uniform_next_of(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    declared = fields(rows.OBSERVATION, {"shape": rows.ACTION}, successor=False)
    return sampling(steps, size, filled(steps, ReplayBuffer(size, declared, next_of="obs")))


@way("W7", "Nstep, at writing")
def three_step(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    summing = {"size": rows.N_STEP, "gamma": rows.GAMMA, "rew": "rew", "next": "next_obs"}
    return sampling(steps, size, filled(steps, ReplayBuffer(size, VECTORS, Nstep=summing)), rows.N_STEP)


@way("W6", "sample, update_priorities")
def priorities(size: int) -> Job:
    steps, errors = rows.mixed_vectors(size), td_errors()
    buffer = filled(steps, PrioritizedReplayBuffer(size, VECTORS, alpha=checks.ALPHA))

    def call() -> Any:
        batch = buffer.sample(BATCH, beta=checks.BETA)
        buffer.update_priorities(batch["indexes"], next(errors))
        return batch

    def check() -> checks.Findings:
        numbers = rows.ring(np.arange(len(steps)), size)
        buffer.update_priorities(np.arange(size), checks.errors_of(numbers))
        draws = (buffer.sample(BATCH, beta=checks.BETA) for _ in range(200))
        return checks.priorities(checks.Live(size, len(steps)), ((batch["obs"], batch["weights"]) for batch in draws))

    return Job(call, check)


# ---- stacks ----------------------------------------------------------------------------------------------------------


@way("W4", "stack_compress, next_of")
def stacks(size: int) -> Job:
    of, pictures = rows.picture_line(size), Pictures((84, 84))
    declared = {"obs": {"shape": (84, 84, rows.STACK), "dtype": np.uint8}, "act": {"dtype": np.int64}}
    buffer = ReplayBuffer(size, declared | {"rew": {}, "done": {}}, next_of="obs", stack_compress="obs")
    for part in of.parts(200):
        steps = np.arange(part.start, part.stop)
        now, after = (np.moveaxis(pictures.draw(rows.stack_numbers(of, steps, ahead)), 1, -1) for ahead in (0, 1))
        buffer.add(obs=now, act=steps % 4, rew=steps % 997, next_obs=after, done=of.terminations[part])
        if of.ends[part.stop - 1]:
            buffer.on_episode_end()
    sample = functools.partial(buffer.sample, STACKS)

    def look_at_stacks() -> checks.Findings:
        batch = sample()
        now, after = (np.moveaxis(batch[name], -1, 1) for name in ("obs", "next_obs"))
        return checks.stacks(of, pictures, checks.Live(size, len(of)), now, after, batch["rew"])

    return Job(sample, lambda: checks.several(look_at_stacks, 10))
