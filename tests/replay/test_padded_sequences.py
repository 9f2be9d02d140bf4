"""Padding, periods, whole rows on request: short episodes and tails are allowed, and what is no data says so."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.answers import FullTwin, numbers
from tests.replay.worlds import counted, f32, nested, vector


def test_tails_and_short_episodes_are_windows_too() -> None:
    twin = FullTwin(20)
    twin.play(0, 2)
    twin.play(1, 4, None)
    assert twin.starts(length=3) == [2, 3]
    assert twin.starts(length=3, pad=True) == [0, 1, 2, 3, 4, 5]
    batch = twin.windows(length=3, pad=True)
    assert numbers(batch.observations) == [
        [0, 1, 0],
        [1, 0, 0],
        [1000, 1001, 1002],
        [1001, 1002, 1003],
        [1002, 1003, 0],
        [1003, 0, 0],
    ]
    assert batch.lengths.ravel().tolist() == [2, 1, 3, 3, 2, 1]
    assert numbers(batch.valid) == numbers(batch.mask)
    assert numbers(batch.valid)[:2] == [[1, 1, 0], [1, 0, 0]]
    assert batch.ids.tolist()[1] == [1, -1, -1]
    assert numbers(batch.terminations)[0] == [0, 1, 0]
    assert numbers(batch.is_last) == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_what_is_left_of_an_evicted_episode_is_padded() -> None:
    twin = FullTwin(10)
    twin.play(0, 7)
    twin.play(1, 7)
    assert twin.starts(length=4) == [7, 8, 9, 10]  # inside the second, across the seam of the ring
    assert twin.starts(length=4, pad=True) == list(range(4, 14))
    batch = twin.windows(length=4, pad=True)
    assert numbers(batch.observations)[0] == [4, 5, 6, 0]
    assert not batch.is_first[0].any()


def test_a_length_beyond_every_episode_is_all_padding_behind() -> None:
    twin = FullTwin(20)
    twin.play(3, 2, "truncated")
    batch = twin.windows(length=6, pad=True)
    assert numbers(batch.rewards) == [[3000, 3001, 0, 0, 0, 0], [3001, 0, 0, 0, 0, 0]]
    assert numbers(batch.truncations) == [[0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert numbers(batch.dones) == [[0] * 6] * 2


def test_padding_is_zero_in_every_leaf() -> None:
    twin = FullTwin(20, nested(), gym.spaces.Discrete(5, start=2), {"logp": vector(2), "state": vector(3, np.float64)})
    for t in range(3):
        extras = {name: counted(space, 40 + t) for name, space in twin.slow.extras.items()}
        action = counted(gym.spaces.Discrete(5, start=2), t)
        twin.add(counted(nested(), 7 + t), action, 1.0 + t, counted(nested(), 8 + t), t == 2, extras=extras)
    batch = twin.windows(length=2, pad=True, next_observations=True)
    for leaf in (
        batch.observations["camera"],
        batch.observations["body"][2],
        batch.next_observations["goal"]["angle"],
        batch.extras["state"],
        batch.actions,
    ):
        assert leaf[2, 0].any()
        assert not leaf[2, 1].any()


@pytest.mark.parametrize(("period", "starts"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3]), (5, [0])])
def test_a_period_counts_from_the_episodes_beginning(period: int, starts: list[int]) -> None:
    twin = FullTwin(30)
    twin.play(0, 6)
    twin.play(1, 7)
    assert twin.starts(length=2, period=period) == starts + [6 + s for s in (*starts, 5) if s % period == 0]
    batch = twin.windows(length=2, period=period)
    assert (batch.observations[:, 0, 0] % 1000 % period == 0).all()


def test_a_period_counts_on_when_the_beginning_is_gone() -> None:
    twin = FullTwin(10)
    twin.play(0, 15, None)  # 5 to 14 are live
    assert twin.starts(length=3, period=4) == [8, 12]
    assert twin.starts(length=3, period=4, pad=True) == [8, 12]
    assert twin.starts(length=1, period=4, stack=4) == [8, 12]
    assert twin.starts(length=1, period=4, stack=5) == [12]
    twin.play(0, 1, None, start=15)
    twin.play(0, 1, None, start=16)  # 7 to 16 are live
    assert twin.starts(length=1, period=4) == [8, 12, 16]


def test_period_and_padding_cover_an_episode_without_overlap() -> None:
    twin = FullTwin(30)
    twin.play(0, 7)
    twin.play(1, 3)
    batch = twin.windows(length=3, period=3, pad=True)
    assert batch.lengths.ravel().tolist() == [3, 3, 1, 3]
    assert sorted(i for i in batch.ids.ravel().tolist() if i >= 0) == list(range(10))


def test_windows_are_drawn_uniformly_over_their_starts() -> None:
    buffer = ReplayBuffer(40, 1, 1, seed=3)
    for episode, length in enumerate((2, 5, 1, 7)):
        for t in range(length):
            count = 1000 * episode + t
            buffer.add([count], [0], count, [count + 1], t == length - 1)
    starts = buffer.valid_starts(3, pad=True, period=2)
    assert len(starts) == 1 + 3 + 1 + 4
    drawn = buffer.sample_sequences(9000, 3, pad=True, period=2, replace=True).start_ids
    values, found = np.unique(drawn, return_counts=True)
    assert values.tolist() == starts.tolist()
    assert (np.abs(found - 1000) < 4.5 * np.sqrt(1000)).all()


def test_the_successor_of_each_row_on_request() -> None:
    twin = FullTwin(20)
    for t in range(4):
        twin.add(f32([10 * t]), f32([0]), float(t), f32([10 * t + 1]), t == 3)  # no observation is the next one
    batch = twin.windows(length=3, pad=True, next_observations=True)
    assert numbers(batch.next_observations) == [[1, 11, 21], [11, 21, 31], [21, 31, 0], [31, 0, 0]]
    assert twin.real.sample_sequences(1, 2).next_observations is None


def test_the_successor_at_a_time_limit_is_never_the_next_episodes() -> None:
    twin = FullTwin(20)
    twin.play(0, 2, "truncated")
    twin.play(1, 2, "truncated")
    batch = twin.windows(length=2, next_observations=True)
    assert numbers(batch.next_observations) == [[1, 2], [1001, 1002]]


def test_time_major_swaps_the_first_two_axes_only() -> None:
    twin = FullTwin(20)
    twin.play(0, 5)
    plain = twin.windows(length=3, pad=True, burn_in=1)
    swapped = twin.windows(length=3, pad=True, burn_in=1, time_major=True)
    assert swapped.observations.shape == (4, 5, 1)
    assert swapped.ids.shape == (4, 5)
    for name in ("observations", "rewards", "mask", "valid", "is_first", "ids"):
        np.testing.assert_array_equal(getattr(swapped, name).swapaxes(0, 1), getattr(plain, name))
    np.testing.assert_array_equal(swapped.lengths, plain.lengths)
    np.testing.assert_array_equal(swapped.start_ids, plain.start_ids)


def test_time_major_arrays_are_as_contiguous_as_others() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    batch = buffer.sample_sequences(3, 4, time_major=True)
    assert batch.observations.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(batch.observations[0, :, 0], batch.start_ids)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"period": 0}, ValueError, "period must be >= 1, got 0"),
        ({"period": -3}, ValueError, "period must be >= 1, got -3"),
        ({"period": 2.0}, TypeError, "period must be an integer, got 2.0"),
        ({"pad": 2}, ValueError, "pad must be"),
        ({"pad": None}, TypeError, "pad must be"),
        ({"time_major": "yes"}, TypeError, "time_major must be"),
        ({"next_observations": 3}, ValueError, "next_observations must be"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    with pytest.raises(kind, match=re.escape(f"ReplayBuffer.sample_sequences: {text}") + ".*"):
        buffer.sample_sequences(2, 3, **options)


def test_asking_for_more_than_all_padded_windows_names_their_number() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], t == 4)
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_sequences: batch_size must .*9.*, got 10"):
        buffer.sample_sequences(10, 30, pad=True)
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.sample_sequences: batch_size must .*5.*, got 6"):
        buffer.sample_sequences(6, 30, pad=True, period=2)
