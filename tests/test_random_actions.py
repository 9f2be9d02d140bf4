"""Random actions: as the space samples them, lane by lane."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from ringback.random_actions import RandomActions
from ringback.vector_rows import row_splitter
from tests.counting import plain

INFINITE = np.inf
SPACES: list[gym.Space[Any]] = [
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 300], start=[0, 7]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiBinary([2, 3]),
    spaces.Box(-1.0, 3.0, (2,), np.float32),
    spaces.Box(0, 255, (2, 2), np.uint8),
    spaces.Box(-3, 2, (), np.int32),
    spaces.Box(-(2**62), 2**62, (1,), np.int64),
    spaces.Box(np.array([-1, -INFINITE, 5, -INFINITE], np.float32), np.array([1, INFINITE, INFINITE, -5], np.float32)),
    spaces.Dict({"z": spaces.Discrete(3), "a": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    spaces.Tuple([spaces.Discrete(3), spaces.Text(5)]),
]


def generators(count: int, first: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng(first + lane) for lane in range(count)]


@pytest.mark.parametrize("space", SPACES, ids=str)
class TestAnySpace:
    def test_actions_are_of_the_space_and_spread_like_its_samples(self, space: gym.Space[Any]) -> None:
        actions = RandomActions(space, generators(2))
        split = row_splitter(space)
        items = [item for _ in range(700) for item in split(actions.draw(None))]
        boxed = [
            np.asarray(item) if isinstance(space, spaces.Box) else item for item in items
        ]  # a Box takes no scalars
        assert all(item in space for item in boxed)
        space.seed(0)
        samples = [space.sample() for _ in range(1400)]
        if not isinstance(space, spaces.Dict | spaces.Tuple):
            ours, theirs = np.array(items, float), np.array(samples, float)
            assert items[0].dtype == space.dtype
            for statistic in (np.mean, np.std):
                # Five standard errors, for the mean; the spread of a spread is no larger for these distributions.
                near = 5 * theirs.std(0) * np.sqrt(4 / 1400)
                assert (np.abs(statistic(ours, 0) - statistic(theirs, 0)) <= near).all()

    def test_each_lane_is_on_its_own(self, space: gym.Space[Any]) -> None:
        split = row_splitter(space)

        def play(lanes: list[int], pattern: list[list[int]]) -> list[list[Any]]:
            actions = RandomActions(space, [np.random.default_rng(lane) for lane in lanes])
            used: list[list[Any]] = [[] for _ in lanes]
            for rows in pattern:
                mask = np.isin(range(len(lanes)), rows)
                items = split(actions.draw(None if mask.all() and len(used[0]) % 2 else mask))
                assert len(items) == len(lanes)
                for row in rows:
                    used[row].append(plain(items[row]))
            return used

        three = play([0, 1, 2], [[0, 1, 2]] * 600)
        assert three[0] != three[1] != three[2]
        assert play([1], [[0]] * 600)[0] == three[1]
        # Rows that are no steps use up nothing.
        halting = play([0, 1, 2], [[row for row in range(3) if (time + row) % 4] for time in range(600)])
        for lane in range(3):
            assert halting[lane] == three[lane][: len(halting[lane])]
            assert len(halting[lane]) == 450


def test_what_is_handed_out_is_not_overwritten() -> None:
    actions = RandomActions(spaces.Discrete(1_000_000), generators(1))
    first = actions.draw(None)
    kept = first.tolist()
    for _ in range(600):
        actions.draw(None)
    assert first.tolist() == kept


def test_derived_space_is_asked_itself() -> None:
    class Even(spaces.Discrete):
        def sample(self, *args: Any, **options: Any) -> Any:
            return super().sample(*args, **options) // 2 * 2

    actions = RandomActions(Even(10), generators(1))
    assert {int(actions.draw(None)[0]) for _ in range(200)} == {0, 2, 4, 6, 8}
