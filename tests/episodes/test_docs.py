"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "least"),
    [
        ("lookback_buffer", 2),
        ("one_hot", 1),
        ("padding", 1),
        ("single_agent_episode", 4),
        ("stacking", 5),
        ("structure", 2),
    ],
)
def test_the_examples_hold(module: str, least: int) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"ringback.episodes.{module}"))
    assert failed == 0
    assert tried >= least
