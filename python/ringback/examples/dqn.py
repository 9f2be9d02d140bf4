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

import copy
import dataclasses
import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from ringback import PrioritizedReplayBuffer, ReplayBuffer
from ringback.runner import EnvRunner

__all__ = ["Policy", "Progress", "QNetwork", "Result", "Settings", "check_spaces", "evaluate", "load", "save", "train"]

# The ranks of a seed: streams of different rank are independent, so training, validation and test share no episodes.
TRAINING, VALIDATION, TEST, BUFFER, EXPLORATION = range(5)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that decides a run; the same settings give the same network on the same machine.

    Attributes
    ----------
    env : str
        Id for ``gym.make``.
    seed : int
        Root of every random stream.
    steps : int
        Env steps at most.
    num_envs : int
        Sub-environments that play; one update for each of their steps.
    device : str
        Where the network lives, in torch's words.
    width : int
        Units in each of the two hidden layers.
    gamma : float
        Discount of one step.
    n_step : int
        Rewards summed before the value of the observation after them is used.
    double : bool
        Whether the network chooses the action of that observation, and the target network only says its value.
    prioritized : bool
        Whether transitions are drawn by the error that was last seen of them, instead of uniformly.
    alpha, beta, priority_floor : float
        How much the error decides; how much of that the loss takes back at the start, rising to all of it; what is
        added to each error.
    batch_size : int
        Transitions in an update.
    capacity : int
        Steps in the replay buffer.
    warmup : int
        Env steps before the first update.
    learning_rate : float
        Of Adam at the start; it falls linearly to zero over `steps`.
    tau : float
        Share of the network that the target network takes on in each update.
    epsilon : float
        Probability of a random action at last; it falls linearly from 1.
    exploration : float
        Part of `steps` over which it falls.
    clip : float
        Largest norm of the gradient.
    validate_every : int
        Env steps between validations.
    validation_episodes : int
        Greedy episodes in a validation, the same ones each time.
    patience : int
        Training ends after so many validations in a row in which *every* episode reached the reward threshold that the
        environment declares; without one it ends after `steps`.
    """

    env: str
    seed: int = 0
    steps: int = 40_000
    num_envs: int = 1
    device: str = "cpu"
    width: int = 64
    gamma: float = 0.99
    n_step: int = 3
    double: bool = True
    prioritized: bool = False
    alpha: float = 0.6
    beta: float = 0.4
    priority_floor: float = 1e-3
    batch_size: int = 128
    capacity: int = 50_000
    warmup: int = 1_000
    learning_rate: float = 1e-3
    tau: float = 0.005
    epsilon: float = 0.04
    exploration: float = 0.15
    clip: float = 10.0
    validate_every: int = 1_000
    validation_episodes: int = 20
    patience: int = 3


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes
    ----------
    step, episodes : int
        Env steps and finished episodes so far.
    seconds : float
        Since the start, validations included.
    recent_return : float
        Mean undiscounted return of the last 20 finished training episodes; NaN before the first.
    epsilon : float
        Probability of a random action.
    loss : float
        Mean over the last updates, each weighted 1 % less than the next; NaN before the first.
    finished : tuple of float
        Returns of the episodes that ended in this round.
    validation_return : float or None
        Mean greedy return, where this round ended with a validation.
    """

    step: int
    episodes: int
    seconds: float
    recent_return: float
    epsilon: float
    loss: float
    finished: tuple[float, ...]
    validation_return: float | None


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run gives.

    Attributes
    ----------
    network : QNetwork
        That of the best validation, of equal ones the latest; of the last update where there was no validation.
    step : int
        Env steps taken.
    reason : {"steps", "solved", "interrupted"}
        Why it ended.
    """

    network: QNetwork
    step: int
    reason: str


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
    network : QNetwork
        Read at every call, so that it may be trained meanwhile.
    action_space : gymnasium.spaces.Discrete
        Its first action may be other than 0.
    seed : tuple of int, optional
        Of the random actions; needed where `epsilon` is not 0.
    """

    def __init__(
        self, network: QNetwork, action_space: gym.spaces.Discrete, *, seed: tuple[int, ...] | None = None
    ) -> None:
        self.epsilon = 0.0
        self._network = network
        self._device = next(network.parameters()).device
        self._count, self._first = int(action_space.n), int(action_space.start)
        self._random = np.random.default_rng(seed)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the actions for the observations of E sub-environments."""
        observations = batch["obs"]
        with torch.no_grad():
            best = self._network(torch.as_tensor(observations, device=self._device)).argmax(1).cpu().numpy()
        if self.epsilon:
            explore = self._random.random(len(best)) < self.epsilon
            best = np.where(explore, self._random.integers(self._count, size=len(best)), best)
        return {"actions": best + self._first}


def train(settings: Settings, report: Callable[[Progress], None] = lambda progress: None) -> Result:
    """Learn to play `settings.env`.

    Parameters
    ----------
    settings : Settings
        What to learn and how.
    report : callable
        Called after every round of one step in each sub-environment.

    Returns
    -------
    Result
        Also after a KeyboardInterrupt, with what was learnt by then.

    Raises
    ------
    TypeError
        If the environment's observation space is no Box or its action space not Discrete.
    """
    torch.manual_seed(settings.seed)
    policy_seed = (settings.seed, EXPLORATION)
    started = time.monotonic()
    with EnvRunner(settings.env, num_envs=settings.num_envs, seed=(settings.seed, TRAINING)) as runner:
        observation_space, action_space = check_spaces(settings.env, runner.observation_space, runner.action_space)
        network = QNetwork(int(np.prod(observation_space.shape)), int(action_space.n), settings.width)
        learner = _Learner(network.to(settings.device), settings, first_action=int(action_space.start))
        runner.module = policy = Policy(network, action_space, seed=policy_seed)
        buffer = _make_buffer(settings, observation_space, action_space)
        judge = _Judge(settings)
        recent: deque[float] = deque(maxlen=20)
        recent_return = float("nan")
        step, reason = 0, "steps"
        try:
            while step < settings.steps and not judge.solved:
                done = step / settings.steps
                policy.epsilon = max(1 - done / settings.exploration * (1 - settings.epsilon), settings.epsilon)
                learner.learning_rate = settings.learning_rate * (1 - done)
                reading: dict[str, Any] = {"n_step": settings.n_step, "gamma": settings.gamma}
                if settings.prioritized:
                    reading["beta"] = settings.beta + (1 - settings.beta) * done

                chunks = runner.sample(num_timesteps=settings.num_envs)
                for chunk in chunks:
                    buffer.add_episode(chunk)
                taken = sum(map(len, chunks))
                for _ in range(taken if step >= settings.warmup else 0):
                    batch = buffer.sample_transitions(settings.batch_size, **reading)
                    errors = learner.update(batch)
                    if isinstance(buffer, PrioritizedReplayBuffer):
                        buffer.update_priorities(batch.ids, errors)

                before, step = step, step + taken
                validation = None
                if step // settings.validate_every > before // settings.validate_every or step >= settings.steps:
                    validation = judge.validate(network)
                finished = tuple(record.return_ for record in runner.finished)
                if finished:
                    recent.extend(finished)
                    recent_return = sum(recent) / len(recent)
                report(
                    Progress(
                        step=step,
                        episodes=runner.total_episodes,
                        seconds=time.monotonic() - started,
                        recent_return=recent_return,
                        epsilon=policy.epsilon,
                        loss=learner.loss,
                        finished=finished,
                        validation_return=validation,
                    )
                )
        except KeyboardInterrupt:
            reason = "interrupted"
        if judge.solved:
            reason = "solved"
    return Result(judge.best or network, step, reason)


def _make_buffer(
    settings: Settings, observation_space: gym.spaces.Box, action_space: gym.spaces.Discrete
) -> ReplayBuffer:
    arguments: Any = (settings.capacity, observation_space, action_space, settings.device)
    seed = settings.seed, BUFFER
    if not settings.prioritized:
        return ReplayBuffer(*arguments, seed=seed)
    return PrioritizedReplayBuffer(
        *arguments, seed=seed, alpha=settings.alpha, eps=settings.priority_floor, weights="batch"
    )


class _Learner:
    """One network, its slow copy, and the step that brings the first closer to the targets of the second.

    Both networks' parameters lie in one vector each, so that optimiser, clipping and target update are a few calls a
    step: with networks this small the calls cost more than the arithmetic.
    """

    def __init__(self, network: QNetwork, settings: Settings, *, first_action: int) -> None:
        self._network = network
        self._target = copy.deepcopy(network).requires_grad_(False)
        self._parameters = list(network.parameters())
        self._vector, self._slow = _as_vector(network), _as_vector(self._target)
        self._adam = _Adam(self._vector)
        self._settings = settings
        self._first_action = first_action
        self.learning_rate = settings.learning_rate
        self.loss = float("nan")

    def update(self, batch: Any) -> torch.Tensor:
        """Take one step on a batch of transitions and return their absolute TD errors before it, (B, 1)."""
        with torch.no_grad():
            values = self._target(batch.next_observations)
            chooser = self._network(batch.next_observations) if self._settings.double else values
            future = values.gather(1, chooser.argmax(1, keepdim=True))
            # 0 where the episode terminated; a time limit keeps the value of what it cut off.
            target = batch.rewards + batch.discounts * future
        taken = self._network(batch.observations).gather(1, batch.actions - self._first_action)
        losses = nn.functional.smooth_l1_loss(taken, target, reduction="none")
        loss = (losses if batch.weights is None else batch.weights * losses).mean()
        gradients = torch.autograd.grad(loss, self._parameters)
        gradient = torch.cat([part.flatten() for part in gradients])
        gradient *= (self._settings.clip / gradient.norm()).clamp(max=1)
        self._adam.step(gradient, self.learning_rate)
        self._slow.lerp_(self._vector, self._settings.tau)
        value = loss.item()
        self.loss = value if math.isnan(self.loss) else 0.99 * self.loss + 0.01 * value
        errors: torch.Tensor = (taken.detach() - target).abs()
        return errors


class _Adam:
    """Kingma and Ba 2015, algorithm 1, on one vector: ``torch.optim`` takes two seconds to load, and longer to step."""

    def __init__(self, vector: torch.Tensor, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self._vector = vector
        self._mean, self._square = torch.zeros_like(vector), torch.zeros_like(vector)
        self._beta1, self._beta2, self._eps = beta1, beta2, eps
        self._steps = 0

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        self._steps += 1
        self._mean.lerp_(gradient, 1 - self._beta1)
        self._square.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
        scale = (self._square / (1 - self._beta2**self._steps)).sqrt_().add_(self._eps)
        self._vector.addcdiv_(self._mean, scale, value=-learning_rate / (1 - self._beta1**self._steps))


def _as_vector(network: QNetwork) -> torch.Tensor:
    """Lay the parameters of a network side by side in one vector, and return it."""
    vector = nn.utils.parameters_to_vector(network.parameters()).detach()
    nn.utils.vector_to_parameters(vector, network.parameters())  # from here on they are views of it
    return vector


class _Judge:
    """Validations: the best network so far, and whether the environment counts as solved."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threshold = _reward_threshold(settings.env)
        self._best_return = -np.inf
        self._good = 0
        self.best: QNetwork | None = None

    @property
    def solved(self) -> bool:
        return self._good >= self._settings.patience

    def validate(self, network: QNetwork) -> float:
        settings = self._settings
        returns = evaluate(network, settings.env, settings.validation_episodes, seed=(settings.seed, VALIDATION))
        mean = float(np.mean(returns))
        if mean >= self._best_return:
            self._best_return, self.best = mean, copy.deepcopy(network)
        self._good = self._good + 1 if self._threshold is not None and min(returns) >= self._threshold else 0
        return mean


def _reward_threshold(env: str) -> float | None:
    made = gym.make(env)
    made.close()
    return None if made.spec is None else made.spec.reward_threshold


def evaluate(network: QNetwork, env: str, episodes: int, *, seed: tuple[int, ...]) -> list[float]:
    """Play whole episodes greedily.

    Parameters
    ----------
    network : QNetwork
        What to play with.
    env : str
        Id for ``gym.make``.
    episodes : int
        How many, at most 20 of them side by side.
    seed : tuple of int
        Decides the episodes' beginnings.

    Returns
    -------
    list of float
        Undiscounted returns.
    """
    with EnvRunner(env, num_envs=min(episodes, 20), seed=seed) as runner:
        runner.module = Policy(network, check_spaces(env, runner.observation_space, runner.action_space)[1])
        runner.sample(num_episodes=episodes)
        return [record.return_ for record in runner.finished]


def check_spaces(
    env: str, observation_space: gym.Space[Any], action_space: gym.Space[Any]
) -> tuple[gym.spaces.Box, gym.spaces.Discrete]:
    """Return both spaces, known to be of the kind that this program learns.

    Raises
    ------
    TypeError
        If they are not.
    """
    if not isinstance(observation_space, gym.spaces.Box):
        raise TypeError(f"train: {env} must have a Box observation space, got {observation_space}")
    if not isinstance(action_space, gym.spaces.Discrete):
        raise TypeError(f"train: {env} must have a Discrete action space, got {action_space}")
    return observation_space, action_space


def save(network: QNetwork, settings: Settings, path: str | os.PathLike[str]) -> None:
    """Write a network and the settings that made it to one file.

    Parameters
    ----------
    network : QNetwork
        Copied to the CPU, so that any machine can load it.
    settings : Settings
        Stored beside it.
    path : path-like
        Replaced if it exists.
    """
    weights = {name: value.cpu() for name, value in network.state_dict().items()}
    torch.save({"settings": dataclasses.asdict(settings), "weights": weights}, path)


def load(path: str | os.PathLike[str]) -> tuple[QNetwork, Settings]:
    """Read what `save` wrote.

    Parameters
    ----------
    path : path-like
        The file; only data is read from it, no code is run.

    Returns
    -------
    tuple of QNetwork and Settings
        The network is on the CPU.
    """
    content = torch.load(path, map_location="cpu", weights_only=True)
    settings = Settings(**content["settings"])
    weights = content["weights"]
    width, inputs = weights["first.weight"].shape
    network = QNetwork(inputs, len(weights["values.bias"]), width)
    network.load_state_dict(weights)
    return network, settings
