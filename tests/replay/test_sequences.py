"""Windows of fixed length: contiguous, of one episode, none left out, none beyond (I3)."""

from __future__ import annotations

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import assert_consistent, counts, play
from tests.replay.worlds import vectors


def start_counts(buffer: ReplayBuffer, length: int) -> list[int]:
    return counts(buffer.get(buffer.valid_starts(length)).observations)


def drawn_counts(buffer: ReplayBuffer, batch_size: int, length: int) -> list[list[int]]:
    batch = buffer.sample_sequences(batch_size, length)
    assert_consistent(batch)
    return sorted([int(count) for count in row] for row in batch.observations[:, :, 0])


def test_an_episode_across_the_seam_of_the_ring_is_whole() -> None:
    buffer = ReplayBuffer(10, 1, 1)
    play(buffer, 0, 7)
    play(buffer, 1, 7)
    assert start_counts(buffer, 4) == [1000, 1001, 1002, 1003]  # 3 steps are left of the first: too few
    assert drawn_counts(buffer, 4, 4) == [[1000 + s + k for k in range(4)] for s in range(4)]


@pytest.mark.parametrize(("steps", "length", "starts"), [(2, 1, [0, 1]), (5, 3, [0, 1, 2]), (3, 3, [0])])
def test_the_last_possible_start_counts(steps: int, length: int, starts: list[int]) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, steps)
    assert start_counts(buffer, length) == starts
    assert drawn_counts(buffer, len(starts), length) == [[s + k for k in range(length)] for s in starts]


def test_the_write_position_is_a_boundary() -> None:
    buffer = ReplayBuffer(8, 1, 1)
    play(buffer, 0, 11, None)
    assert start_counts(buffer, 3) == [3, 4, 5, 6, 7, 8]
    assert drawn_counts(buffer, 6, 3) == [[s, s + 1, s + 2] for s in range(3, 9)]


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
def test_an_end_may_be_the_last_step_of_a_window_but_never_inside(end: str) -> None:
    buffer = ReplayBuffer(50, 1, 1, seed=1)
    for episode, length in enumerate((4, 2, 7, 1, 5)):
        play(buffer, episode, length, end)
    starts = buffer.valid_starts(3)
    assert counts(buffer.get(starts).observations) == [0, 1, 2000, 2001, 2002, 2003, 2004, 4000, 4001, 4002]
    batch = buffer.sample_sequences(len(starts), 3)
    assert not batch.terminations[:, :-1].any()
    assert not batch.truncations[:, :-1].any()
    assert batch.terminations[:, -1].sum() == (0 if end == "truncated" else 3)
    assert batch.truncations[:, -1].sum() == (0 if end == "terminated" else 3)
    np.testing.assert_array_equal(batch.dones, batch.terminations.astype(np.float32))


def test_first_and_last_are_marked() -> None:
    buffer = ReplayBuffer(50, 1, 1)
    play(buffer, 0, 4)
    play(buffer, 1, 3, None)
    batch = buffer.sample_sequences(3, 3)
    rows = np.argsort(batch.start_ids)
    assert batch.is_first[rows, :, 0].tolist() == [[True, False, False], [False] * 3, [True, False, False]]
    assert batch.is_last[rows, :, 0].tolist() == [[False] * 3, [False, False, True], [False, False, True]]
    assert batch.ids[rows].tolist() == [[0, 1, 2], [1, 2, 3], [4, 5, 6]]
    assert batch.start_ids[rows].tolist() == [0, 1, 4]
    assert not batch.truncations.any()  # an open episode's last step has neither flag
    assert batch.terminations.sum() == 1


def test_a_window_grows_with_the_open_episode() -> None:
    buffer = ReplayBuffer(50, 1, 1)
    for t in range(12):
        play(buffer, 0, 1, None, start=t)
        for length in range(1, t + 2):
            assert len(buffer.valid_starts(length)) == t + 2 - length
    buffer.sample_sequences(12, 1)
    assert drawn_counts(buffer, 1, 12) == [list(range(12))]


def test_windows_follow_their_stream_through_interleaved_writing() -> None:
    buffer = ReplayBuffer(45, 1, 1, seed=2)
    for t in range(40):
        buffer.add_batch(
            vectors([0, 1000, 2000]) + t,
            -vectors([0, 1000, 2000]) - t,
            [t, 1000 + t, 2000 + t],
            vectors([0, 1000, 2000]) + t + 1,
            [False, t % 7 == 6, False],
            [False, False, t % 10 == 9],
        )
    for length in (1, 2, 5, 9, 15):
        starts = len(buffer.valid_starts(length))
        for row in drawn_counts(buffer, starts, length):
            assert row == list(range(row[0], row[0] + length))
    assert len(buffer.valid_starts(15)) == 1  # only the endless stream has 15 of its steps live


def test_every_length_has_its_exact_starts() -> None:
    buffer = ReplayBuffer(31, 1, 1)
    lengths = [3, 1, 8, 2, 2, 13, 5, 4]
    for episode, length in enumerate(lengths):
        play(buffer, episode, length)
    live_lengths = [5, 2, 2, 13, 5, 4]  # 38 steps were added: the first 7 are gone
    for length in range(1, 15):
        assert len(buffer.valid_starts(length)) == sum(max(0, n - length + 1) for n in live_lengths)


def test_all_starts_can_be_drawn_at_once_and_one_more_cannot() -> None:
    buffer = ReplayBuffer(30, 1, 1)
    play(buffer, 0, 10)
    play(buffer, 1, 12, None)
    starts = buffer.valid_starts(6)
    batch = buffer.sample_sequences(len(starts), 6)
    assert sorted(batch.start_ids.tolist()) == starts.tolist()
    with pytest.raises(ValueError, match=str(len(starts))):
        buffer.sample_sequences(len(starts) + 1, 6)
    assert buffer.sample_sequences(len(starts) + 1, 6, replace=True).ids.shape == (len(starts) + 1, 6)


def test_a_failed_draw_moves_no_generator() -> None:
    one, two = (ReplayBuffer(30, 1, 1, seed=5) for _ in range(2))
    for buffer in (one, two):
        play(buffer, 0, 20)
    for bad in ((18, 4), (1, 21), (0, 1), (1, 0)):
        with pytest.raises(ValueError, match="must"):
            one.sample_sequences(*bad)
    with pytest.raises(ValueError, match="must"):
        one.sample_transitions(21)
    np.testing.assert_array_equal(one.sample_sequences(4, 3).ids, two.sample_sequences(4, 3).ids)
    np.testing.assert_array_equal(one.sample_transitions(9).ids, two.sample_transitions(9).ids)
