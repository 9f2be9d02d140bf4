"""The examples in the docstrings of the pieces hold, and every public piece has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import gymnasium as gym
import pytest

import ringback.connectors as connectors
from ringback.connectors import Connector

MODULES = sorted(module.name for module in pkgutil.iter_modules(connectors.__path__))


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_hold(module: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"ringback.connectors.{module}"))
    assert failed == 0


@pytest.mark.parametrize("name", connectors.__all__)
def test_pieces_say_what_they_do_with_an_example_and_their_source(name: str) -> None:
    piece = getattr(connectors, name)
    assert inspect.getdoc(piece)
    if isinstance(piece, type) and issubclass(piece, Connector):
        assert piece.__doc__ is not None
        assert ">>>" in piece.__doc__
        assert "References" in piece.__doc__


NEEDED: dict[str, dict[str, Any]] = {
    "ComputeReturnsToGo": {"gamma": 0.9},
    "FrameStack": {"num_frames": 2},
    "GeneralAdvantageEstimation": {"gamma": 0.9, "lambda_": 0.9},
    "NStepReturns": {"n_step": 2, "gamma": 0.9},
}
PIECES = {name: getattr(connectors, name) for name in connectors.__all__ if hasattr(getattr(connectors, name), "name")}
OWN = {kind.__name__: kind for kind in PIECES.values() if kind not in (Connector, connectors.ConnectorPipeline)}


@pytest.mark.parametrize("name", OWN)
def test_every_piece_refuses_an_option_that_it_does_not_have(name: str) -> None:
    needed = NEEDED.get(name, {})
    assert OWN[name](**needed, as_learner_connector=False, multi_agent=False).name == name
    with pytest.raises(TypeError, match=f"^{name}: options must be .*, got 'gama'$"):
        OWN[name](**needed, gama=0.9)


def test_spaces_are_named_where_a_piece_has_arguments_of_its_own() -> None:
    space = gym.spaces.Discrete(3)
    given: list[tuple[Any, tuple[Any, ...]]] = [
        (connectors.FrameStack, (2, "first", space)),
        (connectors.PreviousActionsRewards, (1, 1, True, space)),
    ]
    for kind, arguments in given:
        with pytest.raises(TypeError, match="positional argument"):
            kind(*arguments)
    assert connectors.FrameStack(2, input_observation_space=space).input_observation_space == space
    assert connectors.PreviousActionsRewards(input_action_space=space).input_action_space == space


def test_names_are_sorted_and_aliases_are_the_same_classes() -> None:
    assert sorted(connectors.__all__) == list(connectors.__all__)
    assert connectors.AddObservationsFromEpisodesToBatch is connectors.AddObservations
    assert connectors.ConnectorV2 is connectors.Connector
