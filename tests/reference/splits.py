"""Splits: one of every k units is held out. Which one, the oracle is told or sees; from then on it must stay so."""

from __future__ import annotations

from collections.abc import Iterable

from tests.reference.replay import Episode, ReplayOracle


class SplitOracle:
    """What is known of a split: the place of the held-out unit in each group of k."""

    def __init__(self, oracle: ReplayOracle, validation: float) -> None:
        self.oracle = oracle
        self.k = round(1 / validation)
        self.places: dict[int, int] = {}  # group → the place of its held-out unit
        self.trained: set[int] = set()  # units that were seen on the other side

    def learn(self, train: Iterable[int], validation: Iterable[int]) -> None:
        """Take over which steps lie where, and refuse what contradicts the rule or what was seen before."""
        train, validation = set(train), set(validation)
        assert not train & validation, "a step on both sides"
        assert train | validation == set(self.oracle.live()), "a step on no side"
        for side, numbers in (("validation", validation), ("train", train)):
            for number in numbers:
                self._learn_unit(self.oracle.home[number][0].unit, side)
        for group in {unit // self.k for unit in self.trained}:
            units = set(range(group * self.k, (group + 1) * self.k))
            assert units - self.trained, f"none of group {group} is held out"

    def _learn_unit(self, unit: int, side: str) -> None:
        group, place = divmod(unit, self.k)
        if side == "validation":
            assert self.places.setdefault(group, place) == place, f"two of group {group} are held out"
            assert unit not in self.trained, f"unit {unit} has changed sides"
        else:
            assert self.places.get(group) != place, f"unit {unit} has changed sides, or an episode lies on both"
            self.trained.add(unit)

    def side_of(self, episode: Episode, t: int) -> str:
        """Return the side of a step, once it was learnt."""
        group, place = divmod(episode.unit, self.k)
        return "validation" if self.places.get(group) == place else "train"


def held_out(count: int, k: int) -> tuple[int, int]:
    """Return the least and the most that may be held out of the first `count` units."""
    return count // k, -(-count // k)
