"""Garbage at the boundary: never a crash, and a refused call leaves the buffer as it was (I6)."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from ringback.replay import BufferView
from tests.replay.worlds import Chunk, counted, counted_batch, f32, nested

SPACE = nested()
ACTIONS = gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Box(-9, 9, (2,), np.float32)))
EXTRAS: dict[str, Any] = {"logp": (), "state_in": (3,)}


class Hostile:
    """Raises at every conversion."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("not this way")

    __array__ = __index__ = __float__ = __bool__ = __len__ = __iter__ = __getitem__ = __hash__ = _refuse


class Liar:
    """Says one length and gives another."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: Any) -> Any:
        if index > 1:
            raise IndexError
        return 1.0


class Meddler:
    """Turns into a number, and writes to the buffer while doing so."""

    buffer: ReplayBuffer | None = None

    def __array__(self, *_: Any, **__: Any) -> Any:
        if Meddler.buffer is not None:
            Meddler.buffer.end_episode(0)
        return f32([1.0])

    def __float__(self) -> float:
        return 1.0


def garbage() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    numbers: list[Any] = [
        0,
        1,
        -1,
        3,
        2**31,
        2**63 - 1,
        2**63,
        -(2**63),
        -(2**63) - 1,
        2**80,
        1.5,
        float("nan"),
        float("inf"),
    ]
    arrays: list[Any] = [
        np.float32(1.5),
        np.array(3),
        np.empty(0),
        np.empty((0, 3)),
        np.zeros((2, 2)),
        np.zeros((1, 1, 1, 1)),
        np.zeros(10_000),
        np.array([1, None], object),
        np.array(["a", "b"]),
        np.array([b"a"]),
        np.array([1 + 2j]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.zeros(2, [("a", int), ("b", float)]),
        np.ma.masked_array([1.0, 2.0, 3.0], [True, False, True]),
        np.arange(3).astype(">i8"),
        np.arange(12).reshape(3, 4)[::2, ::-2],
        np.full(3, np.nan),
        np.array([2**63], np.uint64),
        np.broadcast_to(np.float32(1), (3,)),
        np.zeros(3, np.longdouble),
        np.zeros((3,) + (1,) * 30),
    ]
    things: list[Any] = [
        None,
        True,
        "x",
        "",
        b"\0",
        [],
        {},
        (),
        {"a": 1},
        {1: 2},
        [[1], [2, 3]],
        [None],
        object,
        object(),
        print,
    ]
    things += [range(3), iter([1, 2]), {1, 2}, memoryview(b"abc"), bytearray(3), slice(3), Ellipsis, NotImplemented, 1j]
    things += [endless, Hostile(), Liar(), Meddler(), float, np.nan, "observation", "\ud800", [1.0, "x"], [2**70]]
    return numbers + arrays + things


def fill(buffer: ReplayBuffer, steps: int = 25) -> None:
    for t in range(steps):
        buffer.add(
            counted(SPACE, t),
            counted(ACTIONS, t),
            t,
            counted(SPACE, t + 1),
            t % 10 == 9,
            False,
            t % 2,
            {"logp": t, "state_in": [t] * 3},
        )


def chunk(start: int = 0) -> Chunk:
    numbers = range(start, start + 3)
    return Chunk(
        "a",
        start,
        [counted(SPACE, n) for n in range(start, start + 4)],
        [counted(ACTIONS, n) for n in numbers],
        [float(n) for n in numbers],
        extras={"logp": [0.0] * 3, "state_in": [[1.0, 2.0, 3.0]] * 3},
    )


@pytest.fixture(scope="module")
def victim() -> Victim:
    buffer = ReplayBuffer(20, SPACE, ACTIONS, seed=1, extras=EXTRAS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fill(buffer)
    return Victim(buffer)


def good_calls() -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """Return for each method arguments that it accepts."""
    streams = [0, 1]
    extras = {"logp": [0.5], "state_in": [[1.0, 2.0, 3.0]]}
    two = {"logp": np.zeros(2), "state_in": np.zeros((2, 3))}
    return {
        "add": (
            [counted(SPACE, 40), counted(ACTIONS, 40), 1.0, counted(SPACE, 41), False, False, 0],
            {"extras": {"logp": 0.5, "state_in": [1.0, 2.0, 3.0]}},
        ),
        "add_batch": (
            [
                counted_batch(SPACE, [40, 50]),
                counted_batch(ACTIONS, [40, 50]),
                [1.0, 2.0],
                counted_batch(SPACE, [41, 51]),
                [False, True],
                [False, False],
                streams,
            ],
            {"extras": two},
        ),
        "add_episode": ([chunk()], {"gap": "raise"}),
        "end_episode": ([0], {}),
        "sample_transitions": ([3], {"n_step": 2, "gamma": 0.9, "replace": False, "out": None}),
        "sample_sequences": ([2, 3], {"replace": False, "out": None}),
        "valid_starts": ([3], {}),
        "get": ([[20, 21]], {}),
        "set": ([[20], "observation", counted_batch(SPACE, [9])], {}),
        "iter_state": ([1000], {}),
        "set_state": ([None], {"close_open": False}),
        "": ([extras], {}),
    }


def use_all(buffer: ReplayBuffer) -> None:
    """Read everything: a buffer that a call has broken would show or crash here."""
    ids = buffer.valid_starts()
    assert len(ids) == len(buffer) <= buffer.capacity
    if len(ids):
        buffer.get(ids)
    is_split = buffer._state_header()["split"][0] > 0
    for source in (BufferView(buffer, "train"), BufferView(buffer, "validation")) if is_split else (buffer,):
        ids = source.valid_starts()
        if len(ids):
            source.sample_transitions(len(ids), n_step=4, gamma=0.5)
        for length in range(1, len(ids) + 1):
            starts = source.valid_starts(length)
            if len(starts):
                source.sample_sequences(len(starts), length)
    buffer.stats()
    pickle.dumps(buffer.get_state())


class Victim:
    """A buffer to throw garbage at; a fresh copy takes over once a call has worked."""

    def __init__(self, origin: ReplayBuffer) -> None:
        self.origin = origin
        self.before = pickle.dumps(origin.get_state())
        self.buffer = copy.deepcopy(origin)

    def probe(self, what: str, method: str, *arguments: Any, **options: Any) -> None:
        """Call a method: it works and the buffer is sound, or it raises and has left no trace."""
        Meddler.buffer = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = getattr(self.buffer, method)(*arguments, **options)
                if hasattr(answer, "__next__"):
                    list(answer)
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, ZeroDivisionError):
            assert pickle.dumps(self.buffer.get_state()) == self.before, f"{what} was refused but left a trace"
        except Exception as failure:
            raise AssertionError(f"{what} raised {failure!r}") from failure
        else:
            use_all(self.buffer)
            self.buffer = copy.deepcopy(self.origin)


METHODS = [name for name in good_calls() if name and name != "set_state"]


@pytest.mark.parametrize("method", METHODS)
def test_the_good_calls_are_good(victim: Victim, method: str) -> None:
    arguments, options = good_calls()[method]
    buffer = copy.deepcopy(victim.origin)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(buffer, method)(*arguments, **options)
    use_all(buffer)


@pytest.mark.parametrize("method", METHODS)
def test_garbage_in_any_argument_does_no_harm(victim: Victim, method: str) -> None:
    arguments, options = good_calls()[method]
    for place in [*range(len(arguments)), *options]:
        for junk in garbage():
            given, named = list(arguments), dict(options)
            if isinstance(place, int):
                given[place] = junk
            else:
                named[place] = junk
            what = f"{method}({place}={type(junk).__name__})"
            victim.probe(what, method, *given, **named)


@pytest.mark.parametrize("method", METHODS)
def test_too_many_too_few_or_unknown_arguments_do_no_harm(victim: Victim, method: str) -> None:
    arguments, options = good_calls()[method]
    for given, named in (
        ([], {}),
        (arguments[:-1], {}),
        ([*arguments, None, None, None, None, None], options),
        (arguments, options | {"no_such_option": 1}),
        ([*arguments] * 3, {}),
    ):
        what = f"{method} with {len(given)} and {list(named)}"
        victim.probe(what, method, *given, **named)


@pytest.mark.parametrize("place", ["velocity", "camera", "body", "goal"])
def test_garbage_in_any_leaf_does_no_harm(victim: Victim, place: str) -> None:
    for name in ("add", "add_batch"):
        arguments, options = good_calls()[name]
        for side in (0, 3):
            for junk in garbage():
                given = list(arguments)
                given[side] = given[side] | {place: junk}
                victim.probe(f"{name} {place}", name, *given, **options)
            missing = list(arguments)
            missing[side] = {key: value for key, value in arguments[side].items() if key != place}
            victim.probe(f"{name} without {place}", name, *missing, **options)


@pytest.mark.parametrize(
    "field", ["reward", "action", "observation/velocity", "observation/body/0", "logp", "state_in"]
)
def test_garbage_values_of_a_field_do_no_harm(victim: Victim, field: str) -> None:
    for junk in garbage():
        victim.probe(f"set {field}", "set", [20, 21], field, junk)


@pytest.mark.parametrize("part", ["id_", "t_started", "is_terminated", "_observations", "_actions", "_rewards"])
def test_garbage_in_a_chunk_does_no_harm(victim: Victim, part: str) -> None:
    for junk in garbage():
        broken = chunk()
        setattr(broken, part, junk)
        victim.probe(f"chunk with {part}", "add_episode", broken)


@pytest.mark.parametrize("place", range(4))
def test_garbage_at_construction_does_no_harm(place: int) -> None:
    for junk in garbage():
        if isinstance(junk, int) and 10**6 < junk < 2**60:
            continue  # a machine may really have the memory
        arguments: list[Any] = [10, 2, 2, None]
        arguments[place] = junk
        try:
            buffer = ReplayBuffer(*arguments)
        except (ValueError, TypeError, OverflowError, MemoryError, ZeroDivisionError, RuntimeError):
            continue
        assert len(buffer) == 0


@pytest.mark.parametrize("option", ["seed", "extras", "cast", "on_mismatch"])
def test_garbage_options_do_no_harm(option: str) -> None:
    for junk in garbage():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                buffer = ReplayBuffer(10, 2, 2, **{option: junk})
        except (ValueError, TypeError, OverflowError, MemoryError, ZeroDivisionError):
            continue
        assert len(buffer) == 0


def test_a_value_that_writes_while_it_is_converted_does_no_harm() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    Meddler.buffer = buffer
    try:
        for _ in range(50):
            buffer.add(Meddler(), Meddler(), Meddler(), Meddler(), False)
            assert len(buffer.valid_starts()) == len(buffer)
    finally:
        Meddler.buffer = None
    use_all(buffer)


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all entries of a state."""
    found = [path] if path else []
    if isinstance(part, dict):
        for key, value in part.items():
            found += places(value, (*path, key))
    elif isinstance(part, list | tuple):
        for index, value in enumerate(part[:3]):
            found += places(value, (*path, index))
    return found


def replaced(part: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    if isinstance(part, dict):
        return part | {path[0]: replaced(part[path[0]], path[1:], value)}
    changed = list(part)
    changed[path[0]] = replaced(changed[path[0]], path[1:], value)
    return type(part)(changed)


def corruptions(value: Any) -> list[Any]:
    """Return what a damaged file may hold in place of a value."""
    found: list[Any] = [None, -1, 2**40, "x", [], {}, np.empty(0), np.zeros(3), np.float32(1), b"", True]
    if isinstance(value, np.ndarray):
        found += [value[:-1], value[1:], np.concatenate([value, value]), value[::-1].copy()]
        with np.errstate(over="ignore"):
            found += [value.astype(np.float16)]
        if value.dtype.kind in "iu" and value.size:
            info = np.iinfo(value.dtype)
            for extreme in (info.max, info.min, 1, -1 if info.min else 2):
                found += [np.full_like(value, extreme)]
                one = value.copy()
                one.reshape(-1)[value.size // 2] = extreme
                found += [one]
            found += [value + np.ones_like(value)]
        if value.dtype.kind == "b":
            found += [~value]
    if type(value) is int:
        found += [value + 1, value - 1, 0, 2**62, -(2**62)]
    if isinstance(value, bytes):
        found += [value[:-1], value + b"x", bytes(len(value)), b"\xff" * len(value)]
    return found


def test_a_damaged_state_is_refused_or_harmless(victim: Victim) -> None:
    state = victim.origin.get_state()
    for path in places(state):
        value = state
        for key in path:
            value = value[key]
        for other in corruptions(value):
            damaged = replaced(state, path, other)
            for close_open in (False, True):
                victim.probe(f"state {path} {other!r:.60}", "set_state", damaged, close_open=close_open)


def test_damaged_parts_are_refused_or_harmless(victim: Victim) -> None:
    parts = list(victim.origin.iter_state(max_bytes=2000))
    for k in range(min(len(parts), 12)):
        for path in places(parts[k]):
            value = parts[k]
            for key in path:
                value = value[key]
            for other in corruptions(value):
                damaged = [*parts[:k], replaced(parts[k], path, other), *parts[k + 1 :]]
                victim.probe(f"part {k} {path} {other!r:.60}", "set_state", damaged)
        without, twice = parts[:k] + parts[k + 1 :], [*parts[: k + 1], *parts[k:]]
        victim.probe(f"without part {k}", "set_state", without)
        victim.probe(f"part {k} twice", "set_state", twice)
    victim.probe("parts reversed", "set_state", parts[::-1])
