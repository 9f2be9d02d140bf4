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
OBSERVATION = gym.spaces.Box(-1e6, 1e6, (4,), np.float32)
ACTION = gym.spaces.Discrete(2)


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


def observations(count: int) -> list[Any]:
    return [np.array([k, k + 0.25, k + 0.5, k + 0.75], np.float32) for k in range(count)]


def episode(cls: Any, *, numpy: bool, steps: int = STEPS, lookback: int = 0, extras: bool = True) -> Any:
    out = cls(
        "same",
        observations=observations(steps + 1),
        observation_space=OBSERVATION,
        actions=[k % 2 for k in range(steps)],
        action_space=ACTION,
        rewards=[1000.0 + k for k in range(steps)],
        extra_model_outputs={"action_logp": [-0.5 * k for k in range(steps)]} if extras else {},
        len_lookback_buffer=lookback,
    )
    return out.to_numpy() if numpy else out


def read(method: str, *args: Any, **kwargs: Any) -> Callable[[bool], Callable[[Any], Callable[[], Any]]]:
    def of_form(numpy: bool) -> Callable[[Any], Callable[[], Any]]:
        def make(cls: Any) -> Callable[[], Any]:
            getter = getattr(episode(cls, numpy=numpy), method)
            return lambda: getter(*args, **kwargs)

        return make

    return of_form


def on(numpy: bool, call: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    def make(cls: Any) -> Callable[[], Any]:
        data = episode(cls, numpy=numpy)
        return lambda: call(data)

    return make


def stepping(numpy: bool, extras: bool) -> Callable[[Any], Callable[[], Any]]:
    def make(cls: Any) -> Callable[[], Any]:
        data = episode(cls, numpy=numpy, extras=extras)
        new = observations(1)[0]
        more = {"action_logp": -0.5} if extras else None
        info: dict[str, Any] = {}
        if extras:
            return lambda: data.add_env_step(new, 1, 1.0, info, extra_model_outputs=more)
        return lambda: data.add_env_step(new, 1, 1.0, info)

    return make


def joining(numpy: bool) -> Callable[[Any], Callable[[], Any]]:
    half = STEPS // 2

    def make(cls: Any) -> Callable[[], Any]:
        whole = episode(cls, numpy=numpy)
        head, tail = whole[:half], whole[half:]

        def call() -> Any:
            head.concat_episode(tail)
            return head

        return call

    return make


def converting(cls: Any) -> Callable[[], Any]:
    data = episode(cls, numpy=False)
    return lambda: data.to_numpy()


def state_round_trip(data: Any) -> Any:
    return type(data).from_state(data.get_state())


def cases() -> list[Case]:
    last4, left = slice(-4, None), slice(-504, -500)
    out = [
        Case("add_env_step [list]", stepping(False, False), 1.0, 300, compare=False),
        Case("add_env_step, 1 extra [list]", stepping(False, True), 1.0, 300, compare=False),
        Case("add_env_step [numpy]", stepping(True, False), 3.0, 100, compare=False),
    ]
    for numpy in (False, True):
        form = "[numpy]" if numpy else "[list]"
        sub = 1 / 1.1
        out += [
            Case(f"get_observations(-1) {form}", read("get_observations", -1)(numpy), sub),
            Case(
                f"get_observations(slice(-4, None), fill) {form}",
                read("get_observations", last4, fill=0.0)(numpy),
                1.0 if numpy else sub,
            ),
            Case(
                f"get_observations(slice(-504, -500), fill) {form}",
                read("get_observations", left, fill=0.0)(numpy),
                3.0 if numpy else 1.0,
            ),
            Case(
                f"get_rewards(slice(-5, None), fill) {form}",
                read("get_rewards", slice(-5, None), fill=0.0)(numpy),
                1.0 if numpy else sub,
            ),
            Case(
                f"get_actions(-1, one_hot) {form}",
                read("get_actions", -1, one_hot_discrete=True)(numpy),
                3.0 if numpy else 1.0,
            ),
            Case(
                f"get_actions(one_hot) all {form}",
                read("get_actions", one_hot_discrete=True)(numpy),
                3.0 if numpy else 50.0,
                200 if numpy else 8,
            ),
            Case(f"get_actions([-1, -3, -5]) {form}", read("get_actions", [-1, -3, -5])(numpy), 1.0 if numpy else sub),
            Case(
                f"get_extra_model_outputs('action_logp', -1) {form}",
                read("get_extra_model_outputs", "action_logp", -1)(numpy),
                sub,
            ),
            Case(f"slice [10:60] {form}", on(numpy, lambda e: e[10:60]), 3.0, 150),
            Case(f"get_data_dict() {form}", on(numpy, lambda e: e.get_data_dict()), 1.0, 100),
            Case(f"get_return() {form}", on(numpy, lambda e: e.get_return()), 1.0, 200),
            Case(f"cut() {form}", on(numpy, lambda e: e.cut()), 3.0, 150),
            Case(f"cut(10) {form}", on(numpy, lambda e: e.cut(len_lookback_buffer=10)), 3.0, 150),
            Case(f"get_state + from_state {form}", on(numpy, state_round_trip), 3.0, 20),
            Case(f"deepcopy {form}", on(numpy, copy.deepcopy), 1.0, 20),
            Case(f"concat_episode 250+250 {form}", joining(numpy), 3.0, 12, fresh=True),
        ]
    out.append(Case("to_numpy 500 steps", converting, 2.0, 12, fresh=True))
    return out


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
