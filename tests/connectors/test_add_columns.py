"""What episodes hold in the batch: every column against a loop over steps, wherever the episodes are cut."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback.connectors import (
    AddColumns,
    AddNextObservations,
    AddObservations,
    AddOneStep,
    BatchItems,
)
from ringback.episodes import SingleAgentEpisode
from ringback.errors import EpisodeError
from tests.connectors.learner_chunks import (
    KINDS,
    assert_same,
    chunks,
    episode_of,
    episodes_of,
    leaves_of,
    observations,
    run,
)
from tests.reference import learner as slow
from tests.reference.learner import Chunk, Play

PIECES: list[Any] = [AddObservations(as_learner_connector=True), AddColumns(), AddNextObservations()]
INITIAL = {"h": np.array([-5.0], np.float32)}


def expected(plays: Sequence[Chunk], kind: str, one_more: bool = False) -> dict[str, Any]:
    """The batch as the loop makes it, in the dtypes that each column must have."""
    want = slow.columns(plays, one_more)
    out = {
        "obs": observations(kind, want["obs"]),
        "new_obs": observations(kind, want["new_obs"]),
        "actions": np.array(want["actions"], np.int64),
        "rewards": np.array(want["rewards"], np.float32),
        "terminateds": np.array(want["terminateds"], bool),
        "truncateds": np.array(want["truncateds"], bool),
        "action_logp": np.array(want["action_logp"], np.float32),
    }
    return {**out, "loss_mask": np.array(want["loss_mask"], bool)} if one_more else out


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(plays=chunks(), numpy=st.booleans())
def test_all_columns_are_those_of_the_loop(kind: str, plays: list[Chunk], numpy: bool) -> None:
    batch = run(PIECES, episodes_of(plays, kind, numpy=numpy)) if slow.steps_of(plays) else None
    if batch is not None:
        assert_same(batch, expected(plays, kind))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(plays=chunks(), numpy=st.booleans())
def test_one_more_step_for_each_chunk_is_that_of_the_loop(kind: str, plays: list[Chunk], numpy: bool) -> None:
    if slow.steps_of(plays):
        batch = run([AddOneStep(), *PIECES], episodes_of(plays, kind, numpy=numpy))
        assert_same(batch, expected(plays, kind, one_more=True))


@settings(max_examples=60, deadline=None)
@given(plays=chunks(), one_more=st.booleans())
def test_list_form_and_array_form_and_both_mixed_give_the_same(plays: list[Chunk], one_more: bool) -> None:
    if slow.steps_of(plays):
        pieces = [*([AddOneStep()] if one_more else []), *PIECES, BatchItems()]
        lists, arrays = episodes_of(plays), episodes_of(plays, numpy=True)
        mixed = [pair[k % 2] for k, pair in enumerate(zip(lists, arrays, strict=True))]
        assert_same(run(pieces, arrays), run(pieces, lists))
        assert_same(run(pieces, mixed), run(pieces, lists))


@settings(max_examples=60, deadline=None)
@given(plays=chunks(), numpy=st.booleans())
def test_episodes_stay_as_they_are(plays: list[Chunk], numpy: bool) -> None:
    episodes = episodes_of(plays, numpy=numpy)
    states = [copy.deepcopy(episode).get_state() for episode in episodes]
    batch = run([AddOneStep(), *PIECES, BatchItems()], episodes) if slow.steps_of(plays) else {}
    for column in batch.values():
        for leaf in leaves_of(column).values():
            leaf[:] = 0  # the batch is no view
    for episode, state in zip(episodes, states, strict=True):
        np.testing.assert_equal(episode.get_state(), state)
        if not episode.is_done:
            episode.add_env_step(observation=np.array([7, 8], np.float32), action=3, reward=1.0)


@pytest.mark.parametrize("numpy", [False, True])
def test_chunks_without_steps_have_no_rows(numpy: bool) -> None:
    play = Play(1, 3)
    empty, chunk = Chunk(Play(0, 0), 0, 0), Chunk(play, 0, 3)
    cut = Chunk(play, 3, 3, 1)
    for pieces in ([*PIECES], [AddOneStep(), *PIECES]):
        with_them = run(pieces, episodes_of([empty, chunk, cut], numpy=numpy))
        assert_same(with_them, run(pieces, episodes_of([chunk], numpy=numpy)))
    episodes = episodes_of([empty], numpy=numpy)
    for piece in (AddColumns(), AddNextObservations(), AddOneStep()):
        assert piece(batch={}, episodes=episodes) == {}
        assert piece(batch={}, episodes=[]) == {}


def test_columns_that_are_there_are_left_alone() -> None:
    episodes = episodes_of([Chunk(Play(1, 2, terminated=True), 0, 2)])
    mine = {name: [name] for name in ("actions", "rewards", "terminateds", "truncateds", "action_logp", "new_obs")}
    batch = AddNextObservations()(batch=AddColumns()(batch=dict(mine), episodes=episodes), episodes=episodes)
    assert batch == mine


def test_infos_come_on_request_with_the_observations() -> None:
    episodes = episodes_of([Chunk(Play(1, 2), 0, 2), Chunk(Play(2, 9), 4, 6, 2)], numpy=True)
    assert "infos" not in AddColumns()(batch={}, episodes=episodes)
    batch = run([AddColumns(infos=True), BatchItems()], episodes)
    assert batch["infos"] == [{"t": 0}, {"t": 1}, {"t": 4}, {"t": 5}]
    batch = AddColumns(infos=True)(batch={"infos": ["mine"]}, episodes=episodes)
    assert batch["infos"] == ["mine"]


def test_the_state_before_each_step_is_left_to_the_piece_for_it() -> None:
    episode = SingleAgentEpisode(
        observations=[0, 1], actions=[0], rewards=[1], len_lookback_buffer=0, extra_model_outputs={"state_in": [5]}
    )
    assert sorted(AddColumns()(batch={}, episodes=[episode])) == ["actions", "rewards", "terminateds", "truncateds"]


def test_rewards_are_float32_whatever_they_were() -> None:
    for rewards in ([1, 2], [1.5, 2.0], [np.float64(3), np.float64(4)]):
        episode = SingleAgentEpisode(observations=[0, 1, 2], actions=[0, 1], rewards=rewards, len_lookback_buffer=0)
        for form in (episode, copy.deepcopy(episode).to_numpy()):
            column = AddColumns()(batch={}, episodes=[form])["rewards"].arrays
            assert column.dtype == np.float32
            assert column.tolist() == rewards


def test_an_extra_output_that_some_episodes_lack_is_named_with_the_episode() -> None:
    play = Play(1, 2)
    lacking = SingleAgentEpisode("poor", observations=[0, 1], actions=[0], rewards=[1.0], len_lookback_buffer=0)
    message = (
        "AddColumns: the extra model outputs of episode 'poor' must have 'action_logp', as those of other episodes do, "
        "got []"
    )
    for episodes in ([episode_of(Chunk(play, 0, 2)), lacking], [lacking, episode_of(Chunk(play, 0, 2))]):
        batch: dict[str, Any] = {}
        with pytest.raises(EpisodeError, match=f"^{re.escape(message)}$"):
            AddColumns()(batch=batch, episodes=episodes)
        assert batch == {}
    # No rows, nothing lacking.
    nothing = SingleAgentEpisode("poor", observations=[0], len_lookback_buffer=0)
    assert len(AddColumns()(batch={}, episodes=[nothing, episode_of(Chunk(play, 0, 2))])["action_logp"].arrays) == 2


def test_agents_of_different_modules_may_have_different_extra_outputs() -> None:
    def agents(name: str, key: str) -> SingleAgentEpisode:
        return SingleAgentEpisode(
            observations=[0, 1, 2],
            actions=[0, 1],
            rewards=[1.0, 2.0],
            len_lookback_buffer=0,
            extra_model_outputs={"both": [1, 2], key: [3, 4]},
            agent_id=name,
            module_id=f"m_{key}",
            multi_agent_episode_id="world",
        )

    episodes = [agents("x", "logits"), agents("y", "mean"), agents("z", "logits")]
    batch = AddColumns()(batch={}, episodes=episodes)
    assert len(batch["both"].arrays) == 6
    assert {key: [len(rows) for rows in items] for key, items in batch["logits"].items()} == {
        ("world", "x", "m_logits"): [2],
        ("world", "z", "m_logits"): [2],
    }
    assert list(batch["mean"]) == [("world", "y", "m_mean")]
    given = [*episodes, agents("x", "logits")]
    AddOneStep()(batch={}, episodes=given)
    assert [episode.multi_agent_episode_id for episode in given] == [f"world_{k}" for k in range(4)]
