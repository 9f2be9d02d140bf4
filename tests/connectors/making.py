"""Episodes of counting data that start, end and are cut everywhere: observation = 100 * episode + t."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import strategies as st

from ringback.connectors import Rows, stacked
from ringback.connectors.columns import row_count
from ringback.episodes import SingleAgentEpisode
from tests.reference.connectors import Cut, Story

Array = np.ndarray[Any, Any]

BIG = 1e6
OBSERVATION_SPACES: dict[str, gym.Space[Any]] = {
    "box": gym.spaces.Box(-BIG, BIG, (3,), np.float32),
    "number": gym.spaces.Box(-BIG, BIG, (), np.float64),
    "image": gym.spaces.Box(0, 255, (2, 4, 1), np.uint8),
    "discrete": gym.spaces.Discrete(900, start=-20),
    "dict": gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (2, 2), np.uint8),
            "mode": gym.spaces.Discrete(4, start=1),
            "place": gym.spaces.Box(-BIG, BIG, (2,), np.float64),
            "wheels": gym.spaces.MultiDiscrete([3, 5]),
        }
    ),
    "tuple": gym.spaces.Tuple(
        [gym.spaces.Box(-BIG, BIG, (), np.float32), gym.spaces.Dict({"on": gym.spaces.MultiBinary(3)})]
    ),
}
ACTION_SPACES: dict[str, gym.Space[Any]] = {
    "discrete": gym.spaces.Discrete(7, start=-3),
    "multi": gym.spaces.MultiDiscrete([3, 4, 2], start=[1, 0, -5]),
    "box": gym.spaces.Box(-BIG, BIG, (2,), np.float32),
    "dict": gym.spaces.Dict(
        {
            "a": gym.spaces.Discrete(3, start=2),
            "b": (gym.spaces.MultiDiscrete([2, 3])),
            "c": gym.spaces.Box(-9, 9, (1,)),
        }
    ),
}


def byte(n: int) -> int:
    return 1 + n % 251


OBSERVATIONS: dict[str, Callable[[int], Any]] = {
    "box": lambda n: np.array([n, -n, n + 0.5], np.float32),
    "number": lambda n: np.float64(n + 0.25),
    "image": lambda n: np.arange(8).reshape(2, 4, 1).astype(np.uint8) + np.uint8(byte(n) % 200),
    "discrete": lambda n: np.int64(n - 20),
    "dict": lambda n: {
        "camera": np.full((2, 2), byte(n), np.uint8),
        "mode": np.int64(1 + n % 4),
        "place": np.array([n, 2 * n], np.float64),
        "wheels": np.array([n % 3, n % 5]),
    },
    "tuple": lambda n: (np.float32(n), {"on": np.array([n % 2, 1, (n // 2) % 2], np.int8)}),
}
ACTIONS: dict[str, Callable[[int], Any]] = {
    "discrete": lambda n: np.int64(n % 7 - 3),
    "multi": lambda n: np.array([1 + n % 3, n % 4, n % 2 - 5]),
    "box": lambda n: np.array([n + 1, -n - 1], np.float32),
    "dict": lambda n: {
        "a": np.int64(2 + n % 3),
        "b": np.array([n % 2, n % 3]),
        "c": np.array([n % 9 + 0.5], np.float32),
    },
}


def state(n: int) -> Any:
    """What comes out of a step."""
    return {"h": np.array([n, -n], np.float32), "c": (np.float32(n + 0.5),)}


INITIAL: Any = {"h": np.array([-7, -8], np.float32), "c": (np.float32(-9),)}


def story(number: int, steps: int, observations: str = "box", actions: str = "discrete") -> Story:
    """A whole episode of that many steps."""
    first = 100 * number
    return Story(
        [OBSERVATIONS[observations](first + t) for t in range(steps + 1)],
        [ACTIONS[actions](first + t) for t in range(steps)],
        [first + t + 0.5 for t in range(steps)],
        [state(first + t + 1) for t in range(steps)],
    )


def episode(
    cut: Cut, observations: str = "box", actions: str = "discrete", *, arrays: bool = False, **more: Any
) -> SingleAgentEpisode:
    """The chunk of a story."""
    whole, begin = cut.story, cut.oldest
    out = SingleAgentEpisode(
        observations=whole.observations[begin : cut.stop + 1],
        observation_space=OBSERVATION_SPACES[observations],
        actions=whole.actions[begin : cut.stop],
        action_space=ACTION_SPACES[actions],
        rewards=whole.rewards[begin : cut.stop],
        extra_model_outputs={"state_out": whole.states[begin : cut.stop]} if whole.steps else {},
        terminated=cut.stop == whole.steps > 0,
        t_started=cut.start,
        len_lookback_buffer=cut.lookback,
        **more,
    )
    return out.to_numpy() if arrays else out


@dataclass(frozen=True)
class Chunks:
    """Some chunks, and of which kinds their observations and actions are."""

    observations: str
    actions: str
    cuts: list[Cut]

    @property
    def action_space(self) -> gym.Space[Any]:
        return ACTION_SPACES[self.actions]

    @property
    def observation_space(self) -> gym.Space[Any]:
        return OBSERVATION_SPACES[self.observations]

    def episodes(self, form: str = "lists") -> list[SingleAgentEpisode]:
        """The episodes: "lists", "arrays", or "mixed" in turn."""
        arrays = {"lists": (False, False), "arrays": (True, True), "mixed": (False, True)}[form]
        return [episode(cut, self.observations, self.actions, arrays=arrays[k % 2]) for k, cut in enumerate(self.cuts)]


@st.composite
def chunks(draw: st.DrawFn, least_steps: int = 0, full_lookback: bool = False) -> Chunks:
    """One to four chunks, of stories of up to 7 steps, cut anywhere, with any lookback."""
    kinds = draw(st.sampled_from(sorted(OBSERVATION_SPACES))), draw(st.sampled_from(sorted(ACTION_SPACES)))
    found = []
    for number in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(least_steps, 7))
        start = draw(st.integers(0, steps - least_steps))
        stop = draw(st.integers(start + least_steps, steps))
        lookback = start if full_lookback else draw(st.integers(0, start))
        found.append(Cut(story(number, steps, *kinds), start, stop, lookback))
    return Chunks(*kinds, found)


FORMS = st.sampled_from(["lists", "arrays", "mixed"])


def rows_of(column: Any, episodes: list[SingleAgentEpisode]) -> list[int]:
    """How many rows of each episode a custom piece finds in a column."""
    return [row_count(column[(one.id_,)]) for one in episodes]


def leaves_of(data: Any, path: str = "") -> dict[str, Array]:
    """All arrays of a column, by their path."""
    if isinstance(data, Rows):
        return leaves_of(stacked(data), path)
    if isinstance(data, dict):
        parts = [leaves_of(value, f"{path}/{key}") for key, value in data.items()]
    elif isinstance(data, tuple):
        parts = [leaves_of(value, f"{path}/{k}") for k, value in enumerate(data)]
    else:
        return {path: np.asarray(data)}
    return {name: leaf for part in parts for name, leaf in part.items()}


def assert_same(got: Any, want: Any) -> None:
    """Check that two columns are the same bit for bit, dtypes too."""
    ours, theirs = leaves_of(got), leaves_of(want)
    assert ours.keys() == theirs.keys()
    for path, leaf in theirs.items():
        assert ours[path].dtype == leaf.dtype, (path, ours[path].dtype, leaf.dtype)
        np.testing.assert_array_equal(ours[path], leaf, err_msg=path)
