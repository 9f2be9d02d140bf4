"""Whole episodes: stored from their first step to their end, uniform over them, padded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.answers import FullTwin, numbers


def filled() -> FullTwin:
    """Return episodes of 3, 1, 4 steps, one open one, and one whose beginning is evicted."""
    twin = FullTwin(14)
    twin.play(0, 5)
    twin.play(1, 3, "truncated")
    twin.play(2, 1)
    twin.play(3, 4, "both")
    twin.play(4, 2, None)  # 15 steps: the first of episode 0 is gone
    return twin


def test_only_episodes_that_are_stored_whole_and_finished_count() -> None:
    batch = filled().windows(length=4, whole=True)
    assert numbers(batch.observations) == [[1000, 1001, 1002, 0], [2000, 0, 0, 0], [3000, 3001, 3002, 3003]]
    assert batch.lengths.ravel().tolist() == [3, 1, 4]
    assert numbers(batch.valid) == numbers(batch.mask) == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert batch.start_ids.tolist() == [5, 8, 9]
    assert numbers(batch.is_first) == [[1, 0, 0, 0]] * 3
    assert numbers(batch.terminations) == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert numbers(batch.truncations) == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]


def test_longer_episodes_than_the_limit_are_left_out() -> None:
    assert filled().windows(length=3, whole=True).start_ids.tolist() == [5, 8]
    assert filled().windows(length=1, whole=True).start_ids.tolist() == [8]


def test_an_episode_that_ends_counts_from_then_on() -> None:
    twin = filled()
    twin.end_episode(0)
    batch = twin.windows(length=4, whole=True)
    assert batch.start_ids.tolist() == [5, 8, 9, 13]
    assert numbers(batch.truncations)[3] == [0, 1, 0, 0]


def test_without_a_limit_the_longest_drawn_decides() -> None:
    real: Any = filled().real
    for _ in range(20):
        batch = real.sample_episodes(2)
        assert batch.observations.shape[:2] == (2, batch.lengths.max())
        rows = np.arange(batch.valid.shape[1])[None] < batch.lengths
        np.testing.assert_array_equal(batch.valid[..., 0], rows)
        assert set(batch.start_ids.tolist()) <= {5, 8, 9}
    assert real.sample_episodes(3).observations.shape == (3, 4, 1)


def test_episodes_are_equally_likely_whatever_their_length() -> None:
    buffer: Any = ReplayBuffer(100, 1, 1, seed=1)
    for episode, length in enumerate((1, 30, 5, 12)):
        for t in range(length):
            buffer.add([1000 * episode + t], [0], t, [1000 * episode + t + 1], t == length - 1)
    drawn = buffer.sample_episodes(4000, replace=True).start_ids
    values, found = np.unique(drawn, return_counts=True)
    assert values.tolist() == [0, 1, 31, 36]
    assert (np.abs(found - 1000) < 4.5 * np.sqrt(750)).all()


def test_asking_for_more_episodes_than_there_are_names_their_number() -> None:
    real: Any = filled().real
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_episodes: batch_size must .*3.*, got 4"):
        real.sample_episodes(4)
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_episodes: batch_size must .*2.*, got 3"):
        real.sample_episodes(3, max_length=3)
    assert real.sample_episodes(9, max_length=3, replace=True).ids.shape == (9, 3)


def test_no_whole_episode_is_an_error_that_says_so() -> None:
    buffer: Any = ReplayBuffer(10, 1, 1)
    for t in range(3):
        buffer.add([t], [0], t, [t + 1], False)
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_episodes: .*0.*"):
        buffer.sample_episodes(1)


@pytest.mark.parametrize(("value", "kind"), [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError)])
def test_a_wrong_limit_is_refused(value: Any, kind: type[Exception]) -> None:
    real: Any = filled().real
    with pytest.raises(kind, match=rf"^ReplayBuffer\.sample_episodes: max_length must .*, got {value}"):
        real.sample_episodes(1, max_length=value)


def test_whole_episodes_with_stacks_and_successors() -> None:
    batch = filled().windows(length=4, whole=True, stack=2, next_observations=True)
    assert batch.observations[0, :, :, 0].tolist() == [[1000, 1000], [1000, 1001], [1001, 1002], [0, 0]]
    assert batch.next_observations[0, :, :, 0].tolist() == [[1000, 1001], [1001, 1002], [1002, 1003], [0, 0]]


def test_an_episode_with_missing_history_is_not_whole() -> None:
    twin = FullTwin(6)
    twin.play(0, 3)
    twin.play(1, 4)  # step 0 is gone
    assert twin.windows(length=9, whole=True).start_ids.tolist() == [3]
