"""A piece written for RLlib does the same on our base class; on RLlib's too, where that is installed."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from ringback import connectors
from ringback.episodes import SingleAgentEpisode
from tests.connectors.custom_pieces import PROGRAMS, Library
from tests.connectors.test_columns import RLLIB_NAMES


def ours() -> Library:
    return Library(
        connectors.ConnectorV2,
        lambda pieces, obs, act: connectors.ConnectorPipeline(
            pieces, input_observation_space=obs, input_action_space=act
        ),
        SingleAgentEpisode,
        connectors.AddObservationsFromEpisodesToBatch,
        connectors.AddColumnsFromEpisodesToTrainBatch,
        connectors.BatchIndividualItems,
        connectors.ListifyDataForVectorEnv,
    )


def theirs() -> Library:
    rllib = pytest.importorskip("ray.rllib")
    learner = importlib.import_module("ray.rllib.connectors.learner")
    pipeline = importlib.import_module("ray.rllib.connectors.connector_pipeline_v2").ConnectorPipelineV2
    return Library(
        rllib.connectors.connector_v2.ConnectorV2,
        lambda pieces, obs, act: pipeline(obs, act, connectors=pieces),
        rllib.env.single_agent_episode.SingleAgentEpisode,
        learner.AddObservationsFromEpisodesToBatch,
        learner.AddColumnsFromEpisodesToTrainBatch,
        learner.BatchIndividualItems,
        importlib.import_module("ray.rllib.connectors.module_to_env").ListifyDataForVectorEnv,
    )


# Observations are [100 * episode + t, t], rewards 10 * episode + t + 1.
EXPECTED: dict[str, Any] = {
    "writes_observations": {
        "seen": [
            [[0, 0, -1, -1], [101, 1, 11, 11]],
            [[1, 1, 1, 1], [102, 2, 12, 12]],
            [[2, 2, 2, 2], [103, 3, 13, 13]],
        ],
        "kept": [[101, 1, 11, 11], [102, 2, 12, 12]],
        "shapes": [(4,), (3,)],
    },
    "adds_items": {
        "obs": [[0, 0], [103, 3]],
        "age": {"steps": [0, 21], "kept": [[0, 0], [3, 3]]},
        "exploring": [1, 1],
        "oldest": 3,
    },
    "adds_many_items": {
        "times": [0, 1, 2, 2, 3, 4, 5],
        "both": {
            "now": [0, 1, 2, 2, 3, 4, 5],
            "pair": [[0, 0], [1, -1], [2, -2], [2, -2], [3, -3], [4, -4], [5, -5]],
        },
        "listed": [0, 0.5, 1, 1, 1.5, 2, 2.5],
    },
    "changes_items": {
        "also": [[0, -1], [-1, -2]],
        "obs": [[1, 1], [1052.5, 1002.5]],
        "seen": [(0, None, None), (1, None, None)],
    },
    "changes_lists_without_episodes": {"one": [30, 40, 50], "two": [8, 10, 12]},
    "changes_steps": {
        "obs": [[0, 0], [1.5, 1.5], [3, 3], [1153, 1103], [1154.5, 1104.5], [1156, 1106], [1157.5, 1107.5]],
        "again": [[0, 0], [-1, -1], [-2, -2], [-102, -2], [-103, -3], [-104, -4], [-105, -5]],
    },
    "has_a_state": {
        "seen": [[[1, 1], [102 / 128, 2 / 128]], [[1 / 128, 1 / 128]]],
        "state": {"LargestSeen": {"largest": 128.0}},
        "merged": {"largest": 40.0},
        "reset": {"LargestSeen": {"largest": 1.0}},
    },
    "pays_for_new_places": {
        "rewards": [1 + 8, 2 + 8, 3 + 8, 13 + 4, 14 + 4, 15 + 4, 16 + 2],
        "paid_before": [-1, 9, 10, 12, 17, 18, 19],
        "obs": [[0, 0], [1, 1], [2, 2], [102, 2], [103, 3], [104, 4], [105, 5]],
        "actions": [0, 1, 2, 2, 0, 1, 2],
        "terminateds": [False, False, True, False, False, False, False],
        "truncateds": [False] * 7,
        "again": [1 + 2, 2 + 2, 3 + 1, 13 + 0.5, 14 + 1, 15 + 1, 16 + 0.25],
        "kept": [17, 18, 19, 18],
        "counts": {0: 6, 1: 4, 2: 4},
    },
    "writes_back": {"obs": [[1, 1], [102, 2]], "kept": [[1.5, 1.5], [102.5, 2.5]]},
    "changes_actions": {"actions": [2, 0], "logp": [0, -1], "choices": 2},
    "switches_levels": {"left": {"obs": [1, 2], "actions": [4]}, "right": {"obs": [3]}},
}


def test_the_names_of_columns_are_rllibs() -> None:
    theirs = pytest.importorskip("ray.rllib.core.columns").Columns
    names = {name: value for name, value in vars(theirs).items() if name.isupper() and isinstance(value, str)}
    assert names == RLLIB_NAMES


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_custom_piece_does_what_its_author_expects(name: str) -> None:
    assert PROGRAMS[name](ours()) == EXPECTED[name]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_rllib_it_does_the_same(name: str) -> None:
    assert PROGRAMS[name](theirs()) == EXPECTED[name]
