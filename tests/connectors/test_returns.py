"""Advantages, returns to go and n-step sums in a batch: against loops, and as the replay buffer has them."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback import ReplayBuffer
from ringback.connectors import (
    AddColumns,
    AddNextObservations,
    AddObservations,
    AddOneStep,
    AddTimeDim,
    BatchItems,
    ComputeReturnsToGo,
    Connector,
    GeneralAdvantageEstimation,
    NStepReturns,
    Rows,
    ToTensor,
)
from ringback.episodes import SingleAgentEpisode
from tests.connectors.learner_chunks import (
    Array,
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

FRACTIONS = st.sampled_from([0.0, 0.5, 0.99, 1.0])
OBSERVATIONS = AddObservations(as_learner_connector=True)


class Values:
    """A module that values observation x at 3 sin(x), and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def compute_values(self, batch: dict[str, Any]) -> Any:
        self.calls += 1
        obs = batch["obs"][..., 0]
        if isinstance(obs, np.ndarray):
            return 3 * np.sin(obs.astype(np.float64))
        return 3 * obs.double().sin()


def value(observation: float) -> float:
    return 3 * math.sin(observation)


def gae(gamma: float = 0.9, lambda_: float = 0.8, **more: Any) -> GeneralAdvantageEstimation:
    return GeneralAdvantageEstimation(gamma=gamma, lambda_=lambda_, **more)


def as_arrays(column: Any) -> Array:
    (leaf,) = leaves_of(column).values()
    return leaf


def assert_close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(got, want, tolerance, tolerance)


Form = Callable[[GeneralAdvantageEstimation, int], list[Connector]]
FORMS: dict[str, Form] = {
    "by episode": lambda piece, length: [OBSERVATIONS, AddColumns(), piece],
    "arrays": lambda piece, length: [OBSERVATIONS, AddColumns(), BatchItems(), piece],
    "tensors": lambda piece, length: [OBSERVATIONS, AddColumns(), ToTensor(), piece],
    "sequences": lambda piece, length: [OBSERVATIONS, AddColumns(), time(length), piece],
    "sequences in arrays": lambda piece, length: [OBSERVATIONS, AddColumns(), time(length), BatchItems(), piece],
    "sequences in tensors": lambda piece, length: [OBSERVATIONS, AddColumns(), time(length), ToTensor(), piece],
}


def time(length: int) -> AddTimeDim:
    return AddTimeDim(max_seq_len=length, as_learner_connector=True)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(chunks(), st.booleans(), FRACTIONS, FRACTIONS, st.integers(1, 14))
def test_advantages_are_those_of_the_recursion_in_every_form_of_a_batch(
    form: str, plays: list[Chunk], numpy: bool, gamma: float, lambda_: float, length: int
) -> None:
    if not slow.steps_of(plays):
        return
    piece = gae(gamma, lambda_, normalize=False)
    batch = run([AddOneStep(), *FORMS[form](piece, length)], episodes_of(plays, numpy=numpy), Values())
    found = {name: as_arrays(batch[name]) for name in ("advantages", "value_targets", "loss_mask", "rewards")}
    advantages, targets = slow.advantages(plays, value, gamma, lambda_)
    mask = found["loss_mask"]
    for name, want in {"advantages": advantages, "value_targets": targets}.items():
        assert found[name].dtype == np.float32
        assert found[name].shape == found["rewards"].shape == mask.shape
        assert_close(found[name][mask], want)
        assert type(batch[name]) is type(batch["rewards"])
    assert not found["advantages"][~mask].any()


@settings(max_examples=60, deadline=None)
@given(chunks(), st.booleans(), FRACTIONS)
def test_normalised_advantages_are_so_over_the_steps_that_are_data(
    plays: list[Chunk], numpy: bool, gamma: float
) -> None:
    if not slow.steps_of(plays):
        return
    pieces = FORMS["sequences"](gae(gamma, 0.9), 4)
    batch = run([AddOneStep(), *pieces], episodes_of(plays, numpy=numpy), Values())
    mask, got = as_arrays(batch["loss_mask"]), as_arrays(batch["advantages"])
    advantages, targets = slow.advantages(plays, value, gamma, 0.9)
    assert_close(got[mask], slow.normalised(advantages), 1e-4)
    assert_close(as_arrays(batch["value_targets"])[mask], targets)
    assert not got[~mask].any()


def test_advantages_that_hardly_differ_are_not_blown_up() -> None:
    episode = SingleAgentEpisode(
        observations=[0, 1, 2], actions=[0, 0], rewards=[1 + 1e-5, 1 - 1e-5], terminated=True, len_lookback_buffer=0
    )
    batch = {"vf_preds": np.zeros(2), "rewards": np.array([1 + 1e-5, 1 - 1e-5])}
    batch = gae(0.0, 0.0)(batch=batch, episodes=[episode])
    assert_close(batch["advantages"], [0.1, -0.1], 1e-6)


@settings(max_examples=40, deadline=None)
@given(chunks())
def test_list_form_and_array_form_give_the_same(plays: list[Chunk]) -> None:
    if slow.steps_of(plays):
        pieces = [
            AddOneStep(),
            OBSERVATIONS,
            AddColumns(),
            AddNextObservations(),
            ComputeReturnsToGo(gamma=0.9),
            NStepReturns(n_step=3, gamma=0.9),
            BatchItems(),
            gae(),
        ]
        lists, arrays = run(pieces, episodes_of(plays), Values()), run(pieces, episodes_of(plays, numpy=True), Values())
        assert {"advantages", "value_targets", "returns_to_go", "n_steps", "discounts", "new_obs"} <= lists.keys()
        assert_same(arrays, lists)


def one_step(terminated: bool, truncated: bool) -> float:
    play = Play(0, 1, terminated, truncated)
    batch = run(
        [AddOneStep(), OBSERVATIONS, AddColumns(), gae(0.9, 0.95, normalize=False)],
        [episode_of(Chunk(play, 0, 1))],
        type("Ten", (), {"compute_values": lambda self, batch: np.full(len(batch["obs"]), 10.0)})(),
    )
    return float(batch["value_targets"].arrays[0]) - play.reward(0)


def test_only_a_terminal_end_takes_the_bootstrap_away() -> None:
    ends = [(True, False), (True, True), (False, True), (False, False)]
    assert [one_step(*end) for end in ends] == [0.0, 0.0, 9.0, 9.0]


def test_the_module_is_asked_once_without_gradient_and_on_its_device() -> None:
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def compute_values(self, batch: dict[str, Any]) -> Any:
            values = self.layer(batch["obs"])
            assert not values.requires_grad
            return values  # (N, 1) will do

    pieces = [AddOneStep(), OBSERVATIONS, AddColumns(), ToTensor(), gae()]
    batch = run(pieces, [episode_of(Chunk(Play(1, 5), 0, 5), numpy=True)], Module())
    for name in ("advantages", "value_targets"):
        assert isinstance(batch[name], torch.Tensor)
        assert batch[name].shape == (6,)
        assert not batch[name].requires_grad
    module = Values()
    run([AddOneStep(), OBSERVATIONS, AddColumns(), gae()], episodes_of([Chunk(Play(1, 5), 0, 5)]), module)
    assert module.calls == 1


def test_values_of_the_batch_do_where_the_module_has_none() -> None:
    class Valued(Connector):
        def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            batch["vf_preds"] = Values().compute_values({"obs": batch["obs"].arrays})
            return batch

    plays = [Chunk(Play(1, 9), 2, 6, 1), Chunk(Play(2, 3, terminated=True), 0, 3)]
    pieces = [AddOneStep(), OBSERVATIONS, AddColumns(), Valued(), gae(normalize=False)]
    batch = run(pieces, episodes_of(plays), object())
    mask = batch["loss_mask"].arrays
    assert_close(batch["advantages"].arrays[mask], slow.advantages(plays, value, 0.9, 0.8)[0])


@pytest.mark.parametrize(("flag", "target"), [("terminateds", 1.0), ("truncateds", 1.0 + 0.5 * 40.0)])
def test_ends_that_another_piece_puts_inside_of_a_chunk_count(flag: str, target: float) -> None:
    episode = SingleAgentEpisode(
        observations=[0, 1, 2, 3], actions=[0] * 3, rewards=[1.0] * 3, terminated=True, len_lookback_buffer=0
    )
    batch = {"vf_preds": np.array([10.0, 20.0, 40.0]), flag: np.array([False, True, True])}
    batch["terminateds"] = np.array([False, flag == "terminateds", True])
    batch = gae(0.5, 1.0, normalize=False)(batch=batch, episodes=[episode])
    assert as_arrays(batch["value_targets"]).tolist() == [1.0 + 0.5 * target, target, 1.0]


def test_the_mask_of_a_piece_that_lengthened_the_chunks_itself_tells_the_row_of_the_value_too() -> None:
    episode = SingleAgentEpisode(
        observations=[0, 1, 2, 3], actions=[0] * 3, rewards=[1.0, 1.0, 9.0], len_lookback_buffer=0
    )
    batch: dict[str, Any] = {"vf_preds": np.array([10.0, 20.0, 40.0]), "loss_mask": np.array([True, True, False])}
    batch = AddColumns()(batch=batch, episodes=[episode])
    # RLlib's word for it.
    shared = {"_added_loss_mask_for_valid_episode_ts": True}
    batch = gae(0.5, 1.0, normalize=False)(batch=batch, episodes=[episode], shared_data=shared)
    assert as_arrays(batch["value_targets"]).tolist() == [11.5, 21.0, 40.0]
    assert as_arrays(batch["advantages"]).tolist() == [1.5, 1.0, 0.0]


class Masked(Connector):
    """Leaves single rows out of the loss."""

    def __init__(self, *rows: int) -> None:
        super().__init__()
        self.rows = list(rows)

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        column = batch.get("loss_mask")
        mask = np.ones(len(as_arrays(batch["obs"])), bool) if column is None else as_arrays(column).copy()
        mask[self.rows] = False
        batch["loss_mask"] = mask
        return batch


@pytest.mark.parametrize("first", [[], [AddOneStep()]])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_step_that_is_masked_keeps_its_reward_also_the_last_of_an_episode(
    first: list[Connector], normalize: bool
) -> None:
    plays = [Chunk(Play(1, 4, terminated=True), 0, 4), Chunk(Play(2, 3, terminated=True), 0, 3)]
    one_more = len(first)
    masked = [3, 4 + one_more]
    pieces = [*first, OBSERVATIONS, AddColumns(), Masked(*masked), gae(normalize=normalize)]
    batch = run(pieces, episodes_of(plays), Values())
    rows = [0, 1, 2, 3, *(k + one_more for k in (4, 5, 6))]
    advantages, targets = (np.array(column) for column in slow.advantages(plays, value, 0.9, 0.8))
    assert_close(as_arrays(batch["value_targets"])[rows], targets)
    if normalize:
        counted = advantages[[0, 1, 2, 5, 6]]
        advantages = (advantages - counted.mean()) / counted.std()
    assert_close(as_arrays(batch["advantages"])[rows], advantages)
    assert not np.delete(as_arrays(batch["advantages"]), rows).any()


def test_a_masked_last_step_stands_for_no_value_behind_a_chunk_that_goes_on() -> None:
    refused(
        [OBSERVATIONS, AddColumns(), Masked(3), gae()],
        [episode_of(Chunk(Play(1, 9), 0, 4))],
        Values(),
        "GeneralAdvantageEstimation: episodes must have one more step where they do not terminate, got none for "
        "episode 'e1'; put AddOneStep() first in the pipeline",
    )


def test_added_rows_are_no_data_even_where_a_piece_took_the_mask_away() -> None:
    class Unmasked(Connector):
        def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            del batch["loss_mask"]
            return batch

    plays = [Chunk(Play(1, 9), 2, 6), Chunk(Play(2, 3, terminated=True), 0, 3)]
    batch = run([AddOneStep(), OBSERVATIONS, AddColumns(), Unmasked(), gae()], episodes_of(plays), Values())
    want = slow.normalised(slow.advantages(plays, value, 0.9, 0.8)[0])
    assert_close(as_arrays(batch["advantages"])[[0, 1, 2, 3, 5, 6, 7]], want)


@pytest.mark.parametrize("arrays", [[], [BatchItems()], [ToTensor()]])
def test_infos_that_differ_in_their_keys_come_to_the_module_as_a_list(arrays: list[Connector]) -> None:
    seen = []

    class Module(Values):
        def compute_values(self, batch: dict[str, Any]) -> Any:
            seen.append(batch["infos"])
            return super().compute_values(batch)

    play = Chunk(Play(1, 3, terminated=True), 0, 3)
    episode = episode_of(play)
    for t in range(4):
        episode.infos.set({f"only at {t}": t}, at_indices=t)
    pieces = [AddOneStep(), OBSERVATIONS, AddColumns(infos=True), *arrays, gae(normalize=False)]
    batch = run(pieces, [episode], Module())
    assert seen == [[{f"only at {t}": t} for t in range(4)]]
    assert_close(as_arrays(batch["advantages"])[:3], slow.advantages([play], value, 0.9, 0.8)[0])


def with_values(chunk: Chunk) -> SingleAgentEpisode:
    """An episode whose values were stored when acting."""
    values = [value(chunk.play.observation(t)) for t in range(chunk.start, chunk.stop)]
    return SingleAgentEpisode(
        f"e{chunk.play.number}",
        observations=[chunk.play.observation(t) for t in range(chunk.start, chunk.stop + 1)],
        actions=[0] * len(values),
        rewards=[chunk.play.reward(t) for t in range(chunk.start, chunk.stop)],
        extra_model_outputs={"vf_preds": values},
        terminated=chunk.terminated,
        truncated=chunk.truncated,
        len_lookback_buffer=0,
    )


@pytest.mark.parametrize("first", [[], [AddOneStep()]])
def test_values_stored_when_acting_do_for_episodes_that_terminate(first: list[Connector]) -> None:
    ended = Chunk(Play(1, 4, terminated=True), 0, 4)
    batch = run([*first, AddColumns(), gae(normalize=False)], [with_values(ended)])
    want = slow.advantages([ended], value, 0.9, 0.8)[0]
    assert_close(batch["advantages"].arrays[:4], want)


def refused(pieces: list[Connector], episodes: list[SingleAgentEpisode], module: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run(pieces, episodes, module)


def test_refusals_name_the_episode_and_the_piece_that_is_missing() -> None:
    where = "GeneralAdvantageEstimation"
    going_on = Chunk(Play(1, 4, truncated=True), 0, 4)
    refused(
        [AddColumns(), OBSERVATIONS, gae()],
        [episode_of(Chunk(Play(0, 2, terminated=True), 0, 2)), episode_of(going_on)],
        Values(),
        f"{where}: episodes must have one more step where they do not terminate, got none for episode 'e1'; "
        "put AddOneStep() first in the pipeline",
    )
    refused(
        [AddOneStep(), AddColumns(), gae()],
        [with_values(going_on)],
        None,
        f"{where}: rl_module must have compute_values() where episodes do not terminate, got only the values of "
        "episode 'e1' stored when acting, none for its last observation",
    )
    refused(
        [AddOneStep(), AddColumns(), gae()],
        [episode_of(going_on)],
        None,
        f"{where}: rl_module must have compute_values(), or the batch 'vf_preds', got NoneType and "
        "['action_logp', 'actions', 'loss_mask', 'rewards', 'terminateds', 'truncateds']",
    )
    short = type("Short", (), {"compute_values": lambda self, batch: np.zeros(3)})()
    refused(
        [AddOneStep(), AddColumns(), gae()],
        [episode_of(going_on)],
        short,
        f"{where}: column 'vf_preds' must have one number for each of the 5 steps of 1 chunks, got shape (3,)",
    )
    refused(
        [AddColumns(), time(2), NStepReturns(n_step=2, gamma=0.9)],
        [episode_of(going_on)],
        None,
        "NStepReturns: batch must have no time axis yet, got one; put it before AddTimeDim()",
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gae(1.1), "GeneralAdvantageEstimation: gamma must be in [0, 1], got 1.1"),
        (lambda: gae(0.9, -0.1), "GeneralAdvantageEstimation: lambda_ must be in [0, 1], got -0.1"),
        (lambda: ComputeReturnsToGo(gamma=2), "ComputeReturnsToGo: gamma must be in [0, 1], got 2"),
        (lambda: NStepReturns(n_step=3, gamma=-1), "NStepReturns: gamma must be in [0, 1], got -1"),
        (lambda: NStepReturns(n_step=0, gamma=1), "NStepReturns: n_step must be >= 1, got 0"),
    ],
)
def test_wrong_numbers_are_refused_when_a_piece_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


@settings(max_examples=60, deadline=None)
@given(chunks(), st.booleans(), FRACTIONS, st.booleans(), st.integers(0, 14))
def test_returns_to_go_are_those_of_the_loop(
    plays: list[Chunk], numpy: bool, gamma: float, one_more: bool, length: int
) -> None:
    if not slow.steps_of(plays):
        return
    pieces: list[Connector] = [AddOneStep()] if one_more else []
    if length:
        pieces += [AddColumns(), time(length), BatchItems()]
    batch = run([*pieces, ComputeReturnsToGo(gamma=gamma)], episodes_of(plays, numpy=numpy))
    got, want = as_arrays(batch["returns_to_go"]), slow.returns_to_go(plays, gamma)
    assert got.dtype == np.float32
    if one_more or length:
        mask = as_arrays(batch["loss_mask"])
        assert got.shape == mask.shape
        assert not got[~mask].any()
        got = got[mask]
    assert_close(got, want)


def test_rewards_changed_by_another_piece_are_the_ones_that_count() -> None:
    class Doubled(Connector):
        def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            self.foreach_batch_item_change_in_place(batch, "rewards", lambda reward, *_: 2 * reward)
            return batch

    plays = [Chunk(Play(1, 4, terminated=True), 0, 4), Chunk(Play(2, 3, terminated=True), 0, 3)]
    want = 2 * np.array(slow.returns_to_go(plays, 1.0))
    pieces: list[Connector] = [
        OBSERVATIONS,
        AddColumns(),
        Doubled(),
        ComputeReturnsToGo(gamma=1.0),
        gae(1.0, 1.0, normalize=False),
    ]
    batch = run(pieces, episodes_of(plays, numpy=True), Values())
    assert_close(as_arrays(batch["returns_to_go"]), want)
    assert_close(as_arrays(batch["value_targets"]), want)


N_STEP = ("rewards", "new_obs", "terminateds", "truncateds", "discounts", "n_steps")


@pytest.mark.parametrize("before", ["nothing", "columns", "arrays", "tensors", "one step"])
@settings(max_examples=40, deadline=None)
@given(plays=chunks(), numpy=st.booleans(), n=st.integers(1, 14), gamma=FRACTIONS)
def test_n_step_columns_are_those_of_the_loop(
    before: str, plays: list[Chunk], numpy: bool, n: int, gamma: float
) -> None:
    if not slow.steps_of(plays):
        return
    pieces: dict[str, list[Connector]] = {
        "nothing": [],
        "columns": [AddColumns()],
        "arrays": [AddColumns(), AddNextObservations(), BatchItems()],
        "tensors": [AddColumns(), AddNextObservations(), ToTensor()],
        "one step": [AddOneStep()],
    }
    batch = run([*pieces[before], NStepReturns(n_step=n, gamma=gamma)], episodes_of(plays, numpy=numpy))
    want = slow.n_step(plays, n, gamma)
    got = {name: as_arrays(batch[name]) for name in N_STEP}
    if before == "one step":
        mask = batch["loss_mask"].arrays
        got = {name: column[mask] for name, column in got.items()}
        del got["truncateds"]  # open ends count as truncated there
    dtypes = {
        "rewards": "f4",
        "new_obs": "f4",
        "terminateds": "?",
        "truncateds": "?",
        "discounts": "f4",
        "n_steps": "i8",
    }
    assert all(column.dtype == dtypes[name] for name, column in got.items())
    for name, column in got.items():
        exact = observations("vector", want[name]) if name == "new_obs" else np.array(want[name], column.dtype)
        np.testing.assert_array_equal(column, exact, err_msg=name)


@settings(max_examples=60, deadline=None)
@given(chunks(whole=True), st.booleans(), st.integers(1, 14), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_n_step_columns_are_those_of_the_replay_buffer(plays: list[Chunk], numpy: bool, n: int, gamma: float) -> None:
    steps = len(slow.steps_of(plays))
    if not steps:
        return
    episodes = episodes_of(plays, numpy=numpy)
    drawn = buffer_for(steps, episodes).sample_transitions(steps, n_step=n, gamma=gamma, replace=False)
    order = np.argsort(drawn.observations[:, 0], kind="stable")
    batch = run([OBSERVATIONS, AddColumns(), NStepReturns(n_step=n, gamma=gamma)], episodes)
    ours = np.argsort(batch["obs"].arrays[:, 0], kind="stable")
    theirs = {
        "obs": "observations",
        "rewards": "rewards",
        "new_obs": "next_observations",
        "terminateds": "terminations",
        "truncateds": "truncations",
        "discounts": "discounts",
        "n_steps": "n_steps",
    }
    for name, other in theirs.items():
        want = np.asarray(getattr(drawn, other))[order]
        got = batch[name].arrays[ours]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.reshape(want.shape), want, err_msg=name)


def buffer_for(steps: int, episodes: list[SingleAgentEpisode]) -> ReplayBuffer:
    observation_space, action_space = episodes[0].observation_space, episodes[0].action_space
    assert observation_space is not None
    assert action_space is not None
    buffer = ReplayBuffer(steps, observation_space, action_space, seed=3)
    for episode in episodes:
        if len(episode):
            buffer.add_episode(copy.deepcopy(episode))
    return buffer


def test_a_value_of_what_lies_n_steps_ahead_gives_the_target_by_its_discount() -> None:
    play = Play(1, 4, truncated=True)
    batch = NStepReturns(n_step=3, gamma=0.5)(batch={}, episodes=[episode_of(Chunk(play, 0, 4))])
    assert isinstance(batch["rewards"], Rows)
    assert batch["new_obs"].arrays[:, 0].tolist() == [103, 104, 104, 104]
    assert batch["discounts"].arrays.tolist() == [0.125, 0.125, 0.25, 0.5]
    assert batch["truncateds"].arrays.tolist() == [False, True, True, True]


def test_pieces_for_no_steps_add_nothing() -> None:
    for piece in (gae(), ComputeReturnsToGo(gamma=0.9), NStepReturns(n_step=2, gamma=0.9)):
        assert piece(batch={}, episodes=[], rl_module=Values()) == {}
        assert piece(batch={}, episodes=[episode_of(Chunk(Play(0, 0), 0, 0))], rl_module=Values()) == {}
