"""What is live: always the last `capacity` steps in the order of writing (I1)."""

from __future__ import annotations

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import assert_consistent, content, counts, live, play
from tests.replay.worlds import Chunk, f32, vectors


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 64, 65])
def test_the_oldest_step_is_the_next_one_to_go(capacity: int) -> None:
    buffer = ReplayBuffer(capacity, 1, 1)
    for step in range(3 * capacity + 2):
        assert play(buffer, 0, 1, None, start=step) == [step]
        expected = list(range(max(0, step + 1 - capacity), step + 1))
        assert live(buffer) == expected == content(buffer)
        assert len(buffer) == len(expected)
        assert buffer.total_added == step + 1
        assert buffer.is_full == (len(expected) == capacity)


def test_a_new_buffer_is_empty() -> None:
    buffer = ReplayBuffer(5, 2, 1)
    assert (len(buffer), buffer.capacity, buffer.num_episodes, buffer.total_added) == (0, 5, 0, 0)
    assert not buffer.is_full
    assert buffer.valid_starts().tolist() == []
    assert buffer.valid_starts(3).tolist() == []
    assert buffer.valid_starts().dtype == np.int64


def test_capacity_counts_the_steps_of_all_streams_together() -> None:
    buffer = ReplayBuffer(12, 1, 1)
    for t in range(4):
        buffer.add_batch(
            vectors([0, 100, 200, 300]) + t, vectors([0] * 4), [t] * 4, vectors([0, 100, 200, 300]) + t + 1, [False] * 4
        )
        assert len(buffer) == min(4 * (t + 1), 12)
    assert content(buffer) == [1, 101, 201, 301, 2, 102, 202, 302, 3, 103, 203, 303]  # each stream lost its oldest


def test_capacity_that_the_streams_do_not_divide_is_used_whole() -> None:
    buffer = ReplayBuffer(10, 1, 1)
    for t in range(3):
        buffer.add_batch(
            vectors([0, 100, 200, 300]) + t, vectors([0] * 4), [t] * 4, vectors([0, 100, 200, 300]) + t + 1, [False] * 4
        )
    assert (buffer.capacity, len(buffer)) == (10, 10)
    assert content(buffer) == [200, 300, 1, 101, 201, 301, 2, 102, 202, 302]


def test_eviction_takes_steps_and_not_episodes() -> None:
    buffer = ReplayBuffer(6, 1, 1, seed=3)
    for episode, length in enumerate((3, 3, 2)):
        play(buffer, episode, length)
    assert content(buffer) == [2, 1000, 1001, 1002, 2000, 2001]
    assert buffer.num_episodes == 3
    starts = buffer.valid_starts(2)
    assert counts(buffer.get(starts).observations) == [1000, 1001, 2000]
    drawn = {count for _ in range(60) for count in counts(buffer.sample_transitions(1).observations)}
    assert drawn == {2, 1000, 1001, 1002, 2000, 2001}


def test_one_call_may_add_and_evict() -> None:
    buffer = ReplayBuffer(4, 1, 1)
    play(buffer, 0, 3)
    for name, episode, length in (("b", 1, 2), ("c", 2, 3)):
        numbers = [1000 * episode + t for t in range(length + 1)]
        buffer.add_episode(
            Chunk(name, 0, [f32([n]) for n in numbers], [[-n] for n in numbers[:-1]], numbers[:-1], True)
        )
    assert content(buffer) == [1001, 2000, 2001, 2002]
    assert len(buffer) == 4


def test_a_batch_larger_than_the_buffer_leaves_its_last_rows() -> None:
    buffer = ReplayBuffer(4, 1, 1)
    ids = buffer.add_batch(vectors(range(7)), vectors([0] * 7), [0.0] * 7, vectors(range(1, 8)), [False] * 7)
    assert ids.tolist() == list(range(7))
    assert content(buffer) == [3, 4, 5, 6]


def test_an_open_episode_goes_on_when_its_first_steps_are_evicted() -> None:
    buffer = ReplayBuffer(4, 1, 1)
    play(buffer, 0, 6)
    assert content(buffer) == [2, 3, 4, 5]
    batch = buffer.sample_sequences(1, 4)
    assert not batch.is_first.any()  # the episode's start is evicted, its steps go on counting
    assert batch.is_last[0, :, 0].tolist() == [False, False, False, True]
    assert batch.terminations[0, :, 0].tolist() == [False, False, False, True]


def test_a_buffer_of_one_step_holds_the_newest() -> None:
    buffer = ReplayBuffer(1, 1, 1)
    for step in range(5):
        play(buffer, 0, 1, None, start=step)
        batch = buffer.sample_transitions(1)
        assert counts(batch.observations) == [step]
        assert_consistent(batch)
    with pytest.raises(ValueError, match="length must be"):
        buffer.sample_sequences(1, 2)


def test_an_episode_longer_than_any_cache_is_stored_while_it_runs() -> None:
    buffer = ReplayBuffer(20_000, 1, 1)
    play(buffer, 0, 10_001, None)
    assert len(buffer) == 10_001
    batch = buffer.sample_sequences(1, 10_001)
    np.testing.assert_array_equal(batch.observations[0, :, 0], np.arange(10_001))


def test_length_counts_steps_whatever_call_adds_them() -> None:
    buffer = ReplayBuffer(50, 1, 1)
    play(buffer, 0, 1)
    assert len(buffer) == 1
    buffer.add_batch(vectors(range(5)), vectors(range(5)), range(5), vectors(range(1, 6)), [False] * 5)
    assert len(buffer) == 6
    numbers = list(range(6))
    buffer.add_episode(Chunk("a", 0, [[n] for n in numbers], [[n] for n in numbers[:-1]], numbers[:-1]))
    assert len(buffer) == 11
