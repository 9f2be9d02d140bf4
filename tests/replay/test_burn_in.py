"""Burn-in: real rows before the start as far as there are any; row 0 is always real, padding only on the right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.answers import FullTwin, numbers


def test_the_mask_leaves_the_burn_in_out() -> None:
    twin = FullTwin(20)
    twin.play(1, 6, None)
    batch = twin.windows(length=4, burn_in=2)
    assert batch.observations.shape == (3, 6, 1)
    assert numbers(batch.observations)[2] == [1000, 1001, 1002, 1003, 1004, 1005]
    assert batch.mask[2].ravel().tolist() == [False, False, True, True, True, True]
    assert batch.valid[2].all()
    assert batch.burn_in_lengths.tolist() == [[0], [1], [2]]
    assert batch.lengths.tolist() == [[4], [4], [4]]
    assert batch.start_ids.tolist() == [0, 1, 2]


def test_short_burn_in_is_left_aligned_and_padded_on_the_right() -> None:
    twin = FullTwin(20)
    twin.play(1, 5)
    batch = twin.windows(length=3, burn_in=2)
    assert numbers(batch.observations) == [
        [1000, 1001, 1002, 0, 0],
        [1000, 1001, 1002, 1003, 0],
        [1000, 1001, 1002, 1003, 1004],
    ]
    assert batch.ids.tolist() == [[0, 1, 2, -1, -1], [0, 1, 2, 3, -1], [0, 1, 2, 3, 4]]
    assert numbers(batch.valid) == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert numbers(batch.mask) == [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert numbers(batch.is_first) == [[1, 0, 0, 0, 0]] * 3
    assert numbers(batch.is_last) == [[0] * 5, [0] * 5, [0, 0, 0, 0, 1]]
    assert numbers(batch.dones) == [[0] * 5, [0] * 5, [0, 0, 0, 0, 1]]
    assert numbers(batch.rewards) == numbers(batch.observations)
    assert numbers(batch.actions)[0] == [-1000, -1001, -1002, 0, 0]


def test_evicted_rows_are_no_burn_in() -> None:
    twin = FullTwin(6)
    twin.play(0, 10, None)  # 4 to 9 are live
    batch = twin.windows(length=2, burn_in=3)
    assert batch.start_ids.tolist() == [4, 5, 6, 7, 8]
    assert batch.burn_in_lengths.ravel().tolist() == [0, 1, 2, 3, 3]
    assert numbers(batch.observations)[0] == [4, 5, 0, 0, 0]
    assert numbers(batch.observations)[4] == [5, 6, 7, 8, 9]
    assert not batch.is_first.any()


def test_burn_in_stops_at_the_episode() -> None:
    twin = FullTwin(20)
    twin.play(0, 4, "truncated")
    twin.play(1, 3)
    batch = twin.windows(length=2, burn_in=2)
    assert numbers(batch.observations)[3] == [1000, 1001, 0, 0]
    assert batch.start_ids.tolist() == [0, 1, 2, 4, 5]


def test_the_starts_do_not_depend_on_the_burn_in() -> None:
    buffer = ReplayBuffer(30, 1, 1, seed=0)
    for t in range(12):
        buffer.add([t], [0], t, [t + 1], False)
    starts = buffer.valid_starts(4)
    batch = buffer.sample_sequences(len(starts), 4, burn_in=5)
    assert sorted(batch.start_ids.tolist()) == starts.tolist()
    with pytest.raises(ValueError, match=str(len(starts))):
        buffer.sample_sequences(len(starts) + 1, 4, burn_in=5)


def test_rows_before_the_start_that_a_stack_cannot_read_are_no_burn_in() -> None:
    twin = FullTwin(8)
    twin.play(0, 12, None)  # 4 to 11 are live, 6 is the first with a stack of three
    batch = twin.windows(length=2, burn_in=2, stack=3)
    assert batch.start_ids.tolist() == [6, 7, 8, 9, 10]
    assert batch.burn_in_lengths.ravel().tolist() == [0, 1, 2, 2, 2]
    assert batch.observations[0, :, :, 0].tolist() == [[4, 5, 6], [5, 6, 7], [0, 0, 0], [0, 0, 0]]


def test_burn_in_with_padding() -> None:
    twin = FullTwin(20)
    twin.play(0, 3)
    batch = twin.windows(length=4, burn_in=1, pad=True)
    assert numbers(batch.observations) == [[0, 1, 2, 0, 0], [0, 1, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert numbers(batch.mask) == [[1, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 0]]
    assert batch.lengths.ravel().tolist() == [3, 2, 1]
    assert batch.burn_in_lengths.ravel().tolist() == [0, 1, 1]
    assert batch.start_ids.tolist() == [0, 1, 2]


def test_burn_in_follows_its_own_stream() -> None:
    twin = FullTwin(40)
    for t in range(6):
        for stream in range(3):
            twin.play(stream, 1, None, stream, start=t)
    batch = twin.windows(length=2, burn_in=3)
    last = [row for row, start in enumerate(batch.start_ids) if start >= 12]
    assert [numbers(batch.observations)[row] for row in last] == [
        [1000 * stream + t for t in range(1, 6)] for stream in range(3)
    ]


@pytest.mark.parametrize("value", [-1, -5])
def test_a_negative_burn_in_is_refused(value: int) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    with pytest.raises(
        ValueError, match=re.escape(f"ReplayBuffer.sample_sequences: burn_in must be >= 0, got {value}")
    ):
        buffer.sample_sequences(2, 3, burn_in=value)


@pytest.mark.parametrize("value", [1.0, "2", None, True])
def test_a_burn_in_that_is_no_integer_is_refused(value: Any) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    text = f"ReplayBuffer.sample_sequences: burn_in must be an integer, got {value!r}"
    with pytest.raises(TypeError, match=re.escape(text)):
        buffer.sample_sequences(2, 3, burn_in=value)


def test_without_burn_in_and_padding_all_rows_count() -> None:
    buffer = ReplayBuffer(20, 1, 1, seed=0)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    batch = buffer.sample_sequences(3, 4, burn_in=0)
    plain = buffer.sample_sequences(3, 4)
    assert batch.observations.shape == plain.observations.shape == (3, 4, 1)
    for field in ("valid", "mask"):
        part = getattr(plain, field)
        assert part is None or np.asarray(part).all()


def test_out_takes_burn_in() -> None:
    buffer = ReplayBuffer(50, 1, 1, seed=0)
    for t in range(30):
        buffer.add([t], [0], t, [t + 1], t % 6 == 5)
    first = buffer.sample_sequences(8, 3, burn_in=2)
    observations, mask = first.observations, first.mask
    again = buffer.sample_sequences(8, 3, burn_in=2, out=first)
    assert again.observations is observations
    assert again.mask is mask
    short = again.burn_in_lengths.ravel() < 2
    assert short.any()
    assert (again.ids[short, -1] == -1).all()
    assert (again.observations[short, -1] == 0).all()  # padding is written, not left over from the call before
