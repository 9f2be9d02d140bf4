"""Counters that let one look inside."""

from __future__ import annotations

import warnings

import pytest

from ringback import ReplayBuffer
from tests.replay.playing import play


def test_all_counters_are_there() -> None:
    stats = ReplayBuffer(9, 1, 1).stats()
    assert set(stats) == {
        "size",
        "capacity",
        "episodes",
        "open_episodes",
        "added",
        "sampled",
        "evicted",
        "kept_successors",
        "bytes",
        "ratio",
        "mean_age",
        "train",
        "validation",
    }
    assert all(type(stats[name]) is int for name in set(stats) - {"ratio", "mean_age", "train", "validation"})
    assert (stats["ratio"], stats["mean_age"], stats["train"], stats["validation"]) == (0.0, 0.0, None, None)


def test_ratio_age_and_sides() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 4)
    play(buffer, 1, 4)
    buffer.sample_transitions(4)
    stats = buffer.stats()
    assert (stats["ratio"], stats["mean_age"]) == (0.5, 3.5)  # ages 0..7
    train, validation = buffer.split(validation=0.5)
    stats = buffer.stats()
    assert (stats["train"], stats["validation"]) == (len(train), len(validation)) == (4, 4)


def test_counters_follow_the_calls() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 4)
    play(buffer, 1, 3, None, stream=1)
    stats = buffer.stats()
    assert (stats["size"], stats["capacity"], stats["added"], stats["evicted"], stats["sampled"]) == (7, 9, 7, 0, 0)
    assert (stats["episodes"], stats["open_episodes"]) == (2, 1)
    play(buffer, 2, 7)
    buffer.sample_transitions(5)
    buffer.sample_transitions(3, replace=True)
    stats = buffer.stats()
    assert (stats["size"], stats["added"], stats["evicted"]) == (9, 14, 5)
    assert stats["episodes"] == buffer.num_episodes == 2
    assert stats["sampled"] == 8
    assert stats["bytes"] == buffer.nbytes > 0
    buffer.sample_sequences(2, 3)
    assert buffer.stats()["sampled"] > 8


def test_reading_counters_changes_nothing() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 4)
    assert buffer.stats() == buffer.stats()
    buffer.stats()["size"] = 99
    assert buffer.stats()["size"] == 4


def test_kept_successors_are_counted_for_ever() -> None:
    buffer = ReplayBuffer(10, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(5):
            buffer.add([10.0 * step], [0.0], 0.0, [10.0 * step + 1], False)
    assert buffer.stats()["kept_successors"] == 4
    buffer.end_episode()
    play(buffer, 1, 10)
    assert buffer.stats()["kept_successors"] == 4


def test_properties_cannot_be_assigned() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    for name in ("capacity", "nbytes", "num_episodes", "is_full", "total_added", "observation_space", "action_space"):
        with pytest.raises(AttributeError):
            setattr(buffer, name, 3)
