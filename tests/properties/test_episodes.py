"""An episode, whatever is done to it, stays what the slow model of tests/reference says."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.episodes.structure import difference
from tests.reference.episodes import MISSING, Track
from tests.reference.episodes import Episode as Model

FILL = -7.0

SPACES: dict[str, gym.Space[Any] | None] = {
    "scalars": None,
    "vectors": None,
    "box": gym.spaces.Box(-1e6, 1e6, (2,), np.float32),
    "nested": gym.spaces.Dict(
        {"n": gym.spaces.Discrete(10**6), "p": gym.spaces.Tuple((gym.spaces.Box(-1e6, 1e6, (), np.float32),))}
    ),
}

CHOICES: dict[str, gym.Space[Any]] = {
    "choice": gym.spaces.Discrete(4, start=-1),
    "choices": gym.spaces.MultiDiscrete(np.array([[2, 3], [4, 1]])),
    "nested choices": gym.spaces.Dict(
        {
            "n": gym.spaces.Discrete(3),
            "p": gym.spaces.Tuple((gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(-1, 1, (2,)))),
        }
    ),
}


def observation(kind: str, number: int) -> Any:
    """The observation of a step, told from all others by its number."""
    if kind == "scalars":
        return float(number)
    if kind == "nested":
        return {"n": np.int64(number), "p": (np.float32(number + 0.5),)}
    return np.array([number, -number], np.float32)


def fill_of(kind: str) -> Any:
    if kind == "scalars":
        return FILL
    if kind == "nested":
        return {"n": np.int64(FILL), "p": (np.float32(FILL),)}
    return np.array([FILL, FILL], np.float32)


def rows_of(data: Any) -> list[Any]:
    """A list of items, from a list or from a structure of arrays."""
    if isinstance(data, list):
        return data
    if isinstance(data, dict):
        columns = {key: rows_of(value) for key, value in data.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(data, tuple):
        return list(zip(*(rows_of(value) for value in data), strict=True))
    return list(data)


def same(got: Any, want: Any) -> bool:
    return difference(got, want) is None


bounds = st.none() | st.integers(-14, 14)
steps = st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3])
slices = st.builds(slice, bounds, bounds, steps)
any_indices = st.none() | st.integers(-14, 14) | st.lists(st.integers(-14, 14), max_size=4) | slices


class EpisodeMachine(RuleBasedStateMachine):
    """Drive an episode and its model side by side."""

    @initialize(kind=st.sampled_from(sorted(SPACES)), t_started=st.sampled_from([0, 50]))
    def start(self, kind: str, t_started: int) -> None:
        self.kind = kind
        self.number = 0
        self.real = SingleAgentEpisode(observation_space=SPACES[kind], t_started=t_started)
        self.model = Model(self.real.id_, t_started)
        self.before: list[tuple[SingleAgentEpisode, Model]] = []  # the chunks that this one goes on from

    @precondition(lambda self: not self.model.observations)
    @rule()
    def reset(self) -> None:
        self.real.add_env_reset(observation(self.kind, self.number), {"n": self.number})
        self.model.reset(observation(self.kind, self.number), {"n": self.number})

    @precondition(lambda self: self.model.observations and not self.model.done)
    @rule(
        keys=st.sets(st.sampled_from(["logp", "value"])),
        end=st.sampled_from([(False, False)] * 6 + [(True, False), (False, True), (True, True)]),
        repeat=st.integers(1, 4),
    )
    def step(self, keys: set[str], end: tuple[bool, bool], repeat: int) -> None:
        for k in range(repeat):
            self.number += 1
            flags = end if k == repeat - 1 else (False, False)
            extras = {key: float(self.number) for key in keys}
            args = (observation(self.kind, self.number), self.number % 3, 1000.0 + self.number, {"n": self.number})
            self.real.add_env_step(*args, terminated=flags[0], truncated=flags[1], extra_model_outputs=extras or None)
            self.model.step(*args, *flags, extras)

    @rule()
    def to_numpy(self) -> None:
        assert self.real.to_numpy() is self.real
        assert self.real.is_numpy

    @precondition(lambda self: self.model.observations and not self.model.done)
    @rule(lookback=st.integers(0, 6))
    def cut(self, lookback: int) -> None:
        self.real.custom_data["cuts"] = self.model.custom["cuts"] = [len(self.before)]
        real, model = self.real.cut(lookback), self.model.cut(lookback)
        self.before.append((self.real, self.model))
        self.real, self.model = real, model

    @precondition(lambda self: self.before)
    @rule()
    def join(self) -> None:
        real, model = self.before.pop()
        real.concat_episode(self.real)
        model.join(self.model)
        self.real, self.model = real, model

    @precondition(lambda self: self.model.observations)
    @rule(start=bounds, stop=bounds, lookback=st.none() | st.integers(0, 5))
    def slice(self, start: int | None, stop: int | None, lookback: int | None) -> None:
        self.check(
            self.real.slice(slice(start, stop), len_lookback_buffer=lookback),
            self.model.slice(start, stop, lookback),
        )

    @precondition(lambda self: self.model.observations)
    @rule(at=st.integers(0, 14))
    def split_and_join(self, at: int) -> None:
        head, tail = self.real[:at], self.real[at:]
        head.concat_episode(tail)
        self.check(head, self.model)
        self.real = head

    @rule(how=st.sampled_from(["pickle", "deepcopy", "copy", "state"]))
    def copied(self, how: str) -> None:
        if how == "pickle":
            self.real = pickle.loads(pickle.dumps(self.real))
        elif how == "state":
            self.real = SingleAgentEpisode.from_state(self.real.get_state())
        else:
            self.real = copy.deepcopy(self.real) if how == "deepcopy" else copy.copy(self.real)

    @precondition(lambda self: bool(self.model.rewards))
    @rule(data=st.data())
    def set_rewards(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(-len(self.model.rewards), len(self.model) - 1))
        self.number += 1
        self.real.set_rewards(new_data=float(self.number), at_indices=at)
        place = at if at < 0 else at + self.model.lookback
        self.model.rewards[place] = float(self.number)

    @rule(
        name=st.sampled_from(["observations", "actions", "rewards", "logp"]),
        indices=any_indices,
        neg=st.booleans(),
        filled=st.booleans(),
    )
    def read(self, name: str, indices: Any, neg: bool, filled: bool) -> None:
        if name == "logp" and name not in self.model.extras:
            return
        track = self.model.track(name)
        if not track.items and filled:
            return  # nothing says what a fill looks like
        nothing = fill_of(self.kind) if name == "observations" else FILL
        if name == "logp":
            args: Any = (name, indices)
            getter: Any = self.real.get_extra_model_outputs
        else:
            args, getter = (indices,), getattr(self.real, f"get_{name}")
        fill = FILL if filled else None
        try:
            want = track.get(indices, neg, nothing if filled else MISSING)
        except IndexError:
            with pytest.raises(IndexError):
                getter(*args, neg_index_as_lookback=neg, fill=fill)
            return
        got = getter(*args, neg_index_as_lookback=neg, fill=fill)
        note(f"{name}[{indices}] neg={neg} fill={fill}: {got}")
        if isinstance(indices, int):
            assert same(got, want)
        else:
            rows = rows_of(got)
            assert len(rows) == len(want)
            assert all(same(a, b) for a, b in zip(rows, want, strict=True))

    def check(self, real: SingleAgentEpisode, model: Model) -> None:
        assert len(real) == len(model)
        assert (real.t, real.t_started, real.id_) == (model.t, model.t_started, model.id_)
        assert (real.is_terminated, real.is_truncated) == (model.terminated, model.truncated)
        assert real.custom_data == model.custom
        assert real.extra_model_outputs.keys() == model.extras.keys()
        buffers = {name: getattr(real, name) for name in ("observations", "actions", "rewards", "infos")}
        for name, buffer in {**buffers, **real.extra_model_outputs}.items():
            track = model.track(name)
            assert buffer.lookback == track.lookback
            got = rows_of(buffer.data) if buffer.len_incl_lookback() else []
            assert len(got) == len(track.items)
            assert all(same(a, b) for a, b in zip(got, track.items, strict=True)), name
        real.validate()

    @invariant()
    def the_same(self) -> None:
        if hasattr(self, "real"):
            self.check(self.real, self.model)
            for real, model in self.before:
                self.check(real, model)


EpisodeMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEpisodeMachine = EpisodeMachine.TestCase


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from([*sorted(SPACES), *sorted(CHOICES)]),
    size=st.integers(1, 7),
    lookback=st.integers(0, 7),
    indices=any_indices,
    neg=st.booleans(),
    fill=st.sampled_from([None, FILL, 0, -0.5]),
    coded=st.booleans(),
)
def test_list_form_and_array_form_read_the_same(
    kind: str, size: int, lookback: int, indices: Any, neg: bool, fill: float | None, coded: bool
) -> None:
    if kind in CHOICES:
        space: gym.Space[Any] | None = CHOICES[kind]
        CHOICES[kind].seed(size)
        items = [CHOICES[kind].sample() for _ in range(size)]
    else:
        space, coded = SPACES[kind], False
        items = [observation(kind, 10 + k) for k in range(size)]
    lists = InfiniteLookbackBuffer(items, lookback, space)
    arrays = copy.deepcopy(lists)
    arrays.finalize()
    how: dict[str, Any] = {"neg_index_as_lookback": neg, "fill": fill, "one_hot_discrete": coded}
    try:
        want = lists.get(indices, **how)
    except IndexError as error:
        message = re.escape(str(error))
        with pytest.raises(IndexError, match=f"^{message}$"):
            arrays.get(indices, **how)
        return
    found = arrays.get(indices, **how)
    if isinstance(indices, int):
        assert same(found, want)
    else:
        assert len(want) == len(rows_of(found))
        assert all(same(a, b) for a, b in zip(rows_of(found), want, strict=True))


@settings(deadline=None, max_examples=300)
@given(size=st.integers(0, 8), lookback=st.integers(0, 8), indices=any_indices, neg=st.booleans(), filled=st.booleans())
def test_reads_are_the_models_reads(size: int, lookback: int, indices: Any, neg: bool, filled: bool) -> None:
    items = [100 + k for k in range(size)]
    buffer = InfiniteLookbackBuffer(items, lookback)
    track = Track(items, min(lookback, size))
    try:
        want = track.get(indices, neg, -7 if filled else MISSING)
    except IndexError:
        with pytest.raises(IndexError):
            buffer.get(indices, neg_index_as_lookback=neg)
        return
    assert buffer.get(indices, neg_index_as_lookback=neg, fill=-7 if filled else None) == want
