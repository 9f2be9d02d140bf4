"""State and pickle are exact: the content, the flags, the open episodes and the next draws."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import content, everything, live, play
from tests.replay.twin import SEQUENCES, TRANSITIONS, assert_same, fields_of
from tests.replay.worlds import Chunk, counted, nested


def by_pickle(buffer: ReplayBuffer) -> ReplayBuffer:
    other: ReplayBuffer = pickle.loads(pickle.dumps(buffer))
    return other


def by_old_pickle(buffer: ReplayBuffer) -> ReplayBuffer:
    other: ReplayBuffer = pickle.loads(pickle.dumps(buffer, protocol=2))
    return other


def by_state(buffer: ReplayBuffer) -> ReplayBuffer:
    other = ReplayBuffer(buffer.capacity, buffer.observation_space, buffer.action_space, seed=999)
    other.set_state(buffer.get_state())
    return other


def by_parts(buffer: ReplayBuffer) -> ReplayBuffer:
    other = ReplayBuffer(buffer.capacity, buffer.observation_space, buffer.action_space, seed=999)
    other.set_state(buffer.iter_state(max_bytes=500))
    return other


def by_pickled_parts(buffer: ReplayBuffer) -> ReplayBuffer:
    other = ReplayBuffer(buffer.capacity, buffer.observation_space, buffer.action_space)
    other.set_state(pickle.loads(pickle.dumps(list(buffer.iter_state()))))
    return other


WAYS: list[Callable[[ReplayBuffer], ReplayBuffer]] = [
    by_pickle,
    by_old_pickle,
    copy.deepcopy,
    by_state,
    by_parts,
    by_pickled_parts,
]


def used_buffer(seed: Any = 7) -> ReplayBuffer:
    buffer = ReplayBuffer(100, 1, 1, seed=seed)
    for episode in range(16):
        play(buffer, episode, 20, stream=episode % 3)
    play(buffer, 50, 10, None, stream=1)
    play(buffer, 51, 20, None, stream=-8)
    buffer.sample_transitions(7)
    buffer.sample_sequences(3, 4)
    return buffer


def assert_equal_draws(a: ReplayBuffer, b: ReplayBuffer) -> None:
    for _ in range(10):
        for size, replace in ((5, False), (len(a), False), (9, True)):
            x, y = (buffer.sample_transitions(size, replace=replace) for buffer in (a, b))
            assert_same(fields_of(x, TRANSITIONS), fields_of(y, TRANSITIONS))
        for size, length in ((4, 5), (2, 20)):
            v, w = (buffer.sample_sequences(size, length) for buffer in (a, b))
            assert_same(fields_of(v, SEQUENCES), fields_of(w, SEQUENCES))


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_goes_on_like_the_original(way: Callable[[ReplayBuffer], ReplayBuffer]) -> None:
    buffer = used_buffer()
    other = way(buffer)
    assert (len(other), other.total_added, other.capacity) == (100, 350, 100)
    assert live(other) == list(range(250, 350))
    assert other.num_episodes == buffer.num_episodes
    assert other.stats()["open_episodes"] == 2
    assert_equal_draws(buffer, other)


@pytest.mark.parametrize("way", WAYS)
def test_open_episodes_go_on_in_a_copy(way: Callable[[ReplayBuffer], ReplayBuffer]) -> None:
    buffer = used_buffer()
    for each in (buffer, other := way(buffer)):
        play(each, 50, 5, stream=1, start=10)
        play(each, 51, 5, None, stream=-8, start=20)
        assert len(each.valid_starts(25)) == 1
    assert everything(buffer) == everything(other)
    assert_equal_draws(buffer, other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("steps", [0, 1, 9, 10, 11])
def test_a_copy_of_a_hardly_used_buffer_is_exact(way: Callable[[ReplayBuffer], ReplayBuffer], steps: int) -> None:
    buffer = ReplayBuffer(10, 1, 1, seed=3)
    play(buffer, 0, steps, None)
    other = way(buffer)
    play(buffer, 0, 20, None, start=steps)
    play(other, 0, 20, None, start=steps)
    assert content(buffer) == content(other)
    np.testing.assert_array_equal(buffer.sample_transitions(8).ids, other.sample_transitions(8).ids)


def test_a_copy_shares_nothing_with_the_original() -> None:
    buffer = used_buffer()
    other = copy.deepcopy(buffer)
    before = everything(other)
    play(buffer, 60, 30)
    buffer.set(live(buffer), "reward", np.zeros(100))
    assert everything(other) == before


def test_the_state_shares_nothing_with_the_buffer() -> None:
    buffer = used_buffer()
    state = buffer.get_state()
    kept = copy.deepcopy(state)
    play(buffer, 60, 130)
    other = ReplayBuffer(100, 1, 1)
    other.set_state(state)
    play(other, 61, 130)
    assert pickle.dumps(state) == pickle.dumps(kept)


def test_saving_twice_gives_the_same_and_moves_nothing() -> None:
    buffer, untouched = used_buffer(), used_buffer()
    first = pickle.dumps(buffer.get_state())
    assert pickle.dumps(buffer.get_state()) == first
    assert_equal_draws(buffer, untouched)


def test_saving_after_a_load_gives_the_same_again() -> None:
    buffer = used_buffer()
    assert pickle.dumps(by_state(buffer).get_state()) == pickle.dumps(buffer.get_state())


def test_kept_successors_and_dormant_episodes_are_part_of_the_state() -> None:
    buffer = ReplayBuffer(4, 1, 1)
    buffer.add_episode(Chunk("a", 0, [[0.0], [1.0]], [[0.0]], [0.0]))
    for k in range(4):
        buffer.add([10.0 * k], [0.0], 0.0, [10.0 * k + 1], False)
    other = by_state(buffer)
    assert everything(other) == everything(buffer)
    assert {**other.stats(), "bytes": 0} == {**buffer.stats(), "bytes": 0}
    with pytest.raises(ValueError, match="'a'"):
        other.add_episode(Chunk("a", 0, [[0.0], [1.0]], [[0.0]], [0.0]))
    other.add_episode(Chunk("a", 1, [[1.0], [2.0]], [[0.0]], [0.0]))


def test_loading_can_close_what_was_open() -> None:
    buffer = ReplayBuffer(50, 1, 1)
    play(buffer, 0, 2, None)
    state = buffer.get_state()

    going_on, closed = ReplayBuffer(50, 1, 1), ReplayBuffer(50, 1, 1)
    going_on.set_state(state)
    closed.set_state(state, close_open=True)
    for each in (going_on, closed):
        play(each, 0, 5, start=2)
    assert len(going_on.valid_starts(7)) == 1
    assert closed.valid_starts(6).tolist() == []
    assert closed.valid_starts(5).tolist() == [2]
    assert everything(closed)["truncations"] == [False, True] + [False] * 5
    assert closed.stats()["open_episodes"] == 0


def test_loading_fills_the_buffer_it_is_called_on() -> None:
    buffer = used_buffer()
    other = ReplayBuffer(100, 1, 1)
    play(other, 3, 170)
    other.set_state(buffer.get_state())
    assert len(other) == len(buffer)
    assert content(other) == content(buffer)


def test_the_state_holds_plain_data_only() -> None:
    def check(part: Any) -> None:
        if isinstance(part, dict):
            assert all(isinstance(key, str) for key in part)
            for value in part.values():
                check(value)
        elif isinstance(part, list | tuple):
            for value in part:
                check(value)
        elif isinstance(part, np.ndarray):
            assert part.dtype != object
        else:
            assert part is None or type(part) in (bool, int, float, str, bytes), type(part)

    buffer = ReplayBuffer(20, nested(), gym.spaces.Discrete(3), extras={"state_in": (4,)}, seed=(7, 1))
    for t in range(30):
        buffer.add(counted(nested(), t), t % 3, t, counted(nested(), t + 1), t % 9 == 8, extras={"state_in": [t] * 4})
    check(buffer.get_state())
    for part in buffer.iter_state():
        check(part)


def test_parts_are_no_larger_than_asked() -> None:
    def size(part: Any) -> int:
        if isinstance(part, dict):
            return sum(map(size, part.values()))
        if isinstance(part, list | tuple):
            return sum(map(size, part))
        return part.nbytes if isinstance(part, np.ndarray) else 0

    space = gym.spaces.Box(0, 255, (40, 40), np.uint8)
    buffer = ReplayBuffer(300, space, 1)
    for t in range(300):
        buffer.add(counted(space, t), [0.0], t, counted(space, t + 1), t % 50 == 49)
    parts = list(buffer.iter_state(max_bytes=100_000))
    assert sum(map(size, parts)) > 300 * 1600
    assert max(map(size, parts)) <= 100_000
    assert max(map(size, buffer.iter_state())) <= 64 * 2**20


def test_another_schema_is_refused_and_changes_nothing() -> None:
    state = used_buffer().get_state()
    others = [
        ReplayBuffer(100, 2, 1),
        ReplayBuffer(100, 1, 2),
        ReplayBuffer(100, gym.spaces.Discrete(4), 1),
        ReplayBuffer(100, 1, 1, extras={"logp": ()}),
        ReplayBuffer(100, gym.spaces.Box(-9, 9, (1,), np.float64), 1),
    ]
    for other in others:
        with pytest.raises(ValueError, match="state"):
            other.set_state(state)
        assert (len(other), other.total_added) == (0, 0)


def test_a_newer_version_is_refused() -> None:
    state = used_buffer().get_state()
    state["version"] += 1
    other = ReplayBuffer(100, 1, 1)
    with pytest.raises(ValueError, match="version"):
        other.set_state(state)
    assert len(other) == 0


@pytest.mark.parametrize("foreign", [{}, {"version": 1}, {"x": 1}, [], None, 7, "state", [{}], [None]])
def test_something_that_is_no_state_is_refused(foreign: Any) -> None:
    buffer = used_buffer()
    before = everything(buffer)
    with pytest.raises((ValueError, TypeError), match="state"):
        buffer.set_state(foreign)
    assert everything(buffer) == before


def test_missing_entries_are_named() -> None:
    buffer = used_buffer()
    for name in buffer.get_state():
        state = buffer.get_state()
        del state[name]
        with pytest.raises(ValueError, match="must have the fields" if name == "schema" else name):
            ReplayBuffer(100, 1, 1).set_state(state)


def test_parts_that_break_off_change_nothing() -> None:
    buffer, other = used_buffer(), used_buffer()
    play(other, 70, 3)
    before = everything(other)
    parts = list(buffer.iter_state(max_bytes=500))
    assert len(parts) > 3
    with pytest.raises(ValueError, match="state"):
        other.set_state(parts[:-1])
    with pytest.raises(ValueError, match="state"):
        other.set_state(parts[1:])
    assert everything(other) == before


def test_an_iterator_that_fails_midway_changes_nothing() -> None:
    buffer, other = used_buffer(), used_buffer()
    play(other, 70, 3)
    before = everything(other)

    def broken() -> Any:
        parts = buffer.iter_state(max_bytes=500)
        yield next(parts)
        yield next(parts)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        other.set_state(broken())
    assert everything(other) == before
    assert everything(buffer)  # and the source can still be used


def test_a_pickle_keeps_the_options() -> None:
    buffer = ReplayBuffer(
        20,
        gym.spaces.Box(-9, 9, (2,), np.float64),
        gym.spaces.Discrete(3),
        "cpu",
        seed=1,
        extras={"logp": ()},
        cast={"observation": "float32"},
        on_mismatch="raise",
    )
    buffer.add([0.0, 0.0], 1, 0.0, [1.0, 1.0], False, extras={"logp": 1.0})
    other = pickle.loads(pickle.dumps(buffer))
    assert str(other.device) == "cpu"
    assert other.observation_space == buffer.observation_space
    assert other.action_space == buffer.action_space
    batch = other.sample_transitions(1)
    assert str(batch.observations.dtype) == "torch.float32"
    with pytest.raises(ValueError, match="observation"):
        other.add([5.0, 5.0], 1, 0.0, [1.0, 1.0], False, extras={"logp": 1.0})
