"""A replay buffer as a list of steps and a list of episodes: slow, and plain enough to be the truth.

It draws nothing. It answers which steps are live, where windows may start, and what a batch of given ids must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Row = dict[str, Array]  # one row of each leaf, by the leaf's path such as "observation/camera"
Key = int | str  # an int names a stream, a str an episode that comes in chunks


class ChunkError(ValueError):
    """A chunk that does not continue what is known of its episode."""


class MismatchError(ValueError):
    """An observation that differs from the successor given one step earlier."""


@dataclass(frozen=True)
class Leaf:
    """One array of a structured value: where it lies, and one row of it."""

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def box(size: int) -> gym.Space[Any]:
    """Return what an int given for a space means: a float32 vector of that size."""
    return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def children(space: gym.Space[Any]) -> list[tuple[str, gym.Space[Any]]] | None:
    """Return the named parts of a Dict or Tuple space, or None for a leaf."""
    if isinstance(space, gym.spaces.Dict):
        return list(space.spaces.items())
    if isinstance(space, gym.spaces.Tuple):
        return [(str(index), part) for index, part in enumerate(space.spaces)]
    return None


def leaves_of(path: str, space: gym.Space[Any], cast: Mapping[str, str] | None = None) -> list[Leaf]:
    """Return the leaves of a space; a scalar leaf is a row of one. A cast holds for a path and all below it."""
    cast = cast or {}
    parts = children(space)
    if parts is not None:
        inherited = dict(cast)
        for name, _ in parts:
            if path in cast:
                inherited.setdefault(f"{path}/{name}", cast[path])
        return [leaf for name, part in parts for leaf in leaves_of(f"{path}/{name}", part, inherited)]
    shape = space.shape or (1,)
    return [Leaf(path, np.dtype(cast.get(path, space.dtype)), tuple(shape))]


def values_of(path: str, space: gym.Space[Any], value: Any) -> dict[str, Any]:
    """Take a structured value apart into its leaves."""
    parts = children(space)
    if parts is None:
        return {path: value}
    flat: dict[str, Any] = {}
    for name, part in parts:
        flat |= values_of(f"{path}/{name}", part, value[name if isinstance(value, Mapping) else int(name)])
    return flat


def join(path: str, space: gym.Space[Any], columns: Mapping[str, Any]) -> Any:
    """Put leaves together again in the space's structure; the inverse of `values_of`."""
    parts = children(space)
    if parts is None:
        return columns[path]
    whole = {name: join(f"{path}/{name}", part, columns) for name, part in parts}
    return tuple(whole.values()) if isinstance(space, gym.spaces.Tuple) else whole


def same(a: Row, b: Row) -> bool:
    """Tell whether two rows are equal leaf by leaf, NaN equal to NaN."""
    return all(np.array_equal(a[path], b[path], equal_nan=a[path].dtype.kind == "f") for path in a)


@dataclass(eq=False)
class Step:
    """One stored step with everything that was given, nothing shared."""

    number: int
    t: int
    observation: Row
    action: Row
    reward: np.float32
    successor: Row
    terminated: bool
    truncated: bool
    extras: Row
    shared: bool = False  # its successor is the observation of the next step of its episode


@dataclass(eq=False)
class Episode:
    """The live steps of one episode by their time; times go on counting when steps are evicted."""

    key: Key
    unit: int  # counts episodes as they are born; pieces of a stream without a declared end between them share it
    next_t: int = 0
    steps: dict[int, Step] = field(default_factory=dict)
    closed: bool = False

    @property
    def newest(self) -> Step | None:
        """Return the last step, unless that is evicted."""
        return self.steps.get(self.next_t - 1)

    @property
    def first(self) -> int:
        """Return the time of the oldest live step; there must be one."""
        return min(self.steps)


class ReplayOracle:
    """The slow twin of `ReplayBuffer`."""

    def __init__(
        self,
        capacity: int,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        extras: Mapping[str, gym.Space[Any]] | None = None,
        cast: Mapping[str, str] | None = None,
        on_mismatch: str = "keep",
    ) -> None:
        self.capacity = capacity
        self.spaces: dict[str, gym.Space[Any]] = {"observation": observation_space, "action": action_space}
        self.extras = dict(extras or {})
        self.spaces |= self.extras
        self.cast = dict(cast) if cast else None
        self.on_mismatch = on_mismatch
        self.leaves = {
            leaf.path: leaf for name, space in self.spaces.items() for leaf in leaves_of(name, space, self.cast)
        }
        self.written = 0
        self.kept_successors = 0  # how often an observation was another than the successor given before it
        self.episodes: list[Episode] = []
        self.open: dict[Key, Episode] = {}
        self.dormant: list[Key] = []  # open, but all its steps are evicted; the longest so comes first
        self.home: dict[int, tuple[Episode, int]] = {}  # live step number → its episode and its time there
        self.units = 0  # how many have been born
        self.watchers: list[Callable[[], None]] = []  # called whenever a step came or an episode was closed

    # ------------------------------------------------------------------ writing

    def row(self, name: str, value: Any) -> Row:
        """Return a copy of one step's value of a field, in the stored dtype."""
        flat = values_of(name, self.spaces[name], value)
        return {
            path: np.array(part).astype(self.leaves[path].dtype).reshape(self.leaves[path].shape)
            for path, part in flat.items()
        }

    def add(
        self,
        observation: Any,
        action: Any,
        reward: float,
        next_observation: Any,
        terminated: bool,
        truncated: bool = False,
        stream: Key = 0,
        extras: Mapping[str, Any] | None = None,
    ) -> int:
        """Store one step and return its number."""
        given = self.row("observation", observation)
        episode = self.open.get(stream)
        last = None if episode is None else episode.newest
        self._refuse_mismatch(stream, observation)
        differs = last is not None and not same(last.successor, given)
        if differs and self.on_mismatch == "split":
            # A named episode's chunks say their times, so its time counts on; a stream's new episode begins.
            piece = self.open[stream]
            self.end_episode(stream)
            episode, last = self._begin(stream, piece.next_t if isinstance(stream, str) else 0, piece.unit), None
        self.kept_successors += differs and last is not None
        if episode is None:
            episode = self._begin(stream)
        if last is not None:
            last.shared = not differs
        number = self.written
        self.written += 1
        extra_row: Row = {}
        for name in self.extras:
            extra_row |= self.row(name, (extras or {})[name])
        step = Step(
            number,
            episode.next_t,
            given,
            self.row("action", action),
            np.float32(reward),
            self.row("observation", next_observation),
            bool(terminated),
            bool(truncated),
            extra_row,
        )
        self.home[number] = (episode, step.t)
        episode.steps[step.t] = step
        episode.next_t += 1
        if stream in self.dormant:
            self.dormant.remove(stream)
        if terminated or truncated:
            self.open.pop(stream).closed = True
        self._evict()
        self._tell()
        return number

    def add_batch(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminations: Any,
        truncations: Any = None,
        streams: Sequence[int] | None = None,
        extras: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Store one step of each stream: the same as one `add` after the other, or nothing at all."""
        count = len(rewards)
        streams = list(range(count)) if streams is None else list(streams)
        rewards, terminations = np.reshape(rewards, count), np.reshape(terminations, count)
        truncations = np.reshape([False] * count if truncations is None else truncations, count)

        def pick(name: str, whole: Any, index: int) -> Any:
            flat = values_of(name, self.spaces[name], whole)
            return join(name, self.spaces[name], {path: part[index] for path, part in flat.items()})

        for e in range(count):
            self._refuse_mismatch(streams[e], pick("observation", observations, e))
        return [
            self.add(
                pick("observation", observations, e),
                pick("action", actions, e),
                rewards[e],
                pick("observation", next_observations, e),
                terminations[e],
                truncations[e],
                streams[e],
                {name: pick(name, (extras or {})[name], e) for name in self.extras},
            )
            for e in range(count)
        ]

    def add_episode(self, chunk: Any, gap: str = "raise") -> list[int]:
        """Store the steps of one chunk: the same as one `add` after the other, or nothing at all."""
        key, start = chunk.id_, chunk.t_started
        episode = self.open.get(key)
        if episode is None:
            finished = any(e.key == key for e in self.episodes)
            if finished or (start > 0 and gap == "raise"):
                raise ChunkError(key)
            if len(chunk) > 0:
                episode = self._begin(key, start)
        elif start < episode.next_t:
            raise ChunkError(key)
        elif start > episode.next_t:
            if gap == "raise":
                raise ChunkError(key)
            piece = episode
            self.end_episode(key)
            episode = self._begin(key, start, piece.unit)
        elif len(chunk) > 0:
            self._refuse_mismatch(key, chunk.observation_at(0))
        numbers = []
        for t in range(len(chunk)):
            final = t == len(chunk) - 1
            numbers.append(
                self.add(
                    chunk.observation_at(t),
                    chunk.action_at(t),
                    chunk.reward_at(t),
                    chunk.observation_at(t + 1),
                    final and chunk.is_terminated,
                    final and chunk.is_truncated,
                    key,
                    {name: chunk.extra_at(name, t) for name in self.extras},
                )
            )
        if len(chunk) == 0 and episode is not None and (chunk.is_terminated or chunk.is_truncated):
            last = episode.newest
            if last is not None:
                last.terminated |= chunk.is_terminated
                last.truncated |= chunk.is_truncated
            self._close(key)
        return numbers

    def end_episode(self, stream: Key = 0) -> bool:
        """Close the stream's open episode as truncated; tell whether one was open."""
        episode = self.open.get(stream)
        if episode is None:
            return False
        if episode.newest is not None:
            episode.newest.truncated = True
        self._close(stream)
        return True

    def close_open(self) -> None:
        """Close every open episode as truncated."""
        for stream in list(self.open):
            self.end_episode(stream)

    def set(self, numbers: Sequence[int], name: str, values: Any) -> None:
        """Replace a field (or one leaf of it, by its path) of the named steps; the last of duplicates wins."""
        if name == "reward":
            for number, value in zip(numbers, np.asarray(values).reshape(-1), strict=True):
                self.step(number).reward = np.float32(value)
            return
        flat = values_of(name, self.spaces[name], values) if name in self.spaces else {name: values}
        for path, column in flat.items():
            leaf = self.leaves[path]
            for place, number in enumerate(numbers):
                value = np.array(column[place]).astype(leaf.dtype).reshape(leaf.shape)
                step = self.step(number)
                top = path.split("/")[0]
                target = {"observation": step.observation, "action": step.action}.get(top, step.extras)
                target[path] = value
                before = self._before(number)
                if top == "observation" and before is not None and before.shared:
                    before.successor[path] = value

    def _begin(self, key: Key, start: int = 0, unit: int | None = None) -> Episode:
        if unit is None:
            unit = self.units
            self.units += 1
        episode = Episode(key, unit, next_t=start)
        self.episodes.append(episode)
        self.open[key] = episode
        return episode

    def _refuse_mismatch(self, stream: Key, observation: Any) -> None:
        """Raise for a difference where that is asked for; callers do so before they write anything."""
        episode = self.open.get(stream)
        last = None if episode is None else episode.newest
        if self.on_mismatch != "raise" or last is None:
            return
        if not same(last.successor, self.row("observation", observation)):
            raise MismatchError(stream)

    def _close(self, stream: Key) -> None:
        episode = self.open.pop(stream)
        episode.closed = True
        if stream in self.dormant:
            self.dormant.remove(stream)
        if not episode.steps:
            self.episodes.remove(episode)
        self._tell()

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher()

    def _evict(self) -> None:
        number = self.written - 1 - self.capacity
        if number < 0:
            return
        episode, t = self.home.pop(number)
        del episode.steps[t]
        if episode.steps:
            return
        if self.open.get(episode.key) is not episode:
            self.episodes.remove(episode)
            return
        self.dormant.append(episode.key)
        if len(self.dormant) > self.capacity:
            self._close(self.dormant[0])

    def _before(self, number: int) -> Step | None:
        episode, t = self.home[number]
        return episode.steps.get(t - 1)

    # ------------------------------------------------------------------ reading

    @property
    def oldest(self) -> int:
        """Return the smallest live number."""
        return max(0, self.written - self.capacity)

    def __len__(self) -> int:
        return self.written - self.oldest

    @property
    def num_episodes(self) -> int:
        """Return how many episodes have a live step."""
        return sum(bool(episode.steps) for episode in self.episodes)

    @property
    def num_open(self) -> int:
        """Return how many episodes with a live step are open."""
        return sum(bool(episode.steps) for episode in self.open.values())

    def live(self) -> list[int]:
        """Return the live numbers, oldest first."""
        return list(range(self.oldest, self.written))

    def step(self, number: int) -> Step:
        """Return a live step."""
        if not self.oldest <= number < self.written:
            raise IndexError(number)
        episode, t = self.home[number]
        return episode.steps[t]

    def window(self, number: int, length: int) -> list[Step]:
        """Return the up to `length` steps of one episode that begin with a live step."""
        episode, t = self.home[number]
        return [episode.steps[u] for u in range(t, min(t + length, episode.next_t))]

    def is_last(self, step: Step) -> bool:
        """Tell whether no later step of its episode is stored."""
        return self.home[step.number][0].newest is step

    def starts(self, length: int = 1) -> list[int]:
        """Return the starts of all windows of that length, oldest first."""
        homes = [(number, *self.home[number]) for number in self.live()]
        return [number for number, episode, t in homes if t + length <= episode.next_t]

    def transitions(self, numbers: Iterable[int], n_step: int = 1, gamma: float | None = None) -> dict[str, Any]:
        """Return the batch that holds exactly these starts."""
        windows = [self.window(number, n_step) for number in numbers]
        firsts, lasts = [w[0] for w in windows], [w[-1] for w in windows]
        batch = {
            "observations": self._stack("observation", [s.observation for s in firsts]),
            "actions": self._stack("action", [s.action for s in firsts]),
            "rewards": _column([discounted([s.reward for s in w], gamma) for w in windows], np.float32),
            "next_observations": self._stack("observation", [s.successor for s in lasts]),
            "dones": _column([s.terminated for s in lasts], np.float32),
            "terminations": _column([s.terminated for s in lasts], np.bool_),
            "truncations": _column([s.truncated for s in lasts], np.bool_),
            "ids": np.array([s.number for s in firsts], np.int64),
            "extras": {name: self._stack(name, [s.extras for s in firsts]) for name in self.extras},
            "discounts": None,
            "n_steps": None,
        }
        if gamma is not None:
            batch["n_steps"] = _column([len(w) for w in windows], np.int64)
            batch["discounts"] = _column([power(gamma, len(w)) * (not w[-1].terminated) for w in windows], np.float32)
        return batch

    def sequences(self, numbers: Iterable[int], length: int) -> dict[str, Any]:
        """Return the batch of the windows that begin with these starts."""
        numbers = list(numbers)
        steps = [step for number in numbers for step in self.window(number, length)]
        assert len(steps) == len(numbers) * length, "not a valid start"

        def shaped(part: Any) -> Any:
            return part.reshape(len(numbers), length, *part.shape[1:])

        def fold(name: str, rows: list[Row]) -> Any:
            flat = values_of(name, self.spaces[name], self._stack(name, rows))
            return join(name, self.spaces[name], {path: shaped(part) for path, part in flat.items()})

        return {
            "observations": fold("observation", [s.observation for s in steps]),
            "actions": fold("action", [s.action for s in steps]),
            "rewards": shaped(_column([s.reward for s in steps], np.float32)),
            "dones": shaped(_column([s.terminated for s in steps], np.float32)),
            "terminations": shaped(_column([s.terminated for s in steps], np.bool_)),
            "truncations": shaped(_column([s.truncated for s in steps], np.bool_)),
            "is_first": shaped(_column([s.t == 0 for s in steps], np.bool_)),
            "is_last": shaped(_column([self.is_last(s) for s in steps], np.bool_)),
            "ids": shaped(np.array([s.number for s in steps], np.int64)),
            "start_ids": np.array(numbers, np.int64),
            "extras": {name: fold(name, [s.extras for s in steps]) for name in self.extras},
        }

    def _stack(self, name: str, rows: list[Row]) -> Any:
        columns = {
            path: np.array([row[path] for row in rows], leaf.dtype).reshape(len(rows), *leaf.shape)
            for path, leaf in self.leaves.items()
            if path.split("/")[0] == name
        }
        return join(name, self.spaces[name], columns)


def _column(values: Sequence[Any], dtype: Any) -> Array:
    return np.array(values, dtype).reshape(len(values), 1)


def power(gamma: float, exponent: int) -> float:
    """Return gamma to the power of a count, by repeated multiplication in float64."""
    product = 1.0
    for _ in range(exponent):
        product *= gamma
    return product


def discounted(rewards: Sequence[np.float32], gamma: float | None) -> float:
    """Return the discounted sum in float64."""
    return sum(power(1.0 if gamma is None else gamma, k) * float(reward) for k, reward in enumerate(rewards))
