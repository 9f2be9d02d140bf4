"""Same seed and same calls give the same bytes, whatever else the process does (I8)."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import play


def draws(buffer: ReplayBuffer, disturb: bool = False) -> list[list[int]]:
    answers = []
    for episode in range(12):
        play(buffer, episode, 7 + episode % 5, "truncated" if episode % 2 else "terminated")
        if disturb:
            random.seed(episode)
            np.random.seed(episode)  # noqa: NPY002
            buffer.valid_starts(3)
            buffer.get(buffer.valid_starts())
            buffer.get_state()
            buffer.stats()
        answers.append(buffer.sample_transitions(6).ids.tolist())
        answers.append(buffer.sample_transitions(9, n_step=3, gamma=0.9, replace=True).ids.tolist())
        answers.append(buffer.sample_sequences(3, 5).start_ids.tolist())
        answers.append(buffer.sample_sequences(3, 7, replace=True).start_ids.tolist())
    return answers


@pytest.mark.parametrize("seed", [0, 7, 2**63, 2**100, (7, 0), (7, 3), (7, 3, 1), np.int64(7)])
def test_equal_seeds_give_equal_draws(seed: Any) -> None:
    assert draws(ReplayBuffer(50, 1, 1, seed=seed)) == draws(ReplayBuffer(50, 1, 1, seed=seed))


def test_nothing_else_in_the_process_moves_the_draws() -> None:
    assert draws(ReplayBuffer(50, 1, 1, seed=7)) == draws(ReplayBuffer(50, 1, 1, seed=7), disturb=True)


def test_the_global_generators_are_left_alone() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002
    draws(ReplayBuffer(50, 1, 1))
    assert (random.getstate(), pickle.dumps(np.random.get_state())) == before  # noqa: NPY002


def test_other_seeds_give_other_draws() -> None:
    seeds: list[Any] = [0, 1, 7, (7, 0), (7, 1), (7, 2), (7, 0, 0), (8, 0), None, None]
    found = [draws(ReplayBuffer(50, 1, 1, seed=seed)) for seed in seeds]
    for k, one in enumerate(found):
        assert one not in found[:k], seeds[k]


def test_a_seed_of_one_number_is_that_number() -> None:
    assert draws(ReplayBuffer(50, 1, 1, seed=(7,))) == draws(ReplayBuffer(50, 1, 1, seed=7))


@pytest.mark.parametrize("seed", [-1, (-1, 2), ()])
def test_a_seed_below_zero_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed"):
        ReplayBuffer(50, 1, 1, seed=seed)


@pytest.mark.parametrize("seed", [1.5, "7", True, (7, 1.0), [None], {}])
def test_a_seed_that_is_no_integer_is_refused(seed: Any) -> None:
    with pytest.raises(TypeError, match="seed"):
        ReplayBuffer(50, 1, 1, seed=seed)


def test_the_stream_of_draws_is_the_same_in_another_process() -> None:
    code = "from tests.replay.test_determinism import *; print(draws(ReplayBuffer(50, 1, 1, seed=(7, 3))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(draws(ReplayBuffer(50, 1, 1, seed=(7, 3))))


def test_a_sample_does_not_depend_on_out_or_on_what_was_cached() -> None:
    plain, cached = (ReplayBuffer(500, 1, 1, seed=2) for _ in range(2))
    for episode in range(60):
        for buffer in (plain, cached):
            play(buffer, episode, 5 + episode % 7)
        cached.valid_starts(9)
        cached.valid_starts(11)
    for length in (9, 11, 3, 11, 9):
        np.testing.assert_array_equal(plain.sample_sequences(4, length).ids, cached.sample_sequences(4, length).ids)
    cached = copy.deepcopy(plain)  # a copy has no caches yet
    for length in (11, 9, 3):
        np.testing.assert_array_equal(plain.sample_sequences(4, length).ids, cached.sample_sequences(4, length).ids)
