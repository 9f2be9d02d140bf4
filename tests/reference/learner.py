"""What a learner's batch must hold, written down step by step: no arrays over time, no cleverness.

A play is a whole episode whose data follow from its number and the time; a chunk is some of its steps. All functions
give one item a row, chunk after chunk and by time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Play:
    """An episode of counting data."""

    number: int
    steps: int
    terminated: bool = False
    truncated: bool = False

    def observation(self, t: int) -> float:
        return 100.0 * self.number + t

    def action(self, t: int) -> int:
        return 50 * self.number + t

    def reward(self, t: int) -> float:
        return ((7 * self.number + 3 * t) % 11) / 4 - 1

    def logp(self, t: int) -> float:
        return -(1 + t + self.number) / 8

    def state_out(self, t: int) -> float:
        return 1000.0 * self.number + t + 1


@dataclass(frozen=True)
class Chunk:
    """The steps start <= t < stop of a play."""

    play: Play
    start: int
    stop: int
    lookback: int = 0

    @property
    def holds_the_end(self) -> bool:
        return self.start < self.stop == self.play.steps

    @property
    def terminated(self) -> bool:
        return self.holds_the_end and self.play.terminated

    @property
    def truncated(self) -> bool:
        return self.holds_the_end and self.play.truncated


@dataclass(frozen=True)
class Step:
    """One row: time t of a chunk; the one that was added for its value alone is not real."""

    chunk: Chunk
    t: int
    real: bool = True

    @property
    def is_last(self) -> bool:
        return self.real and self.t == self.chunk.stop - 1


def steps_of(chunks: Sequence[Chunk], one_more: bool = False) -> list[Step]:
    out = []
    for chunk in chunks:
        for t in range(chunk.start, chunk.stop):
            out.append(Step(chunk, t))
        if one_more and chunk.start < chunk.stop:
            out.append(Step(chunk, chunk.stop, real=False))
    return out


def columns(chunks: Sequence[Chunk], one_more: bool = False, initial_state: float = 0.0) -> dict[str, list[Any]]:
    """Every column of a batch."""
    names = "obs new_obs actions rewards terminateds truncateds action_logp loss_mask state_in time number"
    out: dict[str, list[Any]] = {name: [] for name in names.split()}
    for step in steps_of(chunks, one_more):
        chunk, play, t = step.chunk, step.chunk.play, step.t
        acted = t if step.real else t - 1  # the step that was added repeats what was done at the last real one
        out["obs"].append(play.observation(t))
        out["new_obs"].append(play.observation(t + 1 if step.real else t))
        out["actions"].append(play.action(acted))
        out["rewards"].append(play.reward(t) if step.real else 0.0)
        out["action_logp"].append(play.logp(acted))
        out["terminateds"].append(step.is_last and chunk.terminated)
        open_end = one_more and not chunk.terminated
        out["truncateds"].append(step.is_last and (chunk.truncated or open_end))
        out["loss_mask"].append(step.real)
        out["state_in"].append(play.state_out(t - 1) if t > 0 else initial_state)
        out["time"].append(t)
        out["number"].append(play.number)
    return out


def advantages(
    chunks: Sequence[Chunk], value: Callable[[float], float], gamma: float, lambda_: float
) -> tuple[list[float], list[float]]:
    """GAE and value targets of the real steps, by the recursion, from each chunk's end to its start."""
    found: dict[Step, tuple[float, float]] = {}
    for chunk in chunks:
        running = 0.0
        for t in reversed(range(chunk.start, chunk.stop)):
            step = Step(chunk, t)
            here = value(chunk.play.observation(t))
            following = value(chunk.play.observation(t + 1))
            if step.is_last and chunk.terminated:
                following = 0.0
            running = chunk.play.reward(t) + gamma * following - here + gamma * lambda_ * running
            found[step] = running, running + here
    ordered = [found[step] for step in steps_of(chunks)]
    return [advantage for advantage, _ in ordered], [target for _, target in ordered]


def normalised(advantages: Sequence[float]) -> list[float]:
    """Shift and scale to mean 0 and deviation 1."""
    mean = sum(advantages) / len(advantages)
    deviation = np.sqrt(sum((a - mean) ** 2 for a in advantages) / len(advantages))
    return [(a - mean) / max(1e-4, deviation) for a in advantages]


def returns_to_go(chunks: Sequence[Chunk], gamma: float) -> list[float]:
    """Discounted rewards from each step to the end of its chunk, each sum made anew."""
    out = []
    for step in steps_of(chunks):
        total, discount = 0.0, 1.0
        for t in range(step.t, step.chunk.stop):
            total += discount * step.chunk.play.reward(t)
            discount *= gamma
        out.append(total)
    return out


def n_step(chunks: Sequence[Chunk], n: int, gamma: float) -> dict[str, list[Any]]:
    """Sums of up to n rewards inside of the chunk, and where they lead."""
    names = "rewards new_obs terminateds truncateds discounts n_steps"
    out: dict[str, list[Any]] = {name: [] for name in names.split()}
    for step in steps_of(chunks):
        chunk, play = step.chunk, step.chunk.play
        total, discount, summed = 0.0, 1.0, 0
        for t in range(step.t, min(step.t + n, chunk.stop)):
            total += discount * play.reward(t)
            discount *= gamma
            summed += 1
        last = Step(chunk, step.t + summed - 1)
        ends = last.is_last and chunk.terminated
        out["rewards"].append(total)
        out["new_obs"].append(play.observation(last.t + 1))
        out["terminateds"].append(ends)
        out["truncateds"].append(last.is_last and chunk.truncated)
        out["discounts"].append(0.0 if ends else discount)
        out["n_steps"].append(summed)
    return out
