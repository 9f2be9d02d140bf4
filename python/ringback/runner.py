"""Step environments with a policy and hand back episodes."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from ringback.connectors import AddObservations, Connector, ConnectorPipeline, SampleActions, ToNumpy, ToTensor, stacked
from ringback.episodes import SingleAgentEpisode
from ringback.episodes.structure import leaves, map_structure
from ringback.errors import EnvError
from ringback.open_episodes import EpisodeRecord, OpenEpisode, StepLog
from ringback.random_actions import RandomActions, stack_actions
from ringback.vector_calls import close_envs, failed_index, guard_workers, original, stop_workers, worker_end
from ringback.vector_rows import VectorRows, VectorStep, info_rows, leaf_rows, row_splitter

__all__ = ["EnvRunner", "EpisodeRecord"]

Module = Callable[[dict[str, Any]], Mapping[str, Any]]
BY_ENV = operator.attrgetter("env_index")
EVENTS = ("on_episode_start", "on_episode_step", "on_episode_end")


class EnvRunner:
    """Steps one or more environments and returns what happened as `SingleAgentEpisode` objects.

    Final observations are never those of a reset and the reset step of `NEXT_STEP` mode is never data: in all three
    autoreset modes, with one environment or many, in this process or in others, the same environments, seed and policy
    give the same episodes.

    Parameters
    ----------
    env : str, callable, gymnasium.Env or gymnasium.vector.VectorEnv
        An id for ``gym.make``, a function that makes one environment, a single environment (with ``num_envs=1``), or a
        vector environment in any autoreset mode. The runner takes it over: `close` closes it.
    module : callable, optional
        The policy: ``module(batch) -> {"actions": actions, ...}``. With the default pipelines the batch is
        ``{"obs": observations}``, one row for each sub-environment with an open episode. Instead of actions it may
        return what they are sampled from (``action_dist_inputs``: see `ringback.connectors.SampleActions`). What else
        it returns is stored as extra model outputs of the step. Of an object with ``forward_exploration`` and
        ``forward_inference``, one of these is called, by `explore`. With no module, actions are drawn at random.
    num_envs : int, optional
        Number of sub-environments E; default 1, or what a vector environment has.
    lookback : int, optional
        Number of earlier steps that the continuation of a cut episode still knows; default 1, or as many as the
        pipelines read.
    seed : int or tuple of int, optional
        Seeds the environments, at each reset of all of them, and all random choices; ``(7, rank)`` gives independent
        streams for each rank. Default: fresh entropy.
    env_to_module : ConnectorPipeline, Connector or sequence of Connector, optional
        Makes the module's batch of the open episodes. Default: the observations (as tensors on the module's device for
        a ``torch.nn.Module``).
    module_to_env : ConnectorPipeline, Connector or sequence of Connector, optional
        Makes the actions of the module's outputs. ``actions`` goes into the episodes; the environment gets
        ``actions_for_env`` if there is such a column. Default: to NumPy, then sampling.
    explore : bool, default True
        Whether actions are sampled, or the best ones taken.
    callbacks : object, mapping or sequence of these, optional
        Its functions ``on_episode_start``, ``on_episode_step`` and ``on_episode_end``, those that there are, are called
        with keyword arguments (those that they take): ``episode`` (the present chunk), ``env_index``, ``runner`` (also
        as ``env_runner``), ``env``, ``rl_module``; at the end ``record`` (an `EpisodeRecord`), too.

    Attributes
    ----------
    env : gymnasium.vector.VectorEnv
        The vector environment that is stepped.
    num_envs : int
        Number of sub-environments E.
    observation_space, action_space : gymnasium.Space
        Those of one sub-environment.
    env_to_module, module_to_env : ConnectorPipeline
        The pipelines.
    lookback : int
        Number of earlier steps that the continuation of a cut episode still knows.
    finished : list of EpisodeRecord
        The episodes that ended in the latest call of `sample`.
    total_timesteps, total_episodes : int
        Env steps and finished episodes handed back so far.
    dropped_timesteps : int
        Env steps that were played and not handed back: of episodes that a reset or an error gave up, and of
        sub-environments that had played all their episodes.

    Raises
    ------
    TypeError
        If `env`, `seed` or a pipeline is none of the above.
    ValueError
        If `num_envs` or `lookback` is out of range, or a vector environment does not say its autoreset mode.

    Notes
    -----
    Environments made here run one after the other in this process, in autoreset mode `DISABLED`, so that no step is
    spent on resets; for worker processes pass a ``gymnasium.vector.AsyncVectorEnv``. Not thread-safe.

    Each observation passes `env_to_module` once, right after it was made; the batch is kept for the next action, also
    over calls of `sample`. Final observations pass it too, and their batch is thrown away. Callbacks come after it.
    Pieces find in ``shared_data`` the list ``env_indices`` (the sub-environment of each of their episodes) and the list
    ``generators`` (a `numpy.random.Generator` for each of them, its own, which rows without a step leave alone).

    In mode `SAME_STEP` gymnasium keeps the final observation by reference over the reset: an environment that writes
    each observation into one array has overwritten it there before anybody can see it.

    References
    ----------
    gymnasium 1.4, ``gymnasium.vector.AutoresetMode``; the two ways of sampling, the pipelines and the callbacks follow
    ``SingleAgentEnvRunner`` of RLlib (Ray 2.60).

    Examples
    --------
    >>> with EnvRunner("CartPole-v1", num_envs=2, seed=0) as runner:
    ...     chunks = runner.sample(num_timesteps=100)
    ...     sum(len(chunk) for chunk in chunks)
    100
    """

    def __init__(
        self,
        env: str | Callable[[], gym.Env[Any, Any]] | gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
        module: Module | None = None,
        *,
        num_envs: int | None = None,
        lookback: int | None = None,
        seed: int | tuple[int, ...] | None = None,
        env_to_module: Connector | Sequence[Connector] | None = None,
        module_to_env: Connector | Sequence[Connector] | None = None,
        explore: bool = True,
        callbacks: Any = None,
    ) -> None:
        self._seeds = SeedPlan(seed)
        self._given_to_module = as_pipeline(env_to_module, "env_to_module")
        self.module_to_env = as_pipeline(module_to_env, "module_to_env") or ConnectorPipeline(
            [ToNumpy(), SampleActions()]
        )
        self.lookback = enough_lookback(lookback, (self._given_to_module, self.module_to_env))
        self.env = make_vector_env(env, None if num_envs is None else as_count("num_envs", num_envs, minimum=1))
        self._rows = VectorRows(self.env, "EnvRunner")
        guard_workers(self.env)
        self._close = weakref.finalize(self, close_envs, self.env)
        self.num_envs = self.env.num_envs
        self.observation_space: gym.Space[Any] = self.env.single_observation_space
        self.action_space: gym.Space[Any] = self.env.single_action_space
        self.explore = explore
        self.finished: list[EpisodeRecord] = []
        self.total_timesteps = 0
        self.total_episodes = 0
        self.dropped_timesteps = 0
        self._generators = [np.random.default_rng(self._seeds.of(index)[1]) for index in range(self.num_envs)]
        self._random = RandomActions(self.action_space, self._generators)
        self._split_actions = row_splitter(self.action_space)
        self._fillers: list[Any] = self._split_actions(
            self._random.draw(np.zeros(self.num_envs, bool))
        )  # actions for rows that need none
        self._callbacks = Callbacks(callbacks)
        self._live: list[OpenEpisode] = []  # in order of sub-environment
        self._ended: list[OpenEpisode] = []  # in this call of `sample`, in order of their ends
        self._log: StepLog | None = None  # of steps that are not in the chunks so far
        self._quota: list[int] | None = None  # how many more episodes each sub-environment may begin; None: any number
        self._batch: dict[str, Any] | None = None  # for the next call of the module
        self._shared: dict[str, Any] = {}
        self._needs_reset = True
        self._resets = 0
        self._explore = explore
        self.module = module
        for pipeline in (self.env_to_module, self.module_to_env):
            pipeline.input_action_space = self.action_space
            pipeline.input_observation_space = self.observation_space

    @property
    def module(self) -> Module | None:
        """The policy; it may be exchanged between two calls of `sample`."""
        return self._module

    @module.setter
    def module(self, module: Module | None) -> None:
        self._module = module
        self._inference: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        device = None
        if "torch" in sys.modules and isinstance(module, sys.modules["torch"].nn.Module):
            self._inference = sys.modules["torch"].no_grad
            device = next((parameter.device for parameter in module.parameters()), "cpu")
        if self._given_to_module is None:
            self._batch = None
            self.env_to_module = default_to_module(device)
        else:
            self.env_to_module = self._given_to_module

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        force_reset: bool = False,
        explore: bool | None = None,
    ) -> list[SingleAgentEpisode]:
        """Play on and return what happened.

        Parameters
        ----------
        num_timesteps : int, optional
            Play at least this many env steps over all sub-environments, at most E - 1 more. Open episodes are returned
            as far as they got and go on in the next call, as a new chunk with the same ``id_``.
        num_episodes : int, optional
            Reset, then play exactly this many whole episodes. The number that each sub-environment contributes is
            fixed beforehand (as equal as can be, the first ones more), so that short episodes are not preferred. The
            next call begins with a reset.
        force_reset : bool, default False
            Begin with a reset: the open episodes do not go on.
        explore : bool, optional
            In the place of `explore`, for this call.

        Returns
        -------
        list of SingleAgentEpisode
            In list form, owned by the caller. For `num_timesteps`: finished ones in order of their ends, then open ones
            by sub-environment. For `num_episodes`: the first episode of each sub-environment, then the second, …

        Raises
        ------
        ValueError
            If not exactly one of `num_timesteps` and `num_episodes` is given, or it is below 1.
        EnvError
            If an environment raises, or gives NaN as reward or observations that do not fit its space. It names the
            sub-environment and the step, and has the episodes so far.
        RuntimeError
            If the runner is closed.

        Notes
        -----
        After an exception the next call begins with a reset. Worker processes are ended by an `EnvError`, and the
        runner is closed then.
        """
        if (num_timesteps is None) == (num_episodes is None):
            raise ValueError(
                "EnvRunner.sample: exactly one of num_timesteps and num_episodes must be given, "
                f"got num_timesteps={num_timesteps!r} and num_episodes={num_episodes!r}"
            )
        timesteps = None if num_timesteps is None else as_count("num_timesteps", num_timesteps, minimum=1)
        episodes = None if num_episodes is None else as_count("num_episodes", num_episodes, minimum=1)
        if not self._close.alive:
            raise RuntimeError("EnvRunner.sample: the runner must be open, got a closed one")
        self.finished = []
        self._explore = self.explore if explore is None else explore
        try:
            if episodes is not None:
                return self._sample_episodes(episodes)
            assert timesteps is not None
            return self._sample_timesteps(timesteps, force_reset)
        except BaseException:
            self._needs_reset = True
            self._settle()
            self.dropped_timesteps += sum(len(episode.chunk) for episode in self._ended)
            self._ended = []
            raise

    def close(self) -> None:
        """Close the environment; a second call does nothing."""
        self._close()

    def __enter__(self) -> EnvRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"EnvRunner({self.env!r}, num_envs={self.num_envs}, lookback={self.lookback})"

    # -- the two ways to sample ----------------------------------------------------------------------------------------

    def _sample_timesteps(self, num_timesteps: int, force_reset: bool) -> list[SingleAgentEpisode]:
        if force_reset or self._needs_reset:
            self._reset(None)
        if self._is_watched or not StepLog.suits(self.observation_space, self.action_space):
            taken = 0
            while taken < num_timesteps:
                taken += self._step()
        else:
            self._play_unseen(num_timesteps)
        return self._hand_back([episode.cut(self.lookback) for episode in self._live if len(episode.chunk)])

    def _sample_episodes(self, num_episodes: int) -> list[SingleAgentEpisode]:
        each, more = divmod(num_episodes, self.num_envs)
        self._reset([each + (index < more) for index in range(self.num_envs)])
        while len(self._ended) < num_episodes:
            self._step()
        self._needs_reset = True
        lanes: dict[int, list[OpenEpisode]] = {}
        for episode in self._ended:
            lanes.setdefault(episode.env_index, []).append(episode)
        turns = itertools.zip_longest(*(lanes[index] for index in sorted(lanes)))
        self._ended = [episode for turn in turns for episode in turn if episode is not None]
        return self._hand_back([])

    def _hand_back(self, chunks: list[SingleAgentEpisode]) -> list[SingleAgentEpisode]:
        """Return the episodes that ended in this call and the chunks given, and count them."""
        self.finished = [episode.record for episode in self._ended if episode.record is not None]
        returned = [*(episode.chunk for episode in self._ended), *chunks]
        self.total_timesteps += sum(map(len, returned))
        self.total_episodes += len(self._ended)
        self._ended = []
        return returned

    # -- steps that nobody looks at before they are handed back --------------------------------------------------------

    @property
    def _is_watched(self) -> bool:
        return self._transforms or bool(self._callbacks)

    def _play_unseen(self, num_timesteps: int) -> None:
        """Play at least so many env steps with random actions, and make episodes of them at the end."""
        self._log = log = StepLog(self.observation_space, self.action_space)
        rows = self._rows
        taken = 0
        while taken < num_timesteps:
            playing = rows.playing
            actions = self._random.draw(playing)
            step, successors = self._step_envs(actions)
            if has_nan(step.rewards):
                self._settle()
                split = self._split_actions(actions)
                self._store(step, step.successor_rows(), [split[episode.env_index] for episode in self._live])
            log.add(step, successors, actions)
            if step.num_ended and rows.mode is AutoresetMode.DISABLED:
                log.add_starts(step.ended, *self._reset_envs(step.ended))
            taken += self.num_envs if playing is None else int(np.count_nonzero(playing))
        self._settle()

    def _settle(self) -> None:
        """Make episodes of what is in the log."""
        if self._log is not None:
            log, self._log = self._log, None
            ended, self._live = log.episodes(self._live)
            self._ended += ended

    # -- one step ------------------------------------------------------------------------------------------------------

    def _reset(self, quota: list[int] | None) -> None:
        self.dropped_timesteps += sum(len(episode.chunk) for episode in self._live)
        self._live = []
        self._batch = None
        self._quota = quota
        self._needs_reset = True
        seed = reset_seed(self.env, self._seeds, self._resets)
        self._resets += 1
        observations, infos = self._reset_envs(None, seed=seed)
        self._needs_reset = False
        started = self._begin(range(self.num_envs), observations, infos)
        self._prepare()
        self._call_back("on_episode_start", started)

    def _step(self) -> int:
        """Step every sub-environment once, and return how many steps of open episodes that were."""
        live = self._live
        batch, actions, extras = self._act()
        step, observations = self._step_envs(batch)
        played = self.num_envs if step.steps is None else int(np.count_nonzero(step.steps))
        self.dropped_timesteps += played - len(live)
        self._store(step, observations, actions, extras)
        stepped = self._live
        started = self._start(step, observations)
        self._prepare()
        self._call_back("on_episode_step", stepped)
        self._call_back("on_episode_start", started)
        return len(live)

    def _store(
        self,
        step: VectorStep,
        observations: list[Any],
        actions: list[Any],
        extras: Iterable[dict[str, Any] | None] = itertools.repeat(None),
    ) -> None:
        """Add a step to each open episode, and take those that end with it out of the open ones."""
        rewards, infos = step.rewards.tolist(), step.step_infos()
        terminations, truncations = step.terminations.tolist(), step.truncations.tolist()
        spoiled = [one for one in self._live if np.isnan(rewards[one.env_index])] if has_nan(step.rewards) else []
        for episode, action, extra in zip(self._live, actions, extras, strict=False):
            if spoiled and episode in spoiled:
                continue
            index = episode.env_index
            episode.chunk.add_env_step(
                observations[index],
                action,
                rewards[index],
                infos[index],
                terminated=terminations[index],
                truncated=truncations[index],
                extra_model_outputs=extra,
            )
        if step.num_ended:
            self._end()
        if spoiled:
            raise self._failure(EnvError("the reward must be a number, got nan", spoiled[0].env_index))

    def _end(self) -> None:
        """Take the episodes that ended out of the open ones."""
        ended = [episode for episode in self._live if episode.chunk.is_done]
        self._live = [episode for episode in self._live if not episode.chunk.is_done]
        self._ended += ended
        for episode in ended:
            episode.finish()
        if ended and self._transforms:
            self._transform(ended)
        for episode in ended:
            self._call_back("on_episode_step", [episode])
            self._call_back("on_episode_end", [episode])

    def _start(self, step: VectorStep, observations: list[Any]) -> list[OpenEpisode]:
        """Begin the episodes that follow on those that ended."""
        if step.num_ended and self._rows.mode is AutoresetMode.DISABLED:
            if self._quota is not None and not self._live and not any(self._quota):
                return []  # nobody is going to step any more
            observations, infos = self._reset_envs(step.ended)
            return self._begin(np.flatnonzero(step.ended).tolist(), observations, infos)
        if step.starts is None:
            return []
        if step.finals:
            observations = self._rows.split(step.observations)
        return self._begin(np.flatnonzero(step.starts).tolist(), observations, step.start_infos())

    def _begin(self, indices: Iterable[int], observations: list[Any], infos: list[dict[str, Any]]) -> list[OpenEpisode]:
        """Begin episodes, as far as they are wanted."""
        started = []
        for index in indices:
            if self._quota is not None:
                if not self._quota[index]:
                    continue
                self._quota[index] -= 1
            chunk = SingleAgentEpisode(observation_space=self.observation_space, action_space=self.action_space)
            chunk.add_env_reset(observation=observations[index], infos=infos[index])
            started.append(OpenEpisode(index, chunk))
        if started:
            self._live = sorted([*self._live, *started], key=BY_ENV)
        return started

    def _call_back(self, event: str, episodes: list[OpenEpisode]) -> None:
        if not self._callbacks.has(event):
            return
        for episode in episodes:
            record = {} if episode.record is None else {"record": episode.record}
            self._callbacks(
                event,
                episode=episode.chunk,
                env_index=episode.env_index,
                runner=self,
                env_runner=self,
                env=self.env,
                rl_module=self._module,
                **record,
            )

    # -- the module ----------------------------------------------------------------------------------------------------

    @property
    def _transforms(self) -> bool:
        """Whether anybody wants the observations that come out of the first pipeline."""
        return self._module is not None or self._given_to_module is not None

    def _prepare(self) -> None:
        """Make the batch of the open episodes, for the next action."""
        if self._live and self._transforms:
            self._batch = self._transform(self._live)

    def _transform(self, episodes: list[OpenEpisode]) -> dict[str, Any]:
        self._shared = {
            "env_indices": [episode.env_index for episode in episodes],
            "generators": [self._generators[episode.env_index] for episode in episodes],
        }
        batch = self.env_to_module(
            rl_module=self._module,
            batch={},
            episodes=[episode.chunk for episode in episodes],
            explore=self._explore,
            shared_data=self._shared,
        )
        return {name: stacked(column) for name, column in batch.items()}

    def _act(self) -> tuple[Any, list[Any], Iterable[dict[str, Any] | None]]:
        """Return E actions for the environment, those of the open episodes one by one, and what is stored with them."""
        live = self._live
        if self._module is None:
            indices = [episode.env_index for episode in live]
            playing = None
            if len(live) < self.num_envs:
                playing = np.zeros(self.num_envs, bool)
                playing[indices] = True
            batch = self._random.draw(playing)
            actions = self._split_actions(batch)
            return batch, [actions[index] for index in indices], itertools.repeat(None)
        if not live:
            return stack_actions(self.action_space, self._fillers), [], ()
        if self._batch is None:
            self._prepare()
        batch, self._batch = self._batch, None
        columns = {
            name: as_arrays(column)
            for name, column in self.module_to_env(
                rl_module=self._module,
                batch=self._outputs(batch),
                episodes=[episode.chunk for episode in live],
                explore=self._explore,
                shared_data=self._shared,
            ).items()
        }
        if "actions" not in columns:
            raise TypeError(f'EnvRunner.sample: module must return a dict with "actions", got keys {list(columns)}')
        for name, column in columns.items():
            check_rows(name, column, len(live))
        for_env = columns.pop("actions_for_env", columns["actions"])
        actions = rows_of(columns.pop("actions"))
        if len(live) < self.num_envs:
            given = dict(zip((episode.env_index for episode in live), rows_of(for_env), strict=True))
            for_env = stack_actions(self.action_space, [given.get(k, filler) for k, filler in enumerate(self._fillers)])
        if not columns:
            return for_env, actions, itertools.repeat(None)
        rows = zip(*map(rows_of, columns.values()), strict=True)
        return for_env, actions, [dict(zip(columns, row, strict=True)) for row in rows]

    def _outputs(self, batch: dict[str, Any] | None) -> dict[str, Any]:
        """Call the module."""
        module: Any = self._module
        forward = getattr(module, "forward_exploration" if self._explore else "forward_inference", module)
        with self._inference():
            outputs = forward(batch)
        if not isinstance(outputs, Mapping):
            raise TypeError(f'EnvRunner.sample: module must return a dict with "actions", got {type(outputs).__name__}')
        return {name: stacked(output) if isinstance(output, list) else output for name, output in outputs.items()}

    # -- the environment -----------------------------------------------------------------------------------------------

    def _step_envs(self, actions: Any) -> tuple[VectorStep, Any]:
        """Step all sub-environments; return what that means, and the observation that each step led to."""
        try:
            returned = self.env.step(actions)
            self._rows.check(returned[0])
            step = self._rows.read(*returned)
            observations = step.successor_rows() if self._log is None else step.successors()
        except Exception as error:
            raise self._failure(error) from (None if isinstance(error, EnvError) else original(error))
        except BaseException:
            self._give_up_workers()
            raise
        self._rows.accept(step)
        return step, observations

    def _reset_envs(self, mask: Any, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
        """Reset all sub-environments, or those in the mask; return an observation and an info of each."""
        if mask is not None:
            options["options"] = {"reset_mask": mask.copy()}
        try:
            observations, infos = self.env.reset(**options)
            self._rows.check(observations)
            rows = self._rows.split(observations), info_rows(infos, self.num_envs)
        except Exception as error:
            raise self._failure(error, at_reset=True) from (None if isinstance(error, EnvError) else original(error))
        except BaseException:
            self._give_up_workers()
            raise
        self._rows.reset(mask)
        return rows

    def _failure(self, error: Exception, at_reset: bool = False) -> EnvError:
        """Make the error of an environment that failed, with all episodes so far."""
        given = isinstance(error, EnvError)
        index = error.env_index if isinstance(error, EnvError) else failed_index(error, self.env)
        who = "an environment" if index is None else f"sub-environment {index}"
        self._settle()
        if given:
            text = f"{who}: {error}"
        else:
            text = f"{who} must not raise, got {worker_end(error, self.env, index) or repr(original(error))}"
        number = None
        if index is not None:
            open_ = next((episode for episode in self._live if episode.env_index == index), None)
            number = 0 if at_reset or open_ is None else open_.chunk.t + 1
            text += f" at step {number} of its episode" if number else " at its reset"
        chunks = [episode.chunk for episode in self._live if len(episode.chunk)]
        self._live = []
        self._give_up_workers()
        return EnvError(f"EnvRunner.sample: {text}", index, number, self._hand_back(chunks))

    def _give_up_workers(self) -> None:
        """End worker processes that cannot be asked any more, and close the runner."""
        if isinstance(self.env.unwrapped, AsyncVectorEnv):
            stop_workers(self.env)
            self.close()


class Callbacks:
    """The functions of the user that are called when something happens to an episode."""

    def __init__(self, given: Any) -> None:
        self._functions: dict[str, list[Callable[..., Any]]] = {event: [] for event in EVENTS}
        for one in given if isinstance(given, list | tuple) else [] if given is None else [given]:
            found = {
                event: one.get(event) if isinstance(one, Mapping) else getattr(one, event, None) for event in EVENTS
            }
            if not any(map(callable, found.values())):
                raise TypeError(f"EnvRunner: callbacks must have one of the functions {', '.join(EVENTS)}, got {one!r}")
            for event, function in found.items():
                if function is not None:
                    self._functions[event].append(taking_its_own(function))

    def __bool__(self) -> bool:
        return any(self._functions.values())

    def has(self, event: str) -> bool:
        """Tell whether anybody wants to know."""
        return bool(self._functions[event])

    def __call__(self, event: str, **values: Any) -> None:
        """Call all functions of an event."""
        for function in self._functions[event]:
            function(**values)


def taking_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function so that keyword arguments that it does not take are left out."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function
    return lambda **values: function(**{name: value for name, value in values.items() if name in parameters})


class SeedPlan:
    """Independent seeds for each sub-environment, the same however many there are."""

    def __init__(self, seed: int | tuple[int, ...] | None) -> None:
        parts: tuple[int, ...] | None
        try:
            parts = None if seed is None else tuple(map(as_index, seed if isinstance(seed, tuple) else (seed,)))
        except TypeError:
            parts = ()
        if parts == ():
            raise TypeError(f"EnvRunner: seed must be an integer, a tuple of integers or None, got {seed!r}")
        if parts is not None and min(parts) < 0:
            raise ValueError(f"EnvRunner: seed must be >= 0, got {seed!r}")
        entropy = np.random.SeedSequence(parts[0] if parts else None).entropy
        self._root = (entropy, tuple(parts[1:]) if parts else ())

    def of(self, index: int, reset: int = 0) -> tuple[int, int]:
        """Return the seeds of sub-environment `index`: for that reset of the environment, and for random choices."""
        entropy, key = self._root
        place = (*key, index, reset) if reset else (*key, index)
        words = np.random.SeedSequence(entropy, spawn_key=place).generate_state(2)
        # 31 bits: some environments hand their seed to generators that take no more.
        return int(words[0]) >> 1, int(words[1]) >> 1


def reset_seed(env: VectorEnv[Any, Any, Any], seeds: SeedPlan, reset: int) -> int | list[int]:
    """Return the seed for a reset of all sub-environments: new ones each time, so that what was played is forgotten."""
    if isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return [seeds.of(index, reset)[0] for index in range(env.num_envs)]
    return seeds.of(0, reset)[0]  # a native vector environment has one generator


def make_vector_env(env: Any, num_envs: int | None) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment of what the runner was given."""
    if isinstance(env, VectorEnv):
        if num_envs not in (None, env.num_envs):
            raise ValueError(
                f"EnvRunner: num_envs must be that of the vector environment ({env.num_envs}), got {num_envs}"
            )
        return env
    make: Callable[[], gym.Env[Any, Any]]
    if isinstance(env, gym.Env):
        if num_envs not in (None, 1):
            raise ValueError(
                f"EnvRunner: num_envs must be 1 for one environment, got {num_envs}; pass a function that makes one"
            )
        single: gym.Env[Any, Any] = env
        make = lambda: single  # noqa: E731
    elif isinstance(env, str):
        name = env
        make = lambda: gym.make(name)  # noqa: E731
    elif callable(env):
        make = env
    else:
        raise TypeError(
            "EnvRunner: env must be an id, a function that makes an environment, an environment or a vector "
            f"environment, got {type(env).__name__}"
        )
    return SyncVectorEnv([make] * (num_envs or 1), copy=False, autoreset_mode=AutoresetMode.DISABLED)


# ---- pipelines -------------------------------------------------------------------------------------------------------


def as_pipeline(given: Any, name: str) -> ConnectorPipeline | None:
    """Return a pipeline of what the runner was given; None for None."""
    if given is None or isinstance(given, ConnectorPipeline):
        return given
    pieces = [given] if isinstance(given, Connector) else given
    if not isinstance(pieces, Sequence) or not all(isinstance(piece, Connector) for piece in pieces):
        raise TypeError(f"EnvRunner: {name} must be a ConnectorPipeline, a Connector or a list of these, got {given!r}")
    return ConnectorPipeline(pieces)


def default_to_module(device: Any) -> ConnectorPipeline:
    """Return the pipeline for modules that take observations: arrays, or tensors on a device."""
    return ConnectorPipeline([AddObservations(), *([] if device is None else [ToTensor(device=device)])])


def enough_lookback(given: Any, pipelines: Iterable[ConnectorPipeline | None]) -> int:
    """Return the lookback that is asked for, or as much as the pipelines read, at least 1."""
    pieces = [piece for pipeline in pipelines if pipeline is not None for piece in pipeline]
    if given is None:
        return max(1, *(piece.lookback for piece in pieces), 1)
    lookback = as_count("lookback", given, minimum=0)
    for piece in pieces:
        if piece.lookback > lookback:
            raise ValueError(f"EnvRunner: lookback must be >= {piece.lookback} for {piece.name}, got {lookback}")
    return lookback


def has_nan(rewards: Any) -> bool:
    """Tell whether there is a NaN among a few rewards."""
    total = sum(rewards.tolist())  # quicker than NumPy for a few, and no NaN can hide in a sum
    return bool(total != total) and bool(np.isnan(rewards).any())


def rows_of(arrays: Any) -> list[Any]:
    """List the rows of a structure of arrays, as copies."""
    if isinstance(arrays, dict):
        return [dict(zip(arrays, row, strict=True)) for row in zip(*map(rows_of, arrays.values()), strict=True)]
    if isinstance(arrays, tuple):
        return list(zip(*map(rows_of, arrays), strict=True))
    return leaf_rows(arrays)


def as_arrays(column: Any) -> Any:
    """Return a column as a structure of arrays."""
    return map_structure(
        lambda leaf: np.asarray(leaf.detach().cpu() if hasattr(leaf, "detach") else leaf), stacked(column)
    )


def check_rows(name: str, column: Any, count: int) -> None:
    """Raise an error if a column does not have one row for each open episode."""
    for leaf in leaves(column):
        if leaf.ndim == 0 or len(leaf) != count:
            raise ValueError(
                f'EnvRunner.sample: module\'s "{name}" must have one row for each of {count} open episodes, '
                f"got shape {leaf.shape}"
            )


def as_index(value: Any) -> int:
    """Return an integer that is no bool."""
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def as_count(name: str, value: Any, *, minimum: int) -> int:
    """Return an integer argument in its range."""
    try:
        number = as_index(value)
    except TypeError:
        raise TypeError(f"EnvRunner: {name} must be an integer, got {value!r}") from None
    if number < minimum:
        raise ValueError(f"EnvRunner: {name} must be >= {minimum}, got {number}")
    return number
