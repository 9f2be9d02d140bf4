"""Uniform means uniform: exact supports, and counts within the bounds of their own distribution."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import live, play
from tests.replay.statistics import assert_uniform

CAPACITY = 101
FILLS = {"before full": 37, "exactly full": CAPACITY, "one past full": CAPACITY + 1, "several wraps": 1013}


def filled(steps: int, capacity: int = CAPACITY, seed: int = 1, streams: int = 1) -> ReplayBuffer:
    """Return a buffer after that many steps of episodes of 1 to 23 steps in several streams."""
    buffer = ReplayBuffer(capacity, 1, 1, seed=seed)
    rng = np.random.default_rng(steps)
    left, now = [0] * streams, [0] * streams
    for step in range(steps):
        stream = step % streams
        if left[stream] == 0:
            left[stream] = int(rng.integers(1, 24))
        left[stream] -= 1
        play(buffer, stream, 1, "truncated" if left[stream] == 0 else None, stream=stream, start=now[stream])
        now[stream] += 1
    return buffer


def ids_of(draw: Callable[[], np.ndarray], count: int) -> list[int]:
    return [int(i) for _ in range(count) for i in draw()]


@pytest.mark.parametrize("fault", ["a missing value", "a value beyond", "a biased half", "too even"])
def test_the_bounds_find_what_is_not_uniform(fault: str) -> None:
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 101, 10_000)
    assert_uniform(drawn, range(101))
    if fault == "a missing value":
        drawn = rng.integers(0, 100, 10_000)
    elif fault == "a value beyond":
        drawn[0] = 101
    elif fault == "a biased half":
        drawn[:2000] %= 50
    else:
        drawn = np.arange(10_000) % 101
    with pytest.raises(AssertionError):
        assert_uniform(drawn, range(101))


@pytest.mark.parametrize("steps", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("streams", [1, 3])
def test_steps_are_drawn_uniformly_with_replacement(steps: int, streams: int) -> None:
    buffer = filled(steps, streams=streams)
    drawn = ids_of(lambda: buffer.sample_transitions(50, replace=True).ids, 200)
    assert_uniform(drawn, live(buffer))


@pytest.mark.parametrize("steps", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("batch_size", [1, 5, 30])
def test_steps_are_drawn_uniformly_without_replacement(steps: int, batch_size: int) -> None:
    buffer = filled(steps)
    drawn = ids_of(lambda: buffer.sample_transitions(batch_size).ids, 6000 // batch_size)
    assert_uniform(drawn, live(buffer), batch_size)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_nearly_all_steps_are_drawn_uniformly(missing: int) -> None:
    buffer = filled(1013)
    size = CAPACITY - missing
    batches = [buffer.sample_transitions(size).ids.tolist() for _ in range(1500)]
    assert all(len(set(batch)) == size for batch in batches)
    if missing == 0:
        assert all(sorted(batch) == live(buffer) for batch in batches)
    else:
        left_out = [i for batch in batches for i in set(live(buffer)) - set(batch)]
        assert_uniform(left_out, live(buffer), missing)


@pytest.mark.parametrize("steps", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("length", [1, 2, 5, 11])
@pytest.mark.parametrize("replace", [True, False])
def test_starts_of_windows_are_drawn_uniformly(steps: int, length: int, replace: bool) -> None:
    buffer = filled(steps, streams=2 if length < 11 else 1)
    starts = buffer.valid_starts(length).tolist()
    batch_size = max(1, len(starts) // 3)
    calls = 12_000 // batch_size
    drawn = ids_of(lambda: buffer.sample_sequences(batch_size, length, replace=replace).start_ids, calls)
    if len(starts) == 1:
        assert set(drawn) == set(starts)
    else:
        assert_uniform(drawn, starts, 1 if replace else batch_size)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(("common", "rare"), [(7, 50), (50, 50), (49, 50), (3, 90)])
def test_starts_are_uniform_where_few_steps_are_starts(common: int, rare: int, replace: bool) -> None:
    buffer = ReplayBuffer(3001, 1, 1, seed=8)
    rng = np.random.default_rng(common)
    step = 0
    while step < 7000:
        length = rare + int(rng.integers(4)) if rng.random() < 0.15 else common
        play(buffer, 0, length, start=step)
        step += length
    starts = buffer.valid_starts(rare).tolist()
    assert 1 < len(starts) < 300
    batch_size = max(1, len(starts) // 2)
    calls = 12_000 // batch_size
    drawn = ids_of(lambda: buffer.sample_sequences(batch_size, rare, replace=replace).start_ids, calls)
    assert_uniform(drawn, starts, 1 if replace else batch_size)


def test_nearly_all_starts_are_drawn_uniformly() -> None:
    buffer = filled(1013)
    starts = buffer.valid_starts(6).tolist()
    left_out: list[int] = []
    for _ in range(1000):
        batch = buffer.sample_sequences(len(starts) - 1, 6).start_ids.tolist()
        left_out += set(starts) - set(batch)
    assert_uniform(left_out, starts)


def test_every_subset_is_equally_likely_without_replacement() -> None:
    buffer = ReplayBuffer(7, 1, 1, seed=2)
    play(buffer, 0, 19, None)
    subsets = {subset: place for place, subset in enumerate(combinations(live(buffer), 3))}
    drawn = [subsets[tuple(sorted(buffer.sample_transitions(3).ids.tolist()))] for _ in range(4000)]
    assert_uniform(drawn, range(len(subsets)))


def test_every_pair_of_starts_is_equally_likely_without_replacement() -> None:
    buffer = ReplayBuffer(23, 1, 1, seed=2)
    for episode, length in enumerate((5, 3, 7, 9, 4)):
        play(buffer, episode, length)
    subsets = {subset: place for place, subset in enumerate(combinations(buffer.valid_starts(4).tolist(), 2))}
    drawn = [subsets[tuple(sorted(buffer.sample_sequences(2, 4).start_ids.tolist()))] for _ in range(4000)]
    assert_uniform(drawn, range(len(subsets)))


def test_draws_with_replacement_are_independent_of_each_other() -> None:
    buffer = ReplayBuffer(7, 1, 1, seed=2)
    play(buffer, 0, 19, None)
    pairs = {pair: place for place, pair in enumerate(product(live(buffer), repeat=2))}
    drawn = [pairs[tuple(buffer.sample_transitions(2, replace=True).ids.tolist())] for _ in range(4000)]
    assert_uniform(drawn, range(len(pairs)))


def test_one_draw_does_not_tell_the_next() -> None:
    buffer = ReplayBuffer(7, 1, 1, seed=3)
    play(buffer, 0, 19, None)
    drawn = [buffer.sample_transitions(1).ids[0] - 12 for _ in range(6001)]
    assert_uniform([7 * a + b for a, b in pairwise(drawn)], range(49))


@pytest.mark.parametrize("size", [1000, 1024, 10_007])
def test_large_buffers_have_no_rows_out_of_reach(size: int) -> None:
    buffer = filled(2 * size + 77, capacity=size)
    drawn = ids_of(lambda: buffer.sample_transitions(256).ids, 15 * size // 256 + 1)
    missed = size - len(set(drawn))
    # A row is missed with probability (1 - 256 / N) ** calls, about e ** -15; none of so few rows is.
    assert missed == 0
    blocks = 64
    order = (np.array(drawn) - live(buffer)[0]) * blocks // size
    expected = np.bincount(np.arange(size) * blocks // size) * len(drawn) / size
    deviation = (np.bincount(order) - expected) / np.sqrt(expected)
    assert (abs(deviation) < 5).all()


def test_draws_stay_uniform_after_a_round_trip_through_state() -> None:
    buffer = filled(1013)
    other = ReplayBuffer(CAPACITY, 1, 1)
    other.set_state(buffer.get_state())
    drawn = ids_of(lambda: other.sample_sequences(9, 3).start_ids, 1500)
    assert_uniform(drawn, buffer.valid_starts(3).tolist(), 9)
