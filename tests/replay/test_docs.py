"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "least"),
    [
        ("batches", 5),
        ("buffer", 4),
        ("hindsight", 8),
        ("mixing", 5),
        ("ratio", 5),
        ("sequence_priority", 1),
        ("splits", 2),
    ],
)
def test_the_examples_hold(module: str, least: int) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"ringback.replay.{module}"))
    assert failed == 0
    assert tried >= least
