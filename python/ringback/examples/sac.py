"""Soft actor-critic on any environment with a Box observation and bounded Box actions.

The whole program, over the public interface, as `ringback.examples.dqn`: an `EnvRunner` plays, its episodes go into a
`ReplayBuffer`, and batches of transitions train an actor and two critics in torch. The policy acts between -1 and 1,
which is what its episodes keep; a piece of the runner's pipeline brings that to the bounds of the environment.

References
----------
Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", algorithm 1, with equation 18 for the
temperature and appendix C for the density of squashed actions; Fujimoto et al. 2018 (two critics).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from ringback import ReplayBuffer
from ringback.connectors import ActionsToSpace, ConnectorPipeline, ToNumpy
from ringback.examples import dqn, stepping, training
from ringback.runner import EnvRunner

__all__ = [
    "FIGURES",
    "Actor",
    "Critics",
    "Policy",
    "Settings",
    "check_spaces",
    "evaluate",
    "load",
    "module_to_env",
    "train",
]

FIGURES = ("temperature", "critic_loss", "actor_loss")  # what a run tells of itself


@dataclasses.dataclass(frozen=True)
class Settings(training.Settings):
    """Those of every program, with defaults for SAC; the learning rate of all networks is constant.

    Attributes
    ----------
    temperature : float
        What entropy is worth, in reward, at the start; it then keeps the entropy at -1 for each number of an action.
    """

    steps: int = 15_000
    temperature: float = 1.0


class Actor(nn.Module):
    """A distribution over actions: a normal one, squashed by tanh to numbers between -1 and 1.

    Parameters
    ----------
    inputs, outputs : int
        Numbers in an observation and in an action.
    width : int
        Units in each of the two hidden layers.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, width), nn.Linear(width, width)
        self.mean, self.log_std = nn.Linear(width, outputs), nn.Linear(width, outputs)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and log standard deviation before squashing.

        Parameters
        ----------
        observations : Tensor, shape (B, *D), any dtype

        Returns
        -------
        tuple of Tensor, shape (B, A), float32
        """
        hidden = torch.relu(self.first(observations.flatten(1).float()))
        hidden = torch.relu(self.second(hidden))
        return self.mean(hidden), self.log_std(hidden).clamp(-20, 2)

    def draw(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw an action for each observation, so that gradients flow through it.

        Parameters
        ----------
        observations : Tensor, shape (B, *D), any dtype

        Returns
        -------
        tuple of Tensor, shapes (B, A) and (B, 1), float32
            The actions, and the logarithms of their densities.
        """
        mean, log_std = self(observations)
        noise = torch.randn_like(mean)
        loose = mean + log_std.exp() * noise
        normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(x)^2), in a form that does not round to log(0).
        squash = 2 * (math.log(2) - loose - nn.functional.softplus(-2 * loose))
        return torch.tanh(loose), (normal - squash).sum(1, keepdim=True)


class Critics(nn.Module):
    """The values of actions, by two networks of the same shape; their layers are multiplied side by side.

    Parameters
    ----------
    inputs, outputs : int
        Numbers in an observation and in an action.
    width : int
        Units in each of the two hidden layers.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        sizes = (inputs + outputs, width, width, 1)
        layers = [[nn.Linear(size, next_size) for _ in range(2)] for size, next_size in itertools.pairwise(sizes)]
        self.weights = nn.ParameterList([torch.stack([layer.weight.detach().T for layer in pair]) for pair in layers])
        self.biases = nn.ParameterList([torch.stack([layer.bias.detach()[None] for layer in pair]) for pair in layers])

    def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return what both say an action is worth.

        Parameters
        ----------
        observations : Tensor, shape (B, *D), any dtype
        actions : Tensor, shape (B, *A), float32

        Returns
        -------
        Tensor, shape (2, B, 1), float32
        """
        both = torch.cat([observations.flatten(1).float(), actions.flatten(1)], 1).expand(2, -1, -1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            both = torch.relu(torch.baddbmm(bias, both, weight))
        return torch.baddbmm(self.biases[-1], both, self.weights[-1])


class Policy:
    """Plays the mean action, draws one, or plays any: a module for `EnvRunner`.

    Parameters
    ----------
    actor : Actor
        Read at every call, so that it may be trained meanwhile.
    action_space : gymnasium.spaces.Box
        Its shape is that of an action.
    seed : tuple of int, optional
        Of the actions that are not the actor's; needed where `mode` is ``"any"``.

    Attributes
    ----------
    mode : {"mean", "draw", "any"}
        How an action is chosen.
    """

    def __init__(self, actor: Actor, action_space: gym.spaces.Box, *, seed: tuple[int, ...] | None = None) -> None:
        self.mode = "mean"
        self._actor = actor
        self._shape = action_space.shape
        self._random = np.random.default_rng(seed)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return actions between -1 and 1 for the observations of E sub-environments."""
        observations = batch["obs"]
        shape = len(observations), *self._shape
        if self.mode == "any":
            return {"actions": self._random.uniform(-1, 1, shape).astype(np.float32)}
        with torch.no_grad():
            drawn = self.mode == "draw"
            actions = self._actor.draw(observations)[0] if drawn else torch.tanh(self._actor(observations)[0])
        return {"actions": actions.reshape(shape)}


def module_to_env() -> ConnectorPipeline:
    """Return what stands between the policy and the environment: its bounds, in the place of -1 and 1."""
    return ConnectorPipeline([ToNumpy(), ActionsToSpace()])


def train(settings: Settings, report: training.Report = lambda progress: None) -> training.Result[Actor]:
    """Learn to play `settings.env`.

    Parameters
    ----------
    settings : Settings
        What to learn and how.
    report : callable
        Gets a `training.Progress` after every round of one step in each sub-environment.

    Returns
    -------
    training.Result
        Also after a KeyboardInterrupt, with what was learnt by then.

    Raises
    ------
    TypeError
        If the environment's observation space is no Box or its action space no bounded Box.
    """
    torch.manual_seed(settings.seed)
    with EnvRunner(
        training.environment(settings),
        num_envs=settings.num_envs,
        seed=(settings.seed, training.TRAINING),
        env_to_module=dqn.to_module(settings.device),
        module_to_env=module_to_env(),
    ) as runner:
        observation_space, action_space = check_spaces(settings.env, runner.observation_space, runner.action_space)
        sizes = (math.prod(observation_space.shape), math.prod(action_space.shape), settings.width)
        actor, critics = Actor(*sizes).to(settings.device), Critics(*sizes).to(settings.device)
        learner = _Learner(actor, critics, settings)
        runner.module = policy = Policy(actor, action_space, seed=(settings.seed, training.EXPLORATION))
        actions = gym.spaces.Box(-1.0, 1.0, action_space.shape)  # as the policy gives them
        seed = settings.seed, training.BUFFER
        buffer = ReplayBuffer(settings.capacity, observation_space, actions, settings.device, seed=seed)

        with training.Run(settings, runner, actor, evaluate, report) as run:
            for _ in run.rounds():
                policy.mode = "any" if run.step < settings.warmup else "draw"
                for chunk in run.play():
                    buffer.add_episode(chunk)
                for _ in range(run.updates):
                    learner.update(buffer.sample_transitions(settings.batch_size, n_step=1, gamma=settings.gamma))
                run.note(
                    temperature=learner.temperature, critic_loss=learner.critic_loss, actor_loss=learner.actor_loss
                )
    return run.result


class _Learner:
    """The actor, the critics with their slow copy, and the temperature; and a step of each of them."""

    def __init__(self, actor: Actor, critics: Critics, settings: Settings) -> None:
        self._actor, self._critics = actor, critics
        self._actor_stepper, self._critic_stepper = stepping.Stepper(actor), stepping.Stepper(critics)
        self._target = stepping.SlowCopy(critics, self._critic_stepper, settings.tau)
        self._log_temperature = torch.full((1,), math.log(settings.temperature), device=actor.mean.weight.device)
        self._temperature_adam = stepping.Adam(self._log_temperature)
        self._wanted_entropy = -actor.mean.out_features
        self._learning_rate = settings.learning_rate
        self.critic_loss = self.actor_loss = math.nan

    @property
    def temperature(self) -> float:
        """What entropy is worth, in reward."""
        return math.exp(self._log_temperature.item())

    def update(self, batch: Any) -> None:
        """Take one step of all three on a batch of transitions."""
        temperature = self._log_temperature.exp()
        with torch.no_grad():
            actions, log_density = self._actor.draw(batch.next_observations)
            future = self._target.network(batch.next_observations, actions).amin(0) - temperature * log_density
            # 0 where the episode terminated; a time limit keeps the value of what it cut off.
            target = batch.rewards + batch.discounts * future
        # Each critic has its own mean, so that neither is slowed by the other.
        critic_loss = ((self._critics(batch.observations, batch.actions) - target) ** 2).mean(1).sum()
        self._critic_stepper.step(critic_loss, self._learning_rate)
        self._target.follow()

        actions, log_density = self._actor.draw(batch.observations)
        worth = self._critics(batch.observations, actions).amin(0)
        actor_loss = (temperature * log_density - worth).mean()
        self._actor_stepper.step(actor_loss, self._learning_rate)

        # The gradient of -log(temperature) (log density + wanted entropy), equation 18 by the logarithm.
        gradient = -(log_density.detach().mean(0) + self._wanted_entropy)
        self._temperature_adam.step(gradient, self._learning_rate)
        self.critic_loss = stepping.fading_mean(self.critic_loss, critic_loss)
        self.actor_loss = stepping.fading_mean(self.actor_loss, actor_loss)


def evaluate(network: Actor, env: training.Env, episodes: int, *, seed: tuple[int, ...]) -> list[float]:
    """Play whole episodes by the mean action.

    Parameters
    ----------
    network : Actor
        What to play with.
    env : str or callable
        Id for ``gym.make``, or what makes one environment.
    episodes : int
        How many, at most 20 of them side by side.
    seed : tuple of int
        Decides the episodes' beginnings.

    Returns
    -------
    list of float
        Undiscounted returns.
    """
    return training.returns(
        env,
        episodes,
        lambda action_space: Policy(network, action_space),
        seed=seed,
        env_to_module=dqn.to_module(network.mean.weight.device),
        module_to_env=module_to_env(),
    )


def check_spaces(
    env: str, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> tuple[gym.spaces.Box, gym.spaces.Box]:
    """Return both spaces, known to be of the kind that this program learns.

    Raises
    ------
    TypeError
        If they are not.
    """
    box = training.check_observations(env, observation_space)
    if not isinstance(action_space, gym.spaces.Box) or not action_space.is_bounded():
        raise TypeError(f"train: {env} must have a bounded Box action space, got {action_space}")
    return box, action_space


def load(path: str | os.PathLike[str]) -> tuple[Actor, Settings]:
    """Read a model that `training.save` wrote.

    Parameters
    ----------
    path : path-like
        The file; only data is read from it, no code is run.

    Returns
    -------
    tuple of Actor and Settings
        The network is on the CPU.
    """
    weights, settings = training.read(path, Settings)
    width, inputs = weights["first.weight"].shape
    actor = Actor(inputs, len(weights["mean.bias"]), width)
    actor.load_state_dict(weights)
    return actor, settings
