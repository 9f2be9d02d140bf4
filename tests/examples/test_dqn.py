"""The DQN program learns, does the same again with the same seed, and steps by the Q-loss of n-step returns."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ringback.examples import dqn, training
from tests.examples.corridor import BEST, CORRIDOR, register

register()
torch.set_num_threads(1)

SMALL = dqn.Settings(
    CORRIDOR, seed=1, steps=2_500, width=32, batch_size=32, capacity=2_000, warmup=200, tau=0.02, validate_every=250
)


def weights(network: dqn.QNetwork) -> list[Any]:
    return [value.tolist() for value in network.state_dict().values()]


@pytest.mark.parametrize(
    "changes",
    [{"num_envs": 1}, {"num_envs": 3}, {"prioritized": True}, {"prioritized": True, "double": False, "n_step": 2}],
    ids=str,
)
def test_learns_the_best_policy_and_stops_when_every_validation_episode_shows_it(changes: dict[str, Any]) -> None:
    moments: list[training.Progress] = []
    result = dqn.train(dataclasses.replace(SMALL, **changes), moments.append)
    assert result.reason == "solved"
    assert result.step == moments[-1].step < SMALL.steps
    assert all(value >= BEST for value in dqn.evaluate(result.network, CORRIDOR, 30, seed=(99,)))
    validations = [moment.validation_return for moment in moments if moment.validation_return is not None]
    assert min(validations[-3:]) >= BEST
    assert moments[-1].episodes == sum(len(moment.finished) for moment in moments)
    assert set(moments[-1].figures) == set(dqn.FIGURES)


def test_same_seed_same_network_and_another_seed_another() -> None:
    brief = dataclasses.replace(SMALL, steps=260, validate_every=1_000)
    first, second, other = (dqn.train(dataclasses.replace(brief, seed=seed)).network for seed in (3, 3, 4))
    assert weights(first) == weights(second) != weights(other)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_update_is_the_q_loss_of_n_step_returns(double: bool, weighted: bool) -> None:
    torch.manual_seed(0)
    settings = dqn.Settings(CORRIDOR, tau=0.25, clip=1e9, double=double)
    learner = dqn._Learner(dqn.QNetwork(4, 3, 8), settings, first_action=2)
    online, target = learner._network, learner._target.network
    for slow in target.parameters():
        slow.data.normal_()

    class Batch:
        observations = torch.arange(24.0).reshape(6, 4)
        next_observations = observations.flip(0)
        actions = torch.tensor([[2], [3], [4], [2], [3], [4]])
        rewards = torch.arange(6.0)[:, None] * 3
        discounts = torch.tensor([[0.0], [0.97], [0.99], [0.97], [0.0], [0.98]])
        weights = torch.tensor([[1.0], [0.5], [0.25], [0.5], [1.0], [0.125]]) if weighted else None

    def values(network: dqn.QNetwork, observation: torch.Tensor) -> list[float]:
        row: list[float] = network(observation[None]).detach()[0].tolist()
        return row

    choices = [[int(np.argmax(values(net, row))) for row in Batch.next_observations] for net in (online, target)]
    assert choices[0] != choices[1]  # else double Q would look like single Q
    want, errors = [], []
    for row in range(6):
        after = Batch.next_observations[row]
        best = int(np.argmax(values(online if double else target, after)))
        bootstrapped = float(Batch.rewards[row]) + float(Batch.discounts[row]) * values(target, after)[best]
        error = abs(values(online, Batch.observations[row])[int(Batch.actions[row]) - 2] - bootstrapped)
        errors.append([error])
        weight = 1.0 if Batch.weights is None else float(Batch.weights[row])
        want.append(weight * (0.5 * error**2 if error < 1 else error - 0.5))
    before = [value.clone() for value in online.parameters()], [value.clone() for value in target.parameters()]

    torch.testing.assert_close(learner.update(Batch, 0.1), torch.tensor(errors), rtol=1e-5, atol=1e-6)
    assert learner.loss == pytest.approx(np.mean(want), rel=1e-5)
    for was, now in zip(before[0], online.parameters(), strict=True):
        assert not torch.equal(was, now)
    for was, fast, now in zip(before[1], online.parameters(), target.parameters(), strict=True):
        torch.testing.assert_close(now, 0.75 * was + 0.25 * fast)


def test_policy_explores_as_often_as_told_and_over_all_actions() -> None:
    space = gym.spaces.Discrete(4, start=-1)
    policy = dqn.Policy(dqn.QNetwork(2, 4, 8), space, seed=(5,))
    rows = {"obs": torch.ones(4_000, 2)}
    (greedy,) = set(policy(rows)["actions"].tolist())
    policy.epsilon = 0.5
    values, numbers = np.unique(policy(rows)["actions"], return_counts=True)
    counts = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    assert set(counts) == {-1, 0, 1, 2}
    others = [count for action, count in counts.items() if action != greedy]
    assert all(abs(count - 500) < 5 * math.sqrt(4_000 / 8 * 7 / 8) for count in others)


def test_saved_network_comes_back(tmp_path: Path) -> None:
    settings = dataclasses.replace(SMALL, steps=210)
    network = dqn.train(settings).network
    training.save(network, settings, tmp_path / "model.pt")
    loaded, same_settings = dqn.load(tmp_path / "model.pt")
    assert same_settings == settings
    assert weights(loaded) == weights(network)
    seeds = dqn.evaluate(loaded, CORRIDOR, 25, seed=(1, training.TEST))
    assert len(seeds) == 25
    assert seeds == dqn.evaluate(network, CORRIDOR, 25, seed=(1, training.TEST))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            "ringback-tests/Continuous-v0",
            r"^train: ringback-tests/Continuous-v0 must have a Discrete action space, "
            r"got Box\(-1.0, 1.0, \(1,\), float32\)$",
        ),
        (
            "ringback-tests/Numbered-v0",
            r"^train: ringback-tests/Numbered-v0 must have a Box observation space, got Discrete\(6\)$",
        ),
    ],
)
def test_other_spaces_are_named(env: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        dqn.train(dqn.Settings(env))
