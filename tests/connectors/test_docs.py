"""The examples in the docstrings of the pieces hold, and every public piece has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

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


def test_names_are_sorted_and_aliases_are_the_same_classes() -> None:
    assert sorted(connectors.__all__) == list(connectors.__all__)
    assert connectors.AddObservationsFromEpisodesToBatch is connectors.AddObservations
    assert connectors.ConnectorV2 is connectors.Connector
