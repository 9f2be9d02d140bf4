"""stable-baselines3: torch tensors out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import checks
import numpy as np
import rows
import torch
from gymnasium import spaces
from rows import Pictures, Steps
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from work import BATCH, STACKS, Job, repeat, way

PACKAGES = ("stable-baselines3", "numpy", "torch")
UNSUPPORTED = {
    "W5v": "no sequence sampling",
    "W5i": "no sequence sampling",
    "W6": "no prioritised sampling",
}
torch.set_num_threads(1)

OBSERVATION = spaces.Box(-np.inf, np.inf, (rows.OBSERVATION,), np.float32)
ACTION = spaces.Box(-np.inf, np.inf, (rows.ACTION,), np.float32)
SPARE: dict[str, bool] = {"optimize_memory_usage": True, "handle_timeout_termination": False}


def fields(steps: Steps, side_by_side: Callable[[Any], Any]) -> zip[tuple[Any, ...]]:
    """Return the arguments of `add` as a vector environment gives them, write by write."""
    ended, cut = side_by_side(steps.timeline.ends), side_by_side(steps.truncations)
    infos = [[{"TimeLimit.truncated": True} if one else {} for one in flags] for flags in cut.tolist()]
    columns = (steps.observations, steps.next_observations, steps.actions, steps.rewards)
    return zip(*map(side_by_side, columns), ended, infos, strict=True)


def alone(column: Any) -> Any:
    """Return a column with an axis for the one environment."""
    return column[:, None]


def filled(steps: Steps, buffer: Any) -> Any:
    """Write the steps one by one."""
    for given in fields(steps, alone):
        buffer.add(*given)
    return buffer


def sampling(steps: Steps, size: int, buffer: Any, n_step: int = 1) -> Job:
    """Sample transitions and look at them."""
    sample = functools.partial(buffer.sample, BATCH)

    def look() -> checks.Findings:
        batch = sample()
        columns = (batch.observations, batch.actions, batch.rewards, batch.next_observations, batch.dones)
        return checks.transitions(steps, checks.Live(size, len(steps)), *columns, n_step=n_step)

    return Job(sample, lambda: checks.several(look, 40))


# ---- writing ---------------------------------------------------------------------------------------------------------


def writer(size: int, steps: Steps, buffer: Any, side_by_side: Callable[[Any], Any]) -> Job:
    """Write the same steps round and round; the first rounds fill the buffer."""
    arguments = list(fields(steps, side_by_side))
    run = repeat(buffer.add, arguments)
    for _ in range(size // len(steps) + 1):
        run()
    return Job(run, sampling(steps, len(steps), buffer).check, len(arguments))


@way("W1", "add", "")
def add(size: int) -> Job:
    buffer = ReplayBuffer(size, spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2), "cpu")
    return writer(size, rows.small_vectors(), buffer, alone)


@way("W1", "add, optimize_memory_usage", "")
def add_spare(size: int) -> Job:
    space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return writer(size, rows.small_vectors(), ReplayBuffer(size, space, spaces.Discrete(2), "cpu", **SPARE), alone)


@way("W2", "add of 16 environments", "")
def add_streams(size: int) -> Job:
    buffer = ReplayBuffer(size, OBSERVATION, ACTION, "cpu", n_envs=rows.STREAMS)
    return writer(size, rows.stream_vectors(), buffer, rows.side_by_side)


# ---- transitions -----------------------------------------------------------------------------------------------------


@way("W3", "sample", "torch")
def uniform(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    return sampling(steps, size, filled(steps, ReplayBuffer(size, OBSERVATION, ACTION, "cpu")))


@way("W3", "sample, optimize_memory_usage", "torch")
def uniform_spare(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    return sampling(steps, size, filled(steps, ReplayBuffer(size, OBSERVATION, ACTION, "cpu", **SPARE)))


@way("W7", "NStepReplayBuffer", "torch")
def three_step(size: int) -> Job:
    steps = rows.mixed_vectors(size)
    buffer = NStepReplayBuffer(size, OBSERVATION, ACTION, "cpu", n_steps=rows.N_STEP, gamma=rows.GAMMA)
    return sampling(steps, size, filled(steps, buffer), rows.N_STEP)


# ---- stacks ----------------------------------------------------------------------------------------------------------


def stacks(size: int, **options: bool) -> Job:
    """Whole stacks, as an Atari wrapper hands them over."""
    of, pictures = rows.picture_line(size), Pictures((84, 84))
    space = spaces.Box(0, 255, (rows.STACK, 84, 84), np.uint8)
    buffer = ReplayBuffer(size, space, spaces.Discrete(4), "cpu", **options)
    for part in of.parts(200):
        steps = np.arange(part.start, part.stop)
        now, after = (pictures.draw(rows.stack_numbers(of, steps, ahead)) for ahead in (0, 1))
        for i, step in enumerate(steps.tolist()):
            buffer.add(
                now[i : i + 1],
                after[i : i + 1],
                np.array([step % 4]),
                np.array([step % 997], np.float32),
                of.ends[step : step + 1],
                [{"TimeLimit.truncated": bool(of.truncations[step])}],
            )
    sample = functools.partial(buffer.sample, STACKS)

    def look() -> checks.Findings:
        batch = sample()
        live = checks.Live(size, len(of))
        return checks.stacks(of, pictures, live, batch.observations, batch.next_observations, batch.rewards)

    return Job(sample, lambda: checks.several(look, 10), holds=size)


@way("W4", "whole stacks, optimize_memory_usage", "torch")
def stacks_spare(size: int) -> Job:
    return stacks(size, **SPARE)


@way("W4", "whole stacks, stored twice (at most 20,000 steps)", "torch")
def stacks_twice(size: int) -> Job:
    return stacks(min(size, 20_000))
