"""Deep Q-learning on any environment with a Box observation and Discrete actions.

The whole program, over the public interface: an `EnvRunner` plays, its episodes go into a `ReplayBuffer`, and batches
of n-step transitions from the buffer train a network in torch. `train` is the loop; the rest are its parts.

References
----------
Mnih et al. 2015 (replay, target network); van Hasselt et al. 2016, equation 4 (double Q); Sutton 1988 and Hessel et al.
2018 (n-step returns); Schaul et al. 2016, sections 3.3 and 3.4 (priorities and their weights); Lillicrap et al. 2016
(soft target updates); Ba et al. 2016 (layer normalisation).
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ringback import PrioritizedReplayBuffer, ReplayBuffer
from ringback.connectors import AddObservations, ConnectorPipeline, ToTensor
from ringback.examples import stepping, training
from ringback.runner import EnvRunner

__all__ = [
    "FIGURES",
    "Policy",
    "QNetwork",
    "QSettings",
    "Settings",
    "check_spaces",
    "evaluate",
    "load",
    "to_module",
    "train",
]

FIGURES = ("epsilon", "loss")  # what a run tells of itself: the probability of a random action, and the mean loss


@dataclasses.dataclass(frozen=True)
class QSettings(training.Settings):
    """Settings of all that learns action values; the learning rate falls linearly to zero over `steps`.

    Attributes
    ----------
    n_step : int
        Rewards summed before the value of the observation after them is used.
    double : bool
        Whether the network chooses the action of that observation, and the target network only says its value.
    epsilon : float
        Probability of a random action at last; it falls linearly from 1.
    exploration : float
        Part of `steps` over which it falls.
    clip : float
        Largest norm of the gradient.
    """

    n_step: int = 3
    double: bool = True
    epsilon: float = 0.04
    exploration: float = 0.15
    clip: float = 10.0

    def epsilon_after(self, done: float) -> float:
        """Return the probability of a random action when this part of `steps` is over."""
        return max(1 - done / self.exploration * (1 - self.epsilon), self.epsilon)


@dataclasses.dataclass(frozen=True)
class Settings(QSettings):
    """Settings of this program.

    Attributes
    ----------
    prioritized : bool
        Whether transitions are drawn by the error that was last seen of them, instead of uniformly.
    alpha, beta, priority_floor : float
        How much the error decides; how much of that the loss takes back at the start, rising to all of it; what is
        added to each error.
    """

    prioritized: bool = False
    alpha: float = 0.6
    beta: float = 0.4
    priority_floor: float = 1e-3


class QNetwork(nn.Module):
    """Action values: two hidden layers, each normalised before its ReLU.

    Parameters
    ----------
    inputs : int
        Numbers in an observation.
    actions : int
        Number of actions.
    width : int
        Units in a hidden layer.
    """

    def __init__(self, inputs: int, actions: int, width: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Linear(inputs, width), nn.LayerNorm(width)
        self.second, self.second_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.values = nn.Linear(width, actions)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the values of all actions.

        Parameters
        ----------
        observations : Tensor, shape (B, *D), any dtype

        Returns
        -------
        Tensor, shape (B, actions), float32
        """
        hidden = torch.relu(self.first_norm(self.first(observations.flatten(1).float())))
        hidden = torch.relu(self.second_norm(self.second(hidden)))
        values: torch.Tensor = self.values(hidden)
        return values


class Policy:
    """Plays the action of the highest value, or with probability `epsilon` any action: a module for `EnvRunner`.

    Parameters
    ----------
    network : Module
        Read at every call, so that it may be trained meanwhile.
    action_space : gymnasium.spaces.Discrete
        Its first action may be other than 0.
    seed : tuple of int, optional
        Of the random actions; needed where `epsilon` is not 0.

    Attributes
    ----------
    network : Module
        As given.
    epsilon : float
        0 at first.
    """

    def __init__(
        self, network: nn.Module, action_space: gym.spaces.Discrete, *, seed: tuple[int, ...] | None = None
    ) -> None:
        self.epsilon = 0.0
        self.network = network
        self._count, self._first = int(action_space.n), int(action_space.start)
        self._random = np.random.default_rng(seed)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the actions for the observations of E sub-environments."""
        with torch.no_grad():
            return {"actions": self.choose(self.network(batch["obs"]))}

    def choose(self, values: torch.Tensor) -> npt.NDArray[np.int64]:
        """Return an action for each row of values, (E, actions)."""
        best: npt.NDArray[np.int64] = values.argmax(1).cpu().numpy()
        if self.epsilon:
            explore = self._random.random(len(best)) < self.epsilon
            best = np.where(explore, self._random.integers(self._count, size=len(best)), best)
        return best + self._first


def to_module(device: str | torch.device) -> ConnectorPipeline:
    """Return what stands between the environment and the policy: its observations, as tensors."""
    return ConnectorPipeline([AddObservations(), ToTensor(device)])


def train(settings: Settings, report: training.Report = lambda progress: None) -> training.Result[QNetwork]:
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
        If the environment's observation space is no Box or its action space not Discrete.
    """
    torch.manual_seed(settings.seed)
    with EnvRunner(
        training.environment(settings),
        num_envs=settings.num_envs,
        seed=(settings.seed, training.TRAINING),
        env_to_module=to_module(settings.device),
    ) as runner:
        observation_space, action_space = check_spaces(settings.env, runner.observation_space, runner.action_space)
        network = QNetwork(int(np.prod(observation_space.shape)), int(action_space.n), settings.width)
        learner = _Learner(network.to(settings.device), settings, first_action=int(action_space.start))
        runner.module = policy = Policy(network, action_space, seed=(settings.seed, training.EXPLORATION))
        buffer = _make_buffer(settings, observation_space, action_space)

        with training.Run(settings, runner, network, evaluate, report) as run:
            for done in run.rounds():
                policy.epsilon = settings.epsilon_after(done)
                for chunk in run.play():
                    buffer.add_episode(chunk)
                reading: dict[str, Any] = {"n_step": settings.n_step, "gamma": settings.gamma}
                if settings.prioritized:
                    reading["beta"] = settings.beta + (1 - settings.beta) * done
                for _ in range(run.updates):
                    batch = buffer.sample_transitions(settings.batch_size, **reading)
                    errors = learner.update(batch, settings.learning_rate * (1 - done))
                    if isinstance(buffer, PrioritizedReplayBuffer):
                        buffer.update_priorities(batch.ids, errors)
                run.note(epsilon=policy.epsilon, loss=learner.loss)
    return run.result


def _make_buffer(
    settings: Settings, observation_space: gym.spaces.Box, action_space: gym.spaces.Discrete
) -> ReplayBuffer:
    arguments: Any = (settings.capacity, observation_space, action_space, settings.device)
    seed = settings.seed, training.BUFFER
    if not settings.prioritized:
        return ReplayBuffer(*arguments, seed=seed)
    return PrioritizedReplayBuffer(
        *arguments, seed=seed, alpha=settings.alpha, eps=settings.priority_floor, weights="batch"
    )


class _Learner:
    """One network, its slow copy, and the step that brings the first closer to the targets of the second."""

    def __init__(self, network: QNetwork, settings: Settings, *, first_action: int) -> None:
        self._network = network
        self._stepper = stepping.Stepper(network, clip=settings.clip)
        self._target = stepping.SlowCopy(network, self._stepper, settings.tau)
        self._double = settings.double
        self._first_action = first_action
        self.loss = math.nan

    def update(self, batch: Any, learning_rate: float) -> torch.Tensor:
        """Take one step on a batch of transitions and return their absolute TD errors before it, (B, 1)."""
        with torch.no_grad():
            values = self._target.network(batch.next_observations)
            chooser = self._network(batch.next_observations) if self._double else values
            future = values.gather(1, chooser.argmax(1, keepdim=True))
            # 0 where the episode terminated; a time limit keeps the value of what it cut off.
            target = batch.rewards + batch.discounts * future
        taken = self._network(batch.observations).gather(1, batch.actions - self._first_action)
        losses = nn.functional.smooth_l1_loss(taken, target, reduction="none")
        loss = (losses if batch.weights is None else batch.weights * losses).mean()
        self._stepper.step(loss, learning_rate)
        self._target.follow()
        self.loss = stepping.fading_mean(self.loss, loss)
        errors: torch.Tensor = (taken.detach() - target).abs()
        return errors


def evaluate(network: QNetwork, env: training.Env, episodes: int, *, seed: tuple[int, ...]) -> list[float]:
    """Play whole episodes greedily.

    Parameters
    ----------
    network : QNetwork
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
        env_to_module=to_module(network.values.weight.device),
    )


def check_spaces(
    env: str, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> tuple[gym.spaces.Box, gym.spaces.Discrete]:
    """Return both spaces, known to be of the kind that this program learns.

    Raises
    ------
    TypeError
        If they are not.
    """
    box = training.check_observations(env, observation_space)
    if not isinstance(action_space, gym.spaces.Discrete):
        raise TypeError(f"train: {env} must have a Discrete action space, got {action_space}")
    return box, action_space


def load(path: str | os.PathLike[str]) -> tuple[QNetwork, Settings]:
    """Read a model that `training.save` wrote.

    Parameters
    ----------
    path : path-like
        The file; only data is read from it, no code is run.

    Returns
    -------
    tuple of QNetwork and Settings
        The network is on the CPU.
    """
    weights, settings = training.read(path, Settings)
    width, inputs = weights["first.weight"].shape
    network = QNetwork(inputs, len(weights["values.bias"]), width)
    network.load_state_dict(weights)
    return network, settings
