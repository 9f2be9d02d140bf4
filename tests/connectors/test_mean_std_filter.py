"""Running mean and deviation: each observation counts once, whoever saw it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import random
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback import SingleAgentEpisode
from ringback.connectors import AddNextObservations, AddObservations, AddTimeDim, ConnectorPipeline, MeanStdFilter
from tests.connectors.making import OBSERVATION_SPACES, episode, story
from tests.reference import connectors as slow
from tests.reference.connectors import Cut


def see(piece: MeanStdFilter, rows: Any) -> Any:
    return piece(batch={"obs": np.asarray(rows, np.float64)}, episodes=[])["obs"]


def assert_saw(piece: MeanStdFilter, rows: Any) -> None:
    """Check that a filter has counted exactly these observations."""
    rows = np.asarray(rows, np.float64)
    assert piece.count == len(rows)
    if len(rows):
        np.testing.assert_allclose(np.ravel(piece.mean), rows.mean(0), rtol=1e-9, atol=1e-9)
    if len(rows) > 1:
        std = rows.std(0, ddof=1)
        np.testing.assert_allclose(np.ravel(piece.std), np.where(std > 0, std, 1.0), rtol=1e-9, atol=1e-9)


@given(
    st.lists(st.lists(st.integers(-4000, 4000).map(lambda n: n / 4), min_size=1, max_size=5), min_size=1, max_size=6),
    st.sampled_from([None, 1.5]),
)
def test_batches_are_normalised_by_all_that_was_seen(batches: list[list[float]], clip: float | None) -> None:
    piece, seen = MeanStdFilter(clip_by_value=clip), []
    for batch in batches:
        rows = np.array(batch)[:, None] * [1, -2] + [0, 1000]
        seen += list(rows)
        found = see(piece, rows)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, slow.normalised(list(rows), seen, clip), rtol=1e-4, atol=1e-4)
    if len({x for batch in batches for x in batch}) > 1:
        assert_saw(piece, seen)


@pytest.mark.parametrize("value", [0.1, -865.8321499460958, 1e9 + 0.1, 0.0])
def test_rounding_of_what_never_varies_is_not_blown_up(value: float) -> None:
    piece = MeanStdFilter()
    for rows in (1, 2, 3, 7):
        assert np.abs(see(piece, [[value]] * rows)).max() < 1e-6


def test_far_from_zero_nothing_is_lost() -> None:
    piece = MeanStdFilter()
    for k in range(200):
        see(piece, [[1e9 + k % 2], [1e9 - k % 2]])
    assert float(piece.std[0]) == pytest.approx(np.std([1, -1] * 100 + [0, 0] * 100, ddof=1), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_however_states_travel_each_observation_counts_once(seed: int, runners: int) -> None:
    # Runners see, states are merged in any way, sent back in any way, copies of runners go on: against all that was
    # seen by those that a filter has heard of.
    rng = random.Random(seed)
    pieces = [MeanStdFilter() for _ in range(runners)]
    known: list[set[int]] = [set() for _ in pieces]  # which observations each one must have counted
    seen: list[float] = []
    for _ in range(rng.randrange(3, 25)):
        k, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        what = rng.choice(["see", "see", "merge", "merge twice", "broadcast", "copy", "pickle"])
        if what == "see":
            rows = [rng.uniform(-5, 5) * 10 ** rng.randrange(3) for _ in range(rng.randrange(1, 4))]
            see(pieces[k], np.array(rows)[:, None])
            known[k] |= set(range(len(seen), len(seen) + len(rows)))
            seen += rows
        elif what.startswith("merge"):
            states = [pieces[other].get_state()] * (1 + what.endswith("twice"))
            state = pieces[k].merge_states([*states, pieces[k].get_state()])
            assert state["runs"].keys() == pieces[k].get_state()["runs"].keys()
            known[k] |= known[other]
        elif what == "broadcast":
            state = pieces[k].merge_states([piece.get_state() for piece in pieces])
            everything = set().union(*known)
            for position, piece in enumerate(pieces):
                if position != k:
                    piece.set_state(state)
                known[position] = set(everything)
        elif len(pieces) < 6:
            copied = copy.deepcopy(pieces[k]) if what == "copy" else pickle.loads(pickle.dumps(pieces[k]))
            pieces.append(copied)
            known.append(set(known[k]))
    for piece, indices in zip(pieces, known, strict=True):
        assert_saw(piece, np.array([seen[i] for i in sorted(indices)])[:, None])


def test_rounds_of_merging_and_broadcasting_do_not_grow_the_state() -> None:
    pieces, seen = [MeanStdFilter() for _ in range(3)], []
    for turn in range(10):
        for k, piece in enumerate(pieces):
            rows = [[turn + k / 10.0], [k - turn]]
            see(piece, rows)
            seen += rows
        state = MeanStdFilter().merge_states([piece.get_state() for piece in pieces])
        for piece in pieces:
            piece.set_state(state)
    assert len(state["runs"]) == 3
    for piece in pieces:
        assert_saw(piece, seen)


def test_rounds_with_play_in_between_do_not_grow_the_state() -> None:
    # What was seen between the state and its coming back is forgotten, by all: the state says less.
    pieces = [MeanStdFilter() for _ in range(2)]
    learner = MeanStdFilter()
    kept: list[Any] = []
    for turn in range(50):
        states = []
        for k, piece in enumerate(pieces):
            rows = [[turn + k / 10.0], [k - turn]]
            see(piece, rows)
            kept += rows
            states.append(piece.get_state())
        for piece in pieces:
            see(piece, [[1000.0 + turn]])
        state = pieces[0].merge_states(states) if turn % 2 else learner.merge_states(states)
        if turn % 2:
            # The first filter merges by itself, so that it still knows what it saw.
            kept.append([1000.0 + turn])
        for piece in pieces:
            piece.set_state(state)
        assert len(state["runs"]) == 2
        for piece in pieces:
            assert_saw(piece, kept)
    # Who heard of what was forgotten forgets it at the next merge.
    learner.merge_states([piece.get_state() for piece in pieces])
    assert len(learner.get_state()["runs"]) == 2
    assert_saw(learner, kept)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_however_filters_go_back_each_observation_counts_once_at_most(seed: int, runners: int) -> None:
    # States go to any filter at any time, old ones too. Against sets: what a filter has of each runner is what that
    # runner had at some moment, and after a merge the latest.
    rng = random.Random(seed)
    pieces = [MeanStdFilter() for _ in range(runners)]
    seen: list[float] = []
    moments: list[dict[int, tuple[int, frozenset[int]]]] = [{} for _ in pieces]  # runner: (when, what it saw)
    kept: list[tuple[Any, dict[int, tuple[int, frozenset[int]]]]] = []
    for now in range(rng.randrange(3, 60)):
        k = rng.randrange(runners)
        what = rng.choice(["see", "see", "see", "keep", "keep", "set", "set", "merge", "reset"])
        if what == "see":
            seen.append(rng.uniform(-5, 5))
            see(pieces[k], [[seen[-1]]])
            moments[k][k] = now, moments[k].get(k, (0, frozenset()))[1] | {len(seen) - 1}
        elif what == "keep":
            kept.append((pieces[k].get_state(), dict(moments[k])))
        elif what == "reset" and rng.random() < 0.3:
            pieces[k].reset_state()
            moments[k] = {}
        elif kept:
            state, there = rng.choice(kept[-4:])
            if what == "set":
                pieces[k].set_state(state)
                moments[k] = dict(there)
            elif what == "merge":
                pieces[k].merge_states([state])
                moments[k] = {
                    one: max((side.get(one, (-1, frozenset())) for side in (moments[k], there)), key=lambda x: x[0])
                    for one in moments[k].keys() | there
                }
        for piece, mine in zip(pieces, moments, strict=True):
            indices = sorted(set().union(*(ids for _, ids in mine.values())))
            assert piece.count == len(indices)
            if indices:
                np.testing.assert_allclose(piece.mean, np.mean([seen[i] for i in indices]), rtol=1e-9, atol=1e-9)
            assert len(piece.get_state()["runs"]) <= runners


def test_means_have_the_structure_of_observations_from_a_state_alone() -> None:
    piece = MeanStdFilter()
    rows = {"a": np.array([[1.0], [3.0]]), "b": (np.array([5.0, 9.0]), np.array([1, 2]))}
    piece(batch={"obs": rows}, episodes=[])
    for other in (MeanStdFilter(), MeanStdFilter()):
        if other.count == 0:
            other.merge_states([piece.get_state()])
        np.testing.assert_equal(other.mean, {"a": np.array([2.0]), "b": (np.float64(7.0), None)})
        np.testing.assert_equal(other.std, piece.std)
    fresh = MeanStdFilter()
    fresh.set_state(piece.get_state())
    np.testing.assert_equal(fresh.mean, piece.mean)
    assert list(fresh.std) == ["a", "b"]
    again = MeanStdFilter()
    again.set_state(fresh.get_state())
    np.testing.assert_equal(again.mean, piece.mean)
    assert (MeanStdFilter().count, MeanStdFilter().mean, MeanStdFilter().std) == (0, None, None)


def test_what_is_no_state_is_refused() -> None:
    piece = MeanStdFilter()
    see(piece, [[1.0], [2.0]])
    text = "MeanStdFilter.{}: state must be one of get_state(), got keys ['x']"
    wrong: dict[str, Any] = {"x": 1}
    with pytest.raises(ValueError, match=re.escape(text.format("set_state"))):
        piece.set_state(wrong)
    with pytest.raises(ValueError, match=re.escape(text.format("merge_states"))):
        piece.merge_states([MeanStdFilter().get_state(), wrong])
    assert_saw(piece, [[1.0], [2.0]])


def test_a_state_is_taken_over_as_it_is() -> None:
    piece = MeanStdFilter()
    see(piece, [[1.0], [2.0]])
    early = copy.deepcopy(piece.get_state())
    see(piece, [[30.0]])
    late = piece.get_state()
    piece.set_state(early)
    assert_saw(piece, [[1.0], [2.0]])
    see(piece, [[7.0]])
    assert_saw(piece, [[1.0], [2.0], [7.0]])
    # Each way back begins a time of its own, also from a later one to the same state.
    middle = piece.get_state()
    for value in (8.0, 9.0):
        piece.set_state(middle)
        see(piece, [[value]])
        see(piece, [[value]])
    other = MeanStdFilter()
    other.merge_states([piece.get_state()])
    piece.set_state(middle)
    see(piece, [[4.0]])
    other.merge_states([piece.get_state()])
    assert_saw(other, [[1.0], [2.0], [7.0], [4.0]])
    piece.set_state(middle)
    see(piece, [[7.5]])
    piece.set_state(early)
    see(piece, [[7.0]])
    # What was forgotten stays so once there is more: who merges both takes the later of them.
    piece.merge_states([late])
    assert_saw(piece, [[1.0], [2.0], [7.0]])
    other = MeanStdFilter()
    other.merge_states([late])
    assert_saw(other, [[1.0], [2.0], [30.0]])
    other.merge_states([piece.get_state()])
    assert_saw(other, [[1.0], [2.0], [7.0]])


def test_what_was_seen_while_states_travelled_is_kept_by_merging() -> None:
    piece = MeanStdFilter()
    see(piece, [[1.0], [2.0]])
    state = copy.deepcopy(piece.get_state())
    see(piece, [[30.0]])
    piece.merge_states([state])
    assert_saw(piece, [[1.0], [2.0], [30.0]])


def test_reset_forgets() -> None:
    piece = MeanStdFilter()
    see(piece, [[1.0], [2.0]])
    piece.reset_state()
    assert piece.count == 0
    see(piece, [[5.0], [9.0]])
    assert_saw(piece, [[5.0], [9.0]])


def observe_in_child(piece: MeanStdFilter, value: float, results: Any) -> None:
    see(piece, [[value]])
    results.put(piece.get_state())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_copies_count_apart() -> None:
    context = multiprocessing.get_context("fork")
    piece, results = MeanStdFilter(), context.Queue()
    see(piece, [[1.0], [2.0]])
    children = [context.Process(target=observe_in_child, args=(piece, value, results)) for value in (30.0, 400.0)]
    for child in children:
        child.start()
    states = [results.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    piece.merge_states(states)
    assert_saw(piece, [[1.0], [2.0], [30.0], [400.0]])


def test_only_boxes_are_changed_and_the_space_says_so() -> None:
    pipeline = ConnectorPipeline(
        [AddObservations(), MeanStdFilter()], input_observation_space=OBSERVATION_SPACES["dict"]
    )
    made = [episode(Cut(story(k, 2, "dict"), 0, 2, 0), "dict") for k in (1, 2, 4)]
    column = pipeline(episodes=made)["obs"].arrays
    assert column["mode"].tolist() == [1 + 102 % 4, 1 + 202 % 4, 1 + 402 % 4]
    assert column["wheels"].tolist() == [[102 % 3, 102 % 5], [202 % 3, 202 % 5], [402 % 3, 402 % 5]]
    places = [[102, 204], [202, 404], [402, 804]]
    np.testing.assert_allclose(column["place"], slow.normalised(places, places, 10.0), rtol=1e-5)
    pictures = [np.full((2, 2), 1 + n % 251) for n in (102, 202, 402)]
    np.testing.assert_allclose(column["camera"], slow.normalised(pictures, pictures, 10.0), rtol=1e-5)
    space = pipeline.observation_space
    assert isinstance(space, gym.spaces.Dict)
    assert space["place"] == gym.spaces.Box(-10, 10, (2,), np.float32)
    assert space["mode"] is OBSERVATION_SPACES["dict"]["mode"]  # type: ignore[index]
    for k in range(3):
        assert space.contains({key: leaf[k] for key, leaf in column.items()})
    assert pipeline["MeanStdFilter"][0].mean["mode"] is None


def test_without_updates_nothing_is_counted_and_next_observations_never_are() -> None:
    piece = MeanStdFilter()
    see(piece, [[0.0, 0.0, 0.0], [2.0, 4.0, 8.0]])
    piece.update_stats = False
    assert see(piece, [[1.0, 2.0, 4.0]]).tolist() == [[0, 0, 0]]
    made = episode(Cut(story(0, 3), 0, 3, 0))
    pipeline = ConnectorPipeline([AddObservations(as_learner_connector=True), AddNextObservations(), piece])
    for update, count in ((False, 2), (True, 5)):
        piece.update_stats = update
        batch = pipeline(episodes=[made])
        assert piece.count == count
        mean, std = piece.mean, piece.std
        np.testing.assert_allclose(batch["new_obs"].arrays[:, 0], (np.arange(1, 4) - mean[0]) / std[0], rtol=1e-5)


@pytest.mark.parametrize(("mean", "std"), [(True, False), (False, True), (False, False)])
def test_each_half_alone(mean: bool, std: bool) -> None:
    piece = MeanStdFilter(de_mean_to_zero=mean, de_std_to_one=std, clip_by_value=None)
    found = see(piece, [[2.0], [6.0]])[:, 0]
    want = (np.array([2.0, 6.0]) - (4 if mean else 0)) / (8**0.5 if std else 1)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_nothing_counted_yet_leaves_observations_as_they_are() -> None:
    assert see(MeanStdFilter(update_stats=False), [[3.0], [40.0]]).tolist() == [[3], [10]]


def test_observations_are_written_to_the_episodes_once_each() -> None:
    space = gym.spaces.Box(-1e3, 1e3, (1,), np.float64)
    for arrays in (False, True):
        piece = MeanStdFilter(write_to_episodes=True)
        pipeline = ConnectorPipeline([piece, AddObservations()], input_observation_space=space)
        made = [SingleAgentEpisode(observation_space=space) for _ in range(2)]
        seen: list[Any] = []
        want: list[list[float]] = [[], []]
        for t in range(4):
            for k, one in enumerate(made):
                observation = np.array([100.0 * k + t * t])
                if t == 0:
                    one.add_env_reset(observation)
                else:
                    one.add_env_step(observation, 0, 0.5)
                if t == 0 and arrays:
                    one.to_numpy()
                seen.append(observation)
            batch = pipeline(episodes=made)
            rows = slow.normalised(seen[-2:], seen, 10.0)
            np.testing.assert_allclose(batch["obs"].arrays, rows, rtol=1e-5, atol=1e-6)
            for k in range(2):
                want[k].append(rows[k][0])
        for k, one in enumerate(made):
            np.testing.assert_allclose(np.ravel(one.to_numpy().get_observations()), want[k], rtol=1e-5, atol=1e-6)
            assert one.observation_space == pipeline.observation_space
            one.validate()
        assert piece.count == 8


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_would_spoil_all_are_refused(value: float) -> None:
    piece = MeanStdFilter()
    see(piece, [[1.0], [2.0]])
    with pytest.raises(ValueError, match="MeanStdFilter: observations must be finite to be counted, got NaN or inf"):
        see(piece, [[3.0], [value]])
    assert_saw(piece, [[1.0], [2.0]])


def test_a_wrong_place_and_wrong_arguments_are_said() -> None:
    made = SingleAgentEpisode(observations=[np.array([1.0])])
    text = "MeanStdFilter: batch must have 'obs', got columns []; put it behind AddObservations()"
    with pytest.raises(ValueError, match=re.escape(text)):
        MeanStdFilter()(batch={}, episodes=[made])
    text = "MeanStdFilter: batch must have no 'obs' yet to write to episodes, got columns ['obs']; put it first"
    with pytest.raises(ValueError, match=re.escape(text)):
        ConnectorPipeline([AddObservations(), MeanStdFilter(write_to_episodes=True)])(episodes=[made])
    for learner in (False, True):
        added = [AddObservations(as_learner_connector=learner), AddTimeDim(as_learner_connector=learner)]
        with pytest.raises(ValueError, match="MeanStdFilter: batch must have no time axis yet, got one; put it before"):
            ConnectorPipeline([*added, MeanStdFilter()])(episodes=[episode(Cut(story(1, 2), 0, 2, 0))])
    with pytest.raises(ValueError, match="MeanStdFilter: clip_by_value must be None or > 0, got 0"):
        MeanStdFilter(clip_by_value=0)
