"""Columns: in every form the same rows, and whose they are."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback import SingleAgentEpisode
from ringback.connectors import BatchedArray, Columns, Connector, Rows, stacked
from ringback.connectors.columns import episode_key, items_of, replaced, row_count, row_keys
from ringback.errors import EpisodeError
from tests.connectors.making import assert_same
from tests.reference import connectors as slow


def item(number: int, nested: bool) -> Any:
    value = np.array([number, -number], np.float32)
    return {"a": value, "b": (np.int64(number),)} if nested else value


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], list[int], bool]:
    """Items of one to four chunks, two of which may be of one episode: keys, rows of each, nested or not."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    chunks_of_one = draw(st.sampled_from([1, 2]))
    keys = [(f"e{position // chunks_of_one}",) for position in range(len(counts))]
    return keys, counts, draw(st.booleans())


@given(columns(), st.sampled_from(["arrays", "looked at", "items", "mixed", "list", "plain"]))
def test_every_form_has_the_same_rows_of_the_same_episodes(drawn: Any, form: str) -> None:
    keys, counts, nested = drawn
    rows = [item(10 * position + k, nested) for position, count in enumerate(counts) for k in range(count)]
    owners = [key for key, count in zip(keys, counts, strict=True) for _ in range(count)]
    column: Any
    if form in ("arrays", "looked at"):
        column = Rows(slow.stacked(rows), keys, counts)
        if form == "looked at":
            assert column[keys[0]]
    elif form in ("items", "mixed"):
        batch: dict[str, Any] = {}
        begin = 0
        for position, (key, count) in enumerate(zip(keys, counts, strict=True)):
            mine = rows[begin : begin + count]
            begin += count
            if form == "mixed" and position % 2:
                Connector.add_n_batch_items(batch, "x", slow.stacked(mine), count, SingleAgentEpisode(key[0]))
            else:
                Connector.add_n_batch_items(batch, "x", mine, count, SingleAgentEpisode(key[0]))
        column = batch["x"]
    else:
        column = rows if form == "list" else slow.stacked(rows)
    assert_same(stacked(column), slow.stacked(rows))
    assert row_count(column) == len(rows)
    assert row_keys(column) == (None if form in ("list", "plain") else owners)
    twice = replaced(column, slow.each_leaf(lambda leaf: 2 * leaf, stacked(column)))
    assert row_keys(twice) == row_keys(column)
    if form in ("arrays", "looked at"):
        assert [len(rows) for rows in twice.values()] == [keys.count(key) for key in dict.fromkeys(keys)]
    assert_same(stacked(twice), slow.stacked([slow.each_leaf(lambda leaf: 2 * leaf, row) for row in rows]))


def test_who_looks_finds_a_row_or_the_rows_of_a_chunk() -> None:
    one = Rows(np.array([[1, 2], [3, 4]]), [("a",), ("b",)])
    assert [x.tolist() for x in one[("b",)]] == [[3, 4]]
    several = Rows(np.array([1, 2, 3, 4]), [("a",), ("b",), ("a",)], [1, 2, 1])
    found = several[("b",)]
    assert [x.tolist() for x in found] == [[2, 3]]
    assert isinstance(found[0], BatchedArray)
    assert [x.tolist() for x in several[("a",)]] == [[1], [4]]


def test_a_chunk_without_rows_has_no_item() -> None:
    rows = Rows({"x": np.array([5])}, [("a",), ("b",)], [0, 1])
    assert row_keys(rows) == [("b",)]
    assert [row["x"].tolist() for row in rows[("b",)]] == [[5]]
    assert ("a",) not in rows


def test_who_looks_may_change_what_is_there() -> None:
    rows = Rows(np.array([1, 2]), [("a",), ("b",)])
    assert rows.is_stacked
    rows[("a",)][0] = np.int64(7)
    assert not rows.is_stacked
    assert stacked(rows).tolist() == [7, 2]
    rows[("c",)] = [np.int64(9)]
    del rows[("b",)]
    assert rows.arrays.tolist() == [7, 9]
    assert rows.keys_of_rows == [("a",), ("c",)]


def test_looking_at_keys_leaves_the_arrays_alone() -> None:
    arrays = np.array([1, 2, 3])
    rows = Rows(arrays, [("a",), ("b",)], [1, 2])
    assert list(rows) == [("a",), ("b",)]
    assert len(rows) == 2
    assert ("b",) in list(rows)
    assert stacked(rows) is arrays
    assert repr(rows) == "Rows(3 rows of 2 episodes, as arrays)"


def test_copies_are_columns() -> None:
    for made in (Rows(np.array([1, 2]), [("a",), ("b",)]), Rows.of({("a",): [1], ("b",): [2]})):
        for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert stacked(copied).tolist() == [1, 2]
            assert row_keys(copied) == [("a",), ("b",)]


def test_as_many_rows_as_the_counts_say() -> None:
    with pytest.raises(ValueError, match="Rows: arrays must have 3 rows for 2 episodes, got 2"):
        Rows(np.zeros(2), [("a",), ("b",)], [1, 2])
    with pytest.raises(ValueError, match="Rows: arrays must have 1 rows for 1 episodes, got 2"):
        Rows({"x": np.zeros(1), "y": np.zeros(2)}, [("a",)])


def test_no_rows_cannot_be_stacked() -> None:
    with pytest.raises(EpisodeError, match="stacked: the column must have at least one row, got none"):
        stacked([])


def test_infos_are_items_whatever_is_in_them() -> None:
    infos: list[Any] = [{}, {"lives": 3}]
    assert items_of(infos) is infos
    assert row_count(infos) == 2
    assert row_count({("a",): infos, ("b",): [{}]}) == 3


def test_keys_name_the_agent_and_its_module() -> None:
    assert episode_key(SingleAgentEpisode("a")) == ("a",)
    of_agent = SingleAgentEpisode("b", agent_id="left", module_id="m", multi_agent_episode_id="world")
    assert episode_key(of_agent) == ("world", "left", "m")


# Those of ray.rllib.core.columns.Columns, RLlib 2.60.
RLLIB_NAMES = {
    "OBS": "obs",
    "INFOS": "infos",
    "ACTIONS": "actions",
    "ACTIONS_FOR_ENV": "actions_for_env",
    "REWARDS": "rewards",
    "TERMINATEDS": "terminateds",
    "TRUNCATEDS": "truncateds",
    "NEXT_OBS": "new_obs",
    "EPS_ID": "eps_id",
    "AGENT_ID": "agent_id",
    "MODULE_ID": "module_id",
    "SEQ_LENS": "seq_lens",
    "T": "t",
    "STATE_IN": "state_in",
    "NEXT_STATE_IN": "next_state_in",
    "STATE_OUT": "state_out",
    "NEXT_STATE_OUT": "next_state_out",
    "EMBEDDINGS": "embeddings",
    "ACTION_DIST_INPUTS": "action_dist_inputs",
    "ACTION_PROB": "action_prob",
    "ACTION_LOGP": "action_logp",
    "VF_PREDS": "vf_preds",
    "VALUES_BOOTSTRAPPED": "values_bootstrapped",
    "ADVANTAGES": "advantages",
    "VALUE_TARGETS": "value_targets",
    "INTRINSIC_REWARDS": "intrinsic_rewards",
    "RETURNS_TO_GO": "returns_to_go",
    "LOSS_MASK": "loss_mask",
}
OUR_NAMES = {
    "PREV_ACTIONS": "prev_actions",
    "PREV_REWARDS": "prev_rewards",
    "DISCOUNTS": "discounts",
    "N_STEPS": "n_steps",
}


def test_names_are_those_of_rllib() -> None:
    names = {name: value for name, value in vars(Columns).items() if name.isupper()}
    assert names == {**RLLIB_NAMES, **OUR_NAMES}
