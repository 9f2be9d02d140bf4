"""The error classes are the built-in ones too."""

from __future__ import annotations

import pickle

import pytest

from ringback.errors import EpisodeError, EpisodeKeyError, MissingExtraError


def test_an_episode_error_is_an_assertion_error_and_a_value_error() -> None:
    assert issubclass(EpisodeError, AssertionError)
    assert issubclass(EpisodeError, ValueError)


def test_an_unknown_key_is_told_without_quotes() -> None:
    error = EpisodeKeyError("Where: key must be one of ['a'], got 'b'")
    assert isinstance(error, KeyError)
    assert isinstance(error, EpisodeError)
    assert str(error) == "Where: key must be one of ['a'], got 'b'"
    assert str(EpisodeKeyError()) == ""


def test_a_missing_package_is_one_sentence_that_names_the_extra() -> None:
    error = MissingExtraError("ReplayBuffer", "train", "torch, matplotlib")
    assert isinstance(error, ImportError)
    assert str(error) == "ReplayBuffer: needs the extra 'train' (torch, matplotlib); pip install 'ringback[train]'"
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


def test_a_sample_batch_needs_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from tests.episodes.making import episode

    monkeypatch.setitem(sys.modules, "ray.rllib.policy.sample_batch", None)
    with pytest.raises(
        MissingExtraError, match=r"^SingleAgentEpisode\.get_sample_batch: needs the extra 'rllib' \(ray\);"
    ):
        episode(2).get_sample_batch()
