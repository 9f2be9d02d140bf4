"""The column of observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given

from ringback import SingleAgentEpisode
from ringback.connectors import AddObservations, ConnectorPipeline, FrameStack, MeanStdFilter
from ringback.errors import EpisodeError
from tests.connectors.making import FORMS, Chunks, assert_same, chunks, rows_of
from tests.reference import connectors as slow


@given(chunks(), FORMS)
def test_acting_sees_the_newest_observation_of_each_episode(made: Chunks, form: str) -> None:
    batch = AddObservations()(batch={}, episodes=made.episodes(form))
    assert_same(batch["obs"], slow.stacked([cut.story.observations[cut.stop] for cut in made.cuts]))


@given(chunks(least_steps=1), FORMS)
def test_learning_sees_those_of_all_steps(made: Chunks, form: str) -> None:
    episodes = made.episodes(form)
    batch = AddObservations(as_learner_connector=True)(batch={}, episodes=episodes)
    rows = [cut.story.observations[t] for cut in made.cuts for t in slow.times(cut, True)]
    assert_same(batch["obs"], slow.stacked(rows))
    assert rows_of(batch["obs"], episodes) == [cut.stop - cut.start for cut in made.cuts]


@pytest.mark.parametrize("arrays", [False, True])
def test_the_dtype_is_that_of_the_space(arrays: bool) -> None:
    episode = SingleAgentEpisode(
        observations=[[1, 2], [3, 4]], actions=[0], rewards=[0.0], observation_space=gym.spaces.Box(-9, 9, (2,))
    )
    column = AddObservations()(batch={}, episodes=[episode.to_numpy() if arrays else episode])["obs"].arrays
    assert column.dtype == np.float32
    assert column.tolist() == [[3, 4]]


def test_observations_that_a_piece_wrote_need_not_be_in_the_space() -> None:
    episode = SingleAgentEpisode(observations=[np.array([5, 6])], observation_space=gym.spaces.Discrete(9))
    column = AddObservations()(batch={}, episodes=[episode])["obs"].arrays
    assert column.tolist() == [[5, 6]]


@pytest.mark.parametrize("learner", [False, True])
@pytest.mark.parametrize("arrays", [False, True])
def test_the_column_is_a_copy(learner: bool, arrays: bool) -> None:
    episode = SingleAgentEpisode(
        observations=[np.array([5.0]), np.array([6.0])], actions=[0], rewards=[0.5], len_lookback_buffer=0
    )
    episode = episode.to_numpy() if arrays else episode
    AddObservations(as_learner_connector=learner)(batch={}, episodes=[episode])["obs"].arrays[:] = -1
    assert [float(x[0]) for x in episode.get_observations()] == [5.0, 6.0]


def test_a_column_that_is_there_stays() -> None:
    there: Any = [7]
    assert AddObservations()(batch={"obs": there}, episodes=[SingleAgentEpisode(observations=[1])])["obs"] is there


def test_no_episodes_and_no_steps_make_no_column() -> None:
    assert AddObservations()(batch={}, episodes=[]) == {}
    assert AddObservations(as_learner_connector=True)(batch={}, episodes=[SingleAgentEpisode(observations=[1])]) == {}


@pytest.mark.parametrize("learner", [False, True])
@pytest.mark.parametrize("arrays", [False, True])
def test_an_episode_without_observation_is_refused(arrays: bool, learner: bool) -> None:
    empty = SingleAgentEpisode()
    for episodes in ([empty], [SingleAgentEpisode(observations=[1]), empty]):
        if learner:  # there is no row of it
            assert AddObservations(as_learner_connector=True)(batch={}, episodes=episodes) == {}
            continue
        if arrays:
            episodes[:-1] = [one.to_numpy() for one in episodes[:-1]]
        text = "^AddObservations: each episode must be reset first, got one without observation$"
        with pytest.raises(EpisodeError, match=text):
            AddObservations()(batch={}, episodes=episodes)


def test_pieces_that_would_undo_a_change_refuse() -> None:
    episode = SingleAgentEpisode(observations=[np.array([5.0])])
    pipeline = ConnectorPipeline([AddObservations(), MeanStdFilter(), FrameStack(2)])
    with pytest.raises(
        ValueError,
        match=r"^FrameStack: the piece must come before one that changes 'obs', got it behind MeanStdFilter$",
    ):
        pipeline(episodes=[episode])
    shared: dict[str, Any] = {}
    fine = ConnectorPipeline([AddObservations(), FrameStack(2), MeanStdFilter()])
    for _ in range(3):  # what one call says is not for the next
        assert fine(episodes=[episode], shared_data=shared)["obs"].arrays.shape == (1, 2, 1)
