"""What was done before, and what came of it."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback import SingleAgentEpisode
from ringback.connectors import BatchItems, ConnectorPipeline, PreviousActionsRewards
from ringback.errors import EpisodeError
from tests.connectors.making import ACTION_SPACES, FORMS, Chunks, assert_same, chunks, episode, story
from tests.reference import connectors as slow
from tests.reference.connectors import Cut


@given(chunks(), st.integers(0, 4), st.integers(0, 4), st.booleans(), st.booleans(), FORMS)
def test_rows_are_those_of_the_loop(
    made: Chunks, n_actions: int, n_rewards: int, one_hot: bool, learner: bool, form: str
) -> None:
    if not n_actions and not n_rewards:
        return
    piece = PreviousActionsRewards(n_actions, n_rewards, one_hot, as_learner_connector=learner)
    rows = [(cut, t) for cut in made.cuts for t in slow.times(cut, learner)]
    deepest = max(n_actions, n_rewards)
    if not all(max(t - deepest, 0) >= cut.oldest for cut, t in rows):
        with pytest.raises(EpisodeError, match=r"PreviousActionsRewards: the lookback must hold \d+ steps? at t = "):
            piece(batch={}, episodes=made.episodes(form))
        return
    batch = piece(batch={}, episodes=made.episodes(form))
    assert set(batch) == {name for name, n in (("prev_actions", n_actions), ("prev_rewards", n_rewards)) if n and rows}
    if n_actions and rows:
        space = made.action_space
        want = [slow.previous_actions(cut.story, t, n_actions, space, one_hot) for cut, t in rows]
        assert_same(batch["prev_actions"], slow.stacked(want))
    if n_rewards and rows:
        want = [slow.previous_rewards(cut.story, t, n_rewards) for cut, t in rows]
        assert_same(batch["prev_rewards"], slow.stacked(want))


@pytest.mark.parametrize("learner", [False, True])
def test_at_the_first_steps_no_action_is_none_of_the_actions(learner: bool) -> None:
    # The trap: action 0 and no action must not look alike.
    made = SingleAgentEpisode(
        observations=[5, 6, 7, 8], actions=[0, 2, 1], rewards=[1.5, 2.5, 3.5], action_space=gym.spaces.Discrete(3),
        len_lookback_buffer=0,
    )  # fmt: skip
    piece = PreviousActionsRewards(2, as_learner_connector=learner)
    batch = piece(batch={}, episodes=[made] if learner else [made[:t] for t in range(3)])
    assert batch["prev_actions"].arrays.tolist() == [
        [[0, 0, 0], [0, 0, 0]],
        [[0, 0, 0], [1, 0, 0]],
        [[1, 0, 0], [0, 0, 1]],
    ]
    assert batch["prev_rewards"].arrays.tolist() == [[0, 0], [0, 1.5], [1.5, 2.5]]


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_the_columns_are_copies(depth: int, arrays: bool) -> None:
    chunk = episode(Cut(story(1, 5), 2, 4, 2), arrays=arrays)
    chunk.action_space = None
    piece = PreviousActionsRewards(depth, one_hot=False)
    batch = piece(batch={}, episodes=[chunk])
    for column in batch.values():
        column.arrays[:] = 77
    assert list(chunk.get_rewards(slice(-2, 2), neg_index_as_lookback=True)) == [100.5, 101.5, 102.5, 103.5]
    assert list(chunk.get_actions(slice(-2, 2), neg_index_as_lookback=True)) == story(1, 5).actions[:4]


def test_the_last_block_of_the_walk_through_as_a_pipeline() -> None:
    space = gym.spaces.Dict(
        {"a": gym.spaces.Discrete(3), "b": gym.spaces.MultiDiscrete([2, 3]), "c": gym.spaces.Box(-1.0, 1.0, (2,))}
    )
    made = SingleAgentEpisode(action_space=space)
    made.add_env_reset(observation=0)
    done: list[dict[str, Any]] = [
        {"a": 2, "b": np.array([1, 2]), "c": np.array([0.5, -0.5], np.float32)},
        {"a": 0, "b": np.array([0, 1]), "c": np.array([0.25, 0.75], np.float32)},
    ]
    for t, action in enumerate(done):
        made.add_env_step(observation=t + 1, action=action, reward=t + 1.0)
    pipeline = ConnectorPipeline([PreviousActionsRewards(4, as_learner_connector=True), BatchItems()])
    stacked = pipeline(episodes=[made])["prev_actions"]
    assert {key: leaf.shape for key, leaf in stacked.items()} == {"a": (2, 4, 3), "b": (2, 4, 5), "c": (2, 4, 2)}
    assert not stacked["a"][0].any()
    assert stacked["a"][1].tolist() == [[0, 0, 0]] * 3 + [[0, 0, 1]]
    assert stacked["b"][1][-1].tolist() == [0, 1, 0, 0, 1]
    assert stacked["c"][1].tolist() == [[0, 0]] * 3 + [[0.5, -0.5]]


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("kind", sorted(ACTION_SPACES))
def test_the_spaces_of_the_columns_hold_the_rows(kind: str, one_hot: bool) -> None:
    piece = PreviousActionsRewards(3, 2, one_hot, input_action_space=ACTION_SPACES[kind])
    for t in range(3):
        batch = piece(batch={}, episodes=[episode(Cut(story(1, 4, actions=kind), 0, t, 0), actions=kind)])
        for name in ("prev_actions", "prev_rewards"):
            assert piece.column_spaces[name].contains(next(iter(batch[name].values()))[0]), (name, t)


def test_the_space_of_the_piece_does_where_episodes_have_none() -> None:
    made = SingleAgentEpisode(observations=[1, 2], actions=[4], rewards=[0.5], len_lookback_buffer=0)
    piece = PreviousActionsRewards(input_action_space=gym.spaces.Discrete(3, start=2))
    assert piece(batch={}, episodes=[made])["prev_actions"].arrays.tolist() == [[[0, 0, 1]]]


def test_without_any_space_actions_come_as_they_are() -> None:
    made = SingleAgentEpisode(observations=[1, 2], actions=[4], rewards=[0.5], len_lookback_buffer=0)
    assert PreviousActionsRewards(2, one_hot=False)(batch={}, episodes=[made])["prev_actions"].arrays.tolist() == [
        [0, 4]
    ]
    text = "PreviousActionsRewards: input_action_space must be given, or the episodes have one, got None; pass one"
    with pytest.raises(ValueError, match=re.escape(text)):
        PreviousActionsRewards()(batch={}, episodes=[made])
    text = "PreviousActionsRewards: action_space must be given, as no action says what one is like, got None"
    with pytest.raises(EpisodeError, match=re.escape(text)):
        PreviousActionsRewards(one_hot=False)(batch={}, episodes=[SingleAgentEpisode(observations=[1])])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1,), "PreviousActionsRewards: n_prev_actions must be >= 0, got -1"),
        ((1, -2), "PreviousActionsRewards: n_prev_rewards must be >= 0, got -2"),
        ((0,), "PreviousActionsRewards: n_prev_actions or n_prev_rewards must be >= 1, got 0 and 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        PreviousActionsRewards(*arguments)


def test_it_reads_as_far_back_as_the_larger_number() -> None:
    assert PreviousActionsRewards(2, 5).lookback == 5
    assert PreviousActionsRewards(3).lookback == 3
