"""Environments that count, and the plain loop whose episodes everything else must give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from ringback.episodes import SingleAgentEpisode

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
LENGTHS = [3, 1, 4, 2, 5]

Row = tuple[Any, ...]


class Reusing(gym.Env[Any, Any]):
    """Observation = 100·episode + t (+ 10000·lane), reward = 1000·episode + t, in one array that is written again.

    Episodes are of different lengths, lane by lane. They end in turn by termination, by truncation, and by both.
    """

    observation_space: gym.spaces.Space[Any] = gym.spaces.Box(-1.0, 1e6, (1,), np.float64)
    action_space: gym.spaces.Space[Any] = gym.spaces.Discrete(5, start=2)

    def __init__(self, lane: int = 0, lengths: list[int] | None = None) -> None:
        self.lane = lane
        self.lengths = lengths or LENGTHS[lane:] + LENGTHS[:lane]
        self.episode = -1
        self.t = 0
        self.seeds: list[int | None] = []
        self.actions: list[Any] = []
        self.closed = False
        self._buffer = np.zeros(1)

    def observe(self) -> Any:
        self._buffer[0] = 10_000 * self.lane + 100 * self.episode + self.t
        return self._buffer

    def reward(self, action: Any) -> Any:
        return 1000.0 * self.episode + self.t

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.t = 0
        return self.observe(), {"start": self.episode}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.t += 1
        last = self.t == self.lengths[self.episode % len(self.lengths)]
        terminated, truncated = last and self.episode % 3 != 1, last and self.episode % 3 != 0
        return self.observe(), self.reward(action), terminated, truncated, self.info()

    def info(self) -> dict[str, Any]:
        """Return infos that come and go: numbers that may be zero, nested ones, arrays, texts."""
        if self.t % 2:
            return {"zero": 0, "nested": {"t": self.t, "odd": {"array": np.array([self.t, self.lane])}}}
        return {"even": float(self.t), "text": f"step {self.t}", "nested": {"list": [self.t]}}

    def close(self) -> None:
        self.closed = True


class Counting(Reusing):
    """The same with a new array for each observation.

    In `SAME_STEP` mode gymnasium itself keeps the final observation by reference over the reset, so that an
    environment that reuses its array overwrites it before anybody can see it.
    """

    def observe(self) -> Any:
        return super().observe().copy()


class CountingDict(Counting):
    """The same number in a dict whose keys are not in order, with a tuple in it."""

    observation_space = gym.spaces.Dict(
        {"z": gym.spaces.Box(-1.0, 1e6, (), np.float64), "a": gym.spaces.Tuple([gym.spaces.Discrete(10)])}
    )

    def observe(self) -> Any:
        return {"z": np.array(super().observe()[0]), "a": (self.t,)}


class CountingTuple(Counting):
    """The same number in a tuple."""

    observation_space = gym.spaces.Tuple(
        [gym.spaces.Box(-1.0, 1e6, (2,), np.float32), gym.spaces.MultiBinary(3), gym.spaces.Discrete(100_000)]
    )

    def observe(self) -> Any:
        number = super().observe()[0]
        bits = np.array([self.t >> bit & 1 for bit in range(3)], np.int8)
        return np.array([number, -0.5], np.float32), bits, np.int64(number)


class CountingImage(Counting):
    """Bytes: lane, episode and t in the corners of an image."""

    observation_space = gym.spaces.Box(0, 255, (2, 2, 1), np.uint8)

    def observe(self) -> Any:
        return np.array([[[self.lane], [self.episode]], [[self.t], [7]]], np.uint8)


class Drawing(Counting):
    """Draws observations from its own generator, and rewards actions: to compare down to the last bit.

    A seed makes it forget everything, how many episodes there were, too.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 3.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.episode = -1
        return super().reset(seed=seed, options=options)

    def observe(self) -> Any:
        return self.np_random.normal(size=2).astype(np.float32)

    def reward(self, action: Any) -> Any:
        return float(action @ action)


def lanes(
    kind: Callable[..., gym.Env[Any, Any]],
    count: int,
    mode: AutoresetMode,
    *,
    vector: Callable[..., Any] = SyncVectorEnv,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment of lanes 0 .. count-1."""
    made: VectorEnv[Any, Any, Any] = vector(
        [lambda lane=lane: kind(lane) for lane in range(count)], autoreset_mode=mode, **options
    )
    return made


def plain(value: Any) -> Any:
    """Python numbers, so that rows of any kind compare with ==."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in sorted(value.items())}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return np.asarray(value).tolist()


def by_hand(env: Reusing, steps: int, action: Any = 3) -> list[list[Row]]:
    """The episodes of a plain loop: for each a list of steps (t, obs, action, reward, next obs, flags, infos)."""
    episodes: list[list[Row]] = []
    rows: list[Row] = []
    observation, info = map(plain, env.reset())
    for _ in range(steps):
        after, reward, terminated, truncated, step_info = map(plain, env.step(action))
        rows.append((len(rows), observation, action, reward, after, terminated, truncated, info, step_info))
        observation, info = after, step_info
        if terminated or truncated:
            episodes.append(rows)
            rows = []
            observation, info = map(plain, env.reset())
    return [*episodes, rows] if rows else episodes


def rows_of(chunk: SingleAgentEpisode) -> list[Row]:
    """The steps of a chunk, as `by_hand` gives them."""
    observations, infos = chunk.get_observations(), chunk.get_infos()
    actions, rewards = chunk.get_actions(), chunk.get_rewards()
    assert len(observations) == len(infos) == len(chunk) + 1
    last = len(chunk) - 1
    return [
        (
            chunk.t_started + t,
            plain(observations[t]),
            plain(actions[t]),
            plain(rewards[t]),
            plain(observations[t + 1]),
            chunk.is_terminated and t == last,
            chunk.is_truncated and t == last,
            plain(infos[t]),
            plain(infos[t + 1]),
        )
        for t in range(len(chunk))
    ]


def lane_of(chunk: SingleAgentEpisode) -> int:
    """The lane that a chunk is from, by its first observation."""
    first = plain(chunk.get_observations(0))
    if isinstance(first, dict):
        return int(first["z"]) // 10_000
    if isinstance(first, tuple):
        return int(first[-1]) // 10_000
    return int(first[0]) // 10_000 if np.ndim(first) == 1 else int(first[0][0][0])


def joined(chunks: Iterable[SingleAgentEpisode]) -> dict[int, list[list[Row]]]:
    """Chunks put together by id: for each lane its episodes, in order of their beginnings."""
    by_id: dict[str, list[Row]] = {}
    lanes_of: dict[str, int] = {}
    for chunk in chunks:
        by_id.setdefault(str(chunk.id_), []).extend(rows_of(chunk))
        lanes_of.setdefault(str(chunk.id_), lane_of(chunk))
    found: dict[int, list[list[Row]]] = {}
    for id_, rows in by_id.items():
        found.setdefault(lanes_of[id_], []).append(rows)
    return found


def constant(batch: dict[str, Any]) -> dict[str, Any]:
    """A module that always takes action 3."""
    rows = batch["obs"]
    while not isinstance(rows, np.ndarray):
        rows = next(iter(rows.values())) if isinstance(rows, dict) else rows[0]
    return {"actions": np.full(len(rows), 3)}
