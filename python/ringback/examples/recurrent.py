"""Recurrent Q-learning from replayed sequences, for environments that do not show all there is to know.

The whole program, over the public interface, as `ringback.examples.dqn`. The network has a memory, an LSTM, and the
state of it takes the long way round: the policy puts it out with each action, `EnvRunner` keeps it in the episode,
`AddStates` gives it back for the next action, and `ReplayBuffer.add_episode` stores the state before each step. A
replayed window then begins with the state that the memory had there, plays a few steps to bring that up to date with
the network of today (the burn-in), and learns from the steps after them.

References
----------
Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2: stored states,
burn-in); Hausknecht and Stone 2015 (recurrent Q-learning); Hochreiter and Schmidhuber 1997 (LSTM); and those of
`ringback.examples.dqn`.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from ringback import ReplayBuffer
from ringback.connectors import AddObservations, AddStates, ConnectorPipeline, ToTensor
from ringback.examples import dqn, stepping, training
from ringback.runner import EnvRunner

__all__ = [
    "FIGURES",
    "Policy",
    "RecurrentQNetwork",
    "Settings",
    "check_spaces",
    "evaluate",
    "load",
    "to_module",
    "train",
]

FIGURES = dqn.FIGURES
check_spaces = dqn.check_spaces


@dataclasses.dataclass(frozen=True)
class Settings(dqn.QSettings):
    """Settings of this program, with its own defaults of others.

    Attributes
    ----------
    length, burn_in : int
        Steps of a window to learn from, and at most so many before them to play only.
    period : int
        Env steps from one possible beginning of a window to the next, in an episode.
    """

    num_envs: int = 4
    batch_size: int = 32
    update_every: int = 4
    tau: float = 0.01
    validate_every: int = 2_000
    exploration: float = 0.2
    length: int = 20
    burn_in: int = 10
    period: int = 10

    def __post_init__(self) -> None:
        if self.n_step > self.length:
            raise ValueError(f"train: n_step must be <= length ({self.length}), got {self.n_step}")
        if self.burn_in < 1:
            raise ValueError(f"train: burn_in must be >= 1, got {self.burn_in}")


class RecurrentQNetwork(nn.Module):
    """Action values of a sequence: a layer, an LSTM, and a layer normalised before its ReLU.

    Parameters
    ----------
    inputs : int
        Numbers in an observation.
    actions : int
        Number of actions.
    width : int
        Units in each layer, H.
    """

    def __init__(self, inputs: int, actions: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.memory = nn.LSTM(width, width, batch_first=True)
        self.second, self.second_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.values = nn.Linear(width, actions)

    def forward(self, observations: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the values of all actions at each step, and the state after the last.

        Parameters
        ----------
        observations : Tensor, shape (B, T, *D), any dtype
        state : Tensor, shape (B, 2, H), float32
            Before the first step: what the LSTM puts out, and its cell.

        Returns
        -------
        tuple of Tensor, shapes (B, T, actions) and (B, 2, H), float32
        """
        hidden, after = self.memory(self._features(observations), _halves(state))
        hidden = torch.relu(self.second_norm(self.second(hidden)))
        return self.values(hidden), torch.stack([half[0] for half in after], 1)

    def remember(self, observations: torch.Tensor, state: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the state after the first steps of each sequence, to be taken as it is: no gradient flows into it.

        Parameters
        ----------
        observations : Tensor, shape (B, T, *D), any dtype
        state : Tensor, shape (B, 2, H), float32
            Before the first step.
        lengths : Tensor, shape (B, 1), int64
            How many steps, 0..T.

        Returns
        -------
        Tensor, shape (B, 2, H), float32
        """
        with torch.no_grad():
            features = self._features(observations)
            counts = lengths.squeeze(1).clamp(min=1).cpu()  # a sequence may not be empty here
            packed = pack_padded_sequence(features, counts, batch_first=True, enforce_sorted=False)
            after = torch.stack([half[0] for half in self.memory(packed, _halves(state))[1]], 1)
            return torch.where(lengths[:, :, None] > 0, after, state)

    def _features(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.first(observations.flatten(2).float()))


def _halves(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a state as the LSTM takes it, (1, B, H) each."""
    output, cell = state.transpose(0, 1).contiguous()[:, None]
    return output, cell


class Policy(dqn.Policy):
    """Plays the action of the highest value or any action, and remembers: a module for `EnvRunner`."""

    network: RecurrentQNetwork

    def get_initial_state(self) -> torch.Tensor:
        """Return the state before the first step of an episode, (2, H): no memories."""
        return torch.zeros(2, self.network.memory.hidden_size)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the actions for the observations of E sub-environments, and the states after them."""
        with torch.no_grad():
            values, state = self.network(batch["obs"][:, None], batch["state_in"])
        return {"actions": self.choose(values[:, 0]), "state_out": state}


def to_module(device: str | torch.device) -> ConnectorPipeline:
    """Return what stands between the environment and the policy: the observations, and the states before them."""
    return ConnectorPipeline([AddObservations(), AddStates(), ToTensor(device=device)])


def train(settings: Settings, report: training.Report = lambda progress: None) -> training.Result[RecurrentQNetwork]:
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
        network = RecurrentQNetwork(math.prod(observation_space.shape), int(action_space.n), settings.width)
        learner = _Learner(network.to(settings.device), settings, first_action=int(action_space.start))
        runner.module = policy = Policy(network, action_space, seed=(settings.seed, training.EXPLORATION))
        start = {"state_in": policy.get_initial_state()}
        buffer = ReplayBuffer(
            settings.capacity,
            observation_space,
            action_space,
            settings.device,
            extras={"state_in": (2, settings.width)},
            seed=(settings.seed, training.BUFFER),
        )

        with training.Run(settings, runner, network, evaluate, report) as run:
            for done in run.rounds():
                policy.epsilon = settings.epsilon_after(done)
                for chunk in run.play():
                    buffer.add_episode(chunk, initial_state=start)
                for _ in range(run.updates):
                    learner.update(_sample(buffer, settings), settings.learning_rate * (1 - done))
                run.note(epsilon=policy.epsilon, loss=learner.loss)
    return run.result


def _sample(buffer: ReplayBuffer, settings: Settings) -> Any:
    """Draw windows of episodes, with the state before the first row of each."""
    return buffer.sample_sequences(
        settings.batch_size,
        settings.length,
        burn_in=settings.burn_in,
        pad=True,
        period=settings.period,
        n_step=settings.n_step,
        gamma=settings.gamma,
        next_observations=True,
        start_state="state_in",
    )


class _Learner:
    """One network, its slow copy, and the step that brings the first closer to the targets of the second."""

    def __init__(self, network: RecurrentQNetwork, settings: Settings, *, first_action: int) -> None:
        self._network = network
        self._stepper = stepping.Stepper(network, clip=settings.clip)
        self._target = stepping.SlowCopy(network, self._stepper, settings.tau)
        self._settings = settings
        self._first_action = first_action
        self.loss = math.nan

    def update(self, batch: Any, learning_rate: float) -> None:
        """Take one step on a batch of windows."""
        length, n = self._settings.length, self._settings.n_step
        # What was seen from row 0 on, to n steps behind the window: the successor of row t is what was seen at t + n,
        # or at the end of the episode if that comes before.
        observations, successors = batch.observations.flatten(2), batch.next_observations.flatten(2)
        seen = torch.cat([torch.where(batch.valid[:, :n], observations[:, :n], successors[:, :1]), successors], 1)
        # The rows to learn from lie behind a burn-in that is as long as there was any.
        burn_in = batch.burn_in_lengths
        steps = burn_in + torch.arange(length + n, device=burn_in.device)
        rows = steps[:, :length]

        state = self._network.remember(seen[:, : self._settings.burn_in], batch.start_state, burn_in)
        values, _ = self._network(_at(seen, steps), state)
        with torch.no_grad():
            slow_values = _at(self._target.network(seen, batch.start_state)[0], steps)
            best = (values if self._settings.double else slow_values).argmax(-1, keepdim=True)
            later = torch.arange(length, device=burn_in.device) + _at(batch.n_steps, rows)[..., 0]
            # 0 where the episode terminated; a time limit keeps the value of what it cut off.
            future = _at(batch.discounts, rows) * _at(slow_values.gather(-1, best), later)
            target = _at(batch.rewards, rows) + future
        actions = (_at(batch.actions, rows) - self._first_action).clamp(min=0)  # padding has action 0
        losses = nn.functional.smooth_l1_loss(values[:, :length].gather(-1, actions), target, reduction="none")
        mask = _at(batch.mask, rows)
        loss = (losses * mask).sum() / mask.sum()
        self._stepper.step(loss, learning_rate)
        self._target.follow()
        self.loss = stepping.fading_mean(self.loss, loss)


def _at(column: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return other rows of each window, (B, K, ...) for rows of shape (B, K)."""
    return torch.take_along_dim(column, rows[..., None], 1)


def evaluate(network: RecurrentQNetwork, env: training.Env, episodes: int, *, seed: tuple[int, ...]) -> list[float]:
    """Play whole episodes greedily.

    Parameters
    ----------
    network : RecurrentQNetwork
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
        env_to_module=to_module(network.first.weight.device),
    )


def load(path: str | os.PathLike[str]) -> tuple[RecurrentQNetwork, Settings]:
    """Read a model that `training.save` wrote.

    Parameters
    ----------
    path : path-like
        The file; only data is read from it, no code is run.

    Returns
    -------
    tuple of RecurrentQNetwork and Settings
        The network is on the CPU.
    """
    weights, settings = training.read(path, Settings)
    width, inputs = weights["first.weight"].shape
    network = RecurrentQNetwork(inputs, len(weights["values.bias"]), width)
    network.load_state_dict(weights)
    return network, settings
