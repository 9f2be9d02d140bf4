"""Several steps added at once are the same steps added one by one."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
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


SPACES: dict[str, Any] = {
    "observation_space": gym.spaces.Box(-1e6, 1e6, (2,), np.float32),
    "action_space": gym.spaces.Discrete(9),
}


def made_of_lists(count: int, how: tuple[bool, bool]) -> tuple[SingleAgentEpisode, SingleAgentEpisode]:
    """An episode made of lists, and the same one made step by step, under one id."""
    observations = [np.full(2, k, np.float32) for k in range(count + 1)]
    actions, rewards = [np.int64(k % 9) for k in range(count)], [1000.0 + k for k in range(count)]
    infos: list[dict[str, Any]] = [{"step": k} for k in range(count + 1)]
    e = SingleAgentEpisode._of_steps(
        observations.copy(), actions.copy(), rewards.copy(), infos.copy(), **SPACES, how=how, began=100.0, at=103.5
    )
    want = SingleAgentEpisode(e.id_, **SPACES)
    want.add_env_reset(observations[0], infos[0], at=100.0)
    if count:
        want.add_env_steps(observations[1:], actions, rewards, infos[1:], terminated=how[0], truncated=how[1], at=103.5)
    return e, want


def everything(e: SingleAgentEpisode) -> dict[str, Any]:
    """All that an episode and its tracks hold."""
    found = {name: getattr(e, name) for name in SingleAgentEpisode.__slots__}
    for name in ("observations", "actions", "rewards", "infos"):
        track = found[name]
        kinds = "arrays" if track.finalized else [type(item) for item in track.data]
        found[name] = (track, kinds, track._size, track._borrowed, type(track._rules), type(track._like))
    return found


def added(e: SingleAgentEpisode) -> SingleAgentEpisode:
    e.add_env_step(np.zeros(2, np.float32), np.int64(1), 0.5)
    e._last_step_time = 0.0
    return e


OPEN = [added, lambda e: e.cut(2), lambda e: added(e.cut(2)), lambda e: added(e.to_numpy())]
ANY: list[Callable[[SingleAgentEpisode], SingleAgentEpisode]] = [
    lambda e: e,
    lambda e: e.to_numpy(),
    lambda e: e[1:],
    lambda e: pickle.loads(pickle.dumps(e)),
    lambda e: SingleAgentEpisode.from_state(e.get_state()),
    copy.copy,
    copy.deepcopy,
]


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("how", [(False, False), (True, False), (False, True)])
def test_made_of_lists_is_as_made_step_by_step_and_goes_on_as_that_does(count: int, how: tuple[bool, bool]) -> None:
    if any(how) and not count:
        return  # nothing ends without a step
    for later in ANY if any(how) else [*ANY, *OPEN]:
        e, want = map(later, made_of_lists(count, how))
        assert everything(e).keys() == everything(want).keys()
        for name, value in everything(want).items():
            assert everything(e)[name] == value, name
        assert (e.get_duration_s(), e.get_return(), e.is_done) == (
            want.get_duration_s(),
            want.get_return(),
            want.is_done,
        )
        e.validate()


def test_ids_of_episodes_made_of_lists_are_their_own() -> None:
    assert len({made_of_lists(1, (True, False))[0].id_ for _ in range(50)}) == 50
