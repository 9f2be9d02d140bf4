"""Returns and advantages of flat arrays: closed forms, segments, accuracy, refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback.connectors.return_sums import discounted_sums, gae, last_rows, n_step_returns, returns_to_go
from tests.connectors.learner_chunks import Array, chunks
from tests.reference import learner as slow

FRACTIONS = st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0])


def value(observation: float) -> float:
    return math.sin(observation) * 3


def flat(plays: Sequence[slow.Chunk]) -> dict[str, Array]:
    steps = slow.steps_of(plays)
    return {
        "rewards": np.array([step.chunk.play.reward(step.t) for step in steps], np.float64),
        "values": np.array([value(step.chunk.play.observation(step.t)) for step in steps], np.float64),
        "terminateds": np.array([step.is_last and step.chunk.terminated for step in steps], bool),
        "truncateds": np.array([step.is_last and step.chunk.truncated for step in steps], bool),
        "lengths": np.array([chunk.stop - chunk.start for chunk in plays], np.int64),
        "final_values": np.array([value(chunk.play.observation(chunk.stop)) for chunk in plays], np.float64),
    }


def arguments(data: dict[str, Array], *without: str) -> dict[str, Array]:
    return {name: array for name, array in data.items() if name not in without}


@settings(max_examples=150, deadline=None)
@given(chunks(), FRACTIONS, FRACTIONS)
def test_advantages_are_those_of_the_recursion(plays: list[slow.Chunk], gamma: float, lambda_: float) -> None:
    got = gae(**arguments(flat(plays)), gamma=gamma, lambda_=lambda_)
    want = slow.advantages(plays, value, gamma, lambda_)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-12, atol=1e-12)


@settings(max_examples=80, deadline=None)
@given(chunks(), FRACTIONS)
def test_with_lambda_0_the_target_is_one_reward_and_the_next_value(plays: list[slow.Chunk], gamma: float) -> None:
    data = flat(plays)
    _, targets = gae(**arguments(data), gamma=gamma, lambda_=0.0)
    following = np.array([value(step.chunk.play.observation(step.t + 1)) for step in slow.steps_of(plays)])
    want = data["rewards"] + gamma * np.where(data["terminateds"], 0, following)
    np.testing.assert_allclose(targets, want, rtol=1e-12, atol=1e-12)


@settings(max_examples=80, deadline=None)
@given(chunks(), FRACTIONS)
def test_with_lambda_1_the_target_is_the_discounted_return(plays: list[slow.Chunk], gamma: float) -> None:
    _, targets = gae(**arguments(flat(plays)), gamma=gamma, lambda_=1.0)
    want = []
    for step in slow.steps_of(plays):
        times = range(step.t, step.chunk.stop)
        total = math.fsum(gamma ** (t - step.t) * step.chunk.play.reward(t) for t in times)
        behind = 0.0 if step.chunk.terminated else value(step.chunk.play.observation(step.chunk.stop))
        want.append(total + gamma ** len(times) * behind)
    np.testing.assert_allclose(targets, want, rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(chunks(), FRACTIONS)
def test_returns_to_go_are_the_sums_made_anew_for_each_step(plays: list[slow.Chunk], gamma: float) -> None:
    data = flat(plays)
    got = returns_to_go(data["rewards"], data["lengths"], gamma)
    np.testing.assert_allclose(got, slow.returns_to_go(plays, gamma), rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(chunks(), st.integers(1, 14), FRACTIONS)
def test_n_step_sums_are_those_of_the_loop(plays: list[slow.Chunk], n: int, gamma: float) -> None:
    got = n_step_returns(**arguments(flat(plays), "values", "final_values"), n_step=n, gamma=gamma)
    want = slow.n_step(plays, n, gamma)
    assert got.rewards.tolist() == want["rewards"]
    assert got.n_steps.tolist() == want["n_steps"]
    assert got.discounts.tolist() == want["discounts"]
    places = [step.chunk.play.observation(step.t) for step in slow.steps_of(plays)]
    assert [places[row] + 1 for row in got.last] == want["new_obs"]


def test_a_terminal_end_takes_the_bootstrap_away_and_a_time_limit_leaves_it() -> None:
    def target(terminated: bool, truncated: bool) -> float:
        _, targets = gae(
            np.array([1.0]),
            np.array([3.0]),
            np.array([10.0]),
            [1],
            np.array([terminated]),
            np.array([truncated]),
            gamma=0.9,
            lambda_=0.95,
        )
        return float(targets[0])

    assert (target(True, False), target(True, True), target(False, True), target(False, False)) == (1, 1, 10, 10)


def test_the_flag_is_that_of_the_step_that_leads_to_the_end() -> None:
    _, targets = gae(
        np.array([0.0, 1.0]),
        np.array([5.0, 1.0]),
        np.array([7.0]),
        [2],
        np.array([False, True]),
        gamma=0.9,
        lambda_=0.0,
    )
    assert targets.tolist() == pytest.approx([0.9, 1.0])


def test_ends_inside_of_a_chunk_stop_the_sum_and_only_a_terminal_one_the_bootstrap() -> None:
    rewards, values = np.array([1.0, 2.0, 4.0]), np.array([10.0, 20.0, 40.0])
    inside = np.array([False, True, False])
    never = np.zeros(3, bool)
    _, targets = gae(rewards, values, np.array([80.0]), [3], inside, never, gamma=0.5, lambda_=1.0)
    assert targets.tolist() == [2.0, 2.0, 44.0]
    _, targets = gae(rewards, values, np.array([80.0]), [3], never, inside, gamma=0.5, lambda_=1.0)
    assert targets.tolist() == [1 + 0.5 * 22, 2 + 0.5 * 40, 44.0]


def test_what_lies_behind_a_terminal_end_may_be_unknown() -> None:
    advantages, targets = gae(
        np.array([1.0, 1.0]),
        np.array([0.0, 0.0]),
        np.array([np.nan]),
        [2],
        np.array([False, True]),
        gamma=1.0,
        lambda_=1.0,
    )
    assert targets.tolist() == advantages.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.99, 1.0 - 1e-9, 1.0])
@pytest.mark.parametrize("lengths", [[5000], [1], [4096, 1, 0, 903], [8] * 20])
def test_long_sums_are_as_accurate_as_exact_ones(factor: float, lengths: list[int]) -> None:
    rng = np.random.default_rng(sum(lengths))
    items = rng.normal(1.0, 3.0, sum(lengths))
    got = discounted_sums(items, last_rows(lengths), factor)
    begin = 0
    for length in lengths:
        for k in {0, length // 2, length - 1} if length else ():
            weights = [factor**i for i in range(length - k)]
            parts = [w * x for w, x in zip(weights, items[begin + k : begin + length], strict=True)]
            scale = math.fsum(map(abs, parts))
            assert abs(got[begin + k] - math.fsum(parts)) <= 1e-14 * scale
        begin += length


def test_sums_do_not_cross_a_boundary_even_where_infinity_lies_behind_it() -> None:
    items = np.array([1.0, 2.0, np.inf, 4.0, 5.0])
    assert discounted_sums(items, last_rows([2, 1, 2]), 0.5).tolist() == [2.0, 2.0, np.inf, 6.5, 5.0]


def test_no_steps_give_no_rows() -> None:
    nothing = np.zeros(0)
    none = np.zeros(0, bool)
    assert returns_to_go(nothing, [], 0.9).shape == returns_to_go(nothing, [0, 0], 0.9).shape == (0,)
    advantages, targets = gae(nothing, nothing, np.array([np.nan]), [0], none, gamma=0.9, lambda_=0.9)
    assert advantages.shape == targets.shape == (0,)
    assert n_step_returns(nothing, [0], none, n_step=3, gamma=0.9).last.shape == (0,)


def test_given_arrays_are_left_as_they_are() -> None:
    play = slow.Play(3, 9, terminated=True)
    data = flat([slow.Chunk(play, 0, 4), slow.Chunk(play, 4, 9)])
    before = {name: array.copy() for name, array in data.items()}
    gae(**arguments(data), gamma=0.9, lambda_=0.9)
    n_step_returns(**arguments(data, "values", "final_values"), n_step=3, gamma=0.9)
    returns_to_go(data["rewards"], data["lengths"], 0.9)
    for name, array in before.items():
        np.testing.assert_array_equal(data[name], array)


def refused(call: Any, message: str, kind: type[Exception] = ValueError) -> None:
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call()


def test_refusals_say_what_is_wrong() -> None:
    one, no = np.ones(2), np.zeros(2, bool)
    refused(lambda: returns_to_go(one, [2], 1.5), "returns_to_go: gamma must be in [0, 1], got 1.5")
    refused(lambda: returns_to_go(one, [2], math.nan), "returns_to_go: gamma must be in [0, 1], got nan")
    refused(
        lambda: returns_to_go(one, [2], "1"),  # type: ignore[arg-type]
        "returns_to_go: gamma must be a number in [0, 1], got '1'",
        TypeError,
    )
    refused(
        lambda: returns_to_go(one, [2, 1], 1.0), "returns_to_go: rewards must have shape (3,) for 2 chunks, got (2,)"
    )
    refused(
        lambda: gae(one, one, one, [2], no, gamma=0.9, lambda_=0.9),
        "gae: final_values must hold one value for each of the 1 chunks, got 2",
    )
    refused(
        lambda: gae(one, one[:1], one[:1], [2], no, gamma=0.9, lambda_=0.9),
        "gae: values must have shape (2,) for 1 chunks, got (1,)",
    )
    refused(lambda: gae(one, one, one[:1], [2], no, gamma=0.9, lambda_=-1), "gae: lambda_ must be in [0, 1], got -1")
    refused(lambda: n_step_returns(one, [2], no, n_step=0, gamma=0.9), "n_step_returns: n_step must be >= 1, got 0")
    refused(
        lambda: n_step_returns(one, [2], no, n_step=1.0, gamma=0.9),  # type: ignore[arg-type]
        "n_step_returns: n_step must be an integer >= 1, got 1.0",
        TypeError,
    )
