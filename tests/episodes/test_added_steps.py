"""Several steps added at once are the same steps added one by one."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringback.episodes import SingleAgentEpisode
from ringback.episodes.structure import difference, stack
from ringback.errors import EpisodeError

from .making import columns, episode, nested, vector

Given = dict[str, Any]


def given(first: int, count: int, observation: Callable[[int], Any] = vector, /, **keys: float) -> Given:
    """The steps first <= t < first + count, with extra model outputs that are factors of t."""
    steps = range(first, first + count)
    return {
        "observations": [observation(k + 1) for k in steps],
        "actions": list(steps),
        "rewards": [1000.0 + k for k in steps],
        "infos": [{"step": k + 1} for k in steps],
        "extra_model_outputs": {key: [factor * k for k in steps] for key, factor in keys.items()},
    }


def in_arrays(steps: Given) -> Given:
    extras = {key: stack(items, "test") for key, items in steps["extra_model_outputs"].items()}
    main = {key: stack(steps[key], "test") for key in ("observations", "actions", "rewards")}
    return {**steps, **main, "extra_model_outputs": extras}


def one_by_one(e: SingleAgentEpisode, steps: Given, terminated: bool = False) -> None:
    count = len(steps["rewards"])
    for k in range(count):
        e.add_env_step(
            steps["observations"][k],
            steps["actions"][k],
            steps["rewards"][k],
            steps["infos"][k],
            terminated=terminated and k == count - 1,
            extra_model_outputs={key: items[k] for key, items in steps["extra_model_outputs"].items()},
        )


def assert_same(e: SingleAgentEpisode, want: SingleAgentEpisode) -> None:
    assert difference(columns(e), columns(want)) is None
    assert (e.t_started, e.t, len(e), e.is_numpy) == (want.t_started, want.t, len(want), want.is_numpy)
    assert (e.is_terminated, e.is_truncated) == (want.is_terminated, want.is_truncated)
    for key, track in want.extra_model_outputs.items():
        assert e.extra_model_outputs[key].lookback == track.lookback
    e.validate()


@pytest.mark.parametrize("as_arrays", [False, True])
@pytest.mark.parametrize("numpy", [False, True])
@pytest.mark.parametrize("keys", [{"logp": -0.5}, {}, {"logp": -0.5, "new": 3.0}, {"new": 3.0}])
@pytest.mark.parametrize("count", [1, 4])
def test_same_as_one_by_one(count: int, keys: dict[str, float], numpy: bool, as_arrays: bool) -> None:
    e = episode(3, 1, numpy=numpy)
    want = copy.deepcopy(e)
    steps = given(3, count, vector, **keys)
    e.add_env_steps(**(in_arrays(steps) if as_arrays else steps), terminated=True)
    one_by_one(want, steps, terminated=True)
    assert_same(e, want)
    assert e.get_rewards(-1) == 1000.0 + 2 + count
    assert e.is_terminated


@pytest.mark.parametrize("numpy", [False, True])
def test_structures_and_what_comes_afterwards(numpy: bool) -> None:
    e = SingleAgentEpisode()
    e.add_env_reset(nested(0), at=100.0)
    if numpy:
        e.to_numpy()
    steps = given(0, 3, nested)
    del steps["infos"]
    e.add_env_steps(**steps, at=103.5)
    assert e.get_infos() == [{}] * 4
    assert e.get_duration_s() == 3.5
    e.add_env_step(nested(4), 3, 1003.0)
    want = [nested(k) for k in range(5)]
    found = e.get_observations()
    assert difference(found if numpy else tuple(found), stack(want, "test") if numpy else tuple(want)) is None
    assert not e.is_done


WRONG: list[tuple[Given, str]] = [
    ({"observations": [vector(4)]}, "observations must hold 2 items for 2 rewards, got 1"),
    ({"actions": np.arange(3)}, "actions must hold 2 items for 2 rewards, got 3"),
    ({"infos": [{}]}, "infos must hold 2 items for 2 rewards, got 1"),
    (
        {"extra_model_outputs": {"logp": [1.0]}},
        "extra_model_outputs['logp'] must hold 2 items for 2 rewards, got 1",
    ),
    ({"rewards": []}, "rewards must hold at least one item, got none"),
]


@pytest.mark.parametrize("numpy", [False, True])
@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_does_not_go_together_changes_nothing(wrong: Given, message: str, numpy: bool) -> None:
    e = episode(3, 1, numpy=numpy)
    want = copy.deepcopy(e)
    message = f"SingleAgentEpisode.add_env_steps: {message}"
    with pytest.raises(EpisodeError, match=f"^{re.escape(message)}$"):
        e.add_env_steps(**{**given(3, 2, logp=-0.5), **wrong})
    assert_same(e, want)


def test_what_does_not_fit_changes_nothing_in_arrays() -> None:
    e = episode(3, 1, numpy=True)
    want = copy.deepcopy(e)
    for wrong in (
        {"observations": [vector(4), np.zeros(3, np.float32)]},
        {"actions": [3, 1000]},
        {"rewards": [1.0, "much"]},
        {"extra_model_outputs": {"new": [1, 2], "logp": [np.zeros(3), 1.0]}},
    ):
        with pytest.raises(ValueError, match=r"^SingleAgentEpisode\.add_env_steps: "):
            e.add_env_steps(**{**given(3, 2, logp=-0.5), **wrong})
        assert_same(e, want)


def test_only_between_reset_and_end() -> None:
    steps = given(0, 2)
    with pytest.raises(EpisodeError, match="the episode must be reset first, got no observation"):
        SingleAgentEpisode().add_env_steps(**steps)
    e = episode(2, terminated=True)
    with pytest.raises(EpisodeError, match="the episode must not be done"):
        e.add_env_steps(**steps)
