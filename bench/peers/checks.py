"""What is wrong with the rows that a sampler gave, by kind, counted in rows (windows, for sequences)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from rows import GAMMA, Array, Bools, Ints, Pictures, Steps, Timeline, stack_numbers

CROSSES = "cross an episode's end"


@dataclass
class Findings:
    """How many rows were looked at, and how many were wrong in which way."""

    rows: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.rows + other.rows, self.wrong + other.wrong)

    def note(self, kind: str, wrong: npt.ArrayLike) -> None:
        """Count the rows that are wrong in this way."""
        if count := int(np.count_nonzero(wrong)):
            self.wrong[kind] += count


def several(draw: Callable[[], Findings], times: int) -> Findings:
    """Add up the findings of several draws."""
    return sum((draw() for _ in range(times)), Findings())


def plain(value: Any) -> Array:
    """Return an array of any library as NumPy's."""
    return np.asarray(value)


def _differ(given: Any, expected: Array) -> Bools:
    """Tell row by row whether the values differ."""
    values = plain(given).reshape(expected.shape)
    inexact = values.dtype.kind == "f"
    same: Bools = np.isclose(values, expected, rtol=1e-5, atol=1e-5) if inexact else values == expected
    return np.asarray(~same.reshape(len(same), -1).all(axis=1))


@dataclass(frozen=True)
class Live:
    """Which of `steps` steps, written in order and then round and round, a buffer of `size` holds.

    `newest` is the number of writes minus one, or -1 for one round.
    """

    size: int
    steps: int
    newest: int = -1

    def age(self, number: Ints) -> Ints:
        """Return how many newer steps there are."""
        return (self.newest - number) % self.steps

    def gone(self, number: Ints) -> Bools:
        """Tell whether these steps must have been overwritten."""
        return self.age(number) >= self.size

    def numbers(self) -> Ints:
        """Return the numbers of the steps that are there, newest first."""
        return (self.newest - np.arange(self.size)) % self.steps


def transitions(
    steps: Steps,
    live: Live,
    observations: Any,
    actions: Any,
    rewards: Any,
    successors: Any,
    dones: Any,
    *,
    n_step: int = 1,
) -> Findings:
    """Look at rows that must be whole live steps, or n-step sums from them on; None for what was not given."""
    observations = plain(observations)
    number = observations[:, 0].astype(np.int64)
    found = Findings(len(number))
    found.note("overwritten rows", live.gone(number))
    at = np.clip(number, 0, len(steps) - 1)
    summed = np.minimum(np.minimum(steps.timeline.left[at], live.age(at) + 1), n_step)
    last = at + summed - 1
    total = np.zeros(len(at))
    for ahead in range(n_step):
        total += np.where(ahead < summed, GAMMA**ahead * steps.rewards[np.minimum(at + ahead, last)], 0)
    found.note("wrong observations", _differ(observations, steps.observations[at]))
    found.note("wrong rewards", _differ(rewards, total.astype(np.float32)))
    for kind, given, expected in (
        ("wrong actions", actions, steps.actions[at]),
        ("wrong successors", successors, steps.next_observations[last]),
        ("wrong dones", dones, steps.terminations[last]),
    ):
        if given is not None:
            found.note(kind, _differ(given, expected))
    return found


def sequences(steps: Steps, live: Live, observations: Any, actions: Any, rewards: Any, dones: Any) -> Findings:
    """Look at windows (B, L, ...) that must be consecutive live steps of one episode."""
    observations = plain(observations)
    number = observations[..., 0].astype(np.int64)
    found = _windows(steps.timeline, live, number)
    at = np.clip(number, 0, len(steps) - 1)
    wrong = np.zeros(len(number), np.bool_)
    for given, column in (
        (observations, steps.observations),
        (actions, steps.actions),
        (rewards, steps.rewards),
        (dones, steps.terminations),
    ):
        wrong |= _differ(given, column[at])
    found.note("wrong columns", wrong)
    return found


def picture_sequences(of: Timeline, pictures: Pictures, live: Live, observations: Any, rewards: Any) -> Findings:
    """Look at windows of pictures."""
    shown, whole = pictures.read(plain(observations), 2)
    number = np.searchsorted(of.pictures, shown, "right") - 1
    found = _windows(of, live, number)
    found.note("wrong observations", ~(whole & (of.pictures[number] == shown)).all(axis=1))
    found.note("wrong columns", _differ(rewards, (number % 997).astype(np.float32)))
    return found


def _windows(of: Timeline, live: Live, number: Ints) -> Findings:
    found = Findings(len(number))
    found.note("overwritten rows", live.gone(number).any(axis=1))
    found.note("steps out of order", (number != number[:, :1] + np.arange(number.shape[1])).any(axis=1))
    episode = of.episode[np.clip(number, 0, len(of) - 1)]
    found.note(CROSSES, (episode != episode[:, :1]).any(axis=1))
    return found


def stacks(of: Timeline, pictures: Pictures, live: Live, observations: Any, successors: Any, rewards: Any) -> Findings:
    """Look at stacks of pictures (B, k, ...), oldest first, and the stacks that they lead to."""
    shown, whole = pictures.read(plain(observations), 2)
    number = np.clip(np.searchsorted(of.pictures, shown[:, -1], "right") - 1, 0, len(of) - 1)
    found = Findings(len(number))
    found.note("overwritten rows", live.gone(number))
    depth = shown.shape[1]
    found.note("wrong observations", ~whole.all(axis=1) | _differ(shown, stack_numbers(of, number, 0, depth)))
    after, whole = pictures.read(plain(successors), 2)
    found.note("wrong successors", ~whole.all(axis=1) | _differ(after, stack_numbers(of, number, 1, depth)))
    found.note("wrong rewards", _differ(rewards, (number % 997).astype(np.float32)))
    return found


# ---- priorities ------------------------------------------------------------------------------------------------------

ALPHA, BETA = 0.6, 0.4
CLASSES = 7


def errors_of(numbers: Ints) -> Array:
    """Return the |td| that the check gives to these steps: seven classes of them."""
    return (0.5 + numbers % CLASSES).astype(np.float32)


def priorities(live: Live, draws: Iterable[tuple[Any, Any]]) -> Findings:
    """Look at (observations, weights) drawn where every live step had `errors_of` its number; weights may be None.

    Every class must come as often as its share of the mass says, within five standard deviations, and weights must go
    with the power -β of the probabilities.
    """
    there = live.numbers()
    mass = errors_of(there).astype(np.float64) ** ALPHA
    share = np.bincount(there % CLASSES, mass) / mass.sum()
    found, counts = Findings(), np.zeros(CLASSES, np.int64)
    for observations, weights in draws:
        number = plain(observations)[:, 0].astype(np.int64)
        found.rows += len(number)
        found.note("overwritten rows", live.gone(number))
        counts += np.bincount(number % CLASSES, minlength=CLASSES)
        if weights is not None:
            level = plain(weights).reshape(-1) * errors_of(number).astype(np.float64) ** (ALPHA * BETA)
            found.note("wrong weights", np.abs(level / np.median(level) - 1) > 0.01)
    deviation = np.sqrt(found.rows * share * (1 - share))
    off = np.abs(counts - found.rows * share) > 5 * deviation
    found.note("drawn too often or too seldom", off.repeat(counts))
    return found
