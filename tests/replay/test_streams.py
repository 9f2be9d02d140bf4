"""Streams: any int64, any number, no declaration, none in another's way (I7)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import content, everything, live, play
from tests.replay.twin import TRANSITIONS, assert_same, fields_of
from tests.replay.worlds import counted, counted_batch, f32, nested, vectors

BOUNDS = np.iinfo(np.int64)


@pytest.mark.parametrize("stream", [0, 1, -1, 10**12, int(BOUNDS.max), int(BOUNDS.min), np.int32(-7), np.uint8(200)])
def test_a_stream_is_any_int64(stream: Any) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    play(buffer, 0, 2, None, stream=0 if stream else 1)
    play(buffer, 1, 3, None, stream=stream)
    buffer.add_batch(vectors([1003]), vectors([0]), [1.0], vectors([1004]), [False], None, [stream])
    assert buffer.valid_starts(4).tolist() == [2]
    assert buffer.end_episode(stream) is True


@pytest.mark.parametrize("stream", [0.0, 1.5, "0", None, True, np.True_, [0], np.float64(1)])
def test_a_stream_that_is_no_integer_is_refused(stream: Any) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    with pytest.raises(TypeError, match="stream"):
        buffer.add([0.0], [0.0], 0.0, [1.0], False, False, stream)
    assert len(buffer) == 0


@pytest.mark.parametrize("stream", [2**63, -(2**63) - 1, 2**80])
def test_a_stream_beyond_int64_is_refused(stream: int) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    with pytest.raises(ValueError, match="stream"):
        buffer.add([0.0], [0.0], 0.0, [1.0], False, False, stream)
    with pytest.raises(ValueError, match="stream"):
        buffer.end_episode(stream)
    assert len(buffer) == 0


def test_a_batch_names_the_streams_zero_to_e_by_default() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    ids = buffer.add_batch(vectors([0, 100, 200]), vectors([0] * 3), [0.0] * 3, vectors([1, 101, 201]), [False] * 3)
    assert ids.tolist() == [0, 1, 2]
    assert ids.dtype == np.int64
    play(buffer, 0, 1, None, stream=0, start=1)
    buffer.add([201.0], [0.0], 0.0, [202.0], True, False, 2)
    assert buffer.valid_starts(2).tolist() == [0, 2]


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_scalars_of_a_batch_may_be_a_row_or_a_column(shape: tuple[int, ...]) -> None:
    buffer = ReplayBuffer(20, 1, gym.spaces.Discrete(5))
    buffer.add_batch(
        vectors([0, 1, 2]),
        np.arange(3).reshape(shape),
        f32([10, 11, 12]).reshape(shape),
        vectors([1, 2, 3]),
        np.array([True, False, False]).reshape(shape),
        np.array([False, False, True]).reshape(shape),
    )
    batch = everything(buffer)
    assert batch["rewards"] == [10, 11, 12]
    assert batch["actions"] == [0, 1, 2]
    assert batch["terminations"] == [True, False, False]
    assert batch["truncations"] == [False, False, True]


def test_a_batch_equals_its_rows_added_one_by_one() -> None:
    space, action_space = (
        nested(),
        gym.spaces.Dict({"stick": gym.spaces.Box(-1, 1, (2,)), "fire": gym.spaces.Discrete(2)}),
    )
    extras: dict[str, Any] = {"logp": gym.spaces.Box(-9, 9, (), np.float32)}
    together, apart = (ReplayBuffer(41, space, action_space, extras=extras, seed=4) for _ in range(2))
    rng = np.random.default_rng(0)
    now = [100 * k for k in range(7)]
    for call in range(30):
        streams = rng.permutation(7)[: rng.integers(1, 8)].tolist()
        numbers = [now[s] for s in streams]
        ends = rng.random((2, len(streams))) < 0.1
        together.add_batch(
            counted_batch(space, numbers),
            counted_batch(action_space, numbers),
            np.array(numbers),
            counted_batch(space, [n + 1 for n in numbers]),
            ends[0],
            ends[1],
            streams,
            {"logp": counted_batch(extras["logp"], numbers)},
        )
        for e, (stream, number) in enumerate(zip(streams, numbers, strict=True)):
            apart.add(
                counted(space, number),
                counted(action_space, number),
                number,
                counted(space, number + 1),
                ends[0, e],
                ends[1, e],
                stream,
                {"logp": counted(extras["logp"], number)},
            )
            now[stream] += 1 if not ends[:, e].any() else 37
        a, b = (fields_of(buffer.sample_transitions(len(buffer)), TRANSITIONS) for buffer in (together, apart))
        assert_same(a, b, f"call {call}")
        for length in range(1, 12):
            assert together.valid_starts(length).tolist() == apart.valid_starts(length).tolist()


@pytest.mark.parametrize("streams", [[3, 3], [0, 1, 0], [-1, 5, 6, -1]])
def test_a_stream_twice_in_one_batch_is_refused(streams: list[int]) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    count = len(streams)
    rows = vectors(range(count))
    with pytest.raises(ValueError, match="streams"):
        buffer.add_batch(rows, rows, [0.0] * count, rows, [False] * count, None, streams)
    assert len(buffer) == 0


@pytest.mark.parametrize("streams", [np.array([0.0, 1.0]), ["a", "b"], [True, False]])
def test_streams_that_are_no_integers_are_refused(streams: Any) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    rows = vectors(range(2))
    with pytest.raises(TypeError, match="streams"):
        buffer.add_batch(rows, rows, [0.0] * 2, rows, [False] * 2, None, streams)
    assert len(buffer) == 0


def test_an_empty_batch_adds_nothing() -> None:
    buffer = ReplayBuffer(20, 1, 1)
    rows = np.empty((0, 1), np.float32)
    assert buffer.add_batch(rows, rows, [], rows, []).tolist() == []
    assert len(buffer) == 0


def test_a_silent_stream_neither_blocks_eviction_nor_leaks() -> None:
    buffer = ReplayBuffer(300, 4, 1)
    play(buffer, 0, 3, None, stream=99, size=4)
    for episode in range(1, 40):
        play(buffer, episode, 30, size=4)
    full = buffer.nbytes
    for episode in range(40, 140):
        play(buffer, episode, 30, size=4)
    assert buffer.nbytes == full
    assert live(buffer) == list(range(buffer.total_added - 300, buffer.total_added))


def test_many_open_streams_share_the_ring() -> None:
    buffer = ReplayBuffer(1000, 1, 1)
    rows = np.arange(300)
    for t in range(7):
        buffer.add_batch(
            vectors(1000 * rows + t),
            -vectors(1000 * rows + t),
            1000 * rows + t,
            vectors(1000 * rows + t + 1),
            [False] * 300,
        )
    assert content(buffer) == [1000 * (k % 300) + k // 300 for k in range(1100, 2100)]
    assert len(buffer.valid_starts(3)) == 2 * 100 + 1 * 200
    assert len(buffer.valid_starts(4)) == 100
    assert buffer.stats()["open_episodes"] == 300
