"""SingleAgentEpisode: growing, states, values, copies, misuse."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.errors import EpisodeError
from tests.episodes.making import NESTED, VECTOR, assert_same_episode, episode, nested, vector

FORMS = pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])


def test_an_episode_grows_by_what_the_environment_returns() -> None:
    e = SingleAgentEpisode()
    assert (len(e), e.t, e.t_started, e.is_reset, e.is_done) == (0, 0, 0, False, False)
    e.add_env_reset("o0", {"i": 0})
    assert (len(e), e.is_reset) == (0, True)
    for t in range(5):
        e.add_env_step(f"o{t + 1}", f"a{t}", float(t), {"i": t + 1}, truncated=t == 4)
        assert (len(e), e.t) == (t + 1, t + 1)
    assert (e.is_done, e.is_terminated, e.is_truncated) == (True, False, True)
    assert e.get_observations() == ["o0", "o1", "o2", "o3", "o4", "o5"]
    assert e.get_actions() == ["a0", "a1", "a2", "a3", "a4"]
    assert e.get_infos() == [{"i": k} for k in range(6)]
    assert e.get_return() == 10.0
    assert (e.env_steps(), e.agent_steps()) == (5, 5)
    assert e.get_duration_s() > 0
    e.validate()


@pytest.mark.parametrize(("lookback", "length"), [("auto", 0), (0, 2), (1, 1), (2, 0), (10, 0)])
def test_the_lookback_is_part_of_the_data_given_but_not_of_the_length(lookback: Any, length: int) -> None:
    e = SingleAgentEpisode(
        observations=[1, 2, 3], actions=[7, 8], rewards=[0.5, 1.5], len_lookback_buffer=lookback, t_started=50
    )
    assert (len(e), e.t_started, e.t) == (length, 50, 50 + length)
    assert e.rewards.lookback == 2 - length
    assert e.get_observations(0) == 3 - length
    assert e.get_observations(-1) == 3


@pytest.mark.parametrize("lookback", [0, 10, "auto"])
def test_an_empty_episode_may_ask_for_any_lookback(lookback: Any) -> None:
    e = SingleAgentEpisode(len_lookback_buffer=lookback)
    assert (len(e), e.rewards.lookback, e.is_done) == (0, 0, False)


def test_data_may_come_in_buffers_and_in_arrays() -> None:
    b = InfiniteLookbackBuffer([1, 2, 3], lookback=1)
    e = SingleAgentEpisode(
        observations=b,
        actions=InfiniteLookbackBuffer([7, 8], lookback=1),
        rewards=InfiniteLookbackBuffer([0.5, 1.5], lookback=1),
        len_lookback_buffer=1,
    )
    assert e.observations is b
    assert len(e) == 1
    e = SingleAgentEpisode(
        observations=np.arange(6).reshape(3, 2),
        actions=np.array([7, 8]),
        rewards=np.array([0.5, 1.5]),
        len_lookback_buffer=0,
    )
    assert e.is_numpy
    assert e.get_observations(-1).tolist() == [4, 5]


@pytest.mark.parametrize(
    "data",
    [
        {"observations": [1, 2], "actions": [7, 8], "rewards": [0.5, 1.5]},
        {"observations": [1, 2, 3], "actions": [7], "rewards": [0.5, 1.5]},
        {"observations": [1, 2, 3], "actions": [7, 8], "rewards": [0.5, 1.5], "infos": [{}]},
        {"observations": [1, 2, 3], "actions": [7, 8], "rewards": [0.5, 1.5], "extra_model_outputs": {"v": [1]}},
        {"rewards": [0.5]},
    ],
)
def test_lengths_that_do_not_go_together_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(EpisodeError, match=r"^SingleAgentEpisode: \w+.* must hold \d items for \d rewards, got \d$"):
        SingleAgentEpisode(**data)


@FORMS
def test_misuse_raises_an_assertion_error_that_is_a_value_error_too(numpy: bool) -> None:
    e = SingleAgentEpisode()
    with pytest.raises(AssertionError, match="must be reset first"):
        e.add_env_step(1, 2, 3.0)
    with pytest.raises(ValueError, match="must be reset first"):
        e.cut()
    with pytest.raises(EpisodeError, match="must be reset first"):
        e[0:0]
    e.add_env_reset(0)
    with pytest.raises(EpisodeError, match="must not be reset yet"):
        e.add_env_reset(0)
    e.add_env_step(1, 2, 3.0, terminated=True)
    if numpy:
        e.to_numpy()
    for call in (lambda: e.add_env_step(1, 2, 3.0), lambda: e.add_env_reset(0), e.cut):
        with pytest.raises(EpisodeError, match="must not be done"):
            call()
    assert (len(e), e.t) == (1, 1)


@FORMS
@pytest.mark.parametrize("kind", ["vector", "nested"])
def test_both_forms_grow_on(numpy: bool, kind: str) -> None:
    make, space = (vector, VECTOR) if kind == "vector" else (nested, NESTED)
    e = episode(3, 1, numpy=numpy, observation=make, space=space)
    for k in range(3, 30):
        e.add_env_step(make(k + 1), k, 1000.0 + k, {"step": k + 1}, extra_model_outputs={"logp": -0.5 * k})
    assert_same_episode(e, episode(30, 1, observation=make, space=space, id_=e.id_))
    assert e.is_numpy is numpy
    e.validate()


def test_to_numpy_turns_everything_but_infos() -> None:
    e = episode(3, 1, observation=nested, space=NESTED)
    same = e.to_numpy()
    assert same is e
    assert e.is_numpy
    assert e.get_observations()["x"].shape == (3, 2)
    assert e.get_observations()["n"].dtype == np.int64
    assert e.get_actions().dtype == np.int64
    assert e.get_rewards().tolist() == [1001.0, 1002.0]
    assert e.get_rewards().dtype == np.float64
    assert e.get_extra_model_outputs("logp").tolist() == [-0.5, -1.0]
    assert isinstance(e.get_infos(), list)
    assert e.to_numpy() is e


def test_an_episode_without_steps_has_an_array_form_too() -> None:
    e = SingleAgentEpisode(observation_space=VECTOR, action_space=gym.spaces.Discrete(9)).to_numpy()
    assert e.is_numpy
    e.add_env_reset(vector(0))
    assert e.get_rewards().shape == (0,)
    assert e.get_actions().shape == (0,)
    e.add_env_step(vector(1), 3, 1000.0, extra_model_outputs={"h": np.ones(2)})
    assert e.is_numpy
    assert e.get_observations().tolist() == [[0, 0], [1, -1]]
    assert e.get_extra_model_outputs("h").shape == (1, 2)
    e = SingleAgentEpisode().to_numpy()
    e.add_env_reset({"x": 1})
    e.add_env_step({"x": 2}, (1, 2.5), 7)
    assert e.get_observations()["x"].tolist() == [1, 2]
    assert e.get_actions(0) == (1, 2.5)


def test_a_row_that_does_not_fit_changes_nothing() -> None:
    e = episode(3, 1, numpy=True)
    want = copy.deepcopy(e)
    for bad in (
        {"observation": np.zeros(3, np.float32)},
        {"action": 1000},
        {"reward": "much"},
        {"extra_model_outputs": {"logp": np.zeros(3)}},
        {"extra_model_outputs": {"new": 1, "logp": np.zeros(3)}},
    ):
        step: dict[str, Any] = {
            "observation": vector(9),
            "action": 9,
            "reward": 9.0,
            "extra_model_outputs": {"logp": 9.0},
        }
        with pytest.raises(ValueError, match=r"^SingleAgentEpisode\.add_env_step: data"):
            e.add_env_step(**{**step, **bad})
        assert_same_episode(e, want)
    e.add_env_step(vector(4), 3, 1003.0, {"step": 4}, extra_model_outputs={"logp": -1.5})
    assert_same_episode(e, episode(4, 1, id_=e.id_))


def test_a_row_that_is_refused_does_not_widen_the_others() -> None:
    e = SingleAgentEpisode(observations=[0, 1], actions=[3], rewards=[1.0], extra_model_outputs={"v": [7]}).to_numpy()
    assert e.observations.data.dtype == np.int64
    with pytest.raises(EpisodeError):
        e.add_env_step(0.5, "left", 1.0, extra_model_outputs={"v": 0.5})
    more = SingleAgentEpisode(
        e.id_, observations=[1, 0.25], actions=["left"], rewards=[0.5], t_started=e.t, len_lookback_buffer=0
    )
    with pytest.raises(EpisodeError):
        e.concat_episode(more)
    tracks = (e.observations, e.actions, e.extra_model_outputs["v"])
    assert [(track.data.tolist(), track.data.dtype) for track in tracks] == [
        ([0, 1], np.int64),
        ([3], np.int64),
        ([7], np.int64),
    ]
    e.add_env_step(0.5, 4, 1.0, extra_model_outputs={"v": 0.5})
    assert [track.data.tolist() for track in tracks] == [[0, 1, 0.5], [3, 4], [7, 0.5]]


def test_list_form_takes_anything_and_says_so_at_the_conversion() -> None:
    e = SingleAgentEpisode(observation_space=VECTOR)
    e.add_env_reset(vector(0))
    e.add_env_step(np.array([5e6, 0], np.float32), 0, 0.0)
    with pytest.raises(
        EpisodeError, match=r"^SingleAgentEpisode\.to_numpy: data must be in Box.*got 5000000.0 at item 1 of 2$"
    ):
        e.to_numpy()
    assert not e.is_numpy
    assert not e.observations.finalized
    with pytest.raises(EpisodeError, match=r"^SingleAgentEpisode\.validate: data must be in Box"):
        e.validate()


@FORMS
def test_setters_write_where_getters_read(numpy: bool) -> None:
    e = episode(4, 2, numpy=numpy)
    e.set_observations(new_data=vector(77), at_indices=-1, neg_index_as_lookback=True)
    e.set_actions(new_data=[70, 71])
    e.set_rewards(new_data=[8.0], at_indices=slice(-1, None))
    e.set_extra_model_outputs(key="logp", new_data=9.0, at_indices=[0][0])
    assert e.get_observations(-1, neg_index_as_lookback=True)[0] == 77
    assert list(e.get_actions()) == [70, 71]
    assert list(e.get_rewards()) == [1002.0, 8.0]
    assert list(e.get_extra_model_outputs("logp")) == [9.0, -1.5]
    with pytest.raises(AssertionError, match=r"set_extra_model_outputs: key must be one of \['logp'\], got 'other'$"):
        e.set_extra_model_outputs(key="other", new_data=[1, 2])
    with pytest.raises(KeyError, match="get_extra_model_outputs: key must be one of"):
        e.get_extra_model_outputs("other")
    with pytest.raises(IndexError, match=r"^SingleAgentEpisode\.set_rewards: new_data must hold one item for each of"):
        e.set_rewards(new_data=[1.0])


@FORMS
def test_the_data_dict_has_one_row_a_step(numpy: bool) -> None:
    e = episode(5, 2, numpy=numpy, terminated=True, t_started=40)
    d = e.get_data_dict()
    assert list(d["obs"][0]) == [2, -2]
    assert len(d["obs"]) == 3
    assert d["infos"] == [{"step": 2}, {"step": 3}, {"step": 4}]
    assert list(d["actions"]) == [2, 3, 4]
    assert list(d["rewards"]) == [1002.0, 1003.0, 1004.0]
    assert list(d["terminateds"]) == [False, False, True]
    assert list(d["truncateds"]) == [False] * 3
    assert list(d["t"]) == [40, 41, 42]
    assert list(d["eps_id"]) == [e.id_] * 3
    assert list(d["logp"]) == [-1.0, -1.5, -2.0]
    assert isinstance(d["obs"], np.ndarray) is numpy


@FORMS
def test_the_data_dict_of_no_steps_has_no_rows(numpy: bool) -> None:
    d = episode(2, 2, numpy=numpy, truncated=True).get_data_dict()
    assert {name: len(column) for name, column in d.items()} == dict.fromkeys(d, 0)


@FORMS
def test_the_return_is_that_of_the_chunk(numpy: bool) -> None:
    assert episode(4, 2, numpy=numpy).get_return() == 2005.0
    assert episode(2, 2, numpy=numpy).get_return() == 0.0
    assert isinstance(episode(4, 2, numpy=numpy).get_return(), float)


@FORMS
@pytest.mark.parametrize("how", ["state", "pickle", "copy", "deepcopy"])
@pytest.mark.parametrize("steps", [0, 4])
def test_copies_hold_everything_and_are_independent(numpy: bool, how: str, steps: int) -> None:
    e = episode(steps, steps // 2, numpy=numpy, agent_id="a", module_id="m", multi_agent_episode_id="x", t_started=7)
    e.custom_data["seen"] = 3
    ways: dict[str, Callable[[], Any]] = {
        "state": lambda: SingleAgentEpisode.from_state(e.get_state()),
        "pickle": lambda: pickle.loads(pickle.dumps(e)),
        "copy": lambda: copy.copy(e),
        "deepcopy": lambda: copy.deepcopy(e),
    }
    twin = ways[how]()
    assert_same_episode(twin, e)
    assert (twin.observation_space, twin.action_space) == (VECTOR, gym.spaces.Discrete(1000))
    assert twin.rewards.space == e.rewards.space
    assert twin.is_numpy is numpy
    before = copy.deepcopy(e)
    twin.add_env_step(vector(50), 50, 50.0, {"step": 50}, extra_model_outputs={"logp": 50.0})
    twin.set_rewards(new_data=99.0, at_indices=-1)
    twin.custom_data["seen"] = 4
    assert_same_episode(e, before)
    e.add_env_step(vector(60), 60, 60.0, {"step": 60}, extra_model_outputs={"logp": 60.0})
    assert twin.get_observations(-1)[0] == 50
    assert (twin.get_rewards(-1), e.get_rewards(-1)) == (99.0, 60.0)


def test_deep_copies_copy_the_items_and_keep_the_spaces() -> None:
    e = episode(2)
    twin = copy.deepcopy(e)
    twin.get_observations(0)[0] = 99
    assert e.get_observations(0)[0] == 0
    assert twin.observation_space is e.observation_space


def test_a_state_without_custom_data_is_an_empty_one() -> None:
    state = episode(2).get_state()
    del state["custom_data"]
    assert SingleAgentEpisode.from_state(state).custom_data == {}


def test_setting_a_space_sets_it_for_the_data() -> None:
    e = episode(2, space=None)
    e.observation_space = VECTOR
    assert e.observations.space is VECTOR
    assert e.to_numpy().get_observations(slice(-4, None), fill=0.0).shape == (4, 2)
    e.action_space = gym.spaces.Discrete(3)
    assert e.get_actions(0, one_hot_discrete=True).tolist() == [1, 0, 0]


def test_every_python_object_is_data() -> None:
    thing = object()
    e = SingleAgentEpisode()
    e.add_env_reset(thing)
    e.add_env_step([1, [2]], None, 1.0, extra_model_outputs={"f": len})
    assert e.get_observations() == [thing, [1, [2]]]
    assert e.get_actions(0) is None
    assert e.get_extra_model_outputs("f", 0) is len
    e.to_numpy()
    assert e.get_observations(0) is thing
    assert e.get_observations(1) == [1, [2]]


def test_the_representation_tells_length_end_return_and_id() -> None:
    e = episode(3, 0, terminated=True, id_="me")
    assert repr(e) == "SingleAgentEpisode(len=3 done=True R=3003.0 id_=me)"


_WRITE_IDS = """
import pathlib, random, sys, numpy
from ringback.episodes.single_agent_episode import SingleAgentEpisode, new_id
random.seed(1); numpy.random.seed(1)
ids = [SingleAgentEpisode().id_ for _ in range(1000)]
ids += [new_id() for _ in range(249_000)]  # what the constructor calls, for speed
pathlib.Path(sys.argv[1]).write_text(" ".join(ids))
"""


def test_ids_of_a_million_episodes_differ_though_the_workers_seed_alike(tmp_path: Path) -> None:
    files = [tmp_path / str(k) for k in range(4)]
    workers = [subprocess.Popen([sys.executable, "-c", _WRITE_IDS, file]) for file in files]
    assert [worker.wait() for worker in workers] == [0] * 4
    ids = [word for file in files for word in file.read_bytes().split()]
    assert len(ids) == len(set(ids)) == 1_000_000


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")
def test_ids_differ_between_a_process_and_its_forked_child() -> None:
    script = (
        "import os\nfrom ringback.episodes import SingleAgentEpisode as E\nE()\nr, w = os.pipe()\n"
        "if os.fork() == 0:\n    os.write(w, ' '.join(E().id_ for _ in range(9)).encode())\n    os._exit(0)\n"
        "os.wait()\nprint(os.read(r, 9999).decode(), ' '.join(E().id_ for _ in range(9)))"
    )
    ids = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(ids)) == 18


@pytest.mark.parametrize("track", ["observations", "actions", "rewards", "logp"])
def test_an_episode_with_one_track_in_array_form_grows_on(track: str) -> None:
    e = episode(3, 1)
    (e.extra_model_outputs[track] if track == "logp" else getattr(e, track)).finalize()
    for k in range(3, 6):
        e.add_env_step(vector(k + 1), k, 1000.0 + k, {"step": k + 1}, extra_model_outputs={"logp": -0.5 * k})
    assert_same_episode(e, episode(6, 1, id_=e.id_))
    assert_same_episode(e.to_numpy(), episode(6, 1, id_=e.id_))


def test_flags_are_plain_bools() -> None:
    e = episode(1)
    flags: dict[str, Any] = {"terminated": np.bool_(False), "truncated": np.bool_(True)}
    e.add_env_step(vector(2), 1, 1001.0, **flags)
    assert e.is_terminated is False
    assert e.is_truncated is True
