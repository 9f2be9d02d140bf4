"""The base class: spaces, state, and the helpers that pieces are written with."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ringback import SingleAgentEpisode
from ringback.connectors import (
    ActionsToSpace,
    BatchedArray,
    BatchItems,
    Connector,
    Flatten,
    ListItems,
    MeanStdFilter,
    Rows,
    SampleActions,
    ToNumpy,
    ToTensor,
    Unbatch,
    stacked,
)


class Plain(Connector):
    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return batch


class Doubling(Plain):
    """What comes out is twice as large; the space of actions follows that of observations."""

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        return gym.spaces.Discrete(2 * input_observation_space.n)

    def recompute_output_action_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        more = 0 if input_observation_space is None else input_observation_space.n
        return gym.spaces.Discrete(input_action_space.n + more)


def test_by_default_what_comes_in_goes_out_and_nothing_is_kept() -> None:
    piece = Plain(gym.spaces.Discrete(3), gym.spaces.Discrete(4), anything="else")
    assert (piece.observation_space, piece.action_space) == (gym.spaces.Discrete(3), gym.spaces.Discrete(4))
    assert piece.lookback == 0
    assert piece.name == "Plain"
    assert (piece.get_state(), piece.merge_states([{"a": 1}])) == ({}, {})
    piece.set_state({"a": 1})
    piece.reset_state()
    with pytest.raises(TypeError, match="abstract"):
        Connector()  # type: ignore[abstract]


def test_setting_a_space_computes_what_comes_out() -> None:
    piece = Doubling()
    assert (piece.observation_space, piece.action_space) == (None, None)
    piece.input_observation_space = gym.spaces.Discrete(5)
    piece.input_action_space = gym.spaces.Discrete(3)
    assert (piece.observation_space, piece.action_space) == (gym.spaces.Discrete(10), gym.spaces.Discrete(8))


def test_without_a_space_before_there_is_none_behind() -> None:
    piece = Doubling(gym.spaces.Discrete(5), gym.spaces.Discrete(3))
    piece.input_observation_space = None
    assert (piece.observation_space, piece.action_space) == (None, gym.spaces.Discrete(3))
    piece.input_action_space = None
    assert piece.action_space is None


def test_a_space_that_a_piece_refuses_changes_nothing() -> None:
    wrong: Any = gym.spaces.Box(0, 1, (2,))
    piece = Doubling(gym.spaces.Discrete(5), gym.spaces.Discrete(3))
    before = piece.observation_space, piece.action_space
    for name in ("input_observation_space", "input_action_space"):
        there = getattr(piece, name)
        with pytest.raises(AttributeError, match="no attribute 'n'"):
            setattr(piece, name, wrong)
        assert getattr(piece, name) is there
    assert (piece.observation_space, piece.action_space) == before


OWN_PIECES: list[type[Connector]] = [
    ActionsToSpace,
    BatchItems,
    Flatten,
    ListItems,
    MeanStdFilter,
    SampleActions,
    ToNumpy,
    ToTensor,
    Unbatch,
]


@pytest.mark.parametrize("kind", OWN_PIECES)
def test_a_misspelled_option_is_refused(kind: Any) -> None:
    text = (
        f"{kind.__name__}: options must be those of its documentation or RLlib's as_learner_connector and multi_agent, "
        "got 'clip', 'input_observation_spaces'"
    )
    with pytest.raises(TypeError, match=re.escape(text)):
        kind(input_observation_spaces=gym.spaces.Discrete(2), clip=None)
    space = gym.spaces.Discrete(2)
    piece = kind(input_observation_space=space, as_learner_connector=True, multi_agent=False)
    assert (piece.input_observation_space, piece.input_action_space) == (space, None)


def test_a_custom_piece_may_be_given_anything() -> None:
    assert Plain(anything=1).observation_space is None


def agents() -> Any:
    """An episode of two agents, of which one stepped last."""
    made = {
        name: SingleAgentEpisode(name, agent_id=name, module_id="m", multi_agent_episode_id="world")
        for name in ("left", "right")
    }
    return SimpleNamespace(
        agent_episodes=made, agent_ids=list(made), get_agents_that_stepped=lambda: ["right"], id_="world"
    )


def test_going_through_single_agent_episodes() -> None:
    through = Connector.single_agent_episode_iterator
    single = SingleAgentEpisode("a")
    assert [one.id_ for one in through([single, agents()])] == ["a", "right"]
    assert [one.id_ for one in through([agents()], agents_that_stepped_only=False)] == ["left", "right"]


def test_going_through_a_column_alongside() -> None:
    through = Connector.single_agent_episode_iterator
    made = [SingleAgentEpisode("a"), SingleAgentEpisode("b"), SingleAgentEpisode("a")]
    assert [item for _, item in through(made, zip_with_batch_column=[5, 6, 7])] == [5, 6, 7]
    mapping: Any = {("b",): [6], ("a",): [5, 7]}
    assert [(one.id_, item) for one, item in through(made, zip_with_batch_column=mapping)] == [
        ("a", 5),
        ("b", 6),
        ("a", 7),
    ]
    text = "Connector.single_agent_episode_iterator: zip_with_batch_column must have one item for each of 3 epi"
    with pytest.raises(ValueError, match=re.escape(text)):
        list(through(made, zip_with_batch_column=[5]))
    text = "zip_with_batch_column must have an item for episode ('a',), got none"
    with pytest.raises(ValueError, match=re.escape(text)):
        list(through(made, zip_with_batch_column={("b",): [6], ("a",): [5]}))


def test_adding_rows() -> None:
    batch: dict[str, Any] = {}
    first, second = SingleAgentEpisode("a"), agents().agent_episodes["left"]
    Connector.add_batch_item(batch, "x", 1, first)
    Connector.add_batch_item(batch, "x", 2, second)
    Connector.add_batch_item(batch, "x", 3, first)
    Connector.add_batch_item(batch, "y", 4)
    assert batch == {"x": {("a",): [1, 3], ("world", "left", "m"): [2]}, "y": [4]}
    Connector.add_n_batch_items(batch, "z", [5, 6], 2, first)
    Connector.add_n_batch_items(batch, "z", np.array([7, 8, 9]), 3, first)
    assert isinstance(batch["z"][("a",)][2], BatchedArray)
    assert stacked(batch["z"]).tolist() == [5, 6, 7, 8, 9]
    for items, got in (([1], "1"), (np.zeros((3, 2)), "[3]"), ({"a": np.zeros(2), "b": np.zeros(1)}, "[1, 2]")):
        text = f"Connector.add_n_batch_items: items_to_add must have 2 rows, got {got}"
        with pytest.raises(ValueError, match=re.escape(text)):
            Connector.add_n_batch_items(batch, "w", items, 2, first)
    assert "w" not in batch


def test_an_item_goes_into_a_column_of_items_only() -> None:
    made = SingleAgentEpisode("a")
    arrays, tree = np.array([1, 2]), {"left": np.array([1])}
    mapping: Any = {("a",): [1]}
    rows = Rows(np.array([1]), [("a",)])
    cases: list[Any] = [
        (arrays, made, "a mapping from episodes to items, as an episode is given, got ndarray"),
        (tree, made, "a mapping from episodes to items, as an episode is given, got dict"),
        ([1], made, "a mapping from episodes to items, as an episode is given, got list"),
        (arrays, None, "a list of items, as no episode is given, got ndarray"),
        (mapping, None, "a list of items, as no episode is given, got dict"),
        (rows, None, "a list of items, as no episode is given, got Rows"),
    ]
    for column, whose, rule in cases:
        batch = {"x": column}
        text = re.escape(f"Connector.add_batch_item: column 'x' must be {rule}")
        with pytest.raises(TypeError, match=text):
            Connector.add_batch_item(batch, "x", 5, whose)
        for items in ([5, 6], np.array([5, 6])):
            with pytest.raises(TypeError, match=text):
                Connector.add_n_batch_items(batch, "x", items, 2, whose)
        assert batch == {"x": column}
    assert (arrays.tolist(), list(tree), mapping, stacked(rows).tolist()) == ([1, 2], ["left"], {("a",): [1]}, [1])
    Connector.add_batch_item({"x": rows}, "x", 5, made)
    assert stacked(rows).tolist() == [1, 5]


def test_changing_items_in_place_in_every_form_of_a_column() -> None:
    seen: list[Any] = []

    def change(item: Any, *whose: Any) -> Any:
        seen.append(whose)
        return item * 10

    batch: dict[str, Any] = {
        "stacked": Rows(np.array([1, 2]), [("a",), ("world", "left", "m")]),
        "items": {("a",): [3, 4]},
        "list": [5, 6],
        "plain": np.array([7, 8]),
    }
    there = batch["list"]
    for column in list(batch):
        Connector.foreach_batch_item_change_in_place(batch, column, change)
    assert {name: stacked(column).tolist() for name, column in batch.items()} == {
        "stacked": [10, 20],
        "items": [30, 40],
        "list": [50, 60],
        "plain": [70, 80],
    }
    assert batch["list"] is there
    nobody = (None, None, None)
    assert seen == [("a", None, None), ("world", "left", "m"), *[("a", None, None)] * 2, *[nobody] * 4]


def test_changing_several_columns_side_by_side() -> None:
    batch: dict[str, Any] = {"x": {("a",): [1, 2]}, "y": Rows(np.array([3, 4]), [("a",), ("a",)])}
    Connector.foreach_batch_item_change_in_place(batch, ["x", "y"], lambda items, *whose: items[::-1])
    assert [stacked(batch[name]).tolist() for name in ("x", "y")] == [[3, 4], [1, 2]]
    text = "Connector.foreach_batch_item_change_in_place: column must be one of ['x', 'y'], got ['z']"
    with pytest.raises(ValueError, match=re.escape(text)):
        Connector.foreach_batch_item_change_in_place(batch, ["x", "z"], lambda items, *whose: items)


def test_several_rows_stay_as_many() -> None:
    batch: dict[str, Any] = {}
    Connector.add_n_batch_items(batch, "rewards", np.array([1.0, 2.0, 3.0]), 3, SingleAgentEpisode("a"))
    change = Connector.foreach_batch_item_change_in_place
    change(batch, "rewards", lambda rows, *whose: np.asarray(rows) * 10)
    assert stacked(batch["rewards"]).tolist() == [10.0, 20.0, 30.0]
    with pytest.raises(ValueError, match="func must return 3 rows for as many, got no rows"):
        change(batch, "rewards", lambda rows, *whose: rows.sum())
    with pytest.raises(ValueError, match=r"func must return 3 rows for as many, got \['2'\]"):
        change(batch, "rewards", lambda rows, *whose: rows[:2])
    assert stacked(batch["rewards"]).tolist() == [10.0, 20.0, 30.0]
