"""How long do our episodes take beside RLlib's, call by call?

Needs an environment of its own with ``ray[rllib]==2.60.0``, CPU torch and ringback:

    python bench/peers/episodes_rllib.py [--quick] [--only WORD]

Both classes do the same calls on the same data in one process, taking turns; the clock is the processor time of the
process. A row gives the medians of the turns and the median of the ratios within a turn. Every row first compares what
the two give. The exit status is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import copy
import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

warnings.filterwarnings("ignore")

from ray.rllib.env.single_agent_episode import SingleAgentEpisode as Theirs  # noqa: E402

from ringback.episodes import SingleAgentEpisode as Ours  # noqa: E402

STEPS = 500
VECTOR = gym.spaces.Box(-1e6, 1e6, (4,), np.float32)
CHOICES = gym.spaces.MultiDiscrete([3, 4])
KINDS: dict[str, tuple[gym.Space[Any], gym.Space[Any]]] = {  # spaces of observations and actions
    "plain": (VECTOR, gym.spaces.Discrete(2)),
    "choices": (VECTOR, CHOICES),
    "nested": (
        gym.spaces.Dict({"near": VECTOR, "far": gym.spaces.Tuple((VECTOR, gym.spaces.Discrete(1000)))}),
        gym.spaces.Dict({"turn": gym.spaces.Discrete(3), "pads": CHOICES, "force": gym.spaces.Box(-1, 1, (2,))}),
    ),
}


@dataclass
class Case:
    """One row: what is called, the bar for the ratio, and how many calls make a turn.

    ``make`` gets an episode class and returns the call to time; with ``fresh`` it returns the call and is made anew for
    each call, unmeasured.
    """

    name: str
    make: Callable[[Any], Callable[[], Any]]
    bar: float
    calls: int = 400
    fresh: bool = False
    compare: bool = True


def observations(kind: str, count: int) -> list[Any]:
    vectors = [np.array([k, k + 0.25, k + 0.5, k + 0.75], np.float32) for k in range(count)]
    if kind != "nested":
        return vectors
    return [{"near": vector, "far": (vector + 0.125, np.int64(k % 1000))} for k, vector in enumerate(vectors)]


def actions(kind: str, count: int) -> list[Any]:
    if kind == "plain":
        return [k % 2 for k in range(count)]
    pads = [np.array([k % 3, k % 4]) for k in range(count)]
    if kind == "choices":
        return pads
    force = [np.array([k / 1000, -k / 1000], np.float32) for k in range(count)]
    return [{"turn": np.int64(k % 3), "pads": pads[k], "force": force[k]} for k in range(count)]


def episode(cls: Any, *, numpy: bool, extras: bool = True, kind: str = "plain") -> Any:
    out = cls(
        "same",
        observations=observations(kind, STEPS + 1),
        observation_space=KINDS[kind][0],
        actions=actions(kind, STEPS),
        action_space=KINDS[kind][1],
        rewards=[1000.0 + k for k in range(STEPS)],
        extra_model_outputs={"action_logp": [-0.5 * k for k in range(STEPS)]} if extras else {},
        len_lookback_buffer=0,
    )
    return out.to_numpy() if numpy else out


Make = Callable[[Any], Callable[[], Any]]


def read(numpy: bool, method: str, *args: Any, kind: str = "plain", **kwargs: Any) -> Make:
    def make(cls: Any) -> Callable[[], Any]:
        getter = getattr(episode(cls, numpy=numpy, kind=kind), method)
        return lambda: getter(*args, **kwargs)

    return make


def on(numpy: bool, call: Callable[[Any], Any], kind: str = "plain") -> Make:
    def make(cls: Any) -> Callable[[], Any]:
        data = episode(cls, numpy=numpy, kind=kind)
        return lambda: call(data)

    return make


def stepping(numpy: bool, extras: bool, kind: str = "plain") -> Make:
    def make(cls: Any) -> Callable[[], Any]:
        data = episode(cls, numpy=numpy, extras=extras, kind=kind)
        new, action = observations(kind, 1)[0], actions(kind, 2)[1]
        more = {"action_logp": -0.5} if extras else None
        info: dict[str, Any] = {}
        if extras:
            return lambda: data.add_env_step(new, action, 1.0, info, extra_model_outputs=more)
        return lambda: data.add_env_step(new, action, 1.0, info)

    return make


def joining(numpy: bool, kind: str = "plain") -> Make:
    half = STEPS // 2

    def make(cls: Any) -> Callable[[], Any]:
        whole = episode(cls, numpy=numpy, kind=kind)
        head, tail = whole[:half], whole[half:]

        def call() -> Any:
            head.concat_episode(tail)
            return head

        return call

    return make


def converting(kind: str = "plain") -> Make:
    def make(cls: Any) -> Callable[[], Any]:
        data = episode(cls, numpy=False, kind=kind)
        return lambda: data.to_numpy()

    return make


def state_round_trip(data: Any) -> Any:
    return type(data).from_state(data.get_state())


NEVER_SLOWER, GETTER = 1.0, 1 / 1.1  # a getter that takes less than a microsecond may take a tenth more


def cases() -> list[Case]:
    last4, left = slice(-4, None), slice(-504, -500)
    out = [
        Case("add_env_step [list]", stepping(False, False), NEVER_SLOWER, 300, compare=False),
        Case("add_env_step, 1 extra [list]", stepping(False, True), NEVER_SLOWER, 300, compare=False),
        Case("add_env_step [numpy]", stepping(True, False), 3.0, 100, compare=False),
    ]
    for numpy in (False, True):
        form = "[numpy]" if numpy else "[list]"
        window, coded = (NEVER_SLOWER, 3.0) if numpy else (GETTER, NEVER_SLOWER)
        calls: list[tuple[str, float, int, str, tuple[Any, ...], dict[str, Any]]] = [
            ("get_observations(-1)", GETTER, 400, "get_observations", (-1,), {}),
            ("get_observations(slice(-4, None), fill)", window, 400, "get_observations", (last4,), {"fill": 0.0}),
            ("get_observations(slice(-504, -500), fill)", coded, 400, "get_observations", (left,), {"fill": 0.0}),
            ("get_rewards(slice(-5, None), fill)", window, 400, "get_rewards", (slice(-5, None),), {"fill": 0.0}),
            ("get_actions(-1, one_hot)", coded, 400, "get_actions", (-1,), {"one_hot_discrete": True}),
            (
                "get_actions(one_hot) all",
                3.0 if numpy else 50.0,
                200 if numpy else 8,
                "get_actions",
                (),
                {"one_hot_discrete": True},
            ),
            ("get_actions([-1, -3, -5])", window, 400, "get_actions", ([-1, -3, -5],), {}),
            (
                "get_extra_model_outputs('action_logp', -1)",
                GETTER,
                400,
                "get_extra_model_outputs",
                ("action_logp", -1),
                {},
            ),
        ]
        out += [
            Case(f"{name} {form}", read(numpy, method, *args, **kwargs), bar, count)
            for name, bar, count, method, args, kwargs in calls
        ]
        out += [
            Case(f"slice [10:60] {form}", on(numpy, lambda e: e[10:60]), 3.0, 150),
            Case(f"get_data_dict() {form}", on(numpy, lambda e: e.get_data_dict()), NEVER_SLOWER, 100),
            Case(f"get_return() {form}", on(numpy, lambda e: e.get_return()), NEVER_SLOWER, 200),
            Case(f"cut() {form}", on(numpy, lambda e: e.cut()), 3.0, 150),
            Case(f"cut(10) {form}", on(numpy, lambda e: e.cut(len_lookback_buffer=10)), 3.0, 150),
            Case(f"get_state + from_state {form}", on(numpy, state_round_trip), 3.0, 20),
            Case(f"deepcopy {form}", on(numpy, copy.deepcopy), NEVER_SLOWER, 20),
            Case(f"concat_episode 250+250 {form}", joining(numpy), 3.0, 12, fresh=True),
        ]
    out.append(Case("to_numpy 500 steps", converting(), 2.0, 12, fresh=True))
    return [*out, *fills_and_codes(), *nested_life()]


def fills_and_codes() -> list[Case]:
    """Every kind of fill and of one-hot read of array form, for each kind of action."""
    fill, coded = {"fill": 0.0}, {"one_hot_discrete": True}
    reads: list[tuple[str, Any, dict[str, Any]]] = [
        ("slice(-504, -500), fill", slice(-504, -500), fill),
        ("slice(-504, -498), fill", slice(-504, -498), fill),
        ("[-600, -1, 2], fill", [-600, -1, 2], fill),
        ("10**12, fill", 10**12, fill),
        ("-1, one_hot", -1, coded),
        ("one_hot", None, coded),
        ("slice(-504, -500), fill, one_hot", slice(-504, -500), {**fill, **coded}),
        ("slice(-504, -498), fill, one_hot", slice(-504, -498), {**fill, **coded}),
        ("[-600, -1, 2], fill, one_hot", [-600, -1, 2], {**fill, **coded}),
    ]
    return [
        Case(f"{kind}: get_actions({name})", read(True, "get_actions", at, kind=kind, **how), 3.0, 40)
        for kind in KINDS
        for name, at, how in reads
    ]


def nested_life() -> list[Case]:
    """The life of an episode with nested data; but RLlib's ``cut`` fails on its array form."""
    kind = "nested"
    return [
        Case("nested: add_env_step [numpy]", stepping(True, True, kind), 3.0, 100, compare=False),
        Case("nested: slice [10:60] [numpy]", on(True, lambda e: e[10:60], kind), 3.0, 60),
        Case("nested: get_state + from_state [numpy]", on(True, state_round_trip, kind), 3.0, 10),
        Case("nested: concat_episode 250+250 [numpy]", joining(True, kind), 3.0, 8, fresh=True),
        Case("nested: to_numpy 500 steps", converting(kind), 2.0, 8, fresh=True),
    ]


def equal(a: Any, b: Any) -> bool:
    """Whether two answers hold the same numbers; episodes are compared by their columns."""
    if hasattr(a, "get_data_dict"):
        if len(a) == 0:
            return len(b) == 0 and a.t == b.t and equal(a.get_observations(0), b.get_observations(0))
        return equal(a.get_data_dict(), b.get_data_dict()) and (len(a), a.t, a.is_done) == (len(b), b.t, b.is_done)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def turn(case: Case, cls: Any) -> float:
    """Microseconds a call, the garbage collector off: it would bill one class for what the other left behind."""
    gc.collect()
    gc.disable()
    try:
        return timed(case, cls)
    finally:
        gc.enable()


def timed(case: Case, cls: Any) -> float:
    if case.fresh:
        calls = [case.make(cls) for _ in range(case.calls)]
        start = time.process_time_ns()
        for call in calls:
            call()
        return (time.process_time_ns() - start) / len(calls) / 1000
    call = case.make(cls)
    call()
    start = time.process_time_ns()
    for _ in range(case.calls):
        call()
    return (time.process_time_ns() - start) / case.calls / 1000


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--turns", type=int, default=11)
    options = parser.parse_args()
    missed = []
    print(f"{'call':55s} {'ours us':>9s} {'RLlib us':>9s} {'ratio':>7s} {'bar':>6s}")
    for case in cases():
        if options.only not in case.name:
            continue
        if case.compare and not equal(case.make(Ours)(), case.make(Theirs)()):
            raise SystemExit(f"{case.name}: the two do not give the same")
        if not options.quick and not case.fresh:
            case.calls *= 10
        turns = [(turn(case, Ours), turn(case, Theirs)) for _ in range(1 if options.quick else options.turns)]
        ours, theirs = (statistics.median(pair[k] for pair in turns) for k in (0, 1))
        ratio = statistics.median(pair[1] / pair[0] for pair in turns)
        if ratio < case.bar:
            missed.append(case.name)
        verdict = "" if ratio >= case.bar else "  missed"
        print(f"{case.name:55s} {ours:9.2f} {theirs:9.2f} {ratio:6.2f}x {case.bar:5.2f}x{verdict}")
    if missed and not options.quick:
        print("missed:", "; ".join(missed))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
