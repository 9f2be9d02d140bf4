"""Prioritised replay: who has mass, how much, and what that means for draws and weights."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest

from ringback import PrioritizedReplayBuffer
from tests.reference.priorities import PriorityOracle
from tests.reference.replay import ReplayOracle
from tests.reference.windows import Request
from tests.replay.playing import play
from tests.replay.statistics import SIGMAS, chi_squared_quantile
from tests.replay.worlds import vector, vectors


def buffer_of(capacity: int, **options: Any) -> Any:
    """Return an empty buffer of counting steps."""
    return PrioritizedReplayBuffer(capacity, 1, 1, seed=options.pop("seed", 0), **options)


def with_priorities(values: list[float], capacity: int | None = None, **options: Any) -> Any:
    """Return a buffer of one-step episodes with exactly these priorities."""
    buffer = buffer_of(capacity or len(values), alpha=1.0, eps=0.0, **options)
    for episode in range(len(values)):
        play(buffer, episode, 1)
    live = np.arange(max(0, len(values) - buffer.capacity), len(values))
    assert buffer.update_priorities(live, np.array(values)[live]) == 0
    return buffer


def assert_distributed(ids: Any, priorities: dict[int, float]) -> None:
    """Check independent draws against these masses."""
    values, found = np.unique(np.asarray(ids), return_counts=True)
    chances = np.array(list(priorities.values())) / sum(priorities.values())
    assert set(values.tolist()) == set(priorities)
    expected = chances * found.sum()
    assert expected.min() > 8
    statistic = ((found - expected) ** 2 / expected).sum()
    assert statistic < chi_squared_quantile(len(priorities) - 1, SIGMAS)


# ------------------------------------------------------------------ draws


def test_one_step_is_drawn_and_two_are_drawn_alike() -> None:
    buffer = buffer_of(10)
    play(buffer, 0, 1, None)
    assert buffer.sample_transitions(5).ids.tolist() == [0] * 5
    play(buffer, 0, 1, None, start=1)
    ids = np.concatenate([buffer.sample_transitions(2).ids for _ in range(50)])
    assert np.bincount(ids).tolist() == [50, 50]  # stratified: each of two halves gives one


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 6, 7, 8, 9, 16, 64, 65, 1000])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_stratified_draws_of_equal_masses_give_each_step_once(capacity: int, extra: int) -> None:
    buffer = buffer_of(capacity)
    for t in range(max(1, capacity + extra)):
        play(buffer, 0, 1, None, start=t)
    live = list(buffer.valid_starts())
    for _ in range(3):
        assert sorted(buffer.sample_transitions(len(live)).ids.tolist()) == live


@pytest.mark.parametrize("capacity", [5, 8, 37])
@pytest.mark.parametrize("draw", ["stratified", "independent"])
def test_draws_are_proportional_to_the_priorities(capacity: int, draw: str) -> None:
    masses = [1.0 + (7 * t) % 5 for t in range(capacity)]
    buffer = with_priorities(masses, draw=draw)
    size = 1 if draw == "stratified" else 64
    ids = np.concatenate([buffer.sample_transitions(size).ids for _ in range(12_000 // size)])
    assert_distributed(ids, dict(enumerate(masses)))


def test_stratified_draws_scatter_less_than_independent_ones() -> None:
    masses = [1.0, 3.0, 2.0, 2.0]
    counts = {}
    for draw in ("stratified", "independent"):
        buffer = with_priorities(masses, draw=draw)
        counts[draw] = np.array([np.bincount(buffer.sample_transitions(8).ids, minlength=4) for _ in range(400)])
        assert abs(counts[draw].mean(axis=0) - masses).max() < 0.4
    assert (counts["stratified"] == masses).all()  # 8 strata of mass 1: every batch has exactly these counts
    assert counts["independent"].std(axis=0).min() > 0.5


def test_priorities_far_apart_never_lead_to_an_empty_leaf() -> None:
    rng = np.random.default_rng(3)
    for capacity in (3, 7, 33, 100):
        buffer = buffer_of(capacity, alpha=1.0, eps=0.0, sequence_length=3)
        for episode in range(capacity):
            play(buffer, episode, 1 + episode % 5)
        starts = buffer.valid_starts(3)
        if not len(starts):
            continue
        for _ in range(30):
            buffer.update_priorities(starts, 10.0 ** rng.uniform(-12, 12, len(starts)))
            drawn = buffer.sample_sequences(64, 3).start_ids
            assert set(drawn.tolist()) <= set(starts.tolist())


def test_an_error_of_zero_without_eps_is_never_drawn() -> None:
    buffer = with_priorities([0.0, 1.0, 0.0, 2.0, 0.0])
    ids = np.concatenate([buffer.sample_transitions(64).ids for _ in range(50)])
    assert set(ids.tolist()) == {1, 3}


def test_only_what_is_there_is_drawn_before_the_ring_is_full() -> None:
    buffer = buffer_of(1000)
    play(buffer, 0, 3, None)
    assert set(buffer.sample_transitions(90).ids.tolist()) == {0, 1, 2}


def test_draws_are_with_replacement_and_may_be_more_than_there_are() -> None:
    buffer = with_priorities([1.0, 1.0])
    assert buffer.sample_transitions(7).ids.shape == (7,)


def test_the_rows_are_those_of_the_uniform_buffer() -> None:
    buffer = buffer_of(20, stack=2)
    play(buffer, 1, 6, "truncated")
    batch = buffer.sample_transitions(16, n_step=2, gamma=0.5, stack=2)
    steps = batch.ids
    np.testing.assert_array_equal(batch.observations[:, 1, 0], 1000 + steps)
    np.testing.assert_array_equal(batch.observations[:, 0, 0], 1000 + np.maximum(steps - 1, 0))
    np.testing.assert_array_equal(batch.n_steps[:, 0], np.minimum(2, 6 - steps))
    plain = buffer.get(steps, n_step=2, gamma=0.5, stack=2)
    np.testing.assert_array_equal(batch.rewards, plain.rewards)
    np.testing.assert_array_equal(batch.next_observations, plain.next_observations)


# ------------------------------------------------------------------ what new steps get


def test_new_steps_get_one_until_something_is_known() -> None:
    buffer = buffer_of(10, alpha=1.0, eps=0.0)
    play(buffer, 0, 3, None)
    assert buffer.priorities([0, 1, 2]).tolist() == [1, 1, 1]
    assert buffer.priorities([0]).dtype == np.float64


def test_new_steps_get_the_largest_live_priority() -> None:
    buffer = with_priorities([5.0, 2.0], capacity=4)
    play(buffer, 7, 1)
    assert buffer.priorities([2]).tolist() == [5]
    buffer.update_priorities([0, 1, 2], [0.01, 0.01, 0.01])
    play(buffer, 8, 1)
    assert buffer.priorities([3]).tolist() == [0.01]  # the initial 1 is forgotten


@pytest.mark.parametrize(("rule", "expected"), [("max_live", 2.0), ("max_ever", 5.0)])
def test_a_large_priority_that_is_overwritten_counts_for_ever_only_by_option(rule: str, expected: float) -> None:
    buffer = with_priorities([5.0, 2.0, 2.0], new_priority=rule)
    play(buffer, 7, 1)  # overwrites the 5
    buffer.update_priorities([1, 2, 3], [2.0, 1.0, 2.0])
    play(buffer, 8, 1)
    assert buffer.priorities([4]).tolist() == [expected]


def test_the_largest_live_priority_is_one_that_can_be_drawn() -> None:
    buffer = with_priorities([5.0, 2.0, 1.0])
    play(buffer, 7, 1)  # takes the place of the 5, and what is live then is at most 2
    assert buffer.priorities([1, 2, 3]).tolist() == [2, 1, 2]


def test_alpha_and_eps_shape_what_an_update_stores() -> None:
    buffer = buffer_of(5, alpha=0.5, eps=0.25)
    play(buffer, 0, 3)
    buffer.update_priorities([0, 1, 2], [0.0, 2.0, 3.75])
    np.testing.assert_allclose(buffer.priorities([0, 1, 2]), [0.5, 1.5, 2.0], rtol=1e-15)
    play(buffer, 1, 1)
    np.testing.assert_allclose(buffer.priorities([3]), [2.0], rtol=1e-15)  # the leaf itself, not its power once more


# ------------------------------------------------------------------ updates


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_updates_take_rows_and_columns(shape: tuple[int, ...]) -> None:
    buffer = with_priorities([1.0, 1.0, 1.0])
    assert buffer.update_priorities([2, 0, 1], np.array([3.0, 4.0, 5.0], np.float32).reshape(shape)) == 0
    assert buffer.priorities([0, 1, 2]).tolist() == [4, 5, 3]


def test_the_last_of_duplicates_wins() -> None:
    buffer = with_priorities([1.0, 1.0])
    assert buffer.update_priorities([0, 1, 0, 0], [9.0, 2.0, 8.0, 3.0]) == 0
    assert buffer.priorities([0, 1]).tolist() == [3, 2]


def test_a_late_update_never_hits_the_step_that_took_the_slot() -> None:
    buffer = with_priorities([1.0, 1.0, 1.0])
    for episode in range(3, 6):
        play(buffer, episode, 1)
    before = buffer.priorities([3, 4, 5]).tolist()
    assert buffer.update_priorities([0], [100.0]) == 1
    assert buffer.update_priorities([1, 4, 2], [100.0, 7.0, 50.0]) == 2
    assert before == [1, 1, 1]
    assert buffer.priorities([3, 4, 5]).tolist() == [1, 7, 1]
    play(buffer, 9, 1)
    assert buffer.priorities([6]).tolist() == [7]  # the ignored 100 is not remembered either


@pytest.mark.parametrize("bad", [-3.0, float("nan"), float("inf"), -float("inf"), -1e-300])
@pytest.mark.parametrize("place", [0, 2])
def test_a_bad_error_is_refused_with_the_whole_update(bad: float, place: int) -> None:
    buffer = with_priorities([1.0, 2.0, 3.0])
    errors = [7.0, 7.0, 7.0]
    errors[place] = bad
    with pytest.raises(ValueError, match=r"^PrioritizedReplayBuffer\.update_priorities: abs_td.* must .*got "):
        buffer.update_priorities([0, 1, 2], errors)
    assert buffer.priorities([0, 1, 2]).tolist() == [1, 2, 3]
    play(buffer, 5, 1)
    assert buffer.priorities([3]).tolist() == [3]


def test_a_bad_error_of_a_stale_id_is_refused_too() -> None:
    buffer = with_priorities([1.0, 2.0])
    play(buffer, 5, 1)
    with pytest.raises(ValueError, match="update_priorities"):
        buffer.update_priorities([0], [float("nan")])


@pytest.mark.parametrize(
    ("ids", "errors"), [([0, 1], [1.0]), ([0], [1.0, 2.0]), ([0, 1], [[1.0, 2.0]]), ([[0, 1]], [1.0, 2.0])]
)
def test_shapes_that_do_not_fit_are_refused(ids: Any, errors: Any) -> None:
    buffer = with_priorities([1.0, 2.0, 3.0])
    with pytest.raises((ValueError, TypeError), match=r"^PrioritizedReplayBuffer\.update_priorities: .* must .*"):
        buffer.update_priorities(ids, errors)
    assert buffer.priorities([0, 1, 2]).tolist() == [1, 2, 3]


def test_an_id_that_was_never_given_is_an_error() -> None:
    buffer = with_priorities([1.0, 2.0])
    with pytest.raises(IndexError, match=r"^PrioritizedReplayBuffer\.update_priorities: .*got 2"):
        buffer.update_priorities([0, 2], [5.0, 5.0])
    assert buffer.priorities([0, 1]).tolist() == [1, 2]


def test_the_priority_of_a_stale_id_is_an_error() -> None:
    buffer = with_priorities([1.0, 2.0])
    play(buffer, 5, 1)
    with pytest.raises(IndexError, match=r"^PrioritizedReplayBuffer\.priorities: .*got 0"):
        buffer.priorities([1, 0])


def test_no_update_at_all_is_fine() -> None:
    buffer = with_priorities([1.0, 2.0])
    assert buffer.update_priorities([], []) == 0
    assert buffer.priorities([]).shape == (0,)


# ------------------------------------------------------------------ weights


def test_weights_by_the_buffers_maximum_are_the_default() -> None:
    buffer = with_priorities([1.0, 2.0, 3.0, 4.0], capacity=9)  # empty slots do not enter
    for beta, expected in ((1.0, [1, 0.5, 1 / 3, 0.25]), (0.4, [1, 0.7579, 0.6444, 0.5743]), (0.0, [1, 1, 1, 1])):
        batch = buffer.sample_transitions(64, beta=beta)
        assert batch.weights.shape == (64, 1)
        assert batch.weights.dtype == np.float32
        np.testing.assert_allclose(batch.weights[:, 0], np.array(expected)[batch.ids], rtol=1e-4)


def test_beta_is_0_4_by_default() -> None:
    buffer = with_priorities([1.0, 2.0, 3.0, 4.0])
    batch = buffer.sample_transitions(64)
    np.testing.assert_allclose(batch.weights[:, 0], (1 + batch.ids) ** -0.4, rtol=1e-5)


def test_weights_by_the_batchs_maximum() -> None:
    buffer = with_priorities([1.0, 2.0, 3.0, 4.0], weights="batch")
    seen = set()
    for _ in range(200):
        batch = buffer.sample_transitions(2, beta=1.0)
        priorities = batch.ids + 1
        np.testing.assert_allclose(batch.weights[:, 0], priorities.min() / priorities, rtol=1e-6)
        seen.add(tuple(sorted(batch.ids.tolist())))
    assert (1, 2) in seen  # {2, 3}: weights 1 and 2/3


def test_the_smallest_priority_leaves_the_maximum_when_it_is_evicted() -> None:
    buffer = with_priorities([1.0, 2.0, 4.0])
    play(buffer, 9, 1)  # gets 4
    batch = buffer.sample_transitions(64, beta=1.0)
    expected = {1: 1.0, 2: 0.5, 3: 0.5}
    np.testing.assert_allclose(batch.weights[:, 0], [expected[i] for i in batch.ids.tolist()])
    assert batch.weights.max() == 1.0


def test_a_start_that_is_not_valid_enters_neither_minimum_nor_maximum() -> None:
    buffer = buffer_of(20, alpha=1.0, eps=0.0, sequence_length=3)
    play(buffer, 0, 5)
    play(buffer, 1, 2, None)
    assert buffer.update_priorities([0, 1, 2], [4.0, 2.0, 8.0]) == 0
    assert buffer.update_priorities([3, 4, 5, 6], [0.001] * 4) == 4  # none of them is a start
    batch = buffer.sample_sequences(64, 3, beta=1.0)
    expected = {0: 0.5, 1: 1.0, 2: 0.25}
    assert batch.weights.shape == (64, 1)
    np.testing.assert_allclose(batch.weights[:, 0], [expected[i] for i in batch.start_ids.tolist()])


def test_weights_do_not_depend_on_the_number_of_steps() -> None:
    for size in (4, 100):
        buffer = with_priorities([1.0 + t for t in range(size)], capacity=size + 3)
        batch = buffer.sample_transitions(32, beta=0.5)
        np.testing.assert_allclose(batch.weights[:, 0], (batch.ids + 1.0) ** -0.5, rtol=1e-5)


# ------------------------------------------------------------------ windows


def test_a_start_gains_its_mass_with_the_last_row_of_its_own_stream() -> None:
    buffer = buffer_of(30, alpha=1.0, eps=0.0, sequence_length=3)
    for t in range(3):
        for stream in range(2):
            play(buffer, stream, 1, None, stream, start=t)
            filled = {0: t == 2, 1: t == 2 and stream == 1}
            assert buffer.priorities([i for i in range(2) if i < len(buffer)]).tolist() == [
                float(filled[i]) for i in range(min(2, len(buffer)))
            ]
    assert buffer.priorities(range(6)).tolist() == [1, 1, 0, 0, 0, 0]


def test_before_the_first_window_there_is_nothing_to_draw() -> None:
    buffer = buffer_of(30, sequence_length=4)
    play(buffer, 0, 3, None)
    with pytest.raises(ValueError, match=r"^(Prioritized)?ReplayBuffer\.sample_sequences: .*"):
        buffer.sample_sequences(2, 4)
    play(buffer, 0, 1, None, start=3)
    assert buffer.sample_sequences(2, 4).start_ids.tolist() == [0, 0]


def test_an_empty_buffer_has_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match=r"^(Prioritized)?ReplayBuffer\.sample_transitions: .*"):
        buffer_of(3).sample_transitions(1)


def test_a_windows_priority_is_on_its_start() -> None:
    buffer = buffer_of(30, alpha=1.0, eps=0.0, sequence_length=3)
    play(buffer, 0, 6)
    buffer.update_priorities([0, 1, 2, 3], [0.0, 1.0, 3.0, 0.0])
    batch = buffer.sample_sequences(64, 3)
    assert set(batch.start_ids.tolist()) == {1, 2}
    np.testing.assert_array_equal(batch.ids, batch.start_ids[:, None] + np.arange(3))


def test_padded_windows_have_mass_from_their_first_row_on() -> None:
    buffer = buffer_of(30, alpha=1.0, eps=0.0, sequence_length=3, pad=True, period=2)
    play(buffer, 0, 5)
    play(buffer, 1, 1, None)
    assert buffer.priorities(range(6)).tolist() == [1, 0, 1, 0, 1, 1]
    batch = buffer.sample_sequences(64, 3, pad=True, period=2)
    assert set(batch.start_ids.tolist()) == {0, 2, 4, 5}
    assert (batch.lengths[batch.start_ids == 4] == 1).all()


def test_a_start_loses_its_mass_when_its_stack_is_evicted() -> None:
    buffer = buffer_of(5, alpha=1.0, eps=0.0, stack=3)
    play(buffer, 0, 5, None)
    assert buffer.priorities(range(5)).tolist() == [1] * 5
    play(buffer, 0, 1, None, start=5)  # step 0 is gone: 1 and 2 have no stack any more
    assert buffer.priorities(range(1, 6)).tolist() == [0, 0, 1, 1, 1]
    assert buffer.update_priorities([1, 2, 3], [9.0, 9.0, 4.0]) == 2
    assert set(buffer.sample_transitions(90, stack=3).ids.tolist()) == {3, 4, 5}


@pytest.mark.parametrize("options", [{"length": 4}, {"length": 1}])
def test_another_length_is_refused(options: dict[str, int]) -> None:
    buffer = buffer_of(30, sequence_length=3)
    play(buffer, 0, 9)
    with pytest.raises(
        ValueError, match=rf"^(Prioritized)?ReplayBuffer\.sample_sequences: length must .*3.*, got {options['length']}"
    ):
        buffer.sample_sequences(2, options["length"])


def test_a_longer_stack_than_the_buffer_was_made_for_is_refused() -> None:
    buffer = buffer_of(30, stack=2)
    play(buffer, 0, 9)
    assert buffer.sample_transitions(4, stack=1).observations.shape == (4, 1, 1)
    with pytest.raises(ValueError, match=r"ReplayBuffer\.sample_transitions: stack must .*2.*, got 3"):
        buffer.sample_transitions(4, stack=3)


def test_transitions_and_windows_are_not_drawn_from_one_buffer() -> None:
    windows, steps = buffer_of(30, sequence_length=3), buffer_of(30)
    for buffer in (windows, steps):
        play(buffer, 0, 9)
    with pytest.raises(ValueError, match=r"^(Prioritized)?ReplayBuffer\.sample_transitions: .*"):
        windows.sample_transitions(2)
    with pytest.raises(ValueError, match=r"^(Prioritized)?ReplayBuffer\.sample_sequences: .*"):
        steps.sample_sequences(2, 3)


# ------------------------------------------------------------------ against the slow twin


def programs(seed: int) -> tuple[Any, PriorityOracle, bool]:
    """Return a buffer and its twin with the same random options, and whether they draw windows."""
    rng = np.random.default_rng(seed)
    length = None if rng.random() < 0.3 else int(rng.integers(1, 5))
    pad, period = bool(rng.random() < 0.4), int(rng.integers(1, 4))
    stack = None if rng.random() < 0.5 else int(rng.integers(1, 4))
    options: dict[str, Any] = {
        "alpha": float(rng.choice([0.0, 0.6, 1.0])),
        "eps": float(rng.choice([1e-6, 0.5])),
        "new_priority": str(rng.choice(["max_live", "max_ever"])),
        "weights": str(rng.choice(["buffer", "batch"])),
    }
    windows: dict[str, Any] = {"stack": stack}
    request = Request(stack=stack)
    if length is not None:
        windows |= {"sequence_length": length, "pad": pad, "period": period}
        request = Request(length=length, pad=pad, period=period, stack=stack)
    capacity = int(rng.integers(1, 20))
    slow = PriorityOracle(ReplayOracle(capacity, vector(1), vector(1)), request, **options)
    return buffer_of(capacity, seed=seed, **options, **windows), slow, length is not None


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_keep_the_masses_equal_to_the_slow_twins(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    buffer, slow, windowed = programs(seed)
    now = [0] * 3
    for _ in range(60):
        kind = rng.integers(6)
        if kind < 3:
            streams = rng.permutation(3)[: rng.integers(1, 4)].tolist()
            ends = rng.random(len(streams)) < 0.2
            counts = np.array([1000 * stream + now[stream] for stream in streams])
            for where in (buffer, slow.oracle):
                where.add_batch(
                    vectors(counts), vectors(-counts), counts.astype(np.float32), vectors(counts + 1), ends,
                    None, streams,
                )  # fmt: skip
            for stream, end in zip(streams, ends, strict=True):
                now[stream] = 0 if end else now[stream] + 1
        elif kind == 3:
            stream = int(rng.integers(3))
            assert buffer.end_episode(stream) == slow.oracle.end_episode(stream)
            now[stream] = 0
        elif slow.oracle.written:
            ids = rng.integers(0, slow.oracle.written, 5).tolist()
            errors = rng.choice([0.0, 0.1, 1.0, 30.0], 5).tolist()
            assert buffer.update_priorities(ids, errors) == slow.update(ids, errors)
        live = slow.oracle.live()
        if live:
            np.testing.assert_allclose(buffer.priorities(live), slow.priorities(live), rtol=1e-14)
        if slow.mass:
            _compare_draw(buffer, slow, windowed)


def _compare_draw(buffer: Any, slow: PriorityOracle, windowed: bool) -> None:
    request = slow.request
    options: dict[str, Any] = {} if request.stack is None else {"stack": request.stack}
    if not windowed:
        batch = buffer.sample_transitions(16, beta=0.7, **options)
        drawn = batch.ids.tolist()
    else:
        more = {"pad": request.pad, "period": request.period} | options
        batch = buffer.sample_sequences(16, request.length, beta=0.7, **more)
        drawn = batch.start_ids.tolist()
    assert set(drawn) <= set(slow.mass)
    np.testing.assert_allclose(batch.weights, slow.weights(drawn, 0.7), rtol=1e-5)


# ------------------------------------------------------------------ state, options, refusals


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "state"])
@pytest.mark.parametrize("length", [None, 2])
def test_priorities_survive_a_round_trip_with_the_draws_that_follow(way: str, length: int | None) -> None:
    options: dict[str, Any] = {"alpha": 1.0, "eps": 0.0, "sequence_length": length}
    buffer = buffer_of(9, **options)
    for episode in range(3):
        play(buffer, episode, 4, None if episode == 2 else "terminated")
    buffer.update_priorities(range(4, 12), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    if way == "state":
        other = buffer_of(9, seed=77, **options)
        other.set_state(buffer.get_state())
    else:
        other = pickle.loads(pickle.dumps(buffer)) if way == "pickle" else copy.deepcopy(buffer)
    live = buffer.valid_starts()
    np.testing.assert_array_equal(other.priorities(live), buffer.priorities(live))
    for _ in range(5):
        a, b = (
            one.sample_transitions(16) if length is None else one.sample_sequences(16, length)
            for one in (buffer, other)
        )
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.weights, b.weights)
    for one in (buffer, other):
        play(one, 2, 3, "terminated", start=4)
    np.testing.assert_array_equal(other.priorities(buffer.valid_starts()), buffer.priorities(buffer.valid_starts()))


def test_the_largest_ever_is_in_the_state() -> None:
    buffer = with_priorities([5.0, 2.0], new_priority="max_ever")
    for episode in range(2):
        play(buffer, episode, 1)
    buffer.update_priorities([2, 3], [1.0, 1.0])
    other = pickle.loads(pickle.dumps(buffer))
    for one in (buffer, other):
        play(one, 9, 1)
        assert one.priorities([4]).tolist() == [5]


def test_the_same_seed_gives_the_same_draws() -> None:
    one, two, other = (with_priorities([1.0, 2.0, 3.0, 4.0], seed=seed) for seed in (3, 3, 4))
    draws = [[buffer.sample_transitions(8).ids.tolist() for _ in range(20)] for buffer in (one, two, other)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_every_step_of_every_stream_has_its_share() -> None:
    buffer = buffer_of(50)
    for t in range(3):
        for stream in range(4):
            play(buffer, stream, 1, None, stream, start=t)
    assert buffer.priorities(range(12)).tolist() == [1] * 12
    assert sorted(buffer.sample_transitions(12).ids.tolist()) == list(range(12))


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"alpha": -0.1}, ValueError, "alpha must be .*, got -0.1"),
        ({"alpha": float("nan")}, ValueError, "alpha must be .*, got nan"),
        ({"alpha": "x"}, TypeError, "alpha must be .*, got 'x'"),
        ({"eps": -1e-6}, ValueError, "eps must be .*, got -1e-06"),
        ({"sequence_length": 0}, ValueError, "sequence_length must be .*, got 0"),
        ({"sequence_length": 2.0}, TypeError, "sequence_length must be .*, got 2.0"),
        ({"sequence_length": 3, "period": 0}, ValueError, "period must be .*, got 0"),
        ({"new_priority": "max"}, ValueError, "new_priority must be 'max_live' or 'max_ever', got 'max'"),
        ({"weights": "sum"}, ValueError, "weights must be 'buffer' or 'batch', got 'sum'"),
        ({"draw": "uniform"}, ValueError, "draw must be 'stratified' or 'independent', got 'uniform'"),
        ({"stack": 0}, ValueError, "stack must be .*, got 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=f"^PrioritizedReplayBuffer: {text}"):
        buffer_of(10, **options)


@pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf"), "x", None])
def test_a_wrong_beta_is_refused(beta: Any) -> None:
    buffer = with_priorities([1.0, 2.0])
    with pytest.raises(
        (ValueError, TypeError),
        match=rf"^(Prioritized)?ReplayBuffer\.sample_transitions: beta must .*, got {re.escape(repr(beta))}",
    ):
        buffer.sample_transitions(2, beta=beta)
