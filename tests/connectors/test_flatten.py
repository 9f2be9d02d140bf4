"""One vector of what a module is to see."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given

from ringback.connectors import (
    AddNextObservations,
    AddObservations,
    AddTimeDim,
    BatchItems,
    ConnectorPipeline,
    Flatten,
    FrameStack,
    PreviousActionsRewards,
)
from tests.connectors.making import FORMS, OBSERVATION_SPACES, Chunks, assert_same, chunks, episode, story
from tests.reference import connectors as slow
from tests.reference.connectors import Cut


@given(chunks(least_steps=1), FORMS)
def test_vectors_are_those_of_the_loop_and_of_gymnasium(made: Chunks, form: str) -> None:
    space = made.observation_space
    added = [AddObservations(as_learner_connector=True), AddNextObservations()]
    pipeline = ConnectorPipeline([*added, Flatten()], input_observation_space=space)
    batch = pipeline(episodes=made.episodes(form))
    steps = [(cut.story, t) for cut in made.cuts for t in slow.times(cut, True)]
    assert_same(batch["obs"], slow.stacked([slow.flat(space, whole.observations[t]) for whole, t in steps]))
    assert_same(batch["new_obs"], slow.stacked([slow.flat(space, whole.observations[t + 1]) for whole, t in steps]))
    first, t = steps[0]
    np.testing.assert_array_equal(
        batch["obs"].arrays[0], np.asarray(gym.spaces.flatten(space, first.observations[t])).astype(np.float32)
    )
    assert pipeline.observation_space is not None
    assert all(pipeline.observation_space.contains(vector) for vector in batch["obs"].arrays)


@given(chunks(full_lookback=True), FORMS)
def test_other_columns_are_joined_in_the_order_given(made: Chunks, form: str) -> None:
    names = ("prev_rewards", "obs", "prev_actions")
    pipeline = ConnectorPipeline(
        [AddObservations(), PreviousActionsRewards(2, 3), Flatten(names), BatchItems()],
        input_observation_space=made.observation_space,
        input_action_space=made.action_space,
    )
    batch = pipeline(episodes=made.episodes(form))
    assert set(batch) == {"obs"}
    space = pipeline.observation_space
    assert isinstance(space, gym.spaces.Box)
    for cut, vector in zip(made.cuts, batch["obs"], strict=True):
        actions = slow.previous_actions(cut.story, cut.stop, 2, made.action_space, True)
        parts = [slow.previous_rewards(cut.story, cut.stop, 3)]
        parts += [slow.flat(made.observation_space, cut.story.observations[cut.stop])]
        parts += [
            leaf.ravel().astype(np.float32) for leaf in (actions.values() if isinstance(actions, dict) else [actions])
        ]
        np.testing.assert_array_equal(vector, np.concatenate(parts))
        assert space.contains(vector)


def test_a_time_axis_stays() -> None:
    made = [episode(Cut(story(k, 3, "dict"), 0, 3, 0), "dict") for k in (1, 2)]
    for learner, shape in ((False, (2, 1)), (True, (4, 2))):
        pipeline = ConnectorPipeline(
            [
                AddObservations(as_learner_connector=learner),
                PreviousActionsRewards(2, as_learner_connector=learner),
                AddTimeDim(max_seq_len=2 if learner else None, as_learner_connector=learner),
                Flatten(("prev_rewards", "obs")),
                BatchItems(),
            ],
            input_observation_space=OBSERVATION_SPACES["dict"],
        )
        found = pipeline(episodes=made)["obs"]
        assert found.shape == (*shape, 2 + 4 + 4 + 2 + 8)
        space = OBSERVATION_SPACES["dict"]
        first, last = made[0].get_observations(0 if learner else -1), made[1].get_observations(2 if learner else -1)
        np.testing.assert_array_equal(found[0, 0, 2:], slow.flat(space, first))
        np.testing.assert_array_equal(found[-1, 0, 2:], slow.flat(space, last))
        if learner:  # padding is no observation: no one-hot code either
            assert not found[[1, 3], 1].any()


def test_stacked_frames_are_flattened_by_their_own_space() -> None:
    made = episode(Cut(story(1, 3), 0, 2, 0))
    pipeline = ConnectorPipeline([AddObservations(), FrameStack(2), Flatten(), BatchItems()])
    pipeline.input_observation_space = OBSERVATION_SPACES["box"]
    assert pipeline(episodes=[made])["obs"].tolist() == [[101, -101, 101.5, 102, -102, 102.5]]
    assert pipeline.observation_space is not None
    assert pipeline.observation_space.shape == (6,)


def test_what_is_missing_is_said() -> None:
    batch: dict[str, Any] = {"obs": np.zeros((1, 2))}
    with pytest.raises(
        ValueError, match=re.escape("Flatten: columns must be in the batch (['obs']), got ['prev_rewards']")
    ):
        Flatten(("obs", "prev_rewards"))(batch=batch, episodes=[])
    text = "Flatten: input_observation_space must be given to flatten observations, got None"
    with pytest.raises(ValueError, match=re.escape(text)):
        Flatten()(batch=batch, episodes=[])
    with pytest.raises(ValueError, match="Flatten: columns must name a column, got none"):
        Flatten(())
    with pytest.raises(ValueError, match=re.escape("Flatten: columns must differ, got ('x', 'obs', 'x')")):
        Flatten(("x", "obs", "x"))
    space: Any = gym.spaces.Dict({"x": gym.spaces.Discrete(2)})
    wrongs: list[Any] = [(space, "Dict"), (("obs", 3), "tuple of str, int"), (None, "NoneType")]
    for wrong, got in wrongs:
        with pytest.raises(
            TypeError, match=re.escape(f"Flatten: columns must be a str or a sequence of str, got {got}")
        ):
            Flatten(wrong)
    with pytest.raises(TypeError, match="Flatten: the observation space must be made of numbers, got Text"):
        Flatten(input_observation_space=gym.spaces.Text(5))


def test_observations_are_not_thrown_away() -> None:
    batch: dict[str, Any] = {"obs": np.array([[5.0]]), "x": np.array([[1.0]]), "y": np.array([[2.0]])}
    text = "Flatten: columns must name 'obs' too where the batch has it, got ('x', 'y')"
    with pytest.raises(ValueError, match=re.escape(text)):
        Flatten(("x", "y"))(batch=batch, episodes=[])
    assert set(batch) == {"obs", "x", "y"}
    del batch["obs"]
    assert Flatten(("x", "y"))(batch=batch, episodes=[])["obs"].tolist() == [[1, 2]]


def test_the_size_of_an_unknown_column_leaves_the_space_open() -> None:
    piece = Flatten(("obs", "mine"), input_observation_space=OBSERVATION_SPACES["box"])
    assert piece.observation_space is None
    batch = piece(batch={"obs": np.zeros((1, 3)), "mine": np.ones((1, 2, 2))}, episodes=[])
    assert batch["obs"].tolist() == [[0, 0, 0, 1, 1, 1, 1]]
