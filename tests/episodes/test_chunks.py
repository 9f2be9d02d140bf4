"""Cutting, slicing and joining: the same episode in pieces."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from ringback.episodes import SingleAgentEpisode
from ringback.errors import EpisodeError
from tests.episodes.making import NESTED, VECTOR, assert_same_episode, episode, nested, vector

FORMS = pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])
KINDS = pytest.mark.parametrize(("make", "space"), [(vector, VECTOR), (nested, NESTED), (nested, None)])
NAMES = {"id_": "me", "agent_id": "a", "module_id": "m", "multi_agent_episode_id": "x"}


def later(chunk: SingleAgentEpisode) -> None:
    chunk.t_started += 1
    chunk.t += 1


@FORMS
@pytest.mark.parametrize(("asked", "has"), [(0, 0), (1, 1), (3, 3), (5, 5), (99, 5)])
def test_a_cut_chunk_goes_on_and_sees_back(numpy: bool, asked: int, has: int) -> None:
    e = episode(5, 2, numpy=numpy, t_started=50, **NAMES)
    e.custom_data["list"] = [1]
    chunk = e.cut(len_lookback_buffer=asked)
    assert (len(chunk), chunk.t, chunk.t_started) == (0, 53, 53)
    assert {name: getattr(chunk, name) for name in NAMES} == NAMES
    assert (chunk.observation_space, chunk.action_space) == (e.observation_space, e.action_space)
    assert chunk.is_numpy is numpy
    assert chunk.rewards.lookback == has
    assert chunk.get_observations(-1)[0] == chunk.get_observations(0)[0] == 5
    assert chunk.get_infos(0) == {"step": 5}
    assert list(chunk.get_actions(slice(-99, None))) == [5 - has + k for k in range(has)]
    assert list(chunk.get_extra_model_outputs("logp", slice(-99, None))) == [-0.5 * (5 - has + k) for k in range(has)]
    chunk.custom_data["list"].append(2)
    assert e.custom_data == {"list": [1]}
    chunk.add_env_step(vector(6), 5, 1005.0, {"step": 6}, extra_model_outputs={"logp": -2.5})
    assert (len(chunk), len(e)) == (1, 3)
    if has:
        assert chunk.get_rewards(slice(-1, 1), neg_index_as_lookback=True)[0] == 1004.0


@FORMS
def test_the_default_cut_shows_only_the_last_observation(numpy: bool) -> None:
    chunk = episode(3, numpy=numpy).cut()
    assert list(chunk.get_observations(-1)) == [3, -3]
    with pytest.raises(IndexError):
        chunk.get_observations(-2)
    with pytest.raises(IndexError):
        chunk.get_actions(-1)
    assert chunk.cut(7).get_observations(-1)[0] == 3


@FORMS
def test_cut_pieces_do_not_write_into_one_another(numpy: bool) -> None:
    e = episode(4, numpy=numpy)
    chunk = e.cut(len_lookback_buffer=3)
    e.set_rewards(new_data=77.0, at_indices=-1)
    assert chunk.get_rewards(-1) == 1003.0
    chunk.set_rewards(new_data=88.0, at_indices=-1)
    assert e.get_rewards(-1) == 77.0


@FORMS
def test_setting_the_original_after_a_cut_does_not_show_in_the_chunk_nor_the_other_way(numpy: bool) -> None:
    e = episode(4, numpy=numpy)
    first, second = e.cut(3), e.cut(3)
    first.set_observations(new_data=vector(70), at_indices=0)
    assert second.get_observations(0)[0] == 4
    assert e.get_observations(-1)[0] == 4


@FORMS
@pytest.mark.parametrize("bad", [-1, -5])
def test_a_negative_lookback_is_refused(numpy: bool, bad: int) -> None:
    e = episode(4, numpy=numpy)
    with pytest.raises(EpisodeError, match="len_lookback_buffer must be >= 0"):
        e.cut(bad)
    with pytest.raises(EpisodeError, match="len_lookback_buffer must be >= 0"):
        e.slice(slice(0, 1), len_lookback_buffer=bad)
    with pytest.raises(EpisodeError, match="len_lookback_buffer must be 'auto' or >= 0"):
        SingleAgentEpisode(len_lookback_buffer=bad)


@FORMS
@pytest.mark.parametrize(
    ("start", "stop", "first", "last"),
    [
        (None, None, 0, 5),
        (2, 4, 2, 4),
        (3, None, 3, 5),
        (None, -1, 0, 4),
        (-2, None, 3, 5),
        (-2, -1, 3, 4),
        (-1000, 3, 0, 3),
        (2, 1000, 2, 5),
        (0, 5, 0, 5),
        (3, 3, 3, 3),
        (4, 1, 4, 4),
        (100, 100, 5, 5),
        (5, 5, 5, 5),
        (0, 0, 0, 0),
    ],
)
def test_a_slice_clips_to_what_is_there(
    numpy: bool, start: int | None, stop: int | None, first: int, last: int
) -> None:
    e = episode(7, 2, numpy=numpy, t_started=50, terminated=True, truncated=True, **NAMES)
    e.custom_data["seen"] = 3
    piece = e[start:stop]
    assert (len(piece), piece.t_started, piece.t) == (last - first, 50 + first, 50 + last)
    assert list(piece.get_actions()) == list(range(2 + first, 2 + last))
    assert [int(o[0]) for o in piece.get_observations()] == list(range(2 + first, 3 + last))
    assert piece.get_infos() == [{"step": 2 + k} for k in range(first, last + 1)]
    assert {name: getattr(piece, name) for name in NAMES} == NAMES
    assert (piece.observation_space, piece.action_space) == (e.observation_space, e.action_space)
    assert piece.rewards.space == e.rewards.space
    assert piece.custom_data == {"seen": 3}
    assert piece.is_numpy is numpy
    assert piece.rewards.lookback == 2
    holds_the_last_step = last == 5 and first < last
    assert (piece.is_terminated, piece.is_truncated) == (holds_the_last_step, holds_the_last_step)
    piece.validate()


@FORMS
@pytest.mark.parametrize(("asked", "has"), [(None, 2), (0, 0), (1, 1), (4, 4), (9, 5)])
def test_a_slice_sees_back_as_far_as_asked_and_there(numpy: bool, asked: int | None, has: int) -> None:
    e = episode(7, 2, numpy=numpy)
    piece = e.slice(slice(3, 4), len_lookback_buffer=asked)
    assert piece.rewards.lookback == has
    assert list(piece.get_rewards(slice(-99, None))) == [1000.0 + k for k in range(5 - has, 6)]


@FORMS
def test_a_piece_without_steps_keeps_its_form_shapes_and_dtypes(numpy: bool) -> None:
    e = episode(4, numpy=numpy)
    for t in range(5):
        piece = e[t:t]
        assert len(piece) == 0
        assert piece.is_numpy is numpy
        assert piece.get_observations(0)[0] == t
        if numpy:
            assert piece.get_rewards().shape == piece.get_actions().shape == (0,)
            assert piece.get_rewards().dtype == np.float64
            assert piece.get_actions().dtype == np.int64
            assert piece.get_observations().shape == (1, 2)


@pytest.mark.parametrize("bad", [slice(0, 4, 2), slice(None, None, -1), 3, [0, 1], (0, 1)])
def test_only_slices_of_step_one_make_episodes(bad: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"^SingleAgentEpisode\.slice: slice_ must be a slice of step 1, got"):
        episode(4)[bad]


@FORMS
@KINDS
@pytest.mark.parametrize("lookback", [0, 2])
@pytest.mark.parametrize("ended", [False, True])
def test_slice_and_join_give_the_original_back_at_every_split(
    numpy: bool, make: Any, space: Any, lookback: int, ended: bool
) -> None:
    e = episode(6, lookback, numpy=numpy, observation=make, space=space, terminated=ended, t_started=9, **NAMES)
    e.custom_data["seen"] = 3
    for at in range(len(e) + 1):
        head, tail = e[:at], e[at:]
        head.concat_episode(tail)
        assert_same_episode(head, e)
        assert head.is_numpy is numpy
        head.validate()


@FORMS
@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_cutting_again_and_again_and_joining_gives_one_episode(numpy: bool, size: int) -> None:
    want = episode(10, id_="me", terminated=True)
    chunk = SingleAgentEpisode("me", observation_space=VECTOR, action_space=want.action_space)
    chunk.add_env_reset(vector(0), {"step": 0})
    chunks = [chunk]
    for k in range(10):
        chunk.add_env_step(
            vector(k + 1), k, 1000.0 + k, {"step": k + 1}, terminated=k == 9, extra_model_outputs={"logp": -0.5 * k}
        )
        if (k + 1) % size == 0 and k < 9:
            chunk = chunk.cut(len_lookback_buffer=2)
            chunks.append(chunk)
    if numpy:
        for c in chunks:
            c.to_numpy()
    assert sum(c.get_return() for c in chunks) == want.get_return()  # no reward twice, and none lost
    whole = chunks[0]
    for c in chunks[1:]:
        whole.concat_episode(c)
    assert_same_episode(whole, want)


@pytest.mark.parametrize(("mine", "other"), [(False, True), (True, False)])
def test_chunks_of_different_forms_join(mine: bool, other: bool) -> None:
    e = episode(5, observation=nested, space=NESTED, id_="me")
    head, tail = e[:2], e[2:]
    if mine:
        head.to_numpy()
    if other:
        tail.to_numpy()
    head.concat_episode(tail)
    assert head.is_numpy is mine
    assert tail.is_numpy is other
    assert_same_episode(head, e)


@FORMS
def test_joining_leaves_the_other_chunk_alone(numpy: bool) -> None:
    e = episode(5, numpy=numpy, id_="me")
    head, tail = e[:2], e[2:]
    want = copy.deepcopy(tail)
    head.concat_episode(tail)
    head.set_rewards(new_data=99.0, at_indices=-1)
    head.add_env_step(vector(9), 9, 9.0, {}, extra_model_outputs={"logp": 9.0})
    assert_same_episode(tail, want)
    assert_same_episode(e, episode(5, id_="me"))


@FORMS
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda head, tail: setattr(tail, "id_", "you"), "other must have the id 'me', got 'you'"),
        (
            lambda head, tail: setattr(head, "is_truncated", True),
            "the episode 'me' must not be done, got steps 2 to 5 after",
        ),
        (
            lambda head, tail: later(tail),
            "other must start at t = 2, where episode 'me' ends, got 3",
        ),
        (
            lambda head, tail: tail.set_observations(new_data={"x": vector(7), "n": np.int64(2)}, at_indices=0),
            "other must start with the last observation of episode 'me', got one that differs at 'x' at t = 2",
        ),
    ],
)
def test_what_does_not_go_on_is_refused_and_named(numpy: bool, change: Any, what: str) -> None:
    e = episode(5, numpy=numpy, observation=nested, space=NESTED, id_="me")
    head, tail = e[:2], e[2:]
    change(head, tail)
    before = copy.deepcopy(head)
    with pytest.raises(AssertionError, match=f"^SingleAgentEpisode.concat_episode: {what}"):
        head.concat_episode(tail)
    assert_same_episode(head, before)


@FORMS
def test_a_chunk_twice_or_out_of_order_is_refused(numpy: bool) -> None:
    e = episode(6, numpy=numpy, id_="me")
    first, second, third = e[:2], e[2:4], e[4:]
    with pytest.raises(EpisodeError, match="other must start at t = 2, where episode 'me' ends, got 4"):
        first.concat_episode(third)
    first.concat_episode(second)
    with pytest.raises(EpisodeError, match="other must start at t = 4, where episode 'me' ends, got 2"):
        first.concat_episode(second)
    first.concat_episode(third)
    assert_same_episode(first, e)


def test_only_episodes_join() -> None:
    with pytest.raises(TypeError, match="other must be a SingleAgentEpisode, got 3"):
        episode(2).concat_episode(3)  # type: ignore[arg-type]
    with pytest.raises(EpisodeError, match="must be reset"):
        SingleAgentEpisode("me").concat_episode(SingleAgentEpisode("me"))


@FORMS
def test_nan_at_the_same_place_joins(numpy: bool) -> None:
    def make(k: int) -> Any:
        return {"x": np.array([np.nan, k], np.float32), "n": float("nan")}

    e = episode(4, numpy=numpy, observation=make, space=None, id_="me")
    head, tail = e[:2], e[2:]
    head.concat_episode(tail)
    assert_same_episode(head, e)


@FORMS
def test_the_end_comes_with_the_chunk_that_has_it(numpy: bool) -> None:
    e = episode(3, numpy=numpy, id_="me")
    rest = e.cut(1)
    rest.is_truncated = True
    e.concat_episode(rest)
    assert (e.is_terminated, e.is_truncated, len(e)) == (False, True, 3)


def test_infos_and_custom_data_of_the_later_chunk_win() -> None:
    e = episode(3, id_="me")
    e.custom_data.update(a=1, b=1)
    rest = e.cut()
    rest.infos.set({"late": True}, at_indices=0)
    rest.custom_data.update(b=2, c=2)
    e.concat_episode(rest)
    assert e.get_infos(-1) == {"late": True}
    assert len(e.get_infos()) == 4
    assert e.custom_data == {"a": 1, "b": 2, "c": 2}


def test_joining_many_chunks_copies_each_row_a_constant_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = []
    for k in range(500):
        chunks.append(
            SingleAgentEpisode(
                "me",
                observations=np.arange(k * 4, k * 4 + 5),
                actions=np.arange(4),
                rewards=np.arange(4.0),
                t_started=k * 4,
                len_lookback_buffer=0,
            )
        )
    copied = 0
    real = np.empty

    def counted(shape: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal copied
        copied += shape[0] if isinstance(shape, tuple) else 0
        return real(shape, *args, **kwargs)

    monkeypatch.setattr(np, "empty", counted)
    for chunk in chunks[1:]:
        chunks[0].concat_episode(chunk)
    assert len(chunks[0]) == 2000
    assert copied < 3 * 5 * 2000
    np.testing.assert_array_equal(chunks[0].get_observations(), np.arange(2001))


def test_joining_onto_a_piece_without_steps_copies() -> None:
    e = episode(4, numpy=True, space=None, id_="me")
    head, tail = e[:0], e[0:]
    head.concat_episode(tail)
    head.set_rewards(new_data=99.0, at_indices=0)
    head.set_extra_model_outputs(key="logp", new_data=99.0, at_indices=0)
    assert_same_episode(tail, episode(4, id_="me"))
    assert_same_episode(e, episode(4, id_="me"))
