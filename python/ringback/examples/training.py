"""What the training programs share: their settings, the rounds of a run, validations, and the files of models.

A program trains in rounds. `Run` plays one step in each sub-environment, counts, says how many updates are due,
validates, reports, and keeps the best network; what is learnt from the steps, and how, is the program's own.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from ringback import SingleAgentEpisode
from ringback.connectors import ConnectorPipeline
from ringback.examples.masking import make_masked
from ringback.runner import EnvRunner

__all__ = [
    "BUFFER",
    "EXPLORATION",
    "TEST",
    "TEST_EPISODES",
    "TRAINING",
    "VALIDATION",
    "Env",
    "Evaluate",
    "Progress",
    "Report",
    "Result",
    "Run",
    "Settings",
    "check_observations",
    "environment",
    "read",
    "returns",
    "save",
]

# The ranks of a seed: streams of different rank are independent, so training, validation and test share no episodes.
TRAINING, VALIDATION, TEST, BUFFER, EXPLORATION = range(5)

TEST_EPISODES = 20  # of the final evaluation

Env = str | Callable[[], gym.Env[Any, Any]]
Network = TypeVar("Network", bound=nn.Module)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that decides a run; the same settings give the same network on the same machine.

    Each program has a subclass with its own defaults, and with what only it needs.

    Attributes
    ----------
    env : str
        Id for ``gym.make``.
    seed : int
        Root of every random stream.
    steps : int
        Env steps at most.
    num_envs : int
        Sub-environments that play.
    device : str
        Where the network lives, in torch's words.
    mask_velocity : bool
        Whether velocities are taken out of the observations.
    width : int
        Units in a hidden layer.
    gamma : float
        Discount of one step.
    batch_size : int
        Transitions, or windows, in an update.
    capacity : int
        Steps in the replay buffer.
    warmup : int
        Env steps before the first update.
    update_every : int
        Env steps for each update after that.
    learning_rate : float
        Of Adam at the start.
    tau : float
        Share of the network that the target network takes on in each update.
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
    mask_velocity: bool = False
    width: int = 64
    gamma: float = 0.99
    batch_size: int = 128
    capacity: int = 50_000
    warmup: int = 1_000
    update_every: int = 1
    learning_rate: float = 1e-3
    tau: float = 0.005
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
    finished : tuple of float
        Returns of the episodes that ended in this round.
    validation_return : float or None
        Mean greedy return, where this round ended with a validation.
    figures : dict of str to float
        What else the program tells of itself, under the names of its ``FIGURES``; NaN while there is none.
    """

    step: int
    episodes: int
    seconds: float
    recent_return: float
    finished: tuple[float, ...]
    validation_return: float | None
    figures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Result(Generic[Network]):
    """What a run gives.

    Attributes
    ----------
    network : Module
        That of the best validation, of equal ones the latest; of the last update where there was no validation.
    step : int
        Env steps taken.
    reason : {"steps", "solved", "interrupted"}
        Why it ended.
    """

    network: Network
    step: int
    reason: str


Report = Callable[[Progress], None]
Evaluate = Callable[..., list[float]]  # (network, env, episodes, *, seed)


class Run(Generic[Network]):
    """The rounds of a training run; a context that ends it on a KeyboardInterrupt, with what was learnt by then.

    Parameters
    ----------
    settings : Settings
        Of the run.
    runner : EnvRunner
        Plays.
    network : Module
        What is trained, and validated.
    evaluate : callable
        ``evaluate(network, env, episodes, seed=...)`` gives the returns of greedy episodes.
    report : callable
        Gets a `Progress` after each round.

    Attributes
    ----------
    step : int
        Env steps taken.
    updates : int
        Updates that are due in this round.
    """

    def __init__(
        self, settings: Settings, runner: EnvRunner, network: Network, evaluate: Evaluate, report: Report
    ) -> None:
        self.step = self.updates = 0
        self._settings, self._runner, self._network, self._report = settings, runner, network, report
        self._judge: _Judge[Network] = _Judge(settings, evaluate)
        self._interrupted = False
        self._recent: deque[float] = deque(maxlen=20)
        self._figures: dict[str, float] = {}
        self._started = time.monotonic()

    def rounds(self) -> Iterator[float]:
        """Go through the rounds; yield the part of the run that is over, before each of them."""
        settings = self._settings
        while self.step < settings.steps and not self._judge.solved:
            before = self.step
            yield before / settings.steps
            due = self.step // settings.validate_every > before // settings.validate_every
            validation = self._judge.validate(self._network) if due or self.step >= settings.steps else None
            finished = tuple(record.return_ for record in self._runner.finished)
            self._recent.extend(finished)
            self._report(
                Progress(
                    step=self.step,
                    episodes=self._runner.total_episodes,
                    seconds=time.monotonic() - self._started,
                    recent_return=sum(self._recent) / len(self._recent) if self._recent else math.nan,
                    finished=finished,
                    validation_return=validation,
                    figures=self._figures,
                )
            )

    def play(self) -> list[SingleAgentEpisode]:
        """Play one step in each sub-environment, and return the chunks of episodes that this gives."""
        chunks = self._runner.sample(num_timesteps=self._settings.num_envs)
        before, self.step = self.step, self.step + sum(map(len, chunks))
        every = self._settings.update_every
        self.updates = self.step // every - before // every if before >= self._settings.warmup else 0
        return chunks

    def note(self, **figures: float) -> None:
        """Take figures down for the report at the end of this round."""
        self._figures = figures

    @property
    def result(self) -> Result[Network]:
        """What the run has given by now."""
        reason = "solved" if self._judge.solved else "interrupted" if self._interrupted else "steps"
        return Result(self._judge.best or self._network, self.step, reason)

    def __enter__(self) -> Run[Network]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._interrupted = isinstance(error, KeyboardInterrupt)
        return self._interrupted


class _Judge(Generic[Network]):
    """Validations: the best network so far, and whether the environment counts as solved."""

    def __init__(self, settings: Settings, evaluate: Evaluate) -> None:
        self._settings, self._evaluate = settings, evaluate
        self._env = environment(settings)
        self._threshold = _reward_threshold(settings.env)
        self._best_return = -math.inf
        self._good = 0
        self.best: Network | None = None

    @property
    def solved(self) -> bool:
        return self._good >= self._settings.patience

    def validate(self, network: Network) -> float:
        seed = self._settings.seed, VALIDATION
        got = self._evaluate(network, self._env, self._settings.validation_episodes, seed=seed)
        mean = float(np.mean(got))
        if mean >= self._best_return:
            self._best_return, self.best = mean, copy.deepcopy(network)
        self._good = self._good + 1 if self._threshold is not None and min(got) >= self._threshold else 0
        return mean


def _reward_threshold(env: str) -> float | None:
    made = gym.make(env)
    made.close()
    return None if made.spec is None else made.spec.reward_threshold


def environment(settings: Settings) -> Env:
    """Return what `EnvRunner` makes the environment of a run from: its id, or what masks it."""
    return functools.partial(make_masked, settings.env) if settings.mask_velocity else settings.env


def returns(
    env: Env,
    episodes: int,
    make_policy: Callable[[Any], Any],
    *,
    seed: tuple[int, ...],
    env_to_module: ConnectorPipeline | None = None,
    module_to_env: ConnectorPipeline | None = None,
) -> list[float]:
    """Play whole episodes, and return what they gave.

    Parameters
    ----------
    env : str or callable
        Id for ``gym.make``, or what makes one environment.
    episodes : int
        How many, at most 20 of them side by side.
    make_policy : callable
        Gets the action space and returns the module that plays.
    seed : tuple of int
        Decides the episodes' beginnings.
    env_to_module, module_to_env : ConnectorPipeline, optional
        As for `EnvRunner`.

    Returns
    -------
    list of float
        Undiscounted returns.
    """
    with EnvRunner(
        env, num_envs=min(episodes, 20), seed=seed, env_to_module=env_to_module, module_to_env=module_to_env
    ) as runner:
        runner.module = make_policy(runner.action_space)
        runner.sample(num_episodes=episodes)
        return [record.return_ for record in runner.finished]


def check_observations(env: str, space: gym.Space[Any]) -> gym.spaces.Box:
    """Return an observation space, known to be a Box; raise a TypeError if it is none."""
    if not isinstance(space, gym.spaces.Box):
        raise TypeError(f"train: {env} must have a Box observation space, got {space}")
    return space


# ---- files -----------------------------------------------------------------------------------------------------------


def save(network: nn.Module, settings: Settings, path: str | os.PathLike[str]) -> None:
    """Write a network and the settings that made it to one file; its program's ``load`` reads it.

    Parameters
    ----------
    network : Module
        Copied to the CPU, so that any machine can load it.
    settings : Settings
        Stored beside it.
    path : path-like
        Replaced if it exists.
    """
    weights = {name: value.cpu() for name, value in network.state_dict().items()}
    program = _program(type(settings))
    torch.save({"program": program, "settings": dataclasses.asdict(settings), "weights": weights}, path)


SomeSettings = TypeVar("SomeSettings", bound=Settings)


def read(path: str | os.PathLike[str], kind: type[SomeSettings]) -> tuple[dict[str, torch.Tensor], SomeSettings]:
    """Read what `save` wrote.

    Parameters
    ----------
    path : path-like
        The file; only data is read from it, no code is run.
    kind : type
        The program's settings.

    Returns
    -------
    tuple of dict and Settings
        The weights are on the CPU.

    Raises
    ------
    ValueError
        If another program wrote it.
    """
    content = torch.load(path, map_location="cpu", weights_only=True)
    if content["program"] != _program(kind):
        raise ValueError(f"load: path must be a model of {_program(kind)}, got one of {content['program']}")
    return content["weights"], kind(**content["settings"])


def _program(kind: type[Settings]) -> str:
    return kind.__module__.rpartition(".")[2]
