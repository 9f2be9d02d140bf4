"""Episodes to and from RLlib; and what RLlib's own class answers, where it is installed.

These need ``ray[rllib]`` (the extra ``rllib``), all but the first two.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.errors import MissingExtraError
from ringback.integrations.rllib import from_rllib, to_rllib
from tests.episodes.making import NESTED, VECTOR, assert_same_episode, episode, nested, vector

FORMS = pytest.mark.parametrize("numpy", [False, True], ids=["list", "array"])


def theirs() -> Any:
    return pytest.importorskip("ray.rllib.env.single_agent_episode").SingleAgentEpisode


def their_buffer() -> Any:
    return pytest.importorskip("ray.rllib.env.utils.infinite_lookback_buffer").InfiniteLookbackBuffer


def test_without_ray_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.rllib.env.single_agent_episode", None)
    with pytest.raises(MissingExtraError, match=r"^to_rllib: needs the extra 'rllib' \(ray\); pip install"):
        to_rllib(episode(2))


@pytest.mark.parametrize("bad", [3, None, "episode"])
def test_only_episodes_come_from_rllib(bad: Any) -> None:
    with pytest.raises(TypeError, match="from_rllib: episode must be a SingleAgentEpisode of RLlib, got"):
        from_rllib(bad)
    with pytest.raises(TypeError, match="from_rllib: episode must be a SingleAgentEpisode of RLlib, got"):
        from_rllib(episode(2))


@FORMS
@pytest.mark.parametrize(("make", "space"), [(vector, VECTOR), (nested, NESTED), (nested, None)])
@pytest.mark.parametrize(("steps", "lookback"), [(6, 0), (6, 2), (3, 3), (0, 0)])
@pytest.mark.parametrize("ended", [False, True])
def test_there_and_back_nothing_is_lost(
    numpy: bool, make: Any, space: Any, steps: int, lookback: int, ended: bool
) -> None:
    theirs()
    e = episode(
        steps, lookback, numpy=numpy, observation=make, space=space, terminated=ended, truncated=ended, t_started=40,
        agent_id="a", module_id="m", multi_agent_episode_id="x",
    )  # fmt: skip
    e.custom_data["seen"] = [3]
    there = to_rllib(e)
    there.validate()
    assert (len(there), there.t, there.t_started, there.is_done) == (len(e), e.t, e.t_started, ended)
    assert there.rewards.lookback == lookback
    assert there.is_numpy is numpy
    back = from_rllib(there)
    assert_same_episode(back, e)
    assert back.is_numpy is numpy
    assert (back.observation_space, back.action_space) == (e.observation_space, e.action_space)
    assert back.rewards.space == e.rewards.space


@FORMS
@pytest.mark.parametrize("reset", [False, True])
def test_an_episode_before_its_first_step_comes_back_too(numpy: bool, reset: bool) -> None:
    theirs()
    e = SingleAgentEpisode(t_started=7)
    if reset:
        e.add_env_reset(nested(3), {"step": 3})
    if numpy:
        e.to_numpy()
    back = from_rllib(to_rllib(e))
    assert_same_episode(back, e)
    assert (back.is_reset, back.is_numpy) == (reset, numpy)


@FORMS
def test_the_copies_are_independent(numpy: bool) -> None:
    theirs()
    e = episode(4, 1, numpy=numpy)
    there = to_rllib(e)
    there.set_rewards(new_data=np.array(99.0, np.float32), at_indices=-1)
    there.add_env_step(vector(9), 4, 9.0, {}, extra_model_outputs={"logp": 0.5})
    assert_same_episode(e, episode(4, 1, id_=e.id_))
    back = from_rllib(there)
    back.set_rewards(new_data=77.0, at_indices=-1)
    assert there.get_rewards(-1) == 9.0


@FORMS
def test_an_episode_that_began_in_rllib_goes_on_in_ours(numpy: bool) -> None:
    there = theirs()(observation_space=VECTOR, action_space=gym.spaces.Discrete(1000))
    there.add_env_reset(vector(0), {"step": 0})
    for k in range(3):
        there.add_env_step(vector(k + 1), k, 1000.0 + k, {"step": k + 1}, extra_model_outputs={"logp": -0.5 * k})
    if numpy:
        there.to_numpy()
    ours = from_rllib(there)
    ours.add_env_step(vector(4), 3, 1003.0, {"step": 4}, extra_model_outputs={"logp": -1.5})
    assert_same_episode(ours, episode(4, id_=there.id_))
    assert ours.get_duration_s() > 0


def answer(buffer: Any, indices: Any, arguments: dict[str, Any]) -> Any:
    """What a read gives, or the kind of its error."""
    try:
        got = buffer.get(indices, **arguments)
    except IndexError:
        return IndexError
    return np.asarray(got).tolist()


@FORMS
def test_reads_answer_as_rllibs_do(numpy: bool) -> None:
    cls = their_buffer()
    draw = random.Random(3)
    for _ in range(4000):
        size = draw.randint(1, 7)
        lookback = draw.randint(0, size)
        neg, fill = draw.random() < 0.5, draw.choice([None, -7])
        kind = draw.choice(["int", "list", "slice"])
        indices: Any
        if kind == "int":
            indices = draw.randint(-12, 12)
        elif kind == "list":
            indices = [draw.randint(-9, 9) for _ in range(draw.randint(1, 4))]
        else:
            indices = slice(draw.choice([None, draw.randint(-12, 12)]), draw.choice([None, draw.randint(-12, 12)]))
        if differs(indices, neg, fill, size, lookback, numpy):
            continue
        items = list(range(10, 10 + size))
        a, b = cls(list(items), lookback=lookback), InfiniteLookbackBuffer(items, lookback)
        if numpy:
            a.finalize()
            b.finalize()
        arguments = {"neg_index_as_lookback": neg, "fill": fill}
        want, got = answer(a, indices, arguments), answer(b, indices, arguments)
        assert got == want, (items, lookback, indices, neg, fill)


def differs(indices: Any, neg: bool, fill: Any, size: int, lookback: int, numpy: bool) -> bool:
    """Where ours differs on purpose: RLlib's defects."""
    end = size - lookback
    if not isinstance(indices, slice):
        # In array form, an index left of the lookback wraps to the other end.
        smallest = min(indices) if isinstance(indices, list) else indices
        return numpy and neg and fill is None and smallest < -lookback
    if fill is None:
        return False
    # A slice that runs backwards with one bound inside gives fills that nobody asked for.
    start, stop = ((bound if bound >= 0 or neg else end + bound) if bound is not None else None
                   for bound in (indices.start, indices.stop))  # fmt: skip
    start, stop = (0 if start is None else start), (end if stop is None else stop)
    outside = max(start, stop) < -lookback or min(start, stop) >= end
    # And one that reaches out on both sides is filled on the left only.
    return (stop < start and not outside) or (start < -lookback and stop > end)


@FORMS
def test_a_life_in_chunks_is_the_same_in_both(numpy: bool) -> None:
    def life(cls: Any) -> list[Any]:
        out: list[Any] = []
        e = cls("me", observation_space=VECTOR, action_space=gym.spaces.Discrete(9))
        e.add_env_reset(vector(0), {"step": 0})
        chunks = [e]
        for k in range(12):
            e.add_env_step(
                vector(k + 1),
                k % 9,
                1000.0 + k,
                {"step": k + 1},
                terminated=k == 11,
                extra_model_outputs={"v": 0.5 * k},
            )
            if k % 5 == 4:
                e = e.cut(len_lookback_buffer=3)
                chunks.append(e)
        for c in chunks:
            if numpy:
                c.to_numpy()
            data = c.get_data_dict()
            out.append({name: np.asarray(column).tolist() for name, column in data.items()})
            window = slice(-4, 2)
            for read in (c.get_observations, c.get_actions, c.get_rewards):
                out.append(np.asarray(read(window, neg_index_as_lookback=True, fill=0.0)).tolist())
            coded = c.get_actions(window, neg_index_as_lookback=True, fill=0.0, one_hot_discrete=True)
            out.append(np.asarray(coded).tolist())
            out.append((c.t, c.t_started, len(c), c.is_done, c.get_return()))
        whole = chunks[0]
        for c in chunks[1:]:
            whole.concat_episode(c)
        out.append({name: np.asarray(column).tolist() for name, column in whole.get_data_dict().items()})
        part = whole[3:9]
        out.append({name: np.asarray(column).tolist() for name, column in part.get_data_dict().items()})
        return out

    np.testing.assert_equal(life(SingleAgentEpisode), life(theirs()))


def test_a_sample_batch_holds_the_columns() -> None:
    theirs()
    got = episode(4, 1, numpy=True).get_sample_batch()
    assert got["rewards"].tolist() == [1001.0, 1002.0, 1003.0]
    assert len(got) == 3
