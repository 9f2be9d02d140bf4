"""Stacks of frames: what acts sees what learns, and what the buffer samples."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback import ReplayBuffer, SingleAgentEpisode, stack_last
from ringback.connectors import AddNextObservations, AddObservations, ConnectorPipeline, FrameStack, NStepReturns
from ringback.errors import EpisodeError
from tests.connectors.making import FORMS, OBSERVATION_SPACES, Chunks, assert_same, chunks, episode, rows_of, story
from tests.reference import connectors as slow
from tests.reference.connectors import Cut

DEPTHS = st.integers(1, 5)
FILLS: Any = st.sampled_from(["first", 0, 1])


def sees_all(cut: Cut, times: list[int], depth: int) -> bool:
    """Whether a chunk holds all that stacks at these times need."""
    return all(max(t - depth + 1, 0) >= cut.oldest for t in times)


@given(chunks(), DEPTHS, FILLS, FORMS)
def test_acting_stacks_are_those_of_the_loop(made: Chunks, depth: int, fill: Any, form: str) -> None:
    piece, episodes = FrameStack(depth, fill), made.episodes(form)
    if not all(sees_all(cut, [cut.stop], depth) for cut in made.cuts):
        with pytest.raises(EpisodeError, match=r"FrameStack: the lookback must hold \d+ steps? at t = \d+, got \d+"):
            piece(batch={}, episodes=episodes)
        return
    batch = piece(batch={}, episodes=episodes)
    assert_same(batch["obs"], slow.stacked([slow.frames(cut.story, cut.stop, depth, fill) for cut in made.cuts]))
    assert_same(batch["obs"], slow.stacked([stack_last(e, depth, fill) for e in made.episodes("arrays")]))


@given(chunks(least_steps=1), DEPTHS, FILLS, FORMS)
def test_learning_stacks_are_those_of_the_loop(made: Chunks, depth: int, fill: Any, form: str) -> None:
    piece, episodes = FrameStack(depth, fill, as_learner_connector=True), made.episodes(form)
    if not all(sees_all(cut, slow.times(cut, True), depth) for cut in made.cuts):
        with pytest.raises(EpisodeError, match=r"FrameStack: the lookback must hold \d+ steps? at t = \d+, got \d+"):
            piece(batch={}, episodes=episodes)
        return
    rows = [slow.frames(cut.story, t, depth, fill) for cut in made.cuts for t in slow.times(cut, True)]
    column = piece(batch={}, episodes=episodes)["obs"]
    assert_same(column, slow.stacked(rows))
    assert rows_of(column, episodes) == [len(one) for one in episodes]


@given(chunks(least_steps=1, full_lookback=True), DEPTHS, FORMS)
def test_next_observations_are_stacked_too(made: Chunks, depth: int, form: str) -> None:
    added = [AddObservations(as_learner_connector=True), AddNextObservations()]
    pipeline = ConnectorPipeline([*added, FrameStack(depth, as_learner_connector=True)])
    batch = pipeline(episodes=made.episodes(form))
    steps = [(cut.story, t) for cut in made.cuts for t in slow.times(cut, True)]
    assert_same(batch["obs"], slow.stacked([slow.frames(whole, t, depth, "first") for whole, t in steps]))
    assert_same(batch["new_obs"], slow.stacked([slow.frames(whole, t + 1, depth, "first") for whole, t in steps]))


@given(chunks(least_steps=1, full_lookback=True), DEPTHS, st.integers(1, 4), st.booleans())
def test_so_are_those_n_steps_later(made: Chunks, depth: int, n: int, stack_first: bool) -> None:
    added = [AddObservations(as_learner_connector=True), AddNextObservations()]
    stack, sums = FrameStack(depth, as_learner_connector=True), NStepReturns(n_step=n, gamma=0.5)
    batch = ConnectorPipeline([*added, *([stack, sums] if stack_first else [sums, stack])])(episodes=made.episodes())
    rows = []
    for cut in made.cuts:
        rows += [slow.frames(cut.story, min(t + n, cut.stop), depth, "first") for t in slow.times(cut, True)]
    assert_same(batch["new_obs"], slow.stacked(rows))


def test_what_acts_sees_what_the_buffer_samples() -> None:
    buffer = ReplayBuffer(50, OBSERVATION_SPACES["box"], gym.spaces.Discrete(7, start=-3), seed=0)
    whole = story(3, 9)
    acting, chunk = [], episode(Cut(whole, 0, 0, 0))
    for t in range(9):
        acting.append(FrameStack(4)(batch={}, episodes=[chunk])["obs"].arrays[0])
        chunk.add_env_step(whole.observations[t + 1], whole.actions[t], whole.rewards[t], terminated=t == 8)
        if t % 3 == 2:
            buffer.add_episode(chunk)
            learning = FrameStack(4, as_learner_connector=True)(batch={}, episodes=[chunk])["obs"].arrays
            np.testing.assert_array_equal(learning, acting[-3:])
            chunk = chunk.cut(3) if t < 8 else chunk
    sampled = buffer.sample_transitions(9, stack=4)
    assert set(sampled.ids) == set(range(9))
    np.testing.assert_array_equal(sampled.observations, np.array(acting)[sampled.ids])


def test_only_the_named_leaves_are_stacked() -> None:
    piece = FrameStack({"camera": 3, "place": 2}, input_observation_space=OBSERVATION_SPACES["dict"])
    chunk = episode(Cut(story(1, 5, "dict"), 2, 4, 1), "dict")
    column = piece(batch={}, episodes=[chunk])["obs"].arrays
    assert {key: leaf.shape for key, leaf in column.items()} == {
        "camera": (1, 3, 2, 2),
        "mode": (1, 1),
        "place": (1, 2, 2),
        "wheels": (1, 2),
    }
    assert column["place"][0, :, 0].tolist() == [103, 104]
    assert column["camera"][0, :, 0, 0].tolist() == [1 + 102, 1 + 103, 1 + 104]
    assert column["mode"].tolist() == [[1 + 104 % 4]]
    assert_same(column, slow.stacked([stack_last(chunk, {"camera": 3, "place": 2})]))
    assert piece.lookback == 2
    assert piece.observation_space is not None
    assert piece.observation_space.contains({key: leaf[0] for key, leaf in column.items()})


@pytest.mark.parametrize("kind", sorted(OBSERVATION_SPACES))
def test_the_output_space_holds_the_stacks(kind: str) -> None:
    piece = FrameStack(3, input_observation_space=OBSERVATION_SPACES[kind])
    column = piece(batch={}, episodes=[episode(Cut(story(0, 2, kind), 0, 2, 0), kind)])["obs"]
    assert piece.observation_space is not None
    assert piece.observation_space.contains(column[next(iter(column))][0])


def test_the_box_of_an_image_has_a_leading_axis() -> None:
    space = FrameStack(3, input_observation_space=gym.spaces.Box(0, 255, (5, 4), np.uint8)).observation_space
    assert space == gym.spaces.Box(0, 255, (3, 5, 4), np.uint8)


@pytest.mark.parametrize("learner", [False, True])
@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_stacks_are_a_copy(depth: int, arrays: bool, learner: bool) -> None:
    chunk = episode(Cut(story(1, 5), 2, 4, 2), arrays=arrays)
    FrameStack(depth, as_learner_connector=learner)(batch={}, episodes=[chunk])["obs"].arrays[:] = -1
    before = chunk.get_observations(slice(-2, 3), neg_index_as_lookback=True)
    assert [float(row[0]) for row in before] == [100, 101, 102, 103, 104]


def test_what_a_lookback_holds_from_before_the_first_step_is_not_read() -> None:
    made = SingleAgentEpisode(observations=[-1, 0, 1, 2], actions=[0, 0, 0], rewards=[0.5] * 3, len_lookback_buffer=1)
    assert FrameStack(4)(batch={}, episodes=[made])["obs"].arrays[0, :, 0].tolist() == [0, 0, 1, 2]


def test_an_episode_without_observation_is_refused() -> None:
    with pytest.raises(EpisodeError, match="FrameStack: each episode must be reset first, got one without observation"):
        FrameStack(2)(batch={}, episodes=[SingleAgentEpisode(observations=[1]), SingleAgentEpisode()])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0,), "FrameStack: num_frames must be >= 1, got 0"),
        (({},), "FrameStack: num_frames must name a leaf, got {}"),
        ((2, "last"), "FrameStack: fill must be 'first' or a number, got 'last'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        FrameStack(*arguments)


def test_a_leaf_that_is_not_there_is_refused_with_and_without_a_space() -> None:
    text = re.escape(
        "FrameStack: num_frames must name leaves among ['camera', 'mode', 'place', 'wheels'], got ['left']"
    )
    with pytest.raises(ValueError, match=text):
        FrameStack({"left": 2}, input_observation_space=OBSERVATION_SPACES["dict"])
    with pytest.raises(ValueError, match=text):
        FrameStack({"left": 2})(batch={}, episodes=[episode(Cut(story(0, 1, "dict"), 0, 1, 0), "dict")])


def test_a_fill_that_the_dtype_cannot_hold_is_refused() -> None:
    text = "FrameStack: fill must fit the dtype uint8, got -1"
    with pytest.raises(ValueError, match=re.escape(text)):
        FrameStack(2, fill=-1)(batch={}, episodes=[episode(Cut(story(0, 1, "image"), 0, 1, 0), "image")])
