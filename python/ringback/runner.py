"""Step environments with a policy and hand back episodes."""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from ringback.callbacks import Callbacks
from ringback.connectors import (
    AddObservations,
    Connector,
    ConnectorPipeline,
    RemoveTimeDim,
    SampleActions,
    ToNumpy,
    ToTensor,
    stacked,
)
from ringback.connectors.batching import batched, without_tensors
from ringback.episodes import SingleAgentEpisode
from ringback.episodes.structure import leaves, map_structure, unstack
from ringback.errors import EnvError
from ringback.open_episodes import EpisodeRecord, OpenEpisode, StepLog
from ringback.random_actions import RandomActions, stack_actions
from ringback.seeds import SeedPlan, as_index, reset_seed
from ringback.vector_calls import (
    close_envs,
    failed_index,
    guard_workers,
    make_vector_env,
    original,
    stop_workers,
    worker_end,
)
from ringback.vector_rows import VectorRows, VectorStep, info_rows, leaf_rows, row_splitter

__all__ = ["EnvRunner", "EpisodeRecord"]

Module = Callable[[dict[str, Any]], Mapping[str, Any]]
BY_ENV = operator.attrgetter("env_index")


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
        ``actions_for_env`` if there is such a column. Default: to NumPy, without a time axis that `AddTimeDim` added,
        then sampling.
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
        If `env`, `seed`, `callbacks` or a pipeline is none of the above.
    ValueError
        If `num_envs` or `lookback` is out of range, or a vector environment does not say its autoreset mode. An
        environment that was handed over is left open then.

    Notes
    -----
    Environments made here run one after the other in this process, in autoreset mode `DISABLED`, so that no step is
    spent on resets; for worker processes pass a ``gymnasium.vector.AsyncVectorEnv``. Not thread-safe.

    Each observation passes `env_to_module` once, right after it was made; the batch is kept for the next action, also
    over calls of `sample`. Final observations pass it too, and their batch is thrown away. Callbacks come after it.
    Pieces find in ``shared_data`` the list ``env_indices`` (the sub-environment of each of their episodes) and the list
    ``generators`` (a `numpy.random.Generator` for each of them, its own, which rows without a step leave alone).

    In mode `SAME_STEP` gymnasium keeps the final observation by reference over the reset: an environment that writes
    each observation into one array has overwritten it. Where it runs in this process that raises; in a worker process
    nobody can see it.

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
        where = "EnvRunner"
        self._seeds = SeedPlan(seed)
        self._callbacks = Callbacks(callbacks)
        self._is_given = env_to_module is not None
        self._default_pieces: list[Connector] = [] if self._is_given else [AddObservations()]
        self.env_to_module = as_pipeline(env_to_module if self._is_given else self._default_pieces, "env_to_module")
        self.module_to_env = as_pipeline(
            [ToNumpy(), RemoveTimeDim(), SampleActions()] if module_to_env is None else module_to_env, "module_to_env"
        )
        needed = max([1, *(piece.lookback for piece in self._pieces)])
        self.lookback = needed if lookback is None else as_count(where, "lookback", lookback, minimum=0)
        self._check_lookback(where)
        self._batch: dict[str, Any] | None = None  # for the next call of the module
        number = None if num_envs is None else as_count(where, "num_envs", num_envs, minimum=1)
        with contextlib.ExitStack() as undo:
            self.env = make_vector_env(env, number)
            if isinstance(env, gym.Env):
                # Some versions of gymnasium close what garbage holds: the environment is still the user's.
                undo.callback(setattr, self.env, "closed", True)
            elif not isinstance(env, VectorEnv):
                undo.callback(close_envs, self.env)
            self._rows = VectorRows(self.env, where)
            self.num_envs = self.env.num_envs
            self.observation_space: gym.Space[Any] = self.env.single_observation_space
            self.action_space: gym.Space[Any] = self.env.single_action_space
            self._generators = [np.random.default_rng(self._seeds.of(index)[1]) for index in range(self.num_envs)]
            self._random = RandomActions(self.action_space, self._generators)
            self._split_actions = row_splitter(self.action_space)
            self._fillers: list[Any] = self._split_actions(
                self._random.draw(np.zeros(self.num_envs, bool))
            )  # actions for rows that need none
            for pipeline in (self.env_to_module, self.module_to_env):
                pipeline.input_action_space = self.action_space
                pipeline.input_observation_space = self.observation_space
            self.module = module
            undo.pop_all()
        guard_workers(self.env)
        self._close = weakref.finalize(self, close_envs, self.env)
        self.explore = explore
        self.finished: list[EpisodeRecord] = []
        self.total_timesteps = 0
        self.total_episodes = 0
        self.dropped_timesteps = 0
        self._live: list[OpenEpisode] = []  # in order of sub-environment
        self._ended: list[OpenEpisode] = []  # in this call of `sample`, in order of their ends
        self._log: StepLog | None = None  # of steps that are not in the chunks so far
        self._quota: list[int] | None = None  # how many more episodes each sub-environment may begin; None: any number
        self._shared: dict[str, Any] = {}
        self._transforms = False  # whether anybody wants the observations that come out of the first pipeline
        self._needs_reset = True
        self._resets = 0
        self._explore = explore

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
        if not self._is_given:
            self._adapt_pipeline(device)

    def _adapt_pipeline(self, device: Any) -> None:
        """Let the pipeline that was not given end in tensors on a device, or, for None, without them."""
        mine = next((piece for piece in self._default_pieces if isinstance(piece, ToTensor)), None)
        if device is not None and mine is not None:
            mine.device = sys.modules["torch"].device(device)
        elif device is not None:
            mine = ToTensor(device=device)
            self.env_to_module.append(mine)
            self._default_pieces.append(mine)
        elif mine is not None:
            self._default_pieces.remove(mine)
            if mine in self.env_to_module:
                self.env_to_module.remove(ToTensor)
        # The batch that is there has gone through the pipeline, which must not see its observations again.
        if self._batch is not None and mine is not None:
            self._batch = (ToNumpy() if device is None else mine)(batch=self._batch, episodes=[])

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
            In the place of `explore`, for this call. The batch for the first action, where it is kept from the call
            before, was made with that call's.

        Returns
        -------
        list of SingleAgentEpisode
            In list form, owned by the caller. For `num_timesteps`: finished ones in order of their ends, then open ones
            by sub-environment. For `num_episodes`: the first episode of each sub-environment, then the second, …

        Raises
        ------
        TypeError
            If a number is no integer, or the module returns no mapping or no actions.
        ValueError
            If not exactly one of `num_timesteps` and `num_episodes` is given, or it is below 1; if a piece reads more
            steps back than `lookback`; if the module's outputs do not have one row for each open episode, or actions
            cannot be made of them.
        EpisodeError
            If a piece asks for what its episode or its batch does not have.
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
        where = "EnvRunner.sample"
        if (num_timesteps is None) == (num_episodes is None):
            raise ValueError(
                f"{where}: exactly one of num_timesteps and num_episodes must be given, "
                f"got num_timesteps={num_timesteps!r} and num_episodes={num_episodes!r}"
            )
        timesteps = None if num_timesteps is None else as_count(where, "num_timesteps", num_timesteps, minimum=1)
        episodes = None if num_episodes is None else as_count(where, "num_episodes", num_episodes, minimum=1)
        if not self._close.alive:
            raise RuntimeError(f"{where}: the runner must be open, got a closed one")
        self._check_lookback(where)
        self._transforms = (
            self._module is not None or self._is_given or list(self.env_to_module) != self._default_pieces
        )
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

    def __reduce__(self) -> Any:
        raise TypeError("EnvRunner cannot be copied or pickled; make another one, with the same seed or one of its own")

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
        elif self._batch is None:
            self._prepare()  # nobody wanted it before
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
        """Whether anybody looks at episodes while they are played."""
        return self._transforms or bool(self._callbacks)

    def _play_unseen(self, num_timesteps: int) -> None:
        """Play at least so many env steps with random actions, and make episodes of them at the end."""
        self._log = log = StepLog(self.num_envs, self.observation_space, self.action_space)
        self._batch = None
        rows = self._rows
        taken = 0
        while taken < num_timesteps:
            taken += rows.num_playing
            actions = self._random.draw(rows.playing)
            step, successors = self._step_envs(actions)
            if step.nan_rewards() is not None:
                self._settle()
                split = self._split_actions(actions)
                self._store(step, step.successor_rows(), [split[episode.env_index] for episode in self._live])
            log.add(step, successors, actions)
            if step.to_reset is not None:
                log.add_starts(step.to_reset, *self._reset_envs(step.to_reset))
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
        started = self._start(step)
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
        rewards, infos = step.reward_items, step.step_infos()
        terminations, truncations = step.terminations.tolist(), step.truncations.tolist()
        nans = step.nan_rewards()
        spoiled = [] if nans is None else [episode for episode in self._live if nans[episode.env_index]]
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

    def _start(self, step: VectorStep) -> list[OpenEpisode]:
        """Begin the episodes that follow on those that ended."""
        if step.to_reset is not None:
            if self._quota is not None and not self._live and not any(self._quota):
                return []  # nobody is going to step any more
            observations, infos = self._reset_envs(step.to_reset)
            return self._begin(np.flatnonzero(step.to_reset).tolist(), observations, infos)
        if step.starts is None:
            return []
        return self._begin(np.flatnonzero(step.starts).tolist(), step.shown_rows(), step.start_infos())

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
    def _pieces(self) -> list[Connector]:
        return [*self.env_to_module, *self.module_to_env]

    def _check_lookback(self, where: str) -> None:
        """Raise an error if a piece reads more steps than are kept."""
        for piece in self._pieces:
            if piece.lookback > self.lookback:
                hint = "" if where == "EnvRunner" else f"; pass EnvRunner(lookback={piece.lookback})"
                raise ValueError(
                    f"{where}: lookback must be >= {piece.lookback} for {piece.name}, got {self.lookback}{hint}"
                )

    def _prepare(self) -> None:
        """Make the batch of the open episodes, for the next action, if anybody wants it."""
        self._batch = self._transform(self._live) if self._live and self._transforms else None

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
        return {name: batched(name, column) for name, column in batch.items()}

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
        batch, self._batch = self._transform(live) if self._batch is None else self._batch, None
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
        return {
            name: stacked(without_tensors(output)) if isinstance(output, list) else output
            for name, output in outputs.items()
        }

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


# ---- pipelines -------------------------------------------------------------------------------------------------------


def as_pipeline(given: Any, name: str) -> ConnectorPipeline:
    """Return a pipeline of what the runner was given."""
    if isinstance(given, ConnectorPipeline):
        return given
    pieces = [given] if isinstance(given, Connector) else given
    if not isinstance(pieces, Sequence) or not all(isinstance(piece, Connector) for piece in pieces):
        raise TypeError(f"EnvRunner: {name} must be a ConnectorPipeline, a Connector or a list of these, got {given!r}")
    return ConnectorPipeline(pieces)


def rows_of(arrays: Any) -> list[Any]:
    """List the rows of a structure of arrays, as copies."""
    return unstack(map_structure(leaf_rows, arrays))


def as_arrays(column: Any) -> Any:
    """Return a column as a structure of arrays."""
    return column if type(column) is np.ndarray else map_structure(np.asarray, stacked(without_tensors(column)))


def check_rows(name: str, column: Any, count: int) -> None:
    """Raise an error if a column does not have one row for each open episode."""
    for leaf in leaves(column):
        if leaf.ndim == 0 or len(leaf) != count:
            raise ValueError(
                f'EnvRunner.sample: module\'s "{name}" must have one row for each of {count} open episodes, '
                f"got shape {leaf.shape}"
            )


def as_count(where: str, name: str, value: Any, *, minimum: int) -> int:
    """Return an integer argument in its range."""
    try:
        number = as_index(value)
    except TypeError:
        raise TypeError(f"{where}: {name} must be an integer, got {value!r}") from None
    if number < minimum:
        raise ValueError(f"{where}: {name} must be >= {minimum}, got {number}")
    return number
