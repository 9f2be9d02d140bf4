"""What a library's module offers: named ways of doing the work of a workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from checks import Findings
from rows import Array

BATCH = 256
SEQUENCES, LENGTH = 32, 50
CLIPS, CLIP = 16, 64
STACKS = 32


@dataclass(frozen=True)
class Job:
    """One way of doing the work on one size, ready to run.

    Parameters
    ----------
    run : makes `calls` calls of the work each time
    check : looks at answers of the same work
    calls : int
    holds : steps that are stored, where it is not the size that was asked for
    """

    run: Callable[[], object]
    check: Callable[[], Findings]
    calls: int = 1
    holds: int = 0


Build = Callable[[int], Job]


@dataclass(frozen=True)
class Way:
    """A way by its name in the tables; `build` takes a size in steps."""

    workload: str
    name: str
    gives: str
    build: Build


WAYS: list[Way] = []


def way(workload: str, name: str, gives: str = "numpy") -> Callable[[Build], Build]:
    """Register a function that builds a job; what the call gives is "numpy", "torch", "jax" or "" (nothing)."""

    def register(build: Build) -> Build:
        WAYS.append(Way(workload, name, gives, build))
        return build

    return register


def td_errors() -> Iterator[Array]:
    """Give |td| of 256 rows, drawn once, round and round: a learner's errors at no cost."""
    return cycle(np.random.default_rng(3).random((64, BATCH), np.float32) + 0.01)


def repeat(step: Callable[..., object], arguments: Iterable[tuple[Any, ...]]) -> Callable[[], None]:
    """Return a function that calls `step` with each of these arguments, once round."""
    prepared = list(arguments)

    def run() -> None:
        for given in prepared:
            step(*given)

    return run
