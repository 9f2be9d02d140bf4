"""Hindsight: goals that the same episode reached, every summed reward anew, everything else as it was stored."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ringback import ReplayBuffer
from ringback.replay.hindsight import hindsight
from tests.replay.statistics import assert_uniform
from tests.replay.twin import TRANSITIONS, assert_same, fields_of

GAMMA = 0.9
GOAL = gym.spaces.Box(-1e6, 1e6, (2,), np.float64)
SPACE = gym.spaces.Dict(
    {
        "observation": gym.spaces.Dict({"image": gym.spaces.Box(0, 255, (2, 2), np.uint8)}),
        "achieved_goal": GOAL,
        "desired_goal": GOAL,
    }
)


def observation(episode: int, t: int) -> Any:
    return {
        "observation": {"image": np.full((2, 2), t, np.uint8)},
        "achieved_goal": np.array([episode, t], float),
        "desired_goal": np.array([-1.0, episode]),
    }


class World:
    """A buffer, and what every live step of it is: id → (episode, t)."""

    def __init__(self, capacity: int = 60, device: Any = None, seed: int = 0) -> None:
        self.buffer = ReplayBuffer(capacity, SPACE, 1, device, seed=seed, extras={"tag": ((), np.int64)})
        self.steps: dict[int, tuple[int, int]] = {}
        self.ends: dict[int, tuple[int, str | None]] = {}
        self.capacity = capacity

    def play(self, episodes: dict[int, tuple[int, str | None]]) -> World:
        """Play episodes side by side: number → (length, how it ends)."""
        for t in range(max(length for length, _ in episodes.values())):
            for episode, (length, end) in episodes.items():
                if t < length:
                    last = t == length - 1
                    number = self.buffer.add(
                        observation(episode, t),
                        [0.0],
                        -float(t),
                        observation(episode, t + 1),
                        last and end == "terminated",
                        last and end == "truncated",
                        episode,
                        {"tag": 7 * t + episode},
                    )
                    self.steps[number] = episode, t
        self.ends |= episodes
        live = sorted(self.steps)[-self.capacity :]
        self.steps = {number: self.steps[number] for number in live}
        return self

    def times(self, episode: int) -> list[int]:
        return [t for e, t in self.steps.values() if e == episode]

    def goals(self, number: int, strategy: str) -> list[int]:
        """Return the times of the observations whose goals a step may get."""
        episode, t = self.steps[number]
        length, end = self.ends[episode]
        if strategy == "final":
            return [length] if end else []
        return [u + 1 for u in self.times(episode) if strategy == "episode" or u >= t]


def world(device: Any = None) -> World:
    """Return several streams, a wrapped ring, all kinds of ends."""
    made = World(device=device).play({0: (9, "terminated"), 1: (30, "truncated"), 2: (4, "terminated")})
    return made.play({3: (12, "terminated"), 4: (8, None), 5: (20, "truncated"), 6: (5, None)})


def reward(achieved: Any, desired: Any, infos: Any) -> Any:
    """Name the goal, the step and its extra in one exact number."""
    assert achieved.shape == desired.shape
    assert achieved.shape[1:] == (2,)
    assert (infos["tag"][:, 0] == 7 * (achieved[:, 1] - 1) + achieved[:, 0]).all()
    return 64 * desired[:, 1] + achieved[:, 1]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.8, 1.0])
def test_rows_get_goals_of_their_own_episode_and_the_rewards_for_them(strategy: Any, ratio: float, n_step: int) -> None:
    made = world()
    for round_ in range(20):
        batch = made.buffer.sample_transitions(25, n_step=n_step, gamma=GAMMA)
        before = {name: np.copy(getattr(batch, name)) for name in ("rewards", "dones", "ids")}
        out = hindsight(made.buffer, batch, strategy, ratio=ratio, reward_fn=reward, seed=round_)
        assert_same(fields_of(batch, before), before)  # what was given stays
        relabelled = 0
        for k, number in enumerate(batch.ids.tolist()):
            episode, t = made.steps[number]
            m = int(batch.n_steps[k, 0])
            goal = out.observations["desired_goal"][k]
            np.testing.assert_array_equal(out.next_observations["desired_goal"][k], goal)
            if goal[0] == -1:
                np.testing.assert_array_equal(goal, [-1, episode])
                assert out.rewards[k] == batch.rewards[k]
                continue
            relabelled += 1
            assert goal[0] == episode
            assert int(goal[1]) in made.goals(number, strategy)
            want = sum(GAMMA**j * (64 * goal[1] + t + j + 1) for j in range(m))
            assert out.rewards[k, 0] == np.float32(want)
        possible = sum(bool(made.goals(number, strategy)) for number in batch.ids.tolist())
        if strategy != "final":
            assert relabelled == int(ratio * 25 + 0.5)
        elif ratio == 1:
            assert relabelled == possible
        else:
            assert relabelled <= int(ratio * 25 + 0.5)
        for name in set(TRANSITIONS) - {"observations", "next_observations", "rewards"}:
            assert getattr(out, name) is getattr(batch, name)
        for name in ("observations", "next_observations"):
            for part in ("observation", "achieved_goal"):
                assert getattr(out, name)[part] is getattr(batch, name)[part]


@pytest.mark.parametrize("strategy", ["future", "episode"])
def test_each_goal_is_as_likely(strategy: Any) -> None:
    made = world()
    number = next(number for number, step in made.steps.items() if step == (5, 9))
    batch = made.buffer.get(np.full(2_000, number))
    out = hindsight(made.buffer, batch, strategy, ratio=1, reward_fn=reward, seed=1)
    goals = made.goals(number, strategy)
    assert_uniform(out.observations["desired_goal"][:, 1].astype(int).tolist(), goals)
    assert min(goals) == (10 if strategy == "future" else min(made.times(5)) + 1)  # a step's own goal is one of them


def test_each_row_is_as_likely_to_be_relabelled() -> None:
    made = world()
    batch = made.buffer.get(sorted(made.steps)[-40:])
    chosen = []
    for seed in range(200):
        out = hindsight(made.buffer, batch, "episode", ratio=0.25, reward_fn=reward, seed=seed)
        chosen += np.flatnonzero(out.observations["desired_goal"][:, 0] != -1).tolist()
    assert_uniform(chosen, range(40), 10)


def test_the_ids_decide_unless_a_seed_is_given() -> None:
    made = world()
    batch = made.buffer.sample_transitions(30)

    def goals(**options: Any) -> list[Any]:
        out = hindsight(made.buffer, batch, reward_fn=reward, **options)
        chosen: list[Any] = out.observations["desired_goal"].tolist()
        return chosen

    assert goals() == goals()
    assert goals(seed=3) == goals(seed=3) != goals(seed=4)
    random = np.random.default_rng(3)
    assert goals(seed=random) == goals(seed=3)
    assert goals(seed=random) != goals(seed=3)


def test_single_steps_without_a_discount() -> None:
    made = world()
    batch = made.buffer.sample_transitions(30)
    out = hindsight(made.buffer, batch, ratio=1, reward_fn=reward)
    assert out.discounts is out.n_steps is None
    want = 64 * out.observations["desired_goal"][:, 1] + batch.next_observations["achieved_goal"][:, 1]
    np.testing.assert_array_equal(out.rewards[:, 0], want.astype(np.float32))


# ---- ends for a goal -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_step", [1, 4])
def test_an_end_for_the_new_goal_cuts_the_row_there(n_step: int) -> None:
    made = world()
    seen = set()
    for seed in range(40):
        batch = made.buffer.sample_transitions(30, n_step=n_step, gamma=GAMMA)
        out = hindsight(
            made.buffer,
            batch,
            ratio=0.7,
            reward_fn=reward,
            terminated_fn=lambda achieved, desired, infos: (achieved == desired).all(axis=1),
            seed=seed,
        )
        for k, number in enumerate(batch.ids.tolist()):
            episode, t = made.steps[number]
            goal = out.observations["desired_goal"][k]
            stored = bool(batch.terminations[k, 0]), bool(batch.truncations[k, 0])
            flags = bool(out.terminations[k, 0]), bool(out.truncations[k, 0])
            m, left = int(batch.n_steps[k, 0]), int(out.n_steps[k, 0])
            after = {"image": out.next_observations["observation"]["image"][k]}
            after |= {name: out.next_observations[name][k] for name in ("achieved_goal", "desired_goal")}
            if goal[0] == -1:
                assert (flags, left, out.rewards[k, 0]) == (stored, m, batch.rewards[k, 0])
                continue
            hit = t < goal[1] <= t + m
            assert left == (goal[1] - t if hit else m)
            kind = "hit" if hit else "missed"
            want = (True, left == m and stored[1]) if hit else (False, stored[0] or stored[1])
            # A stored termination that is none for this goal has nothing after it: truncated.
            assert flags == want
            seen.add((kind, stored, left < m))
            assert out.dones[k, 0] == hit
            assert out.discounts[k, 0] == np.float32(0 if hit else np.cumprod([1, *[GAMMA] * left])[-1])
            np.testing.assert_array_equal(after["achieved_goal"], [episode, t + left])
            np.testing.assert_array_equal(after["image"], np.full((2, 2), t + left))
            np.testing.assert_array_equal(after["desired_goal"], goal)
            total = sum(GAMMA**j * (64 * goal[1] + t + j + 1) for j in range(left))
            assert out.rewards[k, 0] == np.float32(total)
    assert {(kind, stored) for kind, stored, _ in seen} >= {("missed", (False, False)), ("hit", (False, False))}
    if n_step > 1:
        assert any(cut for _, _, cut in seen)
        assert ("hit", (True, False), False) in seen
        assert ("missed", (True, False), False) not in seen  # its own end is the last goal of the episode


def test_a_step_that_ended_the_episode_but_not_for_this_goal_is_cut_off() -> None:
    made = World().play({0: (3, "terminated")})
    batch = made.buffer.get([2])
    never = lambda achieved, desired, infos: np.zeros((len(achieved), 1), bool)  # noqa: E731
    out = hindsight(made.buffer, batch, ratio=1, reward_fn=reward, terminated_fn=never)
    assert (batch.terminations.item(), out.terminations.item(), out.truncations.item()) == (True, False, True)
    assert out.dones.item() == 0


# ---- the discount ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.98, 0.995, 0.1, 1 / 3, 0.97531])
def test_the_discount_is_read_from_the_batch(gamma: float) -> None:
    made = world()
    batch = made.buffer.sample_transitions(40, n_step=5, gamma=gamma)
    options: Any = {"ratio": 1, "reward_fn": reward}
    told = hindsight(made.buffer, batch, gamma=gamma, **options)
    read = hindsight(made.buffer, batch, **options)
    if gamma != 1 / 3:
        np.testing.assert_array_equal(read.rewards, told.rewards)
    np.testing.assert_allclose(read.rewards, told.rewards, rtol=1e-6)


def test_a_discount_that_cannot_be_read_or_is_another_is_refused() -> None:
    made = World().play({0: (3, "terminated")})
    batch = made.buffer.sample_transitions(3, n_step=3, gamma=0.9)
    with pytest.raises(ValueError, match=r"^hindsight: gamma must be given where all rows terminate, got None$"):
        hindsight(made.buffer, batch, ratio=1, reward_fn=reward)
    hindsight(made.buffer, batch, ratio=1, reward_fn=reward, gamma=0.9)
    made.play({1: (9, None)})
    batch = made.buffer.sample_transitions(12, n_step=3, gamma=0.9)
    with pytest.raises(ValueError, match=r"^hindsight: gamma must be that of the batch \(0.9\), got 0.99$"):
        hindsight(made.buffer, batch, reward_fn=reward, gamma=0.99)


# ---- splits and stacks -----------------------------------------------------------------------------------------------


def test_a_view_of_a_split_is_as_good_as_the_buffer() -> None:
    made = world()
    for view in made.buffer.split(0.5, seed=1):
        batch = view.sample_transitions(len(view), n_step=2, gamma=GAMMA)
        out = hindsight(view, batch, "episode", ratio=1, reward_fn=reward)
        for number, goal in zip(batch.ids.tolist(), out.observations["desired_goal"].tolist(), strict=True):
            assert goal[0] == made.steps[number][0]
            assert int(goal[1]) in made.goals(number, "episode")


def test_a_block_of_an_endless_stream_gives_its_own_goals() -> None:
    buffer = ReplayBuffer(300, SPACE, 1, seed=0, extras={"tag": ((), np.int64)})
    views = buffer.split(0.5, seed=2, block=20, gap=5)
    for t in range(250):
        buffer.add(observation(0, t), [0.0], 0.0, observation(0, t + 1), False, extras={"tag": 7 * t})
    for view in views:
        side = set(view.valid_starts().tolist())
        for strategy in ("future", "episode"):
            batch = view.sample_transitions(60)
            out = hindsight(view, batch, strategy, ratio=1, reward_fn=reward)
            reached = out.observations["desired_goal"][:, 1] - 1
            assert set(reached.tolist()) <= side
            if strategy == "future":
                assert (reached >= batch.ids).all()


def test_each_frame_of_a_stack_shows_the_new_goal() -> None:
    made = world()
    batch = made.buffer.sample_transitions(20, stack=3)
    out = hindsight(made.buffer, batch, ratio=1, reward_fn=reward)
    for field in (out.observations, out.next_observations):
        assert field["desired_goal"].shape == (20, 3, 2)
        assert (field["desired_goal"] == field["desired_goal"][:, :1]).all()
        assert (field["desired_goal"][:, 0, 0] != -1).all()
    want = 64 * out.observations["desired_goal"][:, 0, 1] + batch.next_observations["achieved_goal"][:, -1, 1]
    np.testing.assert_array_equal(out.rewards[:, 0], want.astype(np.float32))
    only = made.buffer.sample_transitions(20, stack={"observation/image": 3})
    out = hindsight(made.buffer, only, ratio=1, reward_fn=reward)
    assert out.observations["desired_goal"].shape == (20, 2)


# ---- tensors, staleness, cost, refusals ------------------------------------------------------------------------------


def test_tensors_hold_what_arrays_hold() -> None:
    plain, tensors = world(), world("cpu")
    a, b = (made.buffer.sample_transitions(30, n_step=3, gamma=GAMMA) for made in (plain, tensors))
    reached = lambda achieved, desired, infos: (achieved == desired).all(axis=1)  # noqa: E731
    a, b = (
        hindsight(made.buffer, batch, reward_fn=reward, terminated_fn=reached)
        for made, batch in ((plain, a), (tensors, b))
    )

    def arrays(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: arrays(part) for name, part in value.items()}
        assert isinstance(value, torch.Tensor)
        return value.numpy()

    assert_same({name: arrays(getattr(b, name)) for name in TRANSITIONS}, fields_of(a, TRANSITIONS))


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_stale_step_raises(ratio: float) -> None:
    made = world()
    batch = made.buffer.sample_transitions(30)
    made.play({9: (60, None)})
    with pytest.raises(IndexError):
        hindsight(made.buffer, batch, ratio=ratio, reward_fn=reward)


def test_all_rewards_come_from_one_call() -> None:
    made = world()
    calls: list[int] = []

    def count(achieved: Any, desired: Any, infos: Any) -> Any:
        calls.append(len(achieved))
        return np.zeros(len(achieved))

    batch = made.buffer.sample_transitions(30, n_step=3, gamma=GAMMA)
    hindsight(made.buffer, batch, ratio=1, reward_fn=count)
    assert calls == [int(batch.n_steps.sum())]


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (ValueError, {"strategy": "past"}, "strategy must be 'future', 'final' or 'episode', got 'past'"),
        (ValueError, {"ratio": 1.5}, r"ratio must be in \[0, 1\], got 1.5"),
        (TypeError, {"ratio": "all"}, "ratio must be a number, got 'all'"),
        (ValueError, {"gamma": 1.5}, r"gamma must be in \[0, 1\], got 1.5"),
        (
            ValueError,
            {"reward_fn": lambda a, d, i: np.zeros((len(a), 2))},
            r"reward_fn must return shape \(30,\) or \(30, 1\), got \(30, 2\)",
        ),
        (TypeError, {"reward_fn": lambda a, d, i: ["x"] * len(a)}, "reward_fn must return numbers, got dtype <U1"),
        (
            ValueError,
            {"terminated_fn": lambda a, d, i: True},
            r"terminated_fn must return shape \(30,\) or \(30, 1\), got \(\)",
        ),
    ],
)
def test_wrong_arguments_are_named(error: Any, options: Any, message: str) -> None:
    made = world()
    batch = made.buffer.sample_transitions(30)
    with pytest.raises(error, match=rf"^hindsight: {message}$"):
        hindsight(made.buffer, batch, **{"ratio": 1, "reward_fn": reward, **options})


def test_batches_without_goals_are_refused() -> None:
    made = world()
    sequences: Any = made.buffer.sample_sequences(2, 3)
    with pytest.raises(TypeError, match=r"^hindsight: batch must be Transitions, got Sequences$"):
        hindsight(made.buffer, sequences, reward_fn=reward)
    plain = ReplayBuffer(10, 1, 1)
    plain.add([0], [0], 0, [1], False)
    message = r"^hindsight: observations must be a dict with the keys \['achieved_goal', 'desired_goal'\], got no dict$"
    with pytest.raises(TypeError, match=message):
        hindsight(plain, plain.sample_transitions(1), reward_fn=reward)
