"""The SAC program learns, acts within bounds, and steps as the textbook says."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from ringback import EnvRunner
from ringback.examples import dqn, sac, training
from tests.examples import corridor, puzzles

corridor.register()
puzzles.register()
torch.set_num_threads(1)

SMALL = sac.Settings(
    puzzles.AIM,
    seed=1,
    steps=1_500,
    width=24,
    batch_size=32,
    capacity=2_000,
    warmup=100,
    tau=0.05,
    gamma=0.1,
    learning_rate=5e-3,
    temperature=0.1,
    validate_every=250,
)


def weights(network: nn.Module) -> list[Any]:
    return [value.tolist() for value in network.state_dict().values()]


@pytest.mark.parametrize("num_envs", [1, 3])
def test_learns_to_aim_at_numbers_in_the_bounds_of_the_environment(num_envs: int) -> None:
    moments: list[training.Progress] = []
    result = sac.train(dataclasses.replace(SMALL, num_envs=num_envs), moments.append)
    assert result.reason == "solved"
    assert result.step == moments[-1].step < SMALL.steps
    assert np.mean(sac.evaluate(result.network, puzzles.AIM, 30, seed=(99,))) > -1
    assert set(moments[-1].figures) == set(sac.FIGURES)
    assert 0 < moments[-1].figures["temperature"] < 0.1
    assert math.isnan(moments[0].figures["critic_loss"])
    assert not math.isnan(moments[-1].figures["critic_loss"] + moments[-1].figures["actor_loss"])


def test_same_seed_same_network_and_another_seed_another() -> None:
    brief = dataclasses.replace(SMALL, steps=160, validate_every=1_000)
    first, second, other = (sac.train(dataclasses.replace(brief, seed=seed)).network for seed in (3, 3, 4))
    assert weights(first) == weights(second) != weights(other)


def test_saved_actor_comes_back(tmp_path: Path) -> None:
    settings = dataclasses.replace(SMALL, steps=150)
    network = sac.train(settings).network
    training.save(network, settings, tmp_path / "model.pt")
    loaded, same_settings = sac.load(tmp_path / "model.pt")
    assert same_settings == settings
    assert weights(loaded) == weights(network)
    with pytest.raises(ValueError, match=r"^load: path must be a model of dqn, got one of sac$"):
        dqn.load(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            corridor.CORRIDOR,
            "train: ringback-tests/Corridor-v0 must have a bounded Box action space, got Discrete(2, start=3)",
        ),
        (
            "ringback-tests/Unbounded-v0",
            "train: ringback-tests/Unbounded-v0 must have a bounded Box action space, "
            "got Box(-inf, inf, (2,), float32)",
        ),
        (
            "ringback-tests/Numbered-v0",
            "train: ringback-tests/Numbered-v0 must have a Box observation space, got Discrete(6)",
        ),
    ],
)
def test_other_spaces_are_named(env: str, message: str) -> None:
    with pytest.raises(TypeError) as raised:
        sac.train(sac.Settings(env))
    assert str(raised.value) == message


class TestPolicy:
    SPACE = gym.spaces.Box(np.array([[-3.0, 10.0]], np.float32), np.array([[1.0, 30.0]], np.float32))

    def test_episodes_keep_what_it_says_and_the_environment_gets_its_own_numbers(self) -> None:
        class Heard(puzzles.Aim):
            action_space = self.SPACE
            actions: list[Any] = []  # noqa: RUF012 - of all

            def step(self, action: Any) -> Any:
                self.actions.append(action)
                return super().step(action)

        torch.manual_seed(0)
        policy = sac.Policy(sac.Actor(1, 2, 8), self.SPACE, seed=(1,))
        pipelines: Any = {"env_to_module": dqn.to_module("cpu"), "module_to_env": sac.module_to_env()}
        for policy.mode in ("mean", "draw", "any"):
            Heard.actions.clear()
            with EnvRunner(Heard, policy, seed=0, **pipelines) as runner:
                (episode,) = runner.sample(num_timesteps=20)
            said = np.array(episode.get_actions())
            assert said.shape == (20, 1, 2)
            assert np.abs(said).max() <= 1
            np.testing.assert_allclose(Heard.actions, np.array([-1, 20]) + said * [2, 10], rtol=1e-5)

    def test_modes(self) -> None:
        torch.manual_seed(0)
        actor = sac.Actor(1, 2, 8)
        policy = sac.Policy(actor, gym.spaces.Box(-1, 1, (2,)), seed=(1,))
        rows = {"obs": torch.zeros(4_000, 1)}
        mean, log_std = (value.detach() for value in actor(torch.zeros(1, 1)))
        torch.testing.assert_close(policy(rows)["actions"], torch.tanh(mean).expand(4_000, -1))
        policy.mode = "draw"
        loose = torch.atanh(policy(rows)["actions"])
        bound = 5 / math.sqrt(4_000)
        assert ((loose.mean(0) - mean[0]) / log_std[0].exp()).abs().max() < bound
        assert (loose.std(0) / log_std[0].exp() - 1).abs().max() < bound
        policy.mode = "any"
        spread = np.sort(policy(rows)["actions"], axis=0)
        assert np.abs(spread - np.linspace(-1, 1, 4_000)[:, None]).max() < 2 * bound  # uniform


def test_density_is_that_of_the_squashed_normal_distribution() -> None:
    torch.manual_seed(0)
    actor = sac.Actor(3, 2, 8)
    actor.mean.weight.data *= 20  # also where tanh is flat
    observations = torch.randn(50, 3)
    actions, log_density = actor.draw(observations)
    mean, log_std = actor(observations)
    assert torch.isfinite(log_density).all()
    inside = (actions.abs() < 0.999).all(1)
    assert 5 < inside.sum() < 50
    same: Any = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), TanhTransform())
    torch.testing.assert_close(log_density[inside, 0], same.log_prob(actions)[inside], rtol=1e-3, atol=1e-3)


class Textbook:
    """SAC with two critics apart, distributions and optimisers of torch."""

    def __init__(self, learner: Any, settings: sac.Settings) -> None:
        self.actor = copy.deepcopy(learner._actor)
        self.critics = [self._one(learner._critics, k) for k in range(2)]
        self.targets = [self._one(learner._target.network, k) for k in range(2)]
        self.log_temperature = torch.tensor(math.log(settings.temperature), requires_grad=True)
        parameters: Any = [self.actor.parameters(), [*self.critics[0].parameters(), *self.critics[1].parameters()]]
        self.optimisers = [
            torch.optim.Adam(group, lr=settings.learning_rate) for group in (*parameters, [self.log_temperature])
        ]
        self.settings = settings

    @staticmethod
    def _one(critics: sac.Critics, k: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight, bias in zip(critics.weights, critics.biases, strict=True):
            layer = nn.Linear(*weight[k].shape)
            layer.weight.data, layer.bias.data = weight[k].detach().T.clone(), bias[k, 0].detach().clone()
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def draw(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.actor(observations)
        normal: Any = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), TanhTransform(cache_size=1))
        actions = normal.rsample()
        return actions, normal.log_prob(actions)

    def step(self, optimiser: int, loss: Any) -> None:
        self.optimisers[optimiser].zero_grad()
        loss.backward()
        self.optimisers[optimiser].step()

    def update(self, batch: Any) -> tuple[float, float]:
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            actions, log_density = self.draw(batch.next_observations)
            both = torch.cat([batch.next_observations, actions], 1)
            future = torch.minimum(*(target(both)[:, 0] for target in self.targets)) - temperature * log_density
            wanted = batch.rewards[:, 0] + batch.discounts[:, 0] * future
        both = torch.cat([batch.observations, batch.actions], 1)
        critic_loss = sum(
            (nn.functional.mse_loss(critic(both)[:, 0], wanted) for critic in self.critics), torch.zeros(())
        )
        self.step(1, critic_loss)
        for critic, target in zip(self.critics, self.targets, strict=True):
            for fast, slow in zip(critic.parameters(), target.parameters(), strict=True):
                slow.data += self.settings.tau * (fast.data - slow.data)
        actions, log_density = self.draw(batch.observations)
        both = torch.cat([batch.observations, actions], 1)
        worth = torch.minimum(*(critic(both)[:, 0] for critic in self.critics))
        actor_loss = (temperature * log_density - worth).mean()
        self.step(0, actor_loss)
        wanted_entropy = -batch.actions.shape[1]
        self.step(2, -(self.log_temperature.exp() * (log_density.detach() + wanted_entropy)).mean() / temperature)
        return critic_loss.item(), actor_loss.item()


class Batch:
    """Counting data: terminations have discount 0, time limits do not."""

    observations = torch.arange(16.0).reshape(8, 2) / 8
    next_observations = observations + 0.25
    actions = torch.linspace(-0.9, 0.9, 24).reshape(8, 3)
    rewards = torch.arange(8.0)[:, None] - 3
    discounts = torch.tensor([0.0, 0.9, 0.9, 0.9, 0.0, 0.9, 0.9, 0.9])[:, None]


def test_updates_are_those_of_the_textbook() -> None:
    torch.manual_seed(0)
    settings = sac.Settings(puzzles.AIM, learning_rate=0.01, tau=0.25, temperature=0.3)
    learner = sac._Learner(sac.Actor(2, 3, 8), sac.Critics(2, 3, 8), settings)
    for slow in learner._target.network.parameters():
        slow.data.add_(0.1 * torch.randn_like(slow))
    textbook = Textbook(learner, settings)
    for step in range(4):
        torch.manual_seed(step)
        learner.critic_loss = learner.actor_loss = math.nan
        learner.update(Batch)
        torch.manual_seed(step)
        critic_loss, actor_loss = textbook.update(Batch)
        assert learner.critic_loss == pytest.approx(critic_loss, rel=1e-4)
        assert learner.actor_loss == pytest.approx(actor_loss, rel=1e-4)
        assert learner.temperature == pytest.approx(textbook.log_temperature.exp().item(), rel=1e-5)
    for ours, theirs in zip(learner._actor.parameters(), textbook.actor.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    for network, pair in ((learner._critics, textbook.critics), (learner._target.network, textbook.targets)):
        for k in range(2):
            for ours, theirs in zip(Textbook._one(network, k).parameters(), pair[k].parameters(), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
