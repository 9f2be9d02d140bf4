"""Random programs over every writer and sampler: what is drawn is one of all possible answers, and reads as it must.

For small sets of answers every member is drawn. Cited are the invariants of the design, as in `test_replay`.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringback import PrioritizedReplayBuffer, ReplayBuffer, hindsight, mix
from tests.properties.test_replay import Worlds
from tests.reference.goals import goals, shares
from tests.reference.priorities import PriorityOracle
from tests.reference.splits import SplitOracle
from tests.reference.windows import Request, SideOf, no_split
from tests.replay.answers import FullTwin, check_windows, options_of
from tests.replay.playing import play
from tests.replay.twin import assert_batch
from tests.replay.worlds import Space, counted_batch, image, stacked, vector

pytestmark = pytest.mark.filterwarnings("ignore:.*more than 1 % of the observations differ")

VALIDATION, SPLIT_SEED, SMALL = 0.5, 11, 12
ACTIONS = gym.spaces.Discrete(3)
EXTRAS: dict[str, Space] = {"state_in": vector(2)}
SPACES: dict[str, Space] = {
    "vectors": vector(2),
    "pictures": image(30, 20),
    "goals": gym.spaces.Dict({name: vector(1) for name in ("observation", "achieved_goal", "desired_goal")}),
    "both": gym.spaces.Dict({"camera": image(4, 4), "speed": gym.spaces.Box(-1e6, 1e6, (), np.float32)}),
}
FLAGS = [(False, False)] * 3 + [(True, False), (False, True), (True, True)]


def places_of_the_split(groups: int = 300) -> dict[int, int]:
    """Ask a buffer of one-step episodes which of them it holds out; every buffer of that seed holds out the same."""
    k = round(1 / VALIDATION)
    probe: Any = ReplayBuffer(groups * k, 1, 1)
    _, held_out = probe.split(validation=VALIDATION, seed=SPLIT_SEED)
    for episode in range(groups * k):
        play(probe, episode, 1)
    return {unit // k: unit % k for unit in held_out.valid_starts().tolist()}


def _nearness(achieved: Any, desired: Any, infos: Any) -> Any:
    return -np.abs(achieved - desired)


class SplitTwin(FullTwin):
    """The twins with priorities and a split, where a program has them."""

    def __init__(
        self, make: Callable[[int], Any], *arguments: Any, priorities: Mapping[str, Any] | None, **options: Any
    ):
        super().__init__(*arguments, **options)
        self.make = make
        self.real = make(0)
        self.masses = None if priorities is None else PriorityOracle(self.slow, **priorities)
        self.side_of: SideOf = no_split
        self.views: dict[str, Any] = {}

    def split(self) -> None:
        """Hold episodes out from now on."""
        real: Any = self.real
        self.views = dict(zip(("train", "validation"), real.split(validation=VALIDATION, seed=SPLIT_SEED), strict=True))
        if self.side_of is not no_split:
            return
        rule = SplitOracle(self.slow, VALIDATION)
        rule.places = places_of_the_split()
        self.side_of = rule.side_of
        if self.masses is not None:
            self.masses.side_of, self.masses.side = rule.side_of, "train"
            self.masses.refresh()

    def sources(self) -> Iterator[tuple[Any, str, bool]]:
        """Yield what can be drawn from, its side, and whether it draws by priority."""
        if not self.views:
            yield self.real, "all", self.masses is not None
        for name, view in self.views.items():
            yield view, name, self.masses is not None and name == "train"

    def copy(self, way: str) -> None:
        """Go on with a copy; what both draw next is compared by the plain twin's way where both may be drawn from."""
        original: Any = self.real
        if way == "pickle":
            self.real = pickle.loads(pickle.dumps(original))
        elif way == "deepcopy":
            self.real = copy.deepcopy(original)
        else:
            self.real = self.make(99)
            self.real.set_state(original.get_state() if way == "state" else original.iter_state(700))
        old = dict(self.views)
        if self.views:
            self.split()
        for (a, _, by_priority), b in zip(
            [(old.get(name, original), name, flag) for _, name, flag in self.sources()],
            [source for source, _, _ in self.sources()],
            strict=True,
        ):
            if len(a) and (self.masses is None or not by_priority):
                np.testing.assert_array_equal(
                    a.sample_transitions(9, replace=True).ids, b.sample_transitions(9, replace=True).ids
                )


class FullPrograms(RuleBasedStateMachine):
    """Short programs on tiny buffers, which shrink to something readable when they fail."""

    @initialize(
        capacity=st.integers(1, 14),
        policy=st.sampled_from(["keep", "split", "raise"]),
        space=st.sampled_from(sorted(SPACES)),
        kind=st.sampled_from(["uniform", "steps by priority", "windows by priority"]),
        length=st.integers(1, 4),
        pad=st.booleans(),
        period=st.integers(1, 3),
        stack=st.sampled_from([None, None, 1, 3]),
        new_priority=st.sampled_from(["max_live", "max_ever"]),
        weights=st.sampled_from(["buffer", "batch"]),
        draw=st.sampled_from(["stratified", "independent"]),
        split=st.booleans(),
    )
    def start(
        self,
        capacity: int,
        policy: Any,
        space: str,
        kind: str,
        length: int,
        pad: bool,
        period: int,
        stack: int | None,
        new_priority: str,
        weights: str,
        draw: str,
        split: bool,
    ) -> None:
        self.worlds = Worlds(SPACES[space], ACTIONS, EXTRAS)
        self.kind = kind
        arguments = (capacity, SPACES[space], ACTIONS)
        options: dict[str, Any] = {"on_mismatch": policy, "extras": EXTRAS}
        priorities = None
        self.drawn = Request()
        if kind != "uniform":
            options |= {"new_priority": new_priority, "weights": weights, "draw": draw, "stack": stack}
            self.drawn = Request(stack=stack)
            if kind == "windows by priority":
                options |= {"sequence_length": length, "pad": pad, "period": period}
                self.drawn = Request(length=length, pad=pad, period=period, stack=stack)
            priorities = {"request": self.drawn, "new_priority": new_priority, "weights": weights}

        def make(seed: int) -> Any:
            return (ReplayBuffer if kind == "uniform" else PrioritizedReplayBuffer)(*arguments, seed=seed, **options)

        self.twin = SplitTwin(make, *arguments, EXTRAS, on_mismatch=policy, priorities=priorities)
        if split:
            self.twin.split()

    # ------------------------------------------------------------------ writing

    @rule(stream=st.integers(-1, 2), flags=st.sampled_from(FLAGS), jump=st.booleans())
    def add(self, stream: int, flags: tuple[bool, bool], jump: bool) -> None:
        before = dict(self.worlds.now)
        observation, action, reward, successor = self.worlds.step(stream, any(flags), jump)
        extras = self.worlds.extras_at(int(reward * 4))
        if self.twin.add(observation, action, reward, successor, *flags, stream, extras) is None:
            self.worlds.now = before

    @rule(stream=st.integers(-1, 2), count=st.integers(1, 8), ends=st.booleans())
    def add_some(self, stream: int, count: int, ends: bool) -> None:
        for left in range(count, 0, -1):
            self.add(stream, (False, ends and left == 1), False)

    @rule(
        streams=st.permutations([-1, 0, 1, 2]), count=st.integers(1, 4), flags=st.tuples(*[st.sampled_from(FLAGS)] * 4)
    )
    def add_batch(self, streams: list[int], count: int, flags: tuple[tuple[bool, bool], ...]) -> None:
        streams, flags = streams[:count], flags[:count]
        before = dict(self.worlds.now)
        steps = [self.worlds.step(stream, any(flag), False) for stream, flag in zip(streams, flags, strict=True)]
        given = [int(step[2] * 4) for step in steps]
        ids = self.twin.add_batch(
            stacked(self.worlds.space, [step[0] for step in steps]),
            counted_batch(ACTIONS, given),
            np.array([step[2] for step in steps], np.float32),
            stacked(self.worlds.space, [step[3] for step in steps]),
            np.array([flag[0] for flag in flags]),
            np.array([flag[1] for flag in flags]),
            streams,
            {name: counted_batch(space, given) for name, space in EXTRAS.items()},
        )
        if ids is None:
            self.worlds.now = before

    @rule(name=st.sampled_from("ab"), length=st.integers(0, 9), flags=st.sampled_from(FLAGS), skip=st.integers(0, 3))
    def add_chunk(self, name: str, length: int, flags: tuple[bool, bool], skip: int) -> None:
        times = self.worlds.times
        id_ = f"{name}{times.get('rounds of ' + name, 0)}"
        if skip == 3 and id_ in self.twin.slow.open:
            times[id_] += 2  # two steps are lost on their way
            self.worlds.now[id_] += 2
        forgotten = id_ not in self.twin.slow.open and times.get(id_, 0) > 0
        cut = forgotten or skip == 3
        self.twin.add_episode(self.worlds.chunk(id_, length, flags, arrays=False), gap="cut" if cut else "raise")
        if any(flags):
            times["rounds of " + name] = times.get("rounds of " + name, 0) + 1

    @rule(stream=st.integers(-1, 2))
    def end(self, stream: int) -> None:
        self.twin.end_episode(stream)
        self.worlds.now.pop(stream, None)

    @rule(
        place=st.integers(0, 11), number=st.integers(0, 90), name=st.sampled_from(["observation", "reward", "state_in"])
    )
    def set(self, place: int, number: int, name: str) -> None:
        live = self.twin.slow.live()
        if not live:
            return
        value: Any = np.array([number / 4])
        if name != "reward":
            value = counted_batch(self.worlds.space if name == "observation" else EXTRAS[name], [number])
        self.twin.set([live[place % len(live)]], name, value)

    @rule(way=st.sampled_from(["pickle", "deepcopy", "state", "iter_state"]))
    def round_trip(self, way: str) -> None:
        self.twin.copy(way)

    @precondition(lambda self: self.twin.masses is not None and self.twin.slow.written > 0)
    @rule(
        places=st.lists(st.integers(0, 40), max_size=6),
        errors=st.lists(st.sampled_from([0.0, 0.5, 1.0, 9.0]), min_size=6),
    )
    def update(self, places: list[int], errors: list[float]) -> None:
        slow, masses = self.twin.slow, self.twin.masses
        assert masses is not None
        ids = [max(0, slow.written - 1 - place) for place in places]
        target = self.twin.views.get("train", self.twin.real)
        assert target.update_priorities(ids, errors[: len(ids)]) == masses.update(ids, errors[: len(ids)])

    # ------------------------------------------------------------------ drawing

    @rule(
        n_step=st.integers(1, 4),
        more=st.integers(0, 2),
        gamma=st.sampled_from([0.5, 1.0]),
        stack=st.sampled_from([None, 1, 2, 4]),
        fill=st.sampled_from(["first", 0, 7]),
        many=st.booleans(),
    )
    def draw_steps(self, n_step: int, more: int, gamma: float, stack: int | None, fill: Any, many: bool) -> None:
        if self.kind == "windows by priority":
            return
        stack = stack if self.kind == "uniform" else self.drawn.stack  # type: ignore[assignment]
        request = Request(n_step=n_step, gamma=gamma, stack=stack, stack_fill=fill)
        for source, side, by_priority in self.twin.sources():
            oracle = self.twin.oracle(self.twin.side_of, side, gamma=gamma, stack=stack, stack_fill=fill)
            starts = oracle.starts()
            if by_priority:
                summing = self.twin.oracle(self.twin.side_of, side, **vars(request))
                self._draw_by_priority(source, request, summing)
                continue
            if not starts:
                continue
            count = 40 * len(starts) if many else len(starts)
            options = options_of(request) | {"n_step": (n_step, n_step + more) if more else n_step, "replace": many}
            batch = source.sample_transitions(count, **options)
            ids, n_steps = batch.ids.tolist(), batch.n_steps.ravel().tolist()
            if len(starts) <= SMALL or not many:
                assert sorted(set(ids)) == starts
            assert set(ids) <= set(starts)
            assert_batch(batch, oracle.transitions(ids, n_steps))
            for number, m in zip(ids, n_steps, strict=True):
                assert m in {min(n, oracle.reach(number)) for n in range(n_step, n_step + more + 1)}
            fixed = source.get(starts, **options_of(request))
            assert_batch(fixed, oracle.transitions(starts, [n_step] * len(starts)))

    @rule(
        length=st.integers(1, 6),
        burn_in=st.integers(0, 3),
        pad=st.booleans(),
        period=st.integers(1, 3),
        stack=st.sampled_from([None, None, 1, 3]),
        fill=st.sampled_from(["first", 5]),
        n_step=st.sampled_from([1, 1, 3]),
        cross=st.booleans(),
        arrival=st.booleans(),
        successors=st.booleans(),
        time_major=st.booleans(),
        state=st.booleans(),
        many=st.booleans(),
    )
    def draw_windows(
        self,
        length: int,
        burn_in: int,
        pad: bool,
        period: int,
        stack: int | None,
        fill: Any,
        n_step: int,
        cross: bool,
        arrival: bool,
        successors: bool,
        time_major: bool,
        state: bool,
        many: bool,
    ) -> None:
        request = Request(
            length=length,
            burn_in=burn_in,
            pad=pad,
            period=1 if cross else period,
            n_step=1 if arrival else n_step,
            gamma=0.5 if n_step > 1 and not arrival else None,
            stack=stack,
            stack_fill=fill,
            cross_episodes=cross,
            layout="arrival" if arrival else "step",
            next_observations=successors and not arrival,
            time_major=time_major,
            start_state="state_in" if state else None,
        )
        for source, side, by_priority in self.twin.sources():
            if by_priority:
                continue
            oracle = self.twin.oracle(self.twin.side_of, side, **vars(request))
            places = oracle.places()
            if places:
                check_windows(source, oracle, replace=many and len(places) <= SMALL)
            else:
                with pytest.raises(ValueError, match="must"):
                    source.sample_sequences(1, length, **options_of(request))

    @rule(burn_in=st.integers(0, 2), n_step=st.sampled_from([1, 2]), successors=st.booleans())
    def draw_windows_by_priority(self, burn_in: int, n_step: int, successors: bool) -> None:
        if self.kind != "windows by priority":
            return
        given = vars(self.drawn) | {"burn_in": burn_in, "n_step": n_step, "next_observations": successors}
        request = Request(**given | {"gamma": 0.5 if n_step > 1 else None})
        for source, side, by_priority in self.twin.sources():
            if by_priority:
                self._draw_by_priority(source, request, self.twin.oracle(self.twin.side_of, side, **vars(request)))

    @rule(length=st.integers(1, 8), stack=st.sampled_from([None, 2]), many=st.booleans())
    def draw_episodes(self, length: int, stack: int | None, many: bool) -> None:
        for source, side, by_priority in self.twin.sources():
            if by_priority:
                continue
            oracle = self.twin.oracle(self.twin.side_of, side, length=length, whole=True, stack=stack)
            if oracle.places():
                check_windows(source, oracle, replace=many)

    @rule(strategy=st.sampled_from(["future", "final", "episode"]))
    def draw_goals(self, strategy: Any) -> None:
        if self.worlds.space is not SPACES["goals"]:
            return
        for source, side, _ in self.twin.sources():
            starts = self.twin.oracle(self.twin.side_of, side).starts()
            if not 0 < len(starts) <= SMALL:
                continue
            batch = source.get(np.repeat(starts, 400))
            new = hindsight(source, batch, strategy, ratio=1.0, reward_fn=_nearness, seed=3)
            for number in starts:
                mine = batch.ids == number
                real = {float(goal) for goal in batch.observations["desired_goal"][mine, 0]}
                reached = goals(self.twin.slow, number, strategy, self.twin.side_of)
                assert set(new.observations["desired_goal"][mine, 0].tolist()) == (
                    {float(goal[0]) for goal in reached} or real
                )
                if reached:
                    achieved, desired = batch.next_observations["achieved_goal"], new.observations["desired_goal"]
                    np.testing.assert_array_equal(new.rewards[mine], _nearness(achieved, desired, {})[mine])

    def _draw_by_priority(self, source: Any, request: Request, oracle: Any) -> None:
        """Draw in proportion to the masses; every start that is likely enough appears."""
        masses = self.twin.masses
        assert masses is not None
        windows = self.kind == "windows by priority"
        draw = source.sample_sequences if windows else source.sample_transitions
        arguments = (request.length,) if windows else ()
        options = options_of(request)
        if not masses.mass:
            with pytest.raises(ValueError, match="must"):
                draw(1, *arguments, **options)
            return
        batch = draw(200, *arguments, beta=0.6, **options)
        drawn = (batch.start_ids if windows else batch.ids).tolist()
        chances = masses.probabilities()
        assert {number for number, chance in chances.items() if 200 * chance > 40} <= set(drawn) <= set(chances)
        np.testing.assert_allclose(batch.weights, masses.weights(drawn, 0.6), rtol=1e-5)
        if windows:
            places = {oracle.id_at(*place.here): place for place in oracle.places()}
            assert_batch(batch, oracle.sequences([places[number] for number in drawn]))
        else:
            assert_batch(batch, oracle.transitions(drawn))

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def equal(self) -> None:
        if hasattr(self, "twin"):
            self.twin.check([1, 2, 3])

    @invariant()
    def masses_are_equal(self) -> None:
        if not hasattr(self, "twin") or self.twin.masses is None:
            return
        real: Any = self.twin.real
        live = self.twin.slow.live()
        np.testing.assert_allclose(real.priorities(live), self.twin.masses.priorities(live), rtol=1e-12)

    @invariant()
    def sides_are_equal(self) -> None:
        for name, view in self.twin.views.items() if hasattr(self, "twin") else ():
            starts = self.twin.oracle(self.twin.side_of, name).starts()
            assert view.valid_starts().tolist() == starts
            assert len(view) == len(starts)


FullPrograms.TestCase.settings = settings(stateful_step_count=40)
TestFullPrograms = FullPrograms.TestCase


@pytest.mark.parametrize("seed", range(20))
def test_a_mix_has_exactly_its_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = rng.integers(1, 9, rng.integers(1, 5))
    sources: list[tuple[Any, float]] = []
    for source, part in enumerate(parts):
        buffer: Any = ReplayBuffer(200, 1, 1, seed=source)
        play(buffer, source, 100)
        sources.append((buffer, part / parts.sum()))
    mixed = mix(sources)
    for batch_size in (1, 2, 3, 8, int(rng.integers(4, 90))):
        batch = mixed.sample_transitions(batch_size)
        counts = shares(batch_size, [share for _, share in sources])
        assert np.bincount(batch.sources, minlength=len(parts)).tolist() == counts
        np.testing.assert_array_equal(batch.observations[:, 0] // 1000, batch.sources)
