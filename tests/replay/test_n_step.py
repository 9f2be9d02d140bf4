"""n-step transitions: sums stop at both kinds of end and at what is stored; each row says how far it went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ringback import ReplayBuffer
from tests.replay.playing import everything, play
from tests.replay.worlds import Chunk, f32, vectors


def feed(buffer: ReplayBuffer, rewards: list[float], first: int = 0, end: str | None = "terminated") -> None:
    for t, reward in enumerate(rewards):
        final = t == len(rewards) - 1
        buffer.add(
            [first + t], [0.0], reward, [first + t + 1], final and end == "terminated", final and end == "truncated"
        )


def test_the_sum_never_crosses_the_write_position() -> None:
    buffer = ReplayBuffer(6, 1, 1)
    feed(buffer, [0, 1, 2, 3, 4, 5, 6, 7], end=None)
    batch = everything(buffer, 3, 0.5)
    assert batch["observations"] == [2, 3, 4, 5, 6, 7]
    assert batch["rewards"] == [4.5, 6.25, 8.0, 9.75, 9.5, 7.0]
    assert batch["n_steps"] == [3, 3, 3, 3, 2, 1]
    assert batch["discounts"] == [0.125, 0.125, 0.125, 0.125, 0.25, 0.5]
    assert batch["next_observations"] == [5, 6, 7, 8, 8, 8]


def test_each_row_has_the_discount_of_the_steps_that_it_sums() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    feed(buffer, [1, 1, 1, 1], end="truncated")
    batch = everything(buffer, 3, 0.9)
    np.testing.assert_allclose(batch["rewards"], [2.71, 2.71, 1.9, 1.0], rtol=1e-6)
    np.testing.assert_allclose(batch["discounts"], [0.729, 0.729, 0.81, 0.9], rtol=1e-6)
    assert batch["n_steps"] == [3, 3, 2, 1]


def test_a_terminal_end_takes_the_bootstrap_away() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    feed(buffer, [1, 1, 1, 1], end="terminated")
    batch = everything(buffer, 3, 0.5)
    assert batch["discounts"] == [0.125, 0, 0, 0]
    assert batch["dones"] == [0, 1, 1, 1]
    assert batch["terminations"] == [False, True, True, True]
    assert batch["n_steps"] == [3, 3, 2, 1]


def test_a_time_limit_stops_the_sum_and_leaves_the_bootstrap() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    feed(buffer, [1, 1], first=0, end="truncated")
    feed(buffer, [10, 10], first=50)
    batch = everything(buffer, 3, 1.0)
    assert batch["rewards"][:2] == [2, 1]
    assert batch["n_steps"][:2] == [2, 1]
    assert batch["next_observations"][:2] == [2, 2]
    assert batch["terminations"][:2] == [False, False]
    assert batch["truncations"][:2] == [True, True]
    assert batch["discounts"][:2] == [1, 1]


def test_both_flags_at_once_count_as_terminated() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    buffer.add([0.0], [0.0], 1.0, [1.0], True, True)
    batch = everything(buffer, 1, 0.9)
    assert (batch["dones"], batch["terminations"], batch["truncations"]) == ([1.0], [True], [True])
    assert batch["discounts"] == [0.0]


@pytest.mark.parametrize(("end", "target"), [("terminated", 1.0), ("both", 1.0), ("truncated", 10.0), (None, 10.0)])
def test_the_one_step_target_is_right_at_every_kind_of_end(end: str | None, target: float) -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 1, end)
    _, _, _, _, done = buffer.sample_transitions(1)
    assert 1.0 + 0.9 * (1 - done[0, 0]) * 10 == pytest.approx(target)
    batch = buffer.sample_transitions(1, n_step=1, gamma=0.9)
    assert 1.0 + batch.discounts[0, 0] * 10 == pytest.approx(target)


def test_the_successor_is_the_one_after_the_last_summed_step() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 5, "truncated")
    batch = everything(buffer, 2, 1.0)
    assert batch["observations"] == [0, 1, 2, 3, 4]
    assert batch["next_observations"] == [2, 3, 4, 5, 5]


def test_reading_gives_copies() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 5)
    batch = buffer.sample_transitions(5, n_step=2, gamma=1.0)
    batch.next_observations[:] = -1
    assert (batch.observations >= 0).all()
    batch.observations[:] = -1
    batch.rewards[:] = -1
    assert everything(buffer)["observations"] == [0, 1, 2, 3, 4]
    assert everything(buffer)["next_observations"] == [1, 2, 3, 4, 5]


def test_writing_copies_its_input() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    observation, action, successor = f32([1]), f32([2]), f32([3])
    buffer.add(observation, action, 0.0, successor, True)
    for array in (observation, action, successor):
        array[:] = -1
    batch = everything(buffer)
    assert (batch["observations"], batch["actions"], batch["next_observations"]) == ([1], [2], [3])


@pytest.mark.parametrize("n_step", [1, 2, 3, 7, 100, 2**62])
def test_an_episode_of_t_steps_gives_t_starts_for_any_n(n_step: int) -> None:
    buffer = ReplayBuffer(40, 1, 1)
    play(buffer, 0, 2)
    play(buffer, 1, 9, "truncated")
    play(buffer, 2, 4, None)
    batch = everything(buffer, n_step, 0.9)
    left = [2, 1, *range(9, 0, -1), *range(4, 0, -1)]
    assert batch["n_steps"] == [min(n_step, steps) for steps in left]


def test_nothing_has_to_be_flushed() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 2, None)
    assert everything(buffer, 3, 0.5)["n_steps"] == [2, 1]  # the running episode, as far as it got
    play(buffer, 0, 1, None, start=2)
    assert everything(buffer, 3, 0.5)["n_steps"] == [3, 2, 1]


def test_steps_fed_singly_or_in_a_block_give_the_same_transitions() -> None:
    single, block, lanes = (ReplayBuffer(9, 1, 1) for _ in range(3))
    rewards = [1.0, 2.0, 3.0, 4.0, 5.0]
    feed(single, rewards)
    block.add_episode(Chunk("a", 0, [[t] for t in range(6)], [[0.0]] * 5, rewards, terminated=True))
    for t, reward in enumerate(rewards):
        lanes.add_batch(vectors([t]), vectors([0]), [reward], vectors([t + 1]), [t == 4])
    want = everything(single, 3, 0.9)
    assert len(want["rewards"]) == 5
    assert everything(block, 3, 0.9) == want
    assert everything(lanes, 3, 0.9) == want


def test_sums_are_kept_in_double_precision() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    feed(buffer, [1e8, 1.0, -1e8], end="truncated")
    assert everything(buffer, 3, 1.0)["rewards"][0] == 1.0


def test_discounts_are_given_whenever_gamma_is() -> None:
    buffer = ReplayBuffer(9, 1, 1)
    play(buffer, 0, 3)
    batch: Any = buffer.sample_transitions(3)
    assert batch.discounts is None
    assert batch.n_steps is None
    batch = buffer.sample_transitions(3, gamma=0.75)
    assert sorted(batch.discounts[:, 0].tolist()) == [0.0, 0.75, 0.75]
    assert batch.n_steps.tolist() == [[1]] * 3
    assert batch.n_steps.dtype == np.int64
    assert batch.discounts.dtype == np.float32


def test_extras_and_actions_are_those_of_the_first_step() -> None:
    buffer = ReplayBuffer(9, 1, 1, extras={"logp": ()})
    for t in range(4):
        buffer.add([t], [10 + t], 1.0, [t + 1], False, extras={"logp": 20 + t})
    batch = buffer.sample_transitions(4, n_step=3, gamma=1.0)
    np.testing.assert_array_equal(batch.actions, batch.observations + 10)
    np.testing.assert_array_equal(batch.extras["logp"], batch.observations + 20)
