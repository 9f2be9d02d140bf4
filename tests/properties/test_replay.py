"""Random programs on the replay buffer and on its slow twin: after each call both hold the same.

Cited are the invariants of the design: I1 live set, I2 successors, I3 windows, I5 ids, I6 failed calls, I7 streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.replay.twin import Twin
from tests.replay.worlds import Chunk, Space, counted, counted_batch, image, nested, stacked, vector

EXTRAS: dict[str, Space] = {"logp": gym.spaces.Box(-np.inf, np.inf, (), np.float32), "state_in": vector(3, np.float64)}
pytestmark = pytest.mark.filterwarnings("ignore:ReplayBuffer. more than 1 % of the observations differ")
INT64 = np.iinfo(np.int64)


@dataclass
class Worlds:
    """Sub-environments that count: what each stream observes now."""

    space: Space
    action_space: Space
    extras: dict[str, Space]
    nan: bool = False
    episodes: int = 0

    def __post_init__(self) -> None:
        self.now: dict[int | str, int] = {}
        self.times: dict[str, int] = {}

    def begin(self) -> int:
        """Return the first observation's number of a new episode."""
        self.episodes += 1
        return self.episodes * 100

    def observe(self, number: int) -> Any:
        """Return the observation of that number, some with a NaN."""
        return counted(self.space, number, self.nan and number % 3 == 1)

    def extras_at(self, number: int) -> dict[str, Any] | None:
        """Return the extras of a step."""
        return {name: counted(space, number) for name, space in self.extras.items()} or None

    def step(self, stream: int | str, ends: bool, jump: bool) -> tuple[Any, Any, float, Any]:
        """Take a step; with `jump` the observation is another than the successor before."""
        number = self.now.get(stream)
        number = self.begin() if number is None else number + 50 * jump
        if ends:
            self.now.pop(stream, None)
        else:
            self.now[stream] = number + 1
        return self.observe(number), counted(self.action_space, number), number / 4, self.observe(number + 1)

    def chunk(self, id_: str, length: int, flags: tuple[bool, bool], arrays: bool) -> Chunk:
        """Return the next chunk of an episode."""
        number = self.now.get(id_)
        number = self.begin() if number is None else number
        numbers = list(range(number, number + length + 1))
        start = self.times.get(id_, 0)
        self.now[id_] = numbers[-1]
        self.times[id_] = start + length
        return Chunk(
            id_,
            start,
            [self.observe(n) for n in numbers],
            [counted(self.action_space, n) for n in numbers[:-1]],
            [n / 4 for n in numbers[:-1]],
            *flags,
            extras={name: [counted(space, n) for n in numbers[:-1]] for name, space in self.extras.items()},
            arrays_of=(self.space, self.action_space) if arrays else None,
        )


def flags_from(rng: np.random.Generator, chance: float) -> tuple[bool, bool]:
    """Return (terminated, truncated), at least one of them with the given chance."""
    if rng.random() >= chance:
        return False, False
    return [(True, False), (False, True), (True, True)][rng.integers(3)]


class Program:
    """One random program: its sizes, its mix of calls, and one method a kind of call."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        spaces: list[tuple[Space, Space]] = [
            (vector(4), gym.spaces.Discrete(3)),
            (vector(17), vector(6)),
            (image(8, 9), gym.spaces.Discrete(5, start=2)),
            (image(40, 30), gym.spaces.MultiDiscrete([3, 4])),
            (nested(), gym.spaces.Dict({"stick": vector(2), "fire": gym.spaces.Discrete(2)})),
            (vector(700, np.float64), gym.spaces.MultiBinary(3)),
        ]
        space, action_space = spaces[rng.integers(len(spaces))]
        self.policy = str(rng.choice(["keep", "keep", "keep", "split", "raise"]))
        self.capacity = int(rng.integers(1, (8, 41, 201)[rng.integers(3)]))
        extras = EXTRAS if rng.random() < 0.5 else {}
        self.worlds = Worlds(space, action_space, extras, nan=rng.random() < 0.3)
        self.twin = Twin(self.capacity, space, action_space, extras, on_mismatch=self.policy, seed=int(seed))
        count = (1, 2, 5, int(rng.integers(6, 41)))[rng.integers(4)]
        self.streams = [int(s) for s in rng.permutation(np.arange(count) - count // 3)]
        self.streams[:2] = [INT64.max, INT64.min][: len(self.streams[:2])] if rng.random() < 0.3 else self.streams[:2]
        self.ids: list[str] = []
        self.named = 0
        self.end_chance = float(rng.choice([0.0, 0.02, 0.1, 0.4]))
        self.jump_chance = float(rng.choice([0.0, 0.03, 0.3, 0.9]))

    def run(self, calls: int) -> None:
        """Make that many calls; compare a few window lengths after each and all of them at times."""
        kinds: list[tuple[Callable[[], None], float]] = [
            (self.add, 5),
            (self.add_many, 1),
            (self.add_batch, 5),
            (self.add_chunk, 2),
            (self.end, 0.5),
            (self.set, 0.6),
            (self.draw, 3),
            (self.round_trip, 0.2),
        ]
        weights = np.array([weight for _, weight in kinds])
        mix = self.rng.dirichlet(weights)
        for call in range(calls):
            kinds[self.rng.choice(len(kinds), p=mix)][0]()
            longest = self.rng.integers(1, len(self.twin.slow) + 2)
            self.twin.check([1, 2, 3, int(longest)] if call % 20 else None)

    def add(self) -> None:
        rng, stream = self.rng, self.streams[self.rng.integers(len(self.streams))]
        before = dict(self.worlds.now)
        flags = flags_from(rng, self.end_chance)
        observation, action, reward, successor = self.worlds.step(stream, any(flags), rng.random() < self.jump_chance)
        number = self.worlds.now.get(stream, 0)
        extras = self.worlds.extras_at(number)
        if self.twin.add(observation, action, reward, successor, *flags, stream, extras) is None:
            self.worlds.now = before

    def add_many(self) -> None:
        for _ in range(self.rng.integers(1, self.capacity + 2)):
            self.add()

    def add_batch(self) -> None:
        rng = self.rng
        streams = rng.permutation(self.streams)[: rng.integers(1, len(self.streams) + 1)].tolist()
        before = dict(self.worlds.now)
        flags = [flags_from(rng, self.end_chance) for _ in streams]
        steps = [
            self.worlds.step(stream, any(flag), rng.random() < self.jump_chance)
            for stream, flag in zip(streams, flags, strict=True)
        ]
        numbers = [int(step[2] * 4) for step in steps]
        worlds = self.worlds
        observations, successors = ([step[k] for step in steps] for k in (0, 3))
        extras = {name: counted_batch(space, numbers) for name, space in worlds.extras.items()} or None
        shape = (len(streams), 1) if rng.random() < 0.3 else (len(streams),)
        ids = self.twin.add_batch(
            stacked(worlds.space, observations),
            counted_batch(worlds.action_space, numbers),
            np.array([step[2] for step in steps]).reshape(shape),
            stacked(worlds.space, successors),
            np.array([flag[0] for flag in flags]).reshape(shape),
            np.array([flag[1] for flag in flags]).reshape(shape),
            streams,
            extras,
        )
        if ids is None:
            self.worlds.now = before

    def add_chunk(self) -> None:
        rng = self.rng
        if not self.ids or rng.random() < 0.2:
            self.named += 1
            self.ids.append(f"episode {self.named}")
        id_ = self.ids[rng.integers(len(self.ids))]
        length = int(rng.integers((1, 2, 6, 40)[rng.integers(4)]))
        flags = flags_from(rng, 0.3)
        known = id_ in self.twin.slow.open or self.worlds.times.get(id_, 0) == 0
        chunk = self.worlds.chunk(id_, length, flags, arrays=rng.random() < 0.5)
        if known:
            self.twin.add_episode(chunk)
            if length > 0 and chunk.id_ in self.twin.slow.open:
                assert self.twin.add_episode(chunk) is None  # a chunk twice
        else:  # forgotten, being dormant for long: its history is missing
            assert self.twin.add_episode(chunk) is None
            self.twin.add_episode(chunk, gap="cut")
        if chunk.is_done or id_ not in self.twin.slow.open:
            self.ids.remove(id_)

    def end(self) -> None:
        names: list[int | str] = [*self.streams, *self.ids]
        name = names[self.rng.integers(len(names))]
        self.twin.end_episode(name)
        self.worlds.now.pop(name, None)
        if isinstance(name, str):
            self.ids.remove(name)

    def set(self) -> None:
        live = self.twin.slow.live()
        if not live:
            return
        rng = self.rng
        numbers = rng.choice(live, rng.integers(1, 8)).tolist()
        values = rng.integers(0, 90, len(numbers)).tolist()
        spaces = self.twin.slow.spaces
        name = str(rng.choice(["reward", "action", "observation", *self.worlds.extras]))
        if name == "reward":
            self.twin.set(numbers, name, np.array(values, np.float32))
        else:
            self.twin.set(numbers, name, counted_batch(spaces[name], values))

    def draw(self) -> None:
        rng, size = self.rng, len(self.twin.slow)
        if size == 0:
            return
        batch_size = int(rng.integers(1, size + 1))
        n_step, gamma = int(rng.integers(1, 6)), float(rng.choice([0.0, 0.5, 0.97, 1.0]))
        replace = bool(rng.random() < 0.3)
        self.twin.sample_transitions(batch_size, replace=replace)
        self.twin.sample_transitions(batch_size, n_step, gamma, replace)
        length = (1, 2, int(rng.integers(1, size + 1)))[rng.integers(3)]
        starts = len(self.twin.slow.starts(length)) if length <= size else 0
        if starts:
            self.twin.sample_sequences(int(rng.integers(1, starts + 1)), length, replace)

    def round_trip(self) -> None:
        self.twin.round_trip(str(self.rng.choice(["pickle", "deepcopy", "state", "iter_state"])))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_the_buffer_equal_to_its_slow_twin(seed: int) -> None:
    Program(seed).run(120)


class SmallPrograms(RuleBasedStateMachine):
    """Short programs on tiny buffers, which shrink to something readable when they fail."""

    @initialize(capacity=st.integers(1, 12), policy=st.sampled_from(["keep", "split", "raise"]), pictures=st.booleans())
    def start(self, capacity: int, policy: str, pictures: bool) -> None:
        space = image(20, 30) if pictures else vector(2)
        self.worlds = Worlds(space, gym.spaces.Discrete(3), {})
        self.twin = Twin(capacity, space, gym.spaces.Discrete(3), on_mismatch=policy)

    @rule(stream=st.integers(-1, 2), terminated=st.booleans(), truncated=st.booleans(), jump=st.booleans())
    def add(self, stream: int, terminated: bool, truncated: bool, jump: bool) -> None:
        before = dict(self.worlds.now)
        observation, action, reward, successor = self.worlds.step(stream, terminated or truncated, jump)
        if self.twin.add(observation, action, reward, successor, terminated, truncated, stream) is None:
            self.worlds.now = before

    @rule(stream=st.integers(-1, 2), count=st.integers(1, 8))
    def add_some(self, stream: int, count: int) -> None:
        for _ in range(count):
            self.add(stream, False, False, False)

    @rule(
        name=st.sampled_from("ab"),
        length=st.integers(0, 15),
        flags=st.sampled_from([(False, False)] * 3 + [(True, False), (False, True)]),
    )
    def add_chunk(self, name: str, length: int, flags: tuple[bool, bool]) -> None:
        id_ = f"{name}{self.worlds.times.get('rounds of ' + name, 0)}"
        forgotten = id_ not in self.twin.slow.open and self.worlds.times.get(id_, 0) > 0
        self.twin.add_episode(self.worlds.chunk(id_, length, flags, arrays=False), gap="cut" if forgotten else "raise")
        if any(flags):
            self.worlds.times["rounds of " + name] = self.worlds.times.get("rounds of " + name, 0) + 1

    @rule(stream=st.integers(-1, 2))
    def end(self, stream: int) -> None:
        self.twin.end_episode(stream)
        self.worlds.now.pop(stream, None)

    @rule(place=st.integers(0, 11), number=st.integers(0, 90), name=st.sampled_from(["observation", "reward"]))
    def set(self, place: int, number: int, name: str) -> None:
        live = self.twin.slow.live()
        if live:
            value = counted_batch(self.worlds.space, [number]) if name == "observation" else np.array([number / 4])
            self.twin.set([live[place % len(live)]], name, value)

    @rule(n_step=st.integers(1, 4), gamma=st.sampled_from([0.5, 1.0]))
    def draw(self, n_step: int, gamma: float) -> None:
        if len(self.twin.slow):
            self.twin.sample_transitions(len(self.twin.slow), n_step, gamma)

    @rule(length=st.integers(1, 12), replace=st.booleans())
    def draw_windows(self, length: int, replace: bool) -> None:
        starts = self.twin.slow.starts(length)
        if starts:
            self.twin.sample_sequences(len(starts), length, replace)

    @rule(way=st.sampled_from(["pickle", "state"]))
    def round_trip(self, way: str) -> None:
        self.twin.round_trip(way)

    @invariant()
    def equal(self) -> None:
        if hasattr(self, "twin"):
            self.twin.check()


SmallPrograms.TestCase.settings = settings(stateful_step_count=40)
TestSmallPrograms = SmallPrograms.TestCase
