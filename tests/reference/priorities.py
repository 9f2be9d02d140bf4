"""Priorities as a dictionary from start to mass, brought up to date after each step by listing all starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.replay import Array, ReplayOracle
from tests.reference.windows import Request, SideOf, WindowOracle, no_split


class PriorityOracle:
    """The slow twin of what `PrioritizedReplayBuffer` adds; it watches the steps come and go."""

    def __init__(
        self,
        oracle: ReplayOracle,
        request: Request | None = None,
        alpha: float = 0.6,
        eps: float = 1e-6,
        new_priority: str = "max_live",
        weights: str = "buffer",
    ) -> None:
        self.oracle = oracle
        self.request = Request() if request is None else request
        self.alpha, self.eps = alpha, eps
        self.new_priority, self.normalise = new_priority, weights
        self.side_of: SideOf = no_split
        self.side = "all"
        self.mass: dict[int, float] = {}  # the starts that can be drawn
        self.largest_ever = 0.0
        oracle.watchers.append(self.refresh)

    def windows(self) -> WindowOracle:
        """Return what can be drawn."""
        return WindowOracle(self.oracle, self.request, self.side_of, self.side)

    def refresh(self) -> None:
        """Take the mass of what is no start any more, then give new starts theirs."""
        starts = self.windows().starts()
        self.mass = {number: p for number, p in self.mass.items() if number in starts}
        for number in starts:
            if number not in self.mass:
                self.mass[number] = self.for_new()

    def for_new(self) -> float:
        """Return what a new start gets: the largest of the live ones, or the largest that was ever given."""
        if self.new_priority == "max_ever":
            return self.largest_ever or 1.0
        return max(self.mass.values(), default=1.0)

    def update(self, numbers: Sequence[int], abs_td: Sequence[float]) -> int:
        """Give starts the priorities of these errors; return how many ids are no starts, or no more."""
        errors = np.asarray(abs_td, np.float64).reshape(-1)
        if not (np.isfinite(errors).all() and (errors >= 0).all()):
            raise ValueError("a negative, infinite or missing error")
        skipped = 0
        for number, error in zip(numbers, errors, strict=True):
            if number not in self.mass:
                skipped += 1
                continue
            self.mass[number] = float((error + self.eps) ** self.alpha)
            self.largest_ever = max(self.largest_ever, self.mass[number])
        return skipped

    def priorities(self, numbers: Sequence[int]) -> Array:
        """Return the masses of live steps; a step that is no start has none."""
        return np.array([self.mass.get(number, 0.0) for number in numbers])

    def probabilities(self) -> dict[int, float]:
        """Return the chance of each start in one draw."""
        total = sum(self.mass.values())
        return {number: p / total for number, p in self.mass.items()}

    def weights(self, numbers: Sequence[int], beta: float) -> Array:
        """Return (N * P)^-beta of these draws, divided by the largest of the buffer or of the batch."""
        chances = self.probabilities()
        raw = {number: (len(chances) * chance) ** -beta for number, chance in chances.items()}
        largest = max(raw.values() if self.normalise == "buffer" else [raw[number] for number in numbers])
        return np.array([[raw[number] / largest] for number in numbers], np.float32)
