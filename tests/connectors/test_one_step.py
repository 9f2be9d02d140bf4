"""The row that is added for the value behind a chunk, and that the user's episodes stay as they are."""

from __future__ import annotations

import copy
import pickle
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
    AddStates,
    AddTimeDim,
    BatchItems,
    Connector,
    ConnectorPipeline,
)
from ringback.connectors.steps import rows_of
from tests.connectors.learner_chunks import (
    KINDS,
    assert_same,
    chunks,
    episode_of,
    episodes_of,
    run,
)
from tests.reference import learner as slow
from tests.reference.learner import Chunk, Play

PIECES: list[Any] = [AddObservations(as_learner_connector=True), AddColumns(), AddNextObservations()]
INITIAL = {"h": np.array([-5.0], np.float32)}


@settings(max_examples=60, deadline=None)
@given(plays=chunks(), numpy=st.booleans(), length=st.integers(1, 13))
def test_the_added_row_begins_with_the_state_behind_the_last_step(plays: list[Chunk], numpy: bool, length: int) -> None:
    plays = [chunk for chunk in plays if chunk.start == 0 or chunk.lookback]
    if not slow.steps_of(plays):
        return
    states = AddStates(as_learner_connector=True, initial_state=INITIAL)
    batch = run([AddOneStep(), AddColumns(), states], episodes_of(plays, numpy=numpy))
    want = slow.columns(plays, one_more=True, initial_state=-5.0)
    assert batch["state_in"].arrays["h"][:, 0].tolist() == want["state_in"]
    # In sequences no row of another chunk comes in between: every one has one number, and times one after the other.
    cut = AddTimeDim(max_seq_len=length, as_learner_connector=True)
    batch = run([AddOneStep(), PIECES[0], AddColumns(), cut, BatchItems()], episodes_of(plays, numpy=numpy))
    rows = iter(zip(want["obs"], want["loss_mask"], strict=True))
    for sequence, mask, count in zip(batch["obs"][..., 0], batch["loss_mask"], batch["seq_lens"], strict=True):
        assert list(zip(sequence[:count], mask[:count], strict=True)) == [next(rows) for _ in range(count)]
        assert not mask[count:].any()
        assert np.diff(sequence[:count]).tolist() == [1.0] * (count - 1)
    assert next(rows, None) is None


@pytest.mark.parametrize("numpy", [False, True])
def test_a_lengthened_copy_does_not_write_into_room_behind_the_chunk(numpy: bool) -> None:
    play = Play(1, 9)
    episode = episode_of(Chunk(play, 0, 4), numpy=numpy)
    for t in range(4, 6):  # now arrays have room to grow
        episode.add_env_step(
            KINDS["vector"](play.observation(t + 1)),
            play.action(t),
            play.reward(t),
            extra_model_outputs={"action_logp": np.float32(0), "state_out": {"h": np.zeros(1, np.float32)}},
        )
    first = episode[:3]
    run([AddOneStep(), *PIECES], [first, episode])
    assert [float(row[0]) for row in np.asarray(episode.get_observations())] == [100.0 + t for t in range(7)]
    assert [float(reward) for reward in episode.get_rewards()] == [play.reward(t) for t in range(6)]


def test_two_chunks_of_one_episode_each_get_a_row_and_a_name_of_their_own() -> None:
    play = Play(2, 7, truncated=True)
    episodes = episodes_of([Chunk(play, 0, 3), Chunk(play, 3, 7, 1)])
    given = list(episodes)
    batch = AddOneStep()(batch={}, episodes=given)
    assert [episode.id_ for episode in given] == ["e2_0", "e2_1"]
    assert [episode.id_ for episode in episodes] == ["e2", "e2"]
    assert batch["loss_mask"].arrays.tolist() == [True] * 3 + [False] + [True] * 4 + [False]
    assert batch["truncateds"].arrays.nonzero()[0].tolist() == [2, 7]
    assert {key: [len(rows) for rows in items] for key, items in batch["terminateds"].items()} == {
        ("e2_0",): [4],
        ("e2_1",): [5],
    }


def test_names_stay_where_each_episode_is_there_once() -> None:
    given = episodes_of([Chunk(Play(1, 3), 0, 3), Chunk(Play(2, 3), 0, 3)])
    AddOneStep()(batch={}, episodes=given)
    assert [episode.id_ for episode in given] == ["e1", "e2"]


@pytest.mark.parametrize("numpy", [False, True])
def test_a_lengthened_episode_is_consistent_in_itself(numpy: bool) -> None:
    play = Play(2, 7, terminated=True)
    given = episodes_of([Chunk(play, 2, 4, 1), Chunk(play, 4, 7, 2)], numpy=numpy)
    AddOneStep()(batch={}, episodes=given)
    for episode, (t_started, t, truncated) in zip(given, [(2, 5, True), (4, 8, False)], strict=True):
        episode.validate()
        assert (episode.t_started, episode.t, episode.is_truncated) == (t_started, t, truncated)
        assert episode.get_infos(-1) == episode.get_infos(-2) == {"t": t - 1}
        assert episode.get_extra_model_outputs("state_out", -1) == {"h": [2000.0 + t - 1]}
    assert [episode.is_terminated for episode in given] == [False, True]


def test_custom_pieces_find_rows_of_the_episodes_that_they_see() -> None:
    class Doubled(Connector):
        def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
            for episode in self.single_agent_episode_iterator(episodes):
                actions = episode.get_actions()
                self.add_n_batch_items(batch, "doubled", [2 * a for a in actions], len(episode), episode)
            return batch

    play = Play(1, 5)
    episodes = episodes_of([Chunk(play, 0, 2), Chunk(play, 2, 5)])
    batch = run([AddOneStep(), Doubled(), AddColumns(), BatchItems()], episodes)
    assert batch["doubled"].tolist() == (2 * batch["actions"]).tolist()
    assert len(batch["doubled"]) == 7


def test_what_a_piece_writes_into_a_lengthened_copy_is_what_the_batch_has() -> None:
    class Shifted(Connector):
        def __call__(self, *, batch: dict[str, Any], episodes: Sequence[Any], **kwargs: Any) -> dict[str, Any]:
            for episode in episodes:
                episode.set_actions(new_data=5, at_indices=-1)
                episode.set_rewards(new_data=7.0, at_indices=0)
                episode.set_observations(new_data=np.array([1, 2], np.float32), at_indices=-2)
                episode.set_extra_model_outputs(key="action_logp", new_data=np.float32(-9), at_indices=1)
            return batch

    for numpy in (False, True):
        episodes = episodes_of([Chunk(Play(1, 5), 1, 4, 1)], numpy=numpy)
        batch = run([AddOneStep(), Shifted(), *PIECES, BatchItems()], episodes)
        assert batch["actions"].tolist() == [51, 52, 53, 5]
        assert batch["rewards"].tolist() == [7.0, Play(1, 5).reward(2), Play(1, 5).reward(3), 0.0]
        assert batch["obs"][:, 0].tolist() == [101, 102, 103, 1]
        assert batch["new_obs"][:, 0].tolist() == [102, 103, 1, 104]
        assert batch["action_logp"][1] == -9
        assert episodes[0].get_actions(-1) == 53


@pytest.mark.parametrize("numpy", [False, True])
def test_rows_are_read_behind_a_lengthened_copy_as_in_it(numpy: bool) -> None:
    plays = [Chunk(Play(1, 5), 1, 4, 1), Chunk(Play(2, 1, terminated=True), 0, 1)]
    given = episodes_of(plays, numpy=numpy)
    AddOneStep()(batch={}, episodes=given)
    reads = [("observations", 0), ("observations", 1), ("actions", 0), ("rewards", 0)]
    behind = [rows_of(given, name, "", first) for name, first in reads]
    for episode in given:
        episode.validate()  # now everything is copied
    for (name, first), rows in zip(reads, behind, strict=True):
        assert_same(rows, rows_of(given, name, "", first))
    assert behind[0][:, 0].tolist() == slow.columns(plays, one_more=True)["obs"]


@pytest.mark.parametrize("numpy", [False, True])
def test_lengthened_copies_can_be_copied_and_pickled_themselves(numpy: bool) -> None:
    given = episodes_of([Chunk(Play(1, 5, truncated=True), 1, 5, 1)], numpy=numpy)
    given[0].custom_data["mine"] = [1]
    AddOneStep()(batch={}, episodes=given)
    longer = given[0]
    for again in (copy.copy(longer), copy.deepcopy(longer), pickle.loads(pickle.dumps(longer))):
        assert len(again) == 5
        assert again.is_numpy == numpy
        np.testing.assert_equal(again.get_state(), longer.get_state())
    assert not hasattr(longer, "no_such_thing")


def test_the_list_of_the_user_stays_as_it_is() -> None:
    episodes = episodes_of([Chunk(Play(1, 2), 0, 2)])
    before = list(episodes)
    inner = ConnectorPipeline([AddOneStep(), AddObservations(as_learner_connector=True)])
    batch = ConnectorPipeline([inner, AddColumns()])(batch={}, episodes=episodes)
    assert {len(column.arrays) for column in batch.values()} == {3}  # pieces behind an inner pipeline see its steps too
    assert all(one is other for one, other in zip(episodes, before, strict=True))


def test_one_step_goes_first_and_into_a_list() -> None:
    episodes = episodes_of([Chunk(Play(1, 2), 0, 2)])
    batch = AddColumns()(batch={}, episodes=episodes)
    message = (
        "AddOneStep: batch must have no rows yet, got ['action_logp', 'actions', 'rewards', 'terminateds', "
        "'truncateds']; put it first in the pipeline"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AddOneStep()(batch=batch, episodes=episodes)
    message = "AddOneStep: episodes must be a list, whose items are replaced, got tuple"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        AddOneStep()(batch={}, episodes=tuple(episodes))
    assert [len(episode) for episode in episodes] == [2]
