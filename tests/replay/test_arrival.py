"""The arrival layout: T + 1 rows an episode, rewards and ends lie with the observation that they led to."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.answers import FullTwin, numbers
from tests.replay.worlds import f32, vector


def test_an_episode_of_t_steps_has_t_plus_one_rows() -> None:
    twin = FullTwin(20)
    twin.play(1, 3)
    batch = twin.windows(length=4, layout="arrival")
    assert numbers(batch.observations) == [[1000, 1001, 1002, 1003]]
    assert numbers(batch.actions) == [[-1000, -1001, -1002, 0]]
    assert numbers(batch.rewards) == [[0, 1000, 1001, 1002]]
    assert numbers(batch.is_first) == [[1, 0, 0, 0]]
    assert numbers(batch.is_last) == [[0, 0, 0, 1]]
    assert numbers(batch.is_terminal) == [[0, 0, 0, 1]]
    assert numbers(batch.terminations) == [[0, 0, 0, 1]]
    assert batch.ids.tolist() == [[0, 1, 2, -1]]


@pytest.mark.parametrize(("end", "terminal", "truncated"), [("terminated", 1, 0), ("truncated", 0, 1), ("both", 1, 1)])
def test_a_time_limit_is_last_but_not_terminal(end: str, terminal: int, truncated: int) -> None:
    twin = FullTwin(20)
    twin.play(0, 2, end)
    batch = twin.windows(length=3, layout="arrival")
    assert numbers(batch.is_last) == [[0, 0, 1]]
    assert numbers(batch.is_terminal) == numbers(batch.dones) == [[0, 0, terminal]]
    assert numbers(batch.truncations) == [[0, 0, truncated]]


def test_an_open_episode_has_no_last_row_yet() -> None:
    twin = FullTwin(20)
    twin.play(2, 3, None)
    batch = twin.windows(length=2, layout="arrival")
    assert numbers(batch.observations) == [[2000, 2001], [2001, 2002]]
    assert numbers(batch.rewards) == [[0, 2000], [2000, 2001]]
    assert not batch.is_last.any()
    twin.end_episode(0)
    batch = twin.windows(length=2, layout="arrival")
    assert numbers(batch.observations) == [[2000, 2001], [2001, 2002], [2002, 2003]]
    assert numbers(batch.is_last) == [[0, 0], [0, 0], [0, 1]]
    assert numbers(batch.truncations) == [[0, 0], [0, 0], [0, 1]]


def test_the_row_whose_reward_is_evicted_is_no_start() -> None:
    twin = FullTwin(6)
    twin.play(0, 10, "truncated")  # 4 to 9 are live, the reward that came with observation 4 is gone
    batch = twin.windows(length=3, layout="arrival")
    assert numbers(batch.observations) == [[5, 6, 7], [6, 7, 8], [7, 8, 9], [8, 9, 10]]
    assert numbers(batch.rewards) == [[4, 5, 6], [5, 6, 7], [6, 7, 8], [7, 8, 9]]
    assert not batch.is_first.any()


def test_the_reward_of_a_middle_row_is_the_real_one() -> None:
    twin = FullTwin(20)
    twin.play(1, 6)
    batch = twin.windows(length=2, layout="arrival")
    assert numbers(batch.rewards)[3] == [1002, 1003]  # zero at the episode's beginning only, not at the window's
    assert numbers(batch.is_first)[3] == [0, 0]


def test_the_last_observation_is_the_one_that_was_given() -> None:
    twin = FullTwin(20)
    twin.add(f32([10]), f32([1]), 1.0, f32([20]), False)
    twin.add(f32([30]), f32([2]), 2.0, f32([40]), True)  # differs from the successor before: both are kept
    batch = twin.windows(length=3, layout="arrival")
    assert numbers(batch.observations) == [[10, 30, 40]]
    assert numbers(batch.rewards) == [[0, 1, 2]]


def test_padding_and_burn_in_of_arrivals() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    batch = twin.windows(length=2, layout="arrival", pad=True, burn_in=1)
    assert numbers(batch.observations) == [[1000, 1001, 0], [1000, 1001, 1002], [1001, 1002, 0]]
    assert numbers(batch.mask) == [[1, 1, 0], [0, 1, 1], [0, 1, 0]]
    assert numbers(batch.valid) == [[1, 1, 0], [1, 1, 1], [1, 1, 0]]
    assert batch.start_ids.tolist() == [0, 1, -1]


def test_extras_lie_with_the_step_that_is_taken() -> None:
    twin = FullTwin(20, extras={"logp": vector(1)})
    twin.play(1, 2)
    batch = twin.windows(length=3, layout="arrival")
    assert numbers(batch.extras["logp"]) == [[1000, 1001, 0]]


def test_whole_episodes_of_arrivals() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    twin.play(2, 3, "truncated")
    batch = twin.windows(length=4, whole=True, layout="arrival")
    assert numbers(batch.observations) == [[1000, 1001, 1002, 0], [2000, 2001, 2002, 2003]]
    assert numbers(batch.rewards) == [[0, 1000, 1001, 0], [0, 2000, 2001, 2002]]
    assert batch.lengths.ravel().tolist() == [3, 4]


def test_stacks_of_arrivals() -> None:
    twin = FullTwin(20)
    twin.play(1, 2)
    batch = twin.windows(length=3, layout="arrival", stack=2, stack_fill=0)
    assert batch.observations[0, :, :, 0].tolist() == [[0, 1000], [1000, 1001], [1001, 1002]]


@pytest.mark.parametrize("layout", ["dreamer", ""])
def test_an_unknown_layout_is_refused(layout: Any) -> None:
    buffer = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    text = f"ReplayBuffer.sample_sequences: layout must be 'step' or 'arrival', got {layout!r}"
    with pytest.raises(ValueError, match=re.escape(text)):
        buffer.sample_sequences(2, 3, layout=layout)


@pytest.mark.parametrize("options", [{"n_step": 2, "gamma": 0.5}, {"next_observations": True}])
def test_arrivals_have_neither_sums_nor_successors(options: dict[str, Any]) -> None:
    buffer: Any = ReplayBuffer(20, 1, 1)
    for t in range(9):
        buffer.add([t], [0], t, [t + 1], False)
    with pytest.raises(
        ValueError, match=r"^ReplayBuffer\.sample_sequences: layout must be 'step' with .*, got 'arrival'"
    ):
        buffer.sample_sequences(2, 3, layout="arrival", **options)


def test_the_step_layout_is_the_default() -> None:
    buffer = ReplayBuffer(20, 1, 1, seed=0)
    other = ReplayBuffer(20, 1, 1, seed=0)
    for t in range(9):
        for one in (buffer, other):
            one.add([t], [0], t, [t + 1], t == 8)
    np.testing.assert_array_equal(
        buffer.sample_sequences(4, 3).rewards, other.sample_sequences(4, 3, layout="step").rewards
    )
