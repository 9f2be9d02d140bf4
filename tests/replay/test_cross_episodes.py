"""Windows along one stream, over the ends of its episodes; within episodes is the default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.answers import FullTwin, numbers
from tests.replay.worlds import Chunk, f32


def test_is_first_marks_a_new_episode_and_not_the_window() -> None:
    twin = FullTwin(20)
    twin.play(1, 3, "truncated")
    twin.play(2, 4)
    batch = twin.windows(length=5, cross_episodes=True)
    assert numbers(batch.observations) == [
        [1000, 1001, 1002, 2000, 2001],
        [1001, 1002, 2000, 2001, 2002],
        [1002, 2000, 2001, 2002, 2003],
    ]
    assert numbers(batch.is_first)[1] == [0, 0, 1, 0, 0]
    assert numbers(batch.is_last)[1] == [0, 1, 0, 0, 0]
    assert numbers(batch.truncations)[1] == [0, 1, 0, 0, 0]
    assert numbers(batch.dones)[2] == [0, 0, 0, 0, 1]
    assert batch.start_ids.tolist() == [0, 1, 2]


def test_within_episodes_there_is_no_such_window() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(7):
        buffer.add([t], [0], t, [t + 1], t in (2, 6))
    with pytest.raises(ValueError, match="0"):
        buffer.sample_sequences(1, 5)
    assert buffer.sample_sequences(3, 5, cross_episodes=True).ids.shape == (3, 5)
    with pytest.raises(ValueError, match=r"batch_size must .*3.*, got 4"):
        buffer.sample_sequences(4, 5, cross_episodes=True)


def test_streams_are_never_joined() -> None:
    twin = FullTwin(60)
    for t in range(9):
        for stream in range(3):
            length = (2, 3, 9)[stream]
            episode, step = 10 * stream + t // length, t % length
            twin.play(episode, 1, "truncated" if step == length - 1 else None, stream, start=step)
    batch = twin.windows(length=6, cross_episodes=True)
    for row in numbers(batch.observations):
        assert len({value // 10_000 for value in row}) == 1
    assert batch.start_ids.tolist() == list(range(12))  # nine steps a stream: four starts each
    assert numbers(batch.observations)[0] == [0, 1, 1000, 1001, 2000, 2001]


def test_the_oldest_episode_may_be_cut_by_the_ring() -> None:
    twin = FullTwin(6)
    twin.play(1, 4)
    twin.play(2, 2, "truncated")
    twin.play(3, 2, None)
    batch = twin.windows(length=5, cross_episodes=True)
    assert numbers(batch.observations) == [[1002, 1003, 2000, 2001, 3000], [1003, 2000, 2001, 3000, 3001]]
    assert numbers(batch.is_first) == [[0, 0, 1, 0, 1], [0, 1, 0, 1, 0]]


@pytest.mark.parametrize("way", ["end_episode", "split"])
def test_ends_that_were_not_flagged_are_crossed_too(way: str) -> None:
    twin = FullTwin(20, on_mismatch="split")
    twin.play(1, 2, None)
    if way == "end_episode":
        twin.end_episode(0)
    twin.play(2, 2, None)
    batch = twin.windows(length=4, cross_episodes=True)
    assert numbers(batch.observations) == [[1000, 1001, 2000, 2001]]
    assert numbers(batch.is_first) == [[1, 0, 1, 0]]
    assert numbers(batch.truncations) == [[0, 1, 0, 0]]


def test_padding_only_where_the_stream_ends() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    twin.play(2, 1, None)
    batch = twin.windows(length=3, cross_episodes=True, pad=True)
    assert numbers(batch.observations) == [[1000, 1001, 2000], [1001, 2000, 0], [2000, 0, 0]]
    assert batch.lengths.ravel().tolist() == [3, 2, 1]


def test_n_step_sums_stop_at_the_end_inside_the_window() -> None:
    twin = FullTwin(20)
    twin.play(1, 2, "truncated")
    twin.play(2, 2)
    batch = twin.windows(length=4, cross_episodes=True, n_step=3, gamma=1.0)
    assert numbers(batch.rewards) == [[2001, 1001, 4001, 2001]]
    assert numbers(batch.n_steps) == [[2, 1, 2, 1]]
    assert numbers(batch.next_observations) == [[1002, 1002, 2002, 2002]]
    assert numbers(batch.discounts) == [[1, 1, 0, 0]]


def test_stacks_do_not_cross_although_the_window_does() -> None:
    twin = FullTwin(20)
    twin.play(1, 2, "truncated")
    twin.play(2, 2)
    batch = twin.windows(length=4, cross_episodes=True, stack=2)
    assert batch.observations[0, :, :, 0].tolist() == [[1000, 1000], [1000, 1001], [2000, 2000], [2000, 2001]]


def test_arrivals_along_a_stream() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    twin.play(2, 1, "truncated")
    twin.play(3, 2, None)
    batch = twin.windows(length=7, cross_episodes=True, layout="arrival")
    assert numbers(batch.observations) == [[1000, 1001, 1002, 2000, 2001, 3000, 3001]]
    assert numbers(batch.rewards) == [[0, 1000, 1001, 0, 2000, 0, 3000]]
    assert numbers(batch.is_first) == [[1, 0, 0, 1, 0, 1, 0]]
    assert numbers(batch.is_last) == [[0, 0, 1, 0, 1, 0, 0]]
    assert numbers(batch.is_terminal) == [[0, 0, 1, 0, 0, 0, 0]]
    assert batch.ids.tolist() == [[0, 1, -1, 2, -1, 3, 4]]


def test_burn_in_runs_along_the_stream() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    twin.play(2, 3, None)
    batch = twin.windows(length=2, cross_episodes=True, burn_in=2)
    assert numbers(batch.observations) == [
        [1000, 1001, 0, 0],
        [1000, 1001, 2000, 0],
        [1000, 1001, 2000, 2001],
        [1001, 2000, 2001, 2002],
    ]
    assert batch.burn_in_lengths.ravel().tolist() == [0, 1, 2, 2]


def test_a_period_is_refused() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    text = r"^ReplayBuffer\.sample_sequences: period must be 1 with cross_episodes, got 2"
    with pytest.raises(ValueError, match=text):
        buffer.sample_sequences(1, 2, cross_episodes=True, period=2)


def test_an_episode_in_chunks_is_a_stream_of_its_own() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    observations = [f32([t]) for t in range(50, 54)]
    twin.add_episode(Chunk("a", 0, observations, [f32([0])] * 3, [1.0] * 3, terminated=True))
    twin.play(2, 2, None)
    batch = twin.windows(length=3, cross_episodes=True)
    assert numbers(batch.observations) == [[1000, 1001, 2000], [1001, 2000, 2001], [50, 51, 52]]


def test_the_order_of_episodes_survives_a_round_trip() -> None:
    twin = FullTwin(20)
    for episode in range(6):
        twin.play(episode, 2, "truncated", stream=episode % 2)
    for way in ("pickle", "state"):
        twin.round_trip(way)
        assert len(twin.windows(length=4, cross_episodes=True).start_ids) == 6
    twin.play(6, 3, None, stream=0)
    assert numbers(twin.windows(length=9, cross_episodes=True).observations) == [
        [0, 1, 2000, 2001, 4000, 4001, 6000, 6001, 6002]
    ]


@pytest.mark.parametrize("value", ["yes", None])
def test_a_wrong_value_is_refused(value: Any) -> None:
    buffer: Any = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    with pytest.raises(TypeError, match=rf"^ReplayBuffer\.sample_sequences: cross_episodes must .*, got {value!r}"):
        buffer.sample_sequences(2, 3, cross_episodes=value)


def test_uniform_over_the_starts_of_all_streams() -> None:
    buffer = ReplayBuffer(40, 1, 1, seed=5)
    for t in range(18):
        buffer.add([t], [0], t, [t + 1], t % 3 == 2, False, 7)
    for t in range(4):
        buffer.add([t], [0], t, [t + 1], False, False, -7)
    drawn = buffer.sample_sequences(8000, 4, cross_episodes=True, replace=True).start_ids
    values, found = np.unique(drawn, return_counts=True)
    assert values.tolist() == [*range(15), 18]
    assert (np.abs(found - 500) < 4.5 * np.sqrt(500)).all()
