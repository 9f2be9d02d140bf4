"""Actions out of distribution inputs, and into the space of the environment."""

from __future__ import annotations

import copy
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ringback import SingleAgentEpisode
from ringback.connectors import ActionsToSpace, ConnectorPipeline, ListItems, SampleActions, ToNumpy, Unbatch
from tests.connectors.making import assert_same
from tests.reference import connectors as slow

SPACES: dict[str, gym.Space[Any]] = {
    "discrete": gym.spaces.Discrete(4, start=-2),
    "multi": gym.spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "grid": gym.spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
    "switches": gym.spaces.MultiBinary(3),
    "switchboard": gym.spaces.MultiBinary([2, 2]),
    "box": gym.spaces.Box(-3.0, 5.0, (2,), np.float32),
    "table": gym.spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "dict": gym.spaces.Dict({"z": gym.spaces.Discrete(3), "a": gym.spaces.Box(-1.0, 1.0, (2,))}),
    "tuple": gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Dict({"x": gym.spaces.MultiDiscrete([2, 2])})]),
}


def inputs_for(space: gym.Space[Any], rows: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, slow.inputs_of(space)))


def row(actions: Any, k: int) -> Any:
    return slow.each_leaf(lambda leaf: leaf[k], actions)


# ------------------------------------------------------------------ sampling


@given(st.sampled_from(sorted(SPACES)), st.integers(1, 5), st.integers(0, 99))
def test_log_probabilities_are_those_of_the_loop_and_actions_fit_the_space(kind: str, rows: int, seed: int) -> None:
    space = SPACES[kind]
    inputs = inputs_for(space, rows, seed)
    batch = SampleActions(input_action_space=space, seed=seed)(
        batch={"action_dist_inputs": inputs}, episodes=[], explore=True
    )
    assert batch["action_logp"].dtype == np.float32
    for k in range(rows):
        action = row(batch["actions"], k)
        if kind not in ("box", "table", "dict"):  # normal values may lie outside of a box
            assert space.contains(action)
        assert batch["action_logp"][k] == pytest.approx(slow.log_probability(space, inputs[k], action), abs=1e-5)


def explored(kind: str, inputs: Any, seed: int = 1) -> Any:
    """Sample actions."""
    piece = SampleActions(input_action_space=SPACES[kind], seed=seed)
    return piece(batch={"action_dist_inputs": inputs}, episodes=[], explore=True)


def test_log_probabilities_are_those_of_torch() -> None:
    of: Any = torch.distributions
    inputs = inputs_for(SPACES["discrete"], 50)
    batch = explored("discrete", inputs)
    want = of.Categorical(logits=torch.from_numpy(inputs)).log_prob(torch.from_numpy(batch["actions"] + 2))
    np.testing.assert_allclose(batch["action_logp"], want, rtol=1e-6)
    inputs = inputs_for(SPACES["box"], 50)
    batch = explored("box", inputs)
    mean, log_std = torch.from_numpy(inputs[:, :2]), torch.from_numpy(inputs[:, 2:])
    want = of.Normal(mean, log_std.exp()).log_prob(torch.from_numpy(batch["actions"]).double()).sum(1)
    np.testing.assert_allclose(batch["action_logp"], want, rtol=1e-5)
    inputs = inputs_for(SPACES["switches"], 50)
    batch = explored("switches", inputs)
    want = of.Bernoulli(logits=torch.from_numpy(inputs)).log_prob(torch.from_numpy(batch["actions"]).double()).sum(1)
    np.testing.assert_allclose(batch["action_logp"], want, rtol=1e-5)


def test_values_come_as_often_as_the_logits_say() -> None:
    n = 60_000
    logits = np.log(np.array([0.5, 0.0, 0.2, 0.3]), where=[True, False, True, True], out=np.full(4, -np.inf))
    batch = SampleActions(input_action_space=SPACES["discrete"], seed=7)(
        batch={"action_dist_inputs": np.tile(logits, (n, 1))}, episodes=[], explore=True
    )
    counts = np.bincount(batch["actions"] + 2, minlength=4)
    want = n * np.array([0.5, 0.0, 0.2, 0.3])
    assert counts[1] == 0
    assert float(((counts - want)[want > 0] ** 2 / want[want > 0]).sum()) < 13.8  # chi-squared, 2 degrees: p = 0.001


class LeastDraw:
    """A generator that only draws 0, the least there is."""

    def random(self, size: int) -> Any:
        return np.zeros(size)


class LargestDraw:
    """A generator that only draws the largest number below 1."""

    def random(self, size: int) -> Any:
        return np.full(size, np.nextafter(1, 0))


@pytest.mark.parametrize("generator", [LeastDraw(), LargestDraw()])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_value_that_cannot_be_is_never_chosen_whatever_is_drawn(generator: Any, n: int) -> None:
    logits = np.array([-np.inf, *np.log(np.arange(1.0, n + 1)), -np.inf])
    piece = SampleActions(input_action_space=gym.spaces.Discrete(n + 2))
    shared = {"generators": [generator]}
    batch = piece(batch={"action_dist_inputs": logits[None]}, episodes=[], explore=True, shared_data=shared)
    assert batch["actions"].tolist() == [1 if isinstance(generator, LeastDraw) else n]
    assert np.isfinite(batch["action_logp"]).all()


def test_normal_values_have_their_mean_and_deviation() -> None:
    n = 40_000
    inputs = np.tile([3.0, -2.0, np.log(0.5), np.log(2.0)], (n, 1))
    batch = SampleActions(input_action_space=SPACES["box"], seed=3)(
        batch={"action_dist_inputs": inputs}, episodes=[], explore=True
    )
    z = (batch["actions"] - [3, -2]) / [0.5, 2]
    assert np.abs(z.mean(0)).max() < 4 / n**0.5
    assert np.abs(z.std(0) - 1).max() < 4 / (2 * n) ** 0.5
    assert abs(np.corrcoef(z.T)[0, 1]) < 4 / n**0.5


@pytest.mark.parametrize("kind", sorted(SPACES))
@pytest.mark.parametrize("explore", [False, None])
def test_the_likeliest_actions_where_nothing_is_explored(kind: str, explore: bool | None) -> None:
    space = SPACES[kind]
    inputs = inputs_for(space, 3)
    batch = SampleActions(input_action_space=space)(batch={"action_dist_inputs": inputs}, episodes=[], explore=explore)
    assert batch["action_logp"].tolist() == [0, 0, 0]
    for k in range(3):
        best = slow.log_probability(space, inputs[k], row(batch["actions"], k))
        for seed in range(30):
            other = SampleActions(input_action_space=space, seed=seed)(
                batch={"action_dist_inputs": inputs}, episodes=[], explore=True
            )["actions"]
            assert slow.log_probability(space, inputs[k], row(other, k)) <= best + 1e-9


@given(st.sampled_from(sorted(SPACES)), st.permutations(range(4)), st.integers(1, 4))
def test_actions_of_an_episode_depend_on_its_own_generator_alone(kind: str, order: list[int], rows: int) -> None:
    space, order = SPACES[kind], order[:rows]
    inputs = inputs_for(space, 4)

    def act(chosen: list[int]) -> Any:
        shared = {"generators": [np.random.default_rng(k) for k in chosen]}
        batch = {"action_dist_inputs": inputs[chosen]}
        return SampleActions(input_action_space=space)(batch=batch, episodes=[], explore=True, shared_data=shared)

    together = act(order)
    for position, k in enumerate(order):
        alone = act([k])
        assert_same(row(together["actions"], position), row(alone["actions"], 0))
        assert together["action_logp"][position] == alone["action_logp"][0]


def test_a_seed_and_a_state_repeat_what_was_sampled() -> None:
    def act(piece: SampleActions) -> Any:
        batch = {"action_dist_inputs": np.zeros((20, 4))}
        return piece(batch=batch, episodes=[], explore=True)["actions"].tolist()

    one, other = (SampleActions(input_action_space=SPACES["discrete"], seed=5) for _ in range(2))
    assert act(one) == act(other)
    later = copy.deepcopy(one.get_state())
    first = act(one)
    assert act(one) != first
    one.set_state(later)
    assert act(one) == first


def test_given_actions_stay_and_so_does_a_given_probability() -> None:
    given_actions = np.array([7])
    batch = {"actions": given_actions, "action_dist_inputs": np.zeros((1, 4))}
    assert SampleActions()(batch=batch, episodes=[], explore=True) is batch
    assert batch["actions"] is given_actions
    assert "action_logp" not in batch
    batch = {"action_dist_inputs": np.zeros((1, 4)), "action_logp": np.array([-9.0])}
    SampleActions(input_action_space=SPACES["discrete"])(batch=batch, episodes=[], explore=True)
    assert batch["action_logp"].tolist() == [-9]


def test_the_space_of_the_episodes_does_and_rows_stay_with_their_episodes() -> None:
    made = [SingleAgentEpisode(str(k), observations=[0], action_space=SPACES["discrete"]) for k in range(2)]
    inputs = torch.tensor([[0.0, 9, 0, 0], [0, 0, 0, 9]], requires_grad=True)
    batch = ConnectorPipeline([Unbatch(), SampleActions()])(batch={"action_dist_inputs": inputs}, episodes=made)
    assert {key: [int(x) for x in rows] for key, rows in batch["actions"].items()} == {("0",): [-1], ("1",): [1]}


@pytest.mark.parametrize(
    ("batch", "space", "text"),
    [
        (
            {"obs": []},
            "discrete",
            "SampleActions: batch must have 'actions' or 'action_dist_inputs', got columns ['obs']",
        ),
        (
            {"action_dist_inputs": np.zeros((2, 3))},
            "discrete",
            "SampleActions: action_dist_inputs must have shape (E, 4) for Discrete(4, start=-2), got (2, 3)",
        ),
        (
            {"action_dist_inputs": np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]])},
            "discrete",
            "logits with a finite maximum and without NaN, got [0.0, nan, 0.0, 0.0] in row 1",
        ),
        (
            {"action_dist_inputs": np.full((1, 4), -np.inf)},
            "discrete",
            "SampleActions: action_dist_inputs must be logits with a finite maximum and without NaN",
        ),
        (
            {"action_dist_inputs": np.array([[0, 0, 0, np.nan]])},
            "box",
            "must be means and logarithms of standard deviations, got [0.0, 0.0, 0.0, nan] in row 0",
        ),
    ],
)
@pytest.mark.parametrize("explore", [False, True])
def test_wrong_inputs_are_refused(batch: Any, space: str, text: str, explore: bool) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        SampleActions(input_action_space=SPACES[space])(batch=dict(batch), episodes=[], explore=explore)


def test_what_is_missing_is_said() -> None:
    batch = {"action_dist_inputs": np.zeros((2, 4))}
    text = "SampleActions: input_action_space must be given, or the episodes have one, got None"
    with pytest.raises(ValueError, match=re.escape(text)):
        SampleActions()(batch=dict(batch), episodes=[])
    text = "SampleActions: shared_data['generators'] must have one for each of 2 rows, got 1"
    with pytest.raises(ValueError, match=re.escape(text)):
        SampleActions(input_action_space=SPACES["discrete"])(
            batch=dict(batch), episodes=[], explore=True, shared_data={"generators": [np.random.default_rng()]}
        )
    with pytest.raises(TypeError, match=r"must be made of .*MultiBinary and Box with floats, got Text"):
        SampleActions(input_action_space=gym.spaces.Text(4))(batch=dict(batch), episodes=[])


# ------------------------------------------------------------------ into the space

BOUNDS = gym.spaces.Box(
    np.array([-2, 0, -np.inf, -np.inf, 1], np.float32),
    np.array([6, np.inf, 1, np.inf, 3e38], np.float32),
    dtype=np.float32,
)
NESTED = gym.spaces.Dict({"n": gym.spaces.Discrete(9), "t": gym.spaces.Tuple([BOUNDS, gym.spaces.MultiDiscrete([4])])})


@given(st.integers(0, 50), st.booleans())
def test_actions_are_brought_into_the_space_leaf_by_leaf(seed: int, clip: bool) -> None:
    values = np.random.default_rng(seed).normal(0, 1.5, (4, 5)).astype(np.float32)
    actions = {"n": np.arange(4), "t": (values, np.array([[3], [2], [1], [0]]))}
    piece = ActionsToSpace(input_action_space=NESTED, normalize_actions=not clip, clip_actions=True)
    batch = piece(batch={"actions": actions}, episodes=[])
    assert batch["actions"] is actions
    for_env = batch["actions_for_env"]
    bring = slow.clipped if clip else slow.unsquashed
    for k in range(4):
        assert for_env["n"][k] == k
        assert for_env["t"][1][k] == 3 - k
        np.testing.assert_allclose(for_env["t"][0][k], bring(BOUNDS, values[k]), rtol=1e-6, atol=1e-6)
        assert BOUNDS.contains(for_env["t"][0][k])


def test_the_ends_of_the_unit_interval_are_the_bounds() -> None:
    piece = ActionsToSpace(input_action_space=gym.spaces.Box(-2.0, 6.0, (3,)))
    batch = piece(batch={"actions": np.array([[-1, 0, 1]], np.float32)}, episodes=[])
    assert batch["actions_for_env"].tolist() == [[-2, 2, 6]]
    assert batch["actions_for_env"].dtype == np.float32


def test_with_neither_nothing_is_added() -> None:
    batch = {"actions": np.array([[9.0]])}
    assert ActionsToSpace(normalize_actions=False)(batch=dict(batch), episodes=[]).keys() == {"actions"}


def test_from_a_module_to_a_vector_environment() -> None:
    made = [SingleAgentEpisode(str(k), observations=[0], action_space=gym.spaces.Box(0.0, 4.0, (1,))) for k in range(2)]
    out = {"actions": torch.tensor([[0.5], [-3.0]])}
    batch = ConnectorPipeline([ToNumpy(), Unbatch(), ActionsToSpace(), ListItems()])(batch=out, episodes=made)
    assert [x.tolist() for x in batch["actions_for_env"]] == [[3], [0]]
    assert [x.tolist() for x in batch["actions"]] == [[0.5], [-3]]


def test_missing_actions_and_spaces_are_said() -> None:
    with pytest.raises(ValueError, match=re.escape("ActionsToSpace: batch must have 'actions', got columns ['obs']")):
        ActionsToSpace(input_action_space=BOUNDS)(batch={"obs": []}, episodes=[])
    with pytest.raises(
        ValueError, match="ActionsToSpace: input_action_space must be given, or the episodes have one, got N"
    ):
        ActionsToSpace()(batch={"actions": np.zeros(1)}, episodes=[])
