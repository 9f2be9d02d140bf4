"""The state before each step, the time axis, and sequences."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ringback import ReplayBuffer, SingleAgentEpisode
from ringback.connectors import (
    AddColumns,
    AddNextObservations,
    AddObservations,
    AddStates,
    AddTimeDim,
    BatchItems,
    ConnectorPipeline,
    FrameStack,
    PreviousActionsRewards,
    RemoveTimeDim,
    SampleActions,
    ToNumpy,
    ToTensor,
)
from ringback.connectors.columns import row_count
from ringback.episodes.recurrent_states import newest_states, states_before
from ringback.errors import EpisodeError
from tests.connectors.making import (
    FORMS,
    INITIAL,
    Chunks,
    assert_same,
    chunks,
    episode,
    leaves_of,
    rows_of,
    state,
    story,
)
from tests.reference import connectors as slow
from tests.reference.connectors import Cut


def lost(cut: Cut, learner: bool) -> bool:
    """Whether the state before the chunk's first row is not to be seen any more."""
    first = min(slow.times(cut, learner), default=0)
    return first > 0 and first == cut.start and not cut.lookback


class Module:
    """A module that says what RLlib's say."""

    def __init__(self, stateful: bool = True, **config: Any) -> None:
        self.model_config = config
        self.stateful = stateful

    def is_stateful(self) -> bool:
        return self.stateful

    def get_initial_state(self) -> Any:
        return {"h": torch.tensor([-7.0, -8.0]), "c": (torch.tensor(-9.0, requires_grad=True),)}


# ------------------------------------------------------------------ states


@given(chunks(), st.booleans(), st.booleans(), FORMS)
def test_the_state_before_a_step_is_what_came_out_of_the_one_before(
    made: Chunks, learner: bool, of_module: bool, form: str
) -> None:
    piece = AddStates(initial_state=None if of_module else INITIAL, as_learner_connector=learner)
    rows = [slow.state_before(cut.story, t, INITIAL) for cut in made.cuts for t in slow.times(cut, learner)]
    # Stories without a step have no states at all, so that none can be lost.
    if any(cut.story.steps and lost(cut, learner) and slow.times(cut, learner) for cut in made.cuts):
        with pytest.raises(EpisodeError, match=r"AddStates: the lookback must hold 1 step at t = \d+, got 0"):
            piece(rl_module=Module(), batch={}, episodes=made.episodes(form))
        return
    batch = piece(rl_module=Module() if of_module else None, batch={}, episodes=made.episodes(form))
    assert set(batch) == ({"state_in"} if rows else set())
    if rows:
        assert_same(batch["state_in"], slow.stacked(rows))


@pytest.mark.parametrize("arrays", [False, True])
def test_states_are_those_that_the_buffer_stores(arrays: bool) -> None:
    whole, initial = story(2, 6), np.array([-7, -8], np.float32)
    buffer = ReplayBuffer(20, 3, gym.spaces.Discrete(7, start=-3), extras={"state_in": (2,)})
    learning, acting = [], []
    chunk = episode(Cut(whole, 0, 0, 0))
    for t in range(6):
        acting += AddStates(initial_state=initial)(batch={}, episodes=[chunk])["state_in"].arrays.tolist()
        outputs = {"state_out": whole.states[t]["h"]}
        chunk.add_env_step(whole.observations[t + 1], whole.actions[t], 0.5, extra_model_outputs=outputs)
        if t in (1, 2, 5):
            following = chunk.cut(1)
            done = chunk.to_numpy() if arrays else chunk
            buffer.add_episode(done, initial_state={"state_in": initial} if t == 1 else None)
            piece = AddStates(initial_state=initial, as_learner_connector=True)
            learning += piece(batch={}, episodes=[done])["state_in"].arrays.tolist()
            chunk = following
    assert buffer.get(range(6)).extras["state_in"].tolist() == learning == acting
    assert learning == [[-7, -8], *([200 + t, -200 - t] for t in range(1, 6))]


def test_a_module_that_is_not_stateful_gets_none() -> None:
    made = SingleAgentEpisode(observations=[5])
    for piece in (AddStates(), AddTimeDim(), AddTimeDim(as_learner_connector=True)):
        assert piece(rl_module=Module(stateful=False), batch={"obs": [5]}, episodes=[made]) == {"obs": [5]}


def test_a_column_that_is_there_stays() -> None:
    there: Any = {"state_in": np.array([[1.0]])}
    assert AddStates(initial_state=np.zeros(1))(batch=there, episodes=[SingleAgentEpisode(observations=[5])]) is there


def test_episodes_without_states_have_the_initial_one_before_every_step() -> None:
    made = SingleAgentEpisode(observations=[5, 6, 7], actions=[0, 0], rewards=[0.5, 0.5], len_lookback_buffer=0)
    later = made.cut()
    piece = AddStates(initial_state=np.array([3.0]))
    assert piece(batch={}, episodes=[made, later])["state_in"].arrays.tolist() == [[3], [3]]
    piece = AddStates(initial_state=np.array([3.0]), as_learner_connector=True)
    assert piece(batch={}, episodes=[made])["state_in"].arrays.tolist() == [[3], [3]]


def test_what_a_lookback_holds_from_before_the_first_step_is_not_read() -> None:
    made = SingleAgentEpisode(
        observations=[5, 6], actions=[0], rewards=[0.5], extra_model_outputs={"state_out": [np.array([99.0])]}
    )
    for learner in (False, True):
        piece = AddStates(initial_state=np.array([3.0]), as_learner_connector=learner)
        assert piece(batch={}, episodes=[made])["state_in"].arrays.tolist() == [[3]]
        made.add_env_step(7, 0, 0.5, extra_model_outputs={"state_out": np.array([4.0])})


def test_a_missing_initial_state_is_said() -> None:
    text = "AddStates: initial_state must be given for a module without get_initial_state(), got SimpleNamespace"
    with pytest.raises(ValueError, match=re.escape(text)):
        AddStates()(rl_module=SimpleNamespace(), batch={}, episodes=[SingleAgentEpisode(observations=[5])])


@given(chunks(least_steps=1, full_lookback=True), FORMS)
def test_next_states_come_with_next_observations(made: Chunks, form: str) -> None:
    pieces = [AddNextObservations(), AddStates(initial_state=INITIAL, as_learner_connector=True)]
    batch = ConnectorPipeline(pieces)(episodes=made.episodes(form))
    rows = [cut.story.states[t] for cut in made.cuts for t in slow.times(cut, True)]
    assert_same(batch["next_state_in"], slow.stacked(rows))


def test_a_state_that_is_lost_is_refused_wherever_states_are_read() -> None:
    chunk = episode(Cut(story(1, 6), 3, 5, 0))
    text = "^here: the lookback must hold 1 step at t = 3, got 0$"
    for read in (states_before, lambda chunk, *rest: newest_states([chunk.cut()], *rest)):
        with pytest.raises(EpisodeError, match=text.replace("3", "5") if read is not states_before else text):
            read(chunk, lambda: INITIAL, "here")
    found = states_before(chunk, lambda: INITIAL, "here", unseen=lambda: state(77))
    assert_same(found, slow.stacked([state(77), state(104)]))


# ------------------------------------------------------------------ sequences


@given(chunks(least_steps=1, full_lookback=True), st.integers(1, 8), st.booleans(), st.booleans(), FORMS)
def test_sequences_are_those_of_the_loop(
    made: Chunks, longest: int, of_config: bool, states_first: bool, form: str
) -> None:
    time = AddTimeDim(max_seq_len=None if of_config else longest, as_learner_connector=True)
    states = AddStates(initial_state=INITIAL, as_learner_connector=True)
    pieces = [
        AddObservations(as_learner_connector=True),
        AddColumns(),
        PreviousActionsRewards(as_learner_connector=True),
    ]
    pipeline = ConnectorPipeline([*pieces, *([states, time] if states_first else [time, states])])
    module = Module(max_seq_len=longest) if of_config else Module()
    episodes = made.episodes(form)
    batch = pipeline(rl_module=module, episodes=episodes)

    rows = [(cut, t) for cut in made.cuts for t in slow.times(cut, True)]
    lengths = [cut.stop - cut.start for cut in made.cuts]
    observations = [cut.story.observations[t] for cut, t in rows]
    column, mask, lens, first = slow.sequences(observations, lengths, longest)
    assert_same(batch["obs"], column)
    assert_same(batch["loss_mask"], mask)
    assert batch["seq_lens"].arrays.tolist() == lens.tolist()
    want = [slow.previous_actions(cut.story, t, 1, made.action_space, True) for cut, t in rows]
    assert_same(batch["prev_actions"], slow.sequences(want, lengths, longest)[0])
    rewards = [np.float32(cut.story.rewards[t]) for cut, t in rows]
    assert_same(batch["rewards"], slow.sequences(rewards, lengths, longest)[0])
    before = [slow.state_before(rows[k][0].story, rows[k][1], INITIAL) for k in first]
    assert_same(batch["state_in"], slow.stacked(before))
    assert rows_of(batch["obs"], episodes) == [-(-length // longest) for length in lengths]


def test_without_a_length_each_episode_is_one_sequence() -> None:
    made = [episode(Cut(story(k, steps), 0, steps, 0)) for k, steps in ((1, 2), (2, 5), (3, 1))]
    pieces = [AddObservations(as_learner_connector=True), AddTimeDim(as_learner_connector=True), BatchItems()]
    batch = ConnectorPipeline(pieces)(episodes=made)
    assert batch["obs"][..., 0].tolist() == [[100, 101, 0, 0, 0], [200, 201, 202, 203, 204], [300, 0, 0, 0, 0]]
    assert batch["seq_lens"].tolist() == [2, 5, 1]


def test_padding_does_not_leak_into_a_running_sum() -> None:
    # A network that adds up what it sees: its last states are those at the true ends, by the mask.
    made = [
        SingleAgentEpisode(
            observations=[*row, 9], actions=[0] * len(row), rewards=[0.0] * len(row), len_lookback_buffer=0
        )
        for row in ([1, 2, 3], [1, 1, 1, 1])
    ]
    pieces = [AddObservations(as_learner_connector=True), AddTimeDim(max_seq_len=4, as_learner_connector=True)]
    batch = ConnectorPipeline([*pieces, BatchItems()])(episodes=made)
    assert batch["obs"].tolist() == [[1, 2, 3, 0], [1, 1, 1, 1]]
    state = np.zeros(2, int)
    for t in range(4):
        state = np.where(batch["loss_mask"][:, t], state + batch["obs"][:, t], state)
    assert state.tolist() == [6, 4]
    assert np.cumsum(batch["obs"], 1)[[0, 1], batch["seq_lens"] - 1].tolist() == [6, 4]


def test_a_mask_of_steps_that_is_there_is_padded() -> None:
    made = episode(Cut(story(1, 3), 0, 3, 0))
    batch: Any = {"loss_mask": {(made.id_,): [True, False, True]}, "infos": {(made.id_,): [{}, {}, {}]}}
    batch = AddTimeDim(max_seq_len=2, as_learner_connector=True)(batch=batch, episodes=[made])
    assert batch["loss_mask"].arrays.tolist() == [[True, False], [True, False]]
    assert batch["infos"] == {(made.id_,): [{}, {}, {}]}


def test_a_column_without_one_row_a_step_is_named() -> None:
    made = episode(Cut(story(1, 3), 0, 3, 0))
    text = "AddTimeDim: column 'extra' must have one row a step (3), got 2"
    with pytest.raises(ValueError, match=re.escape(text)):
        AddTimeDim(as_learner_connector=True)(batch={"extra": [1, 2]}, episodes=[made])
    with pytest.raises(ValueError, match="AddTimeDim: max_seq_len must be >= 1, got 0"):
        AddTimeDim(max_seq_len=0, as_learner_connector=True)
    with pytest.raises(ValueError, match="max_seq_len must be None unless as_learner_connector=True, got 4"):
        AddTimeDim(max_seq_len=4)


LEARNING: dict[str, Any] = {
    "AddObservations": AddObservations(as_learner_connector=True),
    "AddColumns": AddColumns(),
    "AddNextObservations": AddNextObservations(),
    "FrameStack": FrameStack(2, as_learner_connector=True),
    "PreviousActionsRewards": PreviousActionsRewards(as_learner_connector=True),
}


@pytest.mark.parametrize("name", LEARNING)
def test_what_has_one_row_a_step_is_refused_behind_the_sequences(name: str) -> None:
    made = [episode(Cut(story(1, 3), 0, 3, 0))]
    there = [] if name == "AddObservations" else [LEARNING["AddObservations"]]
    text = f"^{name}: batch must have no time axis yet, got one; put it before AddTimeDim\\(\\)$"
    for arrays in ([], [BatchItems()], [ToTensor()]):
        pieces = [*there, AddTimeDim(max_seq_len=2, as_learner_connector=True), *arrays, LEARNING[name]]
        with pytest.raises(ValueError, match=text):
            ConnectorPipeline(pieces)(episodes=made)
        # Nothing to refuse where there are no sequences.
        batch = ConnectorPipeline(pieces)(episodes=made, rl_module=Module(stateful=False))
        assert {row_count(column) for column in batch.values()} == {3}


@pytest.mark.parametrize("piece", [AddObservations(), FrameStack(2), PreviousActionsRewards()], ids=repr)
def test_what_has_one_row_an_episode_is_refused_behind_the_time_axis(piece: Any) -> None:
    made = [episode(Cut(story(1, 3), 0, 3, 0))]
    there = [] if isinstance(piece, AddObservations) else [AddObservations()]
    text = f"^{piece.name}: batch must have no time axis yet, got one; put it before AddTimeDim\\(\\)$"
    with pytest.raises(ValueError, match=text):
        ConnectorPipeline([*there, AddTimeDim(), piece])(episodes=made)


# ------------------------------------------------------------------ acting


class Counter(torch.nn.Module):
    """A recurrent module: its state counts the steps of each episode, its logits choose the action 0."""

    def get_initial_state(self) -> Any:
        return {"h": torch.zeros(1)}

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["obs"].shape[1] == 1
        state = batch["state_in"]["h"] + 1
        logits = torch.zeros(len(state), 1, 7)
        logits[:, :, 0] = 50
        return {"action_dist_inputs": logits, "state_out": {"h": state}, "seen": batch["obs"][:, :, 0]}


@pytest.mark.parametrize("lookback", [1, 3])
def test_a_recurrent_module_acts_over_cuts(lookback: int) -> None:
    module = Counter()
    to_module = ConnectorPipeline([AddObservations(), AddTimeDim(), AddStates(), ToTensor()])
    to_env = ConnectorPipeline([ToNumpy(), RemoveTimeDim(), SampleActions()])
    made = [episode(Cut(story(k, 9), 0, 0, 0)) for k in range(3)]
    for t in range(7):
        shared: dict[str, Any] = {}
        seen = to_module(rl_module=module, episodes=made, shared_data=shared)
        assert seen["state_in"]["h"].tolist() == [[t]] * 3
        out = to_env(rl_module=module, batch=module(seen), episodes=made, explore=True, shared_data=shared)
        assert out["actions"].tolist() == [-3] * 3
        assert out["seen"].tolist() == [100 * k + t for k in range(3)]
        for k, one in enumerate(made):
            outputs = {"state_out": {"h": out["state_out"]["h"][k]}}
            one.add_env_step(story(k, 9).observations[t + 1], out["actions"][k], 0.5, extra_model_outputs=outputs)
        if t % 2:
            made = [one.cut(lookback) for one in made]


def test_the_time_axis_is_only_taken_away_where_it_was_added() -> None:
    batch = {"actions": np.array([[3]]), "state_out": np.array([[5.0]])}
    assert RemoveTimeDim()(batch=dict(batch), episodes=[], shared_data={})["actions"].tolist() == [[3]]
    shared: dict[str, Any] = {}
    made = SingleAgentEpisode(observations=[5])
    assert AddTimeDim()(batch={"obs": [5]}, episodes=[made], shared_data=shared)["obs"].tolist() == [[5]]
    removed = RemoveTimeDim()(batch=dict(batch), episodes=[made], shared_data=shared)
    assert removed["actions"].tolist() == [3]
    assert removed["state_out"].tolist() == [[5]]
    assert shared == {}


@pytest.mark.parametrize("output", [np.array([3, 4]), torch.zeros(2, 5), {"a": np.zeros((2, 1)), "b": np.zeros(2)}])
def test_an_output_without_a_time_axis_is_named_and_nothing_is_taken_away(output: Any) -> None:
    shared = {"_added_single_ts_time_rank": True}
    batch = {"actions": np.array([[3], [4]]), "vf_preds": output}
    shape = {"dict": "(2,)", "ndarray": "(2,)", "Tensor": "(2, 5)"}[type(output).__name__]
    text = (
        "RemoveTimeDim: column 'vf_preds' must have a time axis of 1 step behind the batch axis, as a module's "
        f"inputs have, got shape {shape}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        RemoveTimeDim()(batch=batch, episodes=[], shared_data=shared)
    assert batch["actions"].tolist() == [[3], [4]]
    assert shared == {"_added_single_ts_time_rank": True}


def test_acting_keeps_the_episodes_of_a_column() -> None:
    made = [episode(Cut(story(k, 2, "dict"), 0, k, 0), "dict") for k in range(3)]
    column = ConnectorPipeline([AddObservations(), AddTimeDim()])(episodes=made)["obs"]
    assert column[(made[2].id_,)][0]["place"].tolist() == [[202, 404]]
    assert leaves_of(column)["/camera"].shape == (3, 1, 2, 2)
    assert state(1)["h"].tolist() == [1, -1]
