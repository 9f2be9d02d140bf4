"""Chunks of one episode become that episode again, or are refused (and then change nothing)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import ReplayBuffer, SingleAgentEpisode
from tests.replay.playing import assert_consistent, content, everything, live, play
from tests.replay.twin import TRANSITIONS, assert_same, fields_of
from tests.replay.worlds import Chunk, counted, f32, nested, vector


def chunk(id_: str, start: int, length: int, end: str | None = None, episode: int = 0, **options: Any) -> Chunk:
    numbers = [1000 * episode + start + t for t in range(length + 1)]
    return Chunk(
        id_,
        start,
        [f32([n]) for n in numbers],
        [f32([-n]) for n in numbers[:-1]],
        [float(n) for n in numbers[:-1]],
        end in ("terminated", "both"),
        end in ("truncated", "both"),
        **options,
    )


@pytest.fixture
def buffer() -> ReplayBuffer:
    return ReplayBuffer(40, 1, 1)


def state_of(buffer: ReplayBuffer) -> list[Any]:
    return [live(buffer), everything(buffer) if len(buffer) else None, buffer.stats()["open_episodes"]]


def test_the_ids_of_the_added_steps_come_back(buffer: ReplayBuffer) -> None:
    ids = buffer.add_episode(chunk("a", 0, 3))
    assert ids.tolist() == [0, 1, 2]
    assert ids.dtype == np.int64
    assert buffer.add_episode(chunk("a", 3, 2)).tolist() == [3, 4]
    assert_consistent(buffer.get(ids))


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("cuts", [[7], [1] * 7, [3, 4], [2, 0, 5], [6, 1]])
def test_chunks_become_one_episode_again(buffer: ReplayBuffer, arrays: bool, cuts: list[int]) -> None:
    spaces: dict[str, Any] = {"arrays_of": (vector(1), vector(1))} if arrays else {}
    start = 0
    for k, length in enumerate(cuts):
        buffer.add_episode(chunk("a", start, length, "terminated" if k == len(cuts) - 1 else None, **spaces))
        start += length
    whole = ReplayBuffer(40, 1, 1)
    play(whole, 0, 7)
    assert everything(buffer) == everything(whole)
    batch = buffer.sample_sequences(1, 7)
    assert batch.is_first[0, :, 0].tolist() == [True] + [False] * 6
    assert batch.is_last[0, :, 0].tolist() == [False] * 6 + [True]
    assert buffer.num_episodes == 1


def test_chunks_of_several_episodes_and_streams_may_interleave(buffer: ReplayBuffer) -> None:
    for start in (0, 3, 6):
        buffer.add_episode(chunk("a", start, 3))
        play(buffer, 5, 2, None, start=start // 3 * 2)
        buffer.add_episode(chunk("b", start, 3, episode=1))
    assert buffer.num_episodes == 3
    assert len(buffer.valid_starts(9)) == 2
    batch = buffer.sample_sequences(2, 9)
    for row in batch.observations[:, :, 0]:
        np.testing.assert_array_equal(row, np.arange(row[0], row[0] + 9))


def test_a_chunk_twice_is_refused(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 0, 10))
    second = chunk("a", 10, 10)
    buffer.add_episode(second)
    assert len(buffer) == 20
    before = state_of(buffer)
    for again in (chunk("a", 0, 10), second, chunk("a", 5, 15), chunk("a", 19, 1)):
        for gap in ("raise", "cut"):
            with pytest.raises(ValueError, match="'a'"):
                buffer.add_episode(again, gap=gap)
    assert state_of(buffer) == before
    buffer.add_episode(chunk("a", 20, 1))


def test_a_finished_episodes_chunk_twice_is_refused(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 0, 5))
    buffer.add_episode(chunk("a", 5, 5, "terminated"))
    before = state_of(buffer)
    for again in (chunk("a", 0, 5), chunk("a", 5, 5, "terminated")):
        with pytest.raises(ValueError, match="'a'"):
            buffer.add_episode(again)
    assert state_of(buffer) == before


def test_a_whole_episode_twice_is_refused(buffer: ReplayBuffer) -> None:
    episode = chunk("a", 0, 5, "terminated")
    buffer.add_episode(episode)
    with pytest.raises(ValueError, match="'a'"):
        buffer.add_episode(episode)
    assert len(buffer) == 5


def test_a_chunk_after_a_gap_is_refused(buffer: ReplayBuffer) -> None:
    with pytest.raises(ValueError, match="'a'"):
        buffer.add_episode(chunk("a", 10, 5))
    buffer.add_episode(chunk("a", 0, 5))
    before = state_of(buffer)
    with pytest.raises(ValueError, match="'a'"):
        buffer.add_episode(chunk("a", 6, 5))
    assert state_of(buffer) == before
    buffer.add_episode(chunk("a", 5, 5))
    assert buffer.num_episodes == 1


def test_a_gap_can_cut_the_episode(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 0, 3))
    buffer.add_episode(chunk("a", 7, 4), gap="cut")
    assert content(buffer) == [0, 1, 2, 7, 8, 9, 10]
    assert buffer.num_episodes == 2
    assert everything(buffer)["truncations"] == [False, False, True, False, False, False, False]
    assert everything(buffer)["next_observations"] == [1, 2, 3, 8, 9, 10, 11]
    batch = buffer.sample_sequences(2, 3, replace=False)
    firsts = {int(row[0]): first[0] for row, first in zip(batch.ids, batch.is_first[:, :, 0], strict=True)}
    assert not any(first for start, first in firsts.items() if start >= 3)  # its history is missing
    buffer.add_episode(chunk("a", 11, 2))
    assert len(buffer.valid_starts(6)) == 1


def test_missing_history_is_no_first_step(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 5, 3), gap="cut")
    assert not buffer.sample_sequences(1, 3).is_first.any()


@pytest.mark.parametrize("start", [2**61, 2**63 - 1, 2**63, -1, -(2**63)])
def test_a_time_beyond_counting_is_refused(buffer: ReplayBuffer, start: int) -> None:
    broken = chunk("a", 0, 3)
    broken.t_started = start
    with pytest.raises(ValueError, match=r"ReplayBuffer.add_episode: .* must"):
        buffer.add_episode(broken, gap="cut")
    assert len(buffer) == 0
    buffer.add_episode(chunk("a", 0, 3))


def test_late_chunks_are_read_like_early_ones(buffer: ReplayBuffer) -> None:
    late = chunk("a", 0, 5)
    late.t_started = 2**53 + 1
    buffer.add_episode(late, gap="cut")
    assert len(buffer.valid_starts(5)) == 1
    assert everything(buffer, 3, 1.0)["n_steps"] == [3, 3, 3, 2, 1]
    assert not buffer.sample_sequences(1, 5).is_first.any()


def test_other_words_for_the_gap_are_refused(buffer: ReplayBuffer) -> None:
    with pytest.raises(ValueError, match="gap"):
        buffer.add_episode(chunk("a", 0, 3), gap="ignore")  # type: ignore[arg-type]
    assert len(buffer) == 0


def test_a_chunk_without_steps_adds_none(buffer: ReplayBuffer) -> None:
    assert buffer.add_episode(chunk("a", 0, 0)).tolist() == []
    buffer.add_episode(chunk("a", 0, 3))
    assert buffer.add_episode(chunk("a", 3, 0)).tolist() == []
    assert len(buffer) == 3
    buffer.add_episode(chunk("a", 3, 2))
    assert len(buffer.valid_starts(5)) == 1


@pytest.mark.parametrize(
    ("end", "flags"), [("terminated", (True, False)), ("truncated", (False, True)), ("both", (True, True))]
)
def test_the_flags_of_a_chunk_without_steps_count(buffer: ReplayBuffer, end: str, flags: tuple[bool, bool]) -> None:
    buffer.add_episode(chunk("a", 0, 3))
    buffer.add_episode(chunk("a", 3, 0, end))
    batch = everything(buffer)
    assert (batch["terminations"][-1], batch["truncations"][-1]) == flags
    assert buffer.stats()["open_episodes"] == 0


def test_a_dormant_episode_is_remembered_by_its_next_time(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 0, 6))
    play(buffer, 1, 60)
    before = live(buffer)
    for wrong in (0, 5, 7):
        with pytest.raises(ValueError, match="'a'"):
            buffer.add_episode(chunk("a", wrong, 2))
    assert live(buffer) == before
    ids = buffer.add_episode(chunk("a", 6, 4))
    batch = buffer.sample_sequences(1, 4)
    while batch.start_ids[0] != ids[0]:
        batch = buffer.sample_sequences(1, 4)
    assert not batch.is_first.any()


def test_at_most_capacity_dormant_episodes_are_remembered_and_the_oldest_is_forgotten_first() -> None:
    buffer = ReplayBuffer(4, 1, 1)
    for k in range(9):
        buffer.add_episode(chunk(f"e{k}", 0, 1, episode=k))
    play(buffer, 99, 4)  # all nine are evicted; 4 may be remembered
    for k in range(5):
        with pytest.raises(ValueError, match=f"'e{k}'"):
            buffer.add_episode(chunk(f"e{k}", 1, 1, episode=k))
    for k in range(5, 9):
        buffer.add_episode(chunk(f"e{k}", 1, 1, episode=k))


def test_the_evicted_start_of_a_running_episode_does_not_stop_it() -> None:
    buffer = ReplayBuffer(4, 1, 1)
    buffer.add_episode(chunk("a", 0, 3))
    buffer.add_episode(chunk("a", 3, 7))
    assert content(buffer) == [6, 7, 8, 9]
    buffer.add_episode(chunk("a", 10, 2, "terminated"))
    assert content(buffer) == [8, 9, 10, 11]
    assert everything(buffer)["terminations"] == [False, False, False, True]


def test_an_open_episode_can_be_ended_by_its_id(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 0, 3))
    assert buffer.end_episode("b") is False
    assert buffer.end_episode("a") is True
    assert buffer.end_episode("a") is False
    assert everything(buffer)["truncations"] == [False, False, True]


def test_ids_and_streams_do_not_meet(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("0", 0, 3))
    play(buffer, 0, 3, None, start=3)
    assert buffer.num_episodes == 2
    assert buffer.end_episode(0) is True
    assert buffer.end_episode("0") is True


def test_lookback_rows_are_not_data(buffer: ReplayBuffer) -> None:
    episode = SingleAgentEpisode(
        observations=[f32([n]) for n in range(6)],
        actions=[f32([-n]) for n in range(5)],
        rewards=[float(n) for n in range(5)],
        len_lookback_buffer=3,
    )
    assert len(episode) == 2
    assert buffer.add_episode(episode).tolist() == [0, 1]
    assert content(buffer) == [3, 4]
    assert everything(buffer)["next_observations"] == [4, 5]


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("lookback", [0, 1, 4])
def test_cut_episodes_of_a_runner_become_one_again(arrays: bool, lookback: int) -> None:
    space, action_space = nested(), gym.spaces.Dict({"a": gym.spaces.Discrete(4), "b": vector(2)})
    chunked, single = (ReplayBuffer(40, space, action_space, extras={"logp": ()}, seed=1) for _ in range(2))
    running = SingleAgentEpisode(observation_space=space, action_space=action_space)
    running.add_env_reset(observation=counted(space, 0))
    for t in range(23):
        action, done = counted(action_space, t), t == 22
        running.add_env_step(
            observation=counted(space, t + 1),
            action=action,
            reward=float(t),
            terminated=done,
            truncated=False,
            extra_model_outputs={"logp": t / 8},
        )
        single.add(counted(space, t), action, t, counted(space, t + 1), done, extras={"logp": t / 8})
        if t % 6 == 5 or done:
            finished, running = running, running if done else running.cut(len_lookback_buffer=lookback)
            if arrays:
                finished.to_numpy()
            chunked.add_episode(finished)
    a, b = (fields_of(buffer.sample_transitions(23), TRANSITIONS) for buffer in (chunked, single))
    assert_same(a, b)
    assert chunked.valid_starts(23).tolist() == [0]


def test_an_episode_with_a_wrong_leaf_changes_nothing(buffer: ReplayBuffer) -> None:
    buffer.add_episode(chunk("a", 0, 2))
    before = state_of(buffer)
    broken = chunk("a", 2, 3)
    broken.get_observations()[2] = f32([1, 2])
    with pytest.raises(ValueError, match="observation"):
        buffer.add_episode(broken)
    assert state_of(buffer) == before
    buffer.add_episode(chunk("a", 2, 3))


def test_an_episode_with_too_few_observations_is_refused(buffer: ReplayBuffer) -> None:
    broken = chunk("a", 0, 3)
    broken.get_observations().pop()
    with pytest.raises(ValueError, match="observation must"):
        buffer.add_episode(broken)
    assert len(buffer) == 0


def test_a_declared_extra_must_be_there() -> None:
    buffer = ReplayBuffer(40, 1, 1, extras={"logp": ()})
    with pytest.raises(ValueError, match="logp"):
        buffer.add_episode(chunk("a", 0, 3))
    assert len(buffer) == 0
    buffer.add_episode(chunk("a", 0, 3, extras={"logp": [0.5, 1.5, 2.5], "values": [1, 2, 3]}))
    assert buffer.get([0, 1, 2]).extras["logp"][:, 0].tolist() == [0.5, 1.5, 2.5]


def test_an_episode_that_contradicts_its_earlier_chunk_follows_the_mismatch_rule() -> None:
    for policy in ("keep", "raise"):
        buffer = ReplayBuffer(40, 1, 1, on_mismatch=policy)
        buffer.add_episode(chunk("a", 0, 3))
        other = chunk("a", 3, 2, episode=1)
        if policy == "raise":
            with pytest.raises(ValueError, match="observation"):
                buffer.add_episode(other)
            assert len(buffer) == 3
        else:
            buffer.add_episode(other)
            assert everything(buffer)["next_observations"] == [1, 2, 3, 1004, 1005]
            assert len(buffer.valid_starts(5)) == 1
