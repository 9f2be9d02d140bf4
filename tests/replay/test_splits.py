"""Held-out episodes: whole, decided at birth, for ever on their side."""

from __future__ import annotations

import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import PrioritizedReplayBuffer, ReplayBuffer, SingleAgentEpisode, split_episodes
from tests.reference.splits import SplitOracle
from tests.replay.answers import FullTwin, check_windows
from tests.replay.playing import play
from tests.replay.worlds import Chunk, f32


def halves(buffer: Any, validation: float = 0.25, seed: int = 3, **options: Any) -> tuple[Any, Any]:
    """Return the two views."""
    train, held_out = buffer.split(validation=validation, seed=seed, **options)
    return train, held_out


def episodes_of(view: Any) -> list[int]:
    """Return which episodes of `play` are live on a side."""
    starts = view.valid_starts()
    if not len(starts):
        return []
    return sorted(set((view.get(starts).observations[:, 0] // 1000).astype(int).tolist()))


def learnt(twin: FullTwin, views: tuple[Any, Any], validation: float = 0.25) -> SplitOracle:
    """Return the slow twin's split, once it has seen which steps lie where."""
    split = SplitOracle(twin.slow, validation)
    split.learn(*(view.valid_starts().tolist() for view in views))
    return split


# ------------------------------------------------------------------ who goes where


@pytest.mark.parametrize(("validation", "k"), [(0.5, 2), (0.25, 4), (0.2, 5), (0.1, 10), (0.34, 3), (0.01, 100)])
def test_one_of_every_k_episodes_is_held_out(validation: float, k: int) -> None:
    buffer = ReplayBuffer(10_000, 1, 1)
    train, held_out = halves(buffer, validation)
    for episode in range(3 * k):
        play(buffer, episode, 1 + episode % 3)
    places = episodes_of(held_out)
    assert len(places) == 3
    assert [episode // k for episode in places] == [0, 1, 2]
    assert sorted(places + episodes_of(train)) == list(range(3 * k))
    assert len(train) + len(held_out) == len(buffer)


def test_the_place_in_the_group_is_random() -> None:
    places = []
    for seed in range(200):
        buffer = ReplayBuffer(100, 1, 1)
        _, held_out = halves(buffer, 0.25, seed)
        for episode in range(4):
            play(buffer, episode, 1)
        places += episodes_of(held_out)
    found = np.bincount(places, minlength=4)
    assert found.sum() == 200
    assert (np.abs(found - 50) < 4.5 * np.sqrt(37.5)).all()


def test_groups_of_one_seed_differ_and_seeds_repeat() -> None:
    answers = []
    for seed in (5, 5, 6):
        buffer = ReplayBuffer(1000, 1, 1)
        _, held_out = halves(buffer, 0.2, seed)
        for episode in range(100):
            play(buffer, episode, 1)
        answers.append([episode % 5 for episode in episodes_of(held_out)])
    assert answers[0] == answers[1] != answers[2]
    assert len(set(answers[0])) > 1


def test_fifteen_episodes_give_three() -> None:
    buffer = ReplayBuffer(1000, 1, 1)
    for episode in range(15):
        play(buffer, episode, 2 + episode % 4)
    train, held_out = halves(buffer, 3 / 15)
    assert (len(episodes_of(train)), len(episodes_of(held_out))) == (12, 3)


def test_each_episode_is_whole_on_its_side_in_any_interleaving() -> None:
    twin = FullTwin(100)
    views = halves(twin.real)
    for t in range(8):
        for stream in range(5):
            twin.play(stream, 1, "truncated" if t == 3 + stream else None, stream, start=t)
    split = learnt(twin, views)
    assert len({split.side_of(*twin.slow.home[number]) for number in twin.slow.live()}) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_does_not_matter_when_the_split_is_asked_for(when: str) -> None:
    buffer = ReplayBuffer(40, 1, 1)
    views = halves(buffer) if when == "before" else None
    for episode in range(20):
        play(buffer, episode, 3)
    views = views or halves(buffer)
    reference = ReplayBuffer(1000, 1, 1)
    expected = halves(reference)
    for episode in range(20):
        play(reference, episode, 3)
    for view, other in zip(views, expected, strict=True):
        live = [episode for episode in episodes_of(other) if episode >= 6]
        assert episodes_of(view) == live  # counted from the first episode ever, not from the oldest that is left


def test_sides_are_stable_while_the_buffer_grows_and_wraps() -> None:
    twin = FullTwin(37)
    views = halves(twin.real)
    split = SplitOracle(twin.slow, 0.25)
    for episode in range(60):
        for t in range(1 + episode % 6):
            twin.play(episode, 1, "terminated" if t == episode % 6 else None, start=t)
            split.learn(*(view.valid_starts().tolist() for view in views))
    assert len(split.places) > 10


@pytest.mark.parametrize("way", ["pickle", "state"])
def test_the_split_is_in_the_state(way: str) -> None:
    buffer = ReplayBuffer(100, 1, 1)
    views = halves(buffer)
    for episode in range(30):
        play(buffer, episode, 2, None if episode == 29 else "truncated")
    if way == "pickle":
        other = pickle.loads(pickle.dumps(buffer))
    else:
        other = ReplayBuffer(100, 1, 1)
        other.set_state(buffer.get_state())
    others = halves(other)
    for one in (buffer, other):
        play(one, 29, 2, start=2)
        for episode in range(30, 50):
            play(one, episode, 2)
    for view, again in zip(views, others, strict=True):
        np.testing.assert_array_equal(view.valid_starts(), again.valid_starts())
    with pytest.raises((ValueError, RuntimeError), match="split"):
        other.sample_transitions(1)
    with pytest.raises(ValueError, match=r"ReplayBuffer\.split: "):
        other.split(validation=0.25, seed=4)


def test_a_view_goes_on_after_its_buffer_took_over_a_state() -> None:
    buffer, other = ReplayBuffer(100, 1, 1, seed=1), ReplayBuffer(100, 1, 1, seed=2)
    views = halves(buffer), halves(other)
    for episode in range(12):
        play(buffer, episode, 3)
    other.set_state(buffer.get_state())
    for a, b in zip(*views, strict=True):
        np.testing.assert_array_equal(a.valid_starts(), b.valid_starts())
        np.testing.assert_array_equal(a.sample_transitions(2).ids, b.sample_transitions(2).ids)


# ------------------------------------------------------------------ pieces


def test_pieces_without_a_declared_end_stay_on_one_side() -> None:
    twin = FullTwin(300, on_mismatch="split")
    views = halves(twin.real)
    for piece in range(40):
        twin.play(piece, 3, None)  # every piece begins with another observation: a reset that nobody marked
    assert [twin.slow.home[number][0].unit for number in (0, 119)] == [0, 0]
    learnt(twin, views)
    assert sorted(len(view) for view in views) == [0, 120]


def test_a_declared_end_begins_a_new_unit() -> None:
    twin = FullTwin(300, on_mismatch="split")
    views = halves(twin.real)
    for episode in range(8):
        twin.play(2 * episode, 2, None)
        twin.play(2 * episode + 1, 2, None)
        twin.end_episode(0)
    learnt(twin, views)
    assert len(views[1]) == 2 * 4


def test_chunks_after_a_gap_keep_their_unit() -> None:
    twin = FullTwin(300)
    views = halves(twin.real)
    for name in "abcdefgh":
        for start in (0, 2, 7):
            observations = [f32([t]) for t in range(start, start + 3)]
            chunk = Chunk(name, start, observations, [f32([0])] * 2, [1.0] * 2, terminated=start == 7)
            twin.add_episode(chunk, gap="cut")
    learnt(twin, views)
    assert len(views[1]) == 2 * 6


def test_an_open_episode_keeps_its_side_while_all_its_steps_are_evicted() -> None:
    twin = FullTwin(20)
    views = halves(twin.real)
    for stream in range(1, 9):
        twin.play(stream, 1, None, stream)
    split = learnt(twin, views)
    for t in range(30):
        twin.play(50, 1, None, stream=99, start=t)  # silent streams lose their steps, not their side
    for stream in range(1, 9):
        twin.play(stream, 2, None, stream, start=1)
    split.learn(*(view.valid_starts().tolist() for view in views))


# ------------------------------------------------------------------ what the views draw


def played(capacity: int = 60) -> tuple[FullTwin, tuple[Any, Any], SplitOracle]:
    """Return streams of episodes of different lengths, some of them evicted, with a split."""
    twin = FullTwin(capacity)
    views = halves(twin.real)
    for episode in range(18):
        twin.play(episode, 2 + episode % 6, ("truncated", "terminated")[episode % 2], stream=episode % 3)
    twin.play(18, 3, None)
    return twin, views, learnt(twin, views)


@pytest.mark.parametrize(
    "request_",
    [
        {"length": 3},
        {"length": 4, "pad": True, "burn_in": 2},
        {"length": 2, "period": 2, "stack": 2},
        {"length": 2, "layout": "arrival"},
        {"length": 3, "n_step": 2, "gamma": 0.5},
        {"length": 4, "cross_episodes": True},
        {"length": 7, "whole": True},
    ],
    ids=str,
)
def test_views_draw_exactly_the_windows_of_their_side(request_: dict[str, Any]) -> None:
    twin, views, split = played()
    for name, view in zip(("train", "validation"), views, strict=True):
        oracle = twin.oracle(split.side_of, name, **request_)
        check_windows(view, oracle)
        if set(request_) <= {"length", "pad", "period", "stack"}:
            assert view.valid_starts(**request_).tolist() == oracle.starts()


def test_views_draw_exactly_the_steps_of_their_side() -> None:
    twin, views, split = played()
    for name, view in zip(("train", "validation"), views, strict=True):
        starts = twin.oracle(split.side_of, name).starts()
        assert len(view) == len(starts)
        assert sorted(view.sample_transitions(len(view)).ids.tolist()) == starts
        batch = view.sample_transitions(len(view), n_step=3, gamma=1.0)
        np.testing.assert_array_equal(batch.rewards, view.get(batch.ids, n_step=3, gamma=1.0).rewards)
        with pytest.raises(ValueError, match=rf"batch_size must .*{len(view)}.*, got {len(view) + 1}"):
            view.sample_transitions(len(view) + 1)


def test_draws_of_a_view_are_uniform() -> None:
    _, views, _ = played()
    for view in views:
        drawn = view.sample_transitions(400 * len(view), replace=True).ids
        values, found = np.unique(drawn, return_counts=True)
        assert values.tolist() == view.valid_starts().tolist()
        assert (np.abs(found - 400) < 4.5 * np.sqrt(400)).all()


def test_a_small_validation_side_is_found_among_many_steps() -> None:
    buffer = ReplayBuffer(5000, 1, 1, seed=1)
    train, held_out = halves(buffer, 0.01)
    for episode in range(100):
        play(buffer, episode, 50)
    assert len(held_out) == 50
    assert len(train) == 4950
    assert len(set(held_out.sample_transitions(50).ids.tolist())) == 50
    assert held_out.sample_sequences(1, 50).observations.shape == (1, 50, 1)


def test_a_view_refuses_the_steps_of_the_other_side() -> None:
    _, (train, held_out), _ = played()
    wrong = int(held_out.valid_starts()[0])
    with pytest.raises((ValueError, IndexError), match=rf"\.get: .*got {wrong}"):
        train.get([wrong])


def test_a_view_names_its_buffer() -> None:
    buffer = ReplayBuffer(10, 1, 1)
    for view in halves(buffer):
        assert view.buffer is buffer
        assert len(view) == 0


# ------------------------------------------------------------------ what is refused


def test_the_buffer_itself_refuses_to_sample() -> None:
    buffer: Any = ReplayBuffer(100, 1, 1)
    for episode in range(8):
        play(buffer, episode, 3)
    halves(buffer)
    calls = {"sample_transitions": (1,), "sample_sequences": (1, 2), "sample_episodes": (1,)}
    for name, arguments in calls.items():
        with pytest.raises((ValueError, RuntimeError), match=rf"^ReplayBuffer\.{name}: .*split"):
            getattr(buffer, name)(*arguments)
    with pytest.raises((ValueError, RuntimeError), match="split"):
        list(buffer.batches(4, epochs=1))


@pytest.mark.parametrize("options", [{"validation": 0.5}, {"seed": 4}, {"block": 10}, {"block": 10, "gap": 2}])
def test_a_second_split_with_other_arguments_is_refused(options: dict[str, Any]) -> None:
    buffer: Any = ReplayBuffer(100, 1, 1)
    halves(buffer)
    with pytest.raises(ValueError, match=r"^ReplayBuffer\.split: "):
        buffer.split(**{"validation": 0.25, "seed": 3} | options)


def test_a_second_split_with_the_same_arguments_gives_the_same_views() -> None:
    buffer = ReplayBuffer(100, 1, 1)
    first = halves(buffer)
    for episode in range(8):
        play(buffer, episode, 3)
    for view, again in zip(first, halves(buffer), strict=True):
        np.testing.assert_array_equal(view.valid_starts(), again.valid_starts())


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"validation": 0.0}, ValueError, "validation must .*, got 0.0"),
        ({"validation": 1.0}, ValueError, "validation must .*, got 1.0"),
        ({"validation": -0.1}, ValueError, "validation must .*, got -0.1"),
        ({"validation": float("nan")}, ValueError, "validation must .*, got nan"),
        ({"validation": "x"}, TypeError, "validation must .*, got 'x'"),
        ({"seed": -1}, ValueError, "seed must .*, got -1"),
        ({"seed": 1.5}, TypeError, "seed must .*, got 1.5"),
        ({"block": 0}, ValueError, "block must .*, got 0"),
        ({"block": 10, "gap": -1}, ValueError, "gap must .*, got -1"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    buffer: Any = ReplayBuffer(100, 1, 1)
    with pytest.raises(kind, match=rf"^ReplayBuffer\.split: {text}"):
        buffer.split(**options)
    play(buffer, 0, 3)
    assert buffer.sample_transitions(3).ids.shape == (3,)  # a refused split is none


# ------------------------------------------------------------------ priorities


def prioritized(**options: Any) -> tuple[Any, Any, Any]:
    """Return a buffer with priorities and its two sides."""
    buffer: Any = PrioritizedReplayBuffer(200, 1, 1, seed=0, alpha=1.0, eps=0.0, **options)
    train, held_out = halves(buffer)
    for episode in range(12):
        play(buffer, episode, 4)
    return buffer, train, held_out


def test_held_out_steps_have_no_priority_mass() -> None:
    buffer, train, held_out = prioritized()
    assert buffer.priorities(train.valid_starts()).tolist() == [1] * 36
    assert buffer.priorities(held_out.valid_starts()).tolist() == [0] * 12
    drawn = np.concatenate([train.sample_transitions(36).ids for _ in range(5)])
    assert sorted(set(drawn.tolist())) == train.valid_starts().tolist()


def test_the_validation_side_samples_uniformly_and_takes_no_priorities() -> None:
    _, train, held_out = prioritized()
    train.update_priorities(train.valid_starts(), np.arange(1.0, 37.0))
    batch = held_out.sample_transitions(4800, replace=True)
    values, found = np.unique(batch.ids, return_counts=True)
    assert values.tolist() == held_out.valid_starts().tolist()
    assert (np.abs(found - 400) < 4.5 * np.sqrt(400)).all()
    with pytest.raises((ValueError, TypeError, AttributeError, RuntimeError), match="update_priorities"):
        held_out.update_priorities(held_out.valid_starts(), np.ones(12))


def test_updates_of_held_out_steps_change_nothing() -> None:
    buffer, train, held_out = prioritized()
    wrong = held_out.valid_starts()[:3]
    assert train.update_priorities(wrong, [9.0, 9.0, 9.0]) == 3
    assert buffer.priorities(wrong).tolist() == [0, 0, 0]
    play(buffer, 50, 1, None, stream=5)
    assert 9.0 not in buffer.priorities(buffer.valid_starts()).tolist()


def test_a_split_after_the_fact_takes_the_mass_away() -> None:
    buffer: Any = PrioritizedReplayBuffer(200, 1, 1, seed=0, alpha=1.0, eps=0.0)
    for episode in range(12):
        play(buffer, episode, 4)
    buffer.update_priorities(range(48), np.arange(1.0, 49.0))
    train, held_out = halves(buffer)
    assert buffer.priorities(held_out.valid_starts()).tolist() == [0] * 12
    np.testing.assert_array_equal(buffer.priorities(train.valid_starts()), train.valid_starts() + 1.0)
    batch = train.sample_transitions(64, beta=1.0)
    assert set(batch.ids.tolist()) <= set(train.valid_starts().tolist())
    smallest = train.valid_starts()[0] + 1.0
    np.testing.assert_allclose(batch.weights[:, 0], smallest / (batch.ids + 1.0), rtol=1e-5)


# ------------------------------------------------------------------ one endless stream


def test_blocks_of_one_endless_stream() -> None:
    buffer: Any = ReplayBuffer(4000, 1, 1)
    train, held_out = halves(buffer, 0.25, block=20, gap=5)
    play(buffer, 0, 2000, None)
    sides = np.zeros(2000, int)
    sides[train.valid_starts()] = 1
    sides[held_out.valid_starts()] = 2
    assert (len(train), len(held_out)) == ((sides == 1).sum(), (sides == 2).sum())
    changes = [t for t in range(1, 2000) if sides[t] != sides[t - 1]]
    assert not any(sides[t] and sides[t - 1] for t in changes)  # sides never touch
    for first in np.flatnonzero(sides == 2):
        near = sides[max(0, first - 5) : first + 6]
        assert 1 not in near.tolist()  # at least `gap` unused steps between
    assert 0.15 < (sides == 2).sum() / (sides > 0).sum() < 0.35
    for view, side in ((train, 1), (held_out, 2)):
        batch = view.sample_sequences(50, 4)
        assert (sides[batch.ids] == side).all()
        batch = view.sample_transitions(50, n_step=4, gamma=1.0)
        last = batch.ids + batch.n_steps[:, 0] - 1
        assert (sides[last] == side).all()


def test_blocks_stay_where_they_are_while_the_ring_turns() -> None:
    buffer: Any = ReplayBuffer(100, 1, 1)
    views = halves(buffer, 0.5, block=8, gap=2)
    seen: dict[int, int] = {}
    for t in range(700):
        play(buffer, 0, 1, None, start=t)
        if t % 13 == 0:
            for side, view in enumerate(views):
                for number in view.valid_starts().tolist():
                    assert seen.setdefault(number, side) == side
    assert set(seen.values()) == {0, 1}


# ------------------------------------------------------------------ lists of episodes


def recorded(count: int) -> list[SingleAgentEpisode]:
    """Return finished episodes that count like `play`."""
    episodes = []
    for number in range(count):
        episode = SingleAgentEpisode(action_space=gym.spaces.Box(-9, 9, (1,), np.float32))
        episode.add_env_reset(observation=f32([1000 * number]))
        for t in range(1 + number % 4):
            episode.add_env_step(
                observation=f32([1000 * number + t + 1]),
                action=f32([0]),
                reward=1000 * number + t,
                terminated=t == number % 4,
            )
        episodes.append(episode)
    return episodes


@pytest.mark.parametrize(("validation", "seed"), [(0.25, 3), (0.5, 0), (0.1, 9)])
def test_a_list_is_split_like_the_buffer(validation: float, seed: int) -> None:
    episodes = recorded(40)
    train, held_out = split_episodes(episodes, validation=validation, seed=seed)
    assert {episode.id_ for episode in train} | {episode.id_ for episode in held_out} == {e.id_ for e in episodes}
    assert len(train) + len(held_out) == 40
    assert len(held_out) == 40 * validation
    buffer = ReplayBuffer(1000, 1, 1)
    views = halves(buffer, validation, seed)
    for episode in episodes:
        buffer.add_episode(episode)
    for view, part in zip(views, (train, held_out), strict=True):
        assert episodes_of(view) == [int(episode.get_observations(0)[0]) // 1000 for episode in part]


def test_the_parts_keep_the_lists_order_and_its_objects() -> None:
    episodes = recorded(12)
    train, held_out = split_episodes(episodes, validation=0.25, seed=1)
    places = [episodes.index(episode) for episode in train]
    assert places == sorted(places)
    assert all(any(episode is other for other in episodes) for episode in [*train, *held_out])
    assert split_episodes([], validation=0.25, seed=1) == ([], [])


@pytest.mark.parametrize("validation", [0.0, 1.0, -1.0, float("nan")])
def test_a_wrong_share_of_a_list_is_refused(validation: float) -> None:
    with pytest.raises(ValueError, match=rf"^split_episodes: validation must .*, got {re.escape(repr(validation))}"):
        split_episodes(recorded(3), validation=validation, seed=0)
