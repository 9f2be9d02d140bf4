"""Step environments with a policy and hand back episodes.

A vector environment packs the steps of E sub-environments into rows, and each of gymnasium's three autoreset modes
packs the end of an episode differently. `_Rows` is the only place that knows how; all else sees steps and starts.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from ringback.episodes import SingleAgentEpisode

__all__ = ["EnvRunner", "EpisodeRecord"]

Module = Callable[[dict[str, Any]], Mapping[str, Any]]


class EpisodeRecord(NamedTuple):
    """What is known of a finished episode, also where its steps left the runner in several chunks.

    Attributes
    ----------
    id_ : str
        The id of the episode and of all its chunks.
    env_index : int
        The sub-environment that played it.
    return_ : float
        Sum of all its rewards, undiscounted.
    length : int
        Its number of env steps.
    """

    id_: str
    env_index: int
    return_: float
    length: int


class EnvRunner:
    """Steps one or more environments and returns what happened as `SingleAgentEpisode` objects.

    Final observations are never those of a reset and the reset step of `NEXT_STEP` mode is never data: in all three
    autoreset modes the same environments, seed and policy give the same episodes.

    Parameters
    ----------
    env : str, callable, gymnasium.Env or gymnasium.vector.VectorEnv
        An id for ``gym.make``, a function that makes one environment, a single environment (with ``num_envs=1``), or a
        vector environment in any autoreset mode. The runner takes it over: `close` closes it.
    module : callable, optional
        The policy: ``module({"obs": observations}) -> {"actions": actions, ...}``, both with a leading axis E. Further
        entries are stored as extra model outputs of the step. Tensors are brought to NumPy. With none, actions are
        drawn at random, by one generator for each sub-environment.
    num_envs : int, optional
        Number of sub-environments E; default 1, or what a vector environment has.
    lookback : int, default 1
        Number of earlier steps that the continuation of a cut episode still knows.
    seed : int or tuple of int, optional
        Seeds the first reset and the random actions; ``(7, rank)`` gives independent streams for each rank. Default:
        fresh entropy.

    Attributes
    ----------
    env : gymnasium.vector.VectorEnv
        The vector environment that is stepped.
    num_envs : int
        Number of sub-environments E.
    observation_space, action_space : gymnasium.Space
        Those of one sub-environment.
    finished : list of EpisodeRecord
        The episodes that ended in the latest call of `sample`.
    total_timesteps, total_episodes : int
        Env steps and finished episodes handed back so far.
    dropped_timesteps : int
        Env steps of episodes that were given up by a reset and not handed back.

    Raises
    ------
    TypeError
        If `env` or `seed` is none of the above.
    ValueError
        If `num_envs` or `lookback` is out of range, or a vector environment does not say its autoreset mode.

    Notes
    -----
    Environments made here run one after the other in this process, in autoreset mode `DISABLED`, so that no step is
    spent on resets; for worker processes pass a ``gymnasium.vector.AsyncVectorEnv``. Not thread-safe.

    In mode `SAME_STEP` gymnasium keeps the final observation by reference over the reset: an environment that writes
    each observation into one array has overwritten it there before anybody can see it.

    References
    ----------
    gymnasium 1.4, ``gymnasium.vector.AutoresetMode``; the two ways of sampling follow ``SingleAgentEnvRunner.sample``
    of RLlib (Ray 2.60).

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
        lookback: int = 1,
        seed: int | tuple[int, ...] | None = None,
    ) -> None:
        self._lookback = _count("lookback", lookback, minimum=0)
        seeds = _SeedPlan(seed)
        self.env = _make_vector_env(env, None if num_envs is None else _count("num_envs", num_envs, minimum=1))
        self.num_envs = self.env.num_envs
        self.observation_space: gym.Space[Any] = self.env.single_observation_space
        self.action_space: gym.Space[Any] = self.env.single_action_space
        self.module = module
        self.finished: list[EpisodeRecord] = []
        self.total_timesteps = 0
        self.total_episodes = 0
        self.dropped_timesteps = 0
        self._rows = _Rows(self.env, seeds)
        self._random = _RandomActions(self.env, seeds)
        self._open: list[_OpenEpisode | None] = [None] * self.num_envs
        self._needs_reset = True
        self._closed = False

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        """Play on and return what happened.

        Parameters
        ----------
        num_timesteps : int, optional
            Play at least this many env steps over all sub-environments, at most E - 1 more. Open episodes are returned
            as far as they got and go on in the next call, as a new chunk with the same ``id_``.
        num_episodes : int, optional
            Reset, then play exactly this many whole episodes. The number that each sub-environment contributes is
            fixed beforehand (as equal as can be, the first ones more), so that short episodes are not preferred.
            Episodes left open at the end are dropped; the next call begins with a reset.
        force_reset : bool, default False
            Begin with a reset: the open episodes do not go on.

        Returns
        -------
        list of SingleAgentEpisode
            In list form, owned by the caller. For `num_timesteps`: finished ones in order of their ends, then open ones
            by sub-environment. For `num_episodes`: the first episode of each sub-environment, then the second, …

        Raises
        ------
        ValueError
            If not exactly one of `num_timesteps` and `num_episodes` is given, or it is below 1.
        RuntimeError
            If the runner is closed, or an environment in `SAME_STEP` mode hides the final observation.

        Notes
        -----
        An exception, be it of the environment or of the module, gives up the open episodes: the next call begins with
        a reset.
        """
        if (num_timesteps is None) == (num_episodes is None):
            raise ValueError(
                "EnvRunner.sample: exactly one of num_timesteps and num_episodes must be given, "
                f"got num_timesteps={num_timesteps!r} and num_episodes={num_episodes!r}"
            )
        timesteps = None if num_timesteps is None else _count("num_timesteps", num_timesteps, minimum=1)
        episodes = None if num_episodes is None else _count("num_episodes", num_episodes, minimum=1)
        if self._closed:
            raise RuntimeError("EnvRunner.sample: the runner must be open, got a closed one")
        self.finished = []
        try:
            if episodes is not None:
                return self._sample_episodes(episodes)
            assert timesteps is not None
            return self._sample_timesteps(timesteps, force_reset)
        except BaseException:
            self._needs_reset = True
            raise

    def close(self) -> None:
        """Close the environment; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self.env.close()

    def __enter__(self) -> EnvRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"EnvRunner({self.env!r}, num_envs={self.num_envs}, lookback={self._lookback})"

    def _sample_timesteps(self, num_timesteps: int, force_reset: bool) -> list[SingleAgentEpisode]:
        if force_reset or self._needs_reset:
            self._reset()
        returned: list[SingleAgentEpisode] = []
        taken = 0
        while taken < num_timesteps:
            steps, ended = self._step()
            taken += steps
            for index, ended_episode in ended:
                self.finished.append(ended_episode.record(index))
                returned.append(ended_episode.chunk)
        returned += [running.cut(self._lookback) for running in self._open if running and len(running.chunk)]
        self.total_timesteps += taken
        self.total_episodes += len(self.finished)
        return returned

    def _sample_episodes(self, num_episodes: int) -> list[SingleAgentEpisode]:
        self._reset()
        each, more = divmod(num_episodes, self.num_envs)
        quota = [each + (index < more) for index in range(self.num_envs)]
        kept: list[list[_OpenEpisode]] = [[] for _ in quota]
        missing = num_episodes
        taken = 0
        while missing:
            steps, ended = self._step()
            taken += steps
            for index, episode in ended:
                if len(kept[index]) < quota[index]:
                    kept[index].append(episode)
                    missing -= 1
        self._needs_reset = True
        self._open = [None] * self.num_envs
        ordered = sorted(
            ((turn, index, episode) for index, lane in enumerate(kept) for turn, episode in enumerate(lane)),
            key=lambda item: item[:2],
        )
        self.finished = [episode.record(index) for _, index, episode in ordered]
        handed_back = sum(record.length for record in self.finished)
        self.total_timesteps += handed_back
        self.total_episodes += num_episodes
        self.dropped_timesteps += taken - handed_back
        return [episode.chunk for _, _, episode in ordered]

    def _reset(self) -> None:
        self.dropped_timesteps += sum(len(running.chunk) for running in self._open if running)
        self._open = [None] * self.num_envs
        for index, start in enumerate(self._rows.reset()):
            self._begin(index, start)
        self._needs_reset = False

    def _begin(self, index: int, start: _Start) -> None:
        chunk = SingleAgentEpisode(observation_space=self.observation_space, action_space=self.action_space)
        chunk.add_env_reset(observation=start.observation, infos=start.info)
        self._open[index] = _OpenEpisode(chunk)

    def _step(self) -> tuple[int, list[tuple[int, _OpenEpisode]]]:
        """Step every sub-environment once; return the number of env steps and the episodes that ended."""
        batch, actions, extras = self._act()
        ended: list[tuple[int, _OpenEpisode]] = []
        taken = 0
        for index, (step, start) in enumerate(self._rows.step(batch)):
            if step is not None:
                running = self._open[index]
                assert running is not None
                running.add(step, actions[index], extras[index] if extras else None)
                taken += 1
                if step.terminated or step.truncated:
                    ended.append((index, running))
                    self._open[index] = None
            if start is not None:
                self._begin(index, start)
        return taken, ended

    def _act(self) -> tuple[Any, list[Any], list[dict[str, Any]] | None]:
        """Return the actions for the environment, then one by one, and the further outputs of each sub-environment."""
        if self.module is None:
            actions = self._random.draw([running is not None for running in self._open])
            return self._random.stack(actions), actions, None
        outputs = self.module({"obs": self._rows.observations})
        if not isinstance(outputs, Mapping) or "actions" not in outputs:
            got = f"keys {list(outputs)}" if isinstance(outputs, Mapping) else type(outputs).__name__
            raise TypeError(f'EnvRunner.sample: module must return a dict with "actions", got {got}')
        arrays = {key: _to_numpy(value) for key, value in outputs.items()}
        batch = arrays.pop("actions")
        for key, value in {"actions": batch, **arrays}.items():
            _check_rows(key, value, self.num_envs)
        actions = [_own(row) for row in iterate(self.env.action_space, batch)]
        extras = [{key: _row(value, index) for key, value in arrays.items()} for index in range(self.num_envs)]
        return batch, actions, extras if arrays else None


class _OpenEpisode:
    """An episode being played: its present chunk, and the sums over all its chunks."""

    __slots__ = ("chunk", "length", "return_")

    def __init__(self, chunk: SingleAgentEpisode) -> None:
        self.chunk = chunk
        self.length = 0
        self.return_ = 0.0

    def add(self, step: _Step, action: Any, extras: dict[str, Any] | None) -> None:
        self.chunk.add_env_step(
            observation=step.observation,
            action=action,
            reward=step.reward,
            infos=step.info,
            terminated=step.terminated,
            truncated=step.truncated,
            extra_model_outputs=extras,
        )
        self.length += 1
        self.return_ += step.reward

    def cut(self, lookback: int) -> SingleAgentEpisode:
        """Return the present chunk and go on with its continuation."""
        chunk = self.chunk
        self.chunk = chunk.cut(len_lookback_buffer=lookback)
        return chunk

    def record(self, env_index: int) -> EpisodeRecord:
        return EpisodeRecord(str(self.chunk.id_), env_index, self.return_, self.length)


class _Start(NamedTuple):
    observation: Any
    info: dict[str, Any]


class _Step(NamedTuple):
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class _Rows:
    """What the rows of a vector environment mean: for each sub-environment a step, a start, or one after the other.

    The three modes, at the end of an episode:

    - `NEXT_STEP`: the row is a plain step; the *next* call ignores the action and its row is a start, nothing else.
    - `SAME_STEP`: the row's observation and info are already the next start; those of the step are in ``final_obs``
      and ``final_info``.
    - `DISABLED`: the row is a plain step; the sub-environment is reset by us, through a mask, before the next call.

    Everything handed out is a copy: an environment may reuse its arrays.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], seeds: _SeedPlan) -> None:
        self._env = env
        self._mode = _autoreset_mode(env)
        self._seed: int | list[int | None] | None = _reset_seed(env, seeds)
        self._ended = np.zeros(env.num_envs, bool)
        self.observations: Any = None

    def reset(self) -> list[_Start]:
        """Reset all sub-environments, seeded the first time."""
        self.observations, infos = self._env.reset(seed=self._seed)  # type: ignore[arg-type]  # a list where it can be
        self._seed = None
        self._ended[:] = False
        return self._starts(infos)

    def step(self, actions: Any) -> list[tuple[_Step | None, _Start | None]]:
        """Step all sub-environments that are not waiting for a reset."""
        self.observations, rewards, terminations, truncations, infos = self._env.step(actions)
        rows = self._own_observations()
        ended = np.logical_or(terminations, truncations)

        def step_of(index: int, observation: Any, info: Mapping[str, Any]) -> _Step:
            return _Step(
                observation,
                float(rewards[index]),
                bool(terminations[index]),
                bool(truncations[index]),
                _info_of(info, index),
            )

        result: list[tuple[_Step | None, _Start | None]] = []
        if self._mode is AutoresetMode.NEXT_STEP:
            for index, row in enumerate(rows):
                if self._ended[index]:
                    result.append((None, _Start(row, _info_of(infos, index))))
                else:
                    result.append((step_of(index, row, infos), None))
            self._ended = ended
        elif self._mode is AutoresetMode.SAME_STEP:
            for index, row in enumerate(rows):
                if ended[index]:
                    final = step_of(index, _final_observation(infos, index), infos.get("final_info", {}))
                    result.append((final, _Start(row, _info_of(infos, index))))
                else:
                    result.append((step_of(index, row, infos), None))
        else:
            steps = [step_of(index, row, infos) for index, row in enumerate(rows)]
            starts: list[_Start | None] = [None] * len(steps)
            if ended.any():
                self.observations, infos = self._env.reset(options={"reset_mask": ended.copy()})
                fresh = self._starts(infos)
                starts = [fresh[index] if ended[index] else None for index in range(len(steps))]
            result.extend(zip(steps, starts, strict=True))
        return result

    def _starts(self, infos: Mapping[str, Any]) -> list[_Start]:
        return [_Start(row, _info_of(infos, index)) for index, row in enumerate(self._own_observations())]

    def _own_observations(self) -> list[Any]:
        if isinstance(self.observations, np.ndarray):
            return [row.copy() for row in self.observations]
        return [_own(row) for row in iterate(self._env.observation_space, self.observations)]


class _RandomActions:
    """Random actions, one generator for each sub-environment, moved on by its steps only."""

    def __init__(self, env: VectorEnv[Any, Any, Any], seeds: _SeedPlan) -> None:
        self._space = env.single_action_space
        self._lanes = [copy.deepcopy(self._space) for _ in range(env.num_envs)]
        for index, lane in enumerate(self._lanes):
            lane.seed(seeds.of(index)[1])
        self._last = [copy.deepcopy(self._space).sample() for _ in self._lanes]

    def draw(self, wanted: Sequence[bool]) -> list[Any]:
        for index, lane in enumerate(self._lanes):
            if wanted[index]:
                self._last[index] = lane.sample()
        return list(self._last)

    def stack(self, actions: Sequence[Any]) -> Any:
        empty: Any = create_empty_array(self._space, n=len(actions))
        return concatenate(self._space, actions, empty)


class _SeedPlan:
    """Two independent seeds for each sub-environment, the same however many there are."""

    def __init__(self, seed: int | tuple[int, ...] | None) -> None:
        parts: tuple[int, ...] | None
        try:
            parts = None if seed is None else tuple(map(_index, seed if isinstance(seed, tuple) else (seed,)))
        except TypeError:
            parts = ()
        if parts == ():
            raise TypeError(f"EnvRunner: seed must be an integer, a tuple of integers or None, got {seed!r}")
        if parts is not None and min(parts) < 0:
            raise ValueError(f"EnvRunner: seed must be >= 0, got {seed!r}")
        entropy = np.random.SeedSequence(parts[0] if parts else None).entropy
        self._root = (entropy, tuple(parts[1:]) if parts else ())

    def of(self, index: int) -> tuple[int, int]:
        """Return the seeds of the environment and of the random actions of sub-environment `index`."""
        entropy, key = self._root
        words = np.random.SeedSequence(entropy, spawn_key=(*key, index)).generate_state(2)
        # 31 bits: some environments hand their seed to generators that take no more.
        return int(words[0]) >> 1, int(words[1]) >> 1


def _make_vector_env(env: Any, num_envs: int | None) -> VectorEnv[Any, Any, Any]:
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


def _autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    declared = env.metadata.get("autoreset_mode")
    try:
        return declared if isinstance(declared, AutoresetMode) else AutoresetMode(declared)
    except ValueError:
        raise ValueError(
            f'EnvRunner: env.metadata["autoreset_mode"] must be a gymnasium.vector.AutoresetMode, got {declared!r}; '
            "without it the ends of episodes cannot be read"
        ) from None


def _reset_seed(env: VectorEnv[Any, Any, Any], seeds: _SeedPlan) -> int | list[int | None]:
    if isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return [seeds.of(index)[0] for index in range(env.num_envs)]
    return seeds.of(0)[0]  # a native vector environment has one generator


def _final_observation(infos: Mapping[str, Any], index: int) -> Any:
    for key in ("final_obs", "final_observation"):  # the second: gymnasium before 1.0 and simulators that kept it
        if key in infos:
            final = _row(infos[key], index)
            if final is not None:
                return final
    raise RuntimeError(
        'EnvRunner.sample: infos must have "final_obs" at the end of an episode in SAME_STEP mode, '
        f"got {sorted(infos)} for sub-environment {index}"
    )


def _info_of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the infos of one sub-environment: those that its mask, where there is one, calls present."""
    info: dict[str, Any] = {}
    for key, values in infos.items():
        if key in ("final_obs", "final_observation", "final_info") or (key[:1] == "_" and key[1:] in infos):
            continue
        mask = infos.get(f"_{key}")
        if mask is None or mask[index]:
            info[key] = _info_of(values, index) if isinstance(values, Mapping) else _row(values, index)
    return info


def _row(values: Any, index: int) -> Any:
    """Return a copy of row `index` of a structure of arrays."""
    if isinstance(values, Mapping):
        return {key: _row(value, index) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_row(value, index) for value in values)
    return _own(values[index])


def _own(value: Any) -> Any:
    """Return a copy of one row that shares no memory with the environment's or module's arrays."""
    if isinstance(value, np.ndarray | np.generic):
        return value.copy()
    return copy.deepcopy(value)


def _to_numpy(value: Any) -> Any:
    """Return a structure of arrays for a structure of arrays, tensors or lists."""
    if isinstance(value, Mapping):
        return {key: _to_numpy(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_to_numpy(item) for item in value)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def _check_rows(key: str, value: Any, num_envs: int) -> None:
    if isinstance(value, Mapping | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_rows(key, item, num_envs)
    elif value.ndim == 0 or len(value) != num_envs:
        raise ValueError(
            f'EnvRunner.sample: module\'s "{key}" must have one row for each of {num_envs} sub-environments, '
            f"got shape {value.shape}"
        )


def _index(value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)


def _count(name: str, value: Any, *, minimum: int) -> int:
    try:
        number = _index(value)
    except TypeError:
        raise TypeError(f"EnvRunner: {name} must be an integer, got {value!r}") from None
    if number < minimum:
        raise ValueError(f"EnvRunner: {name} must be >= {minimum}, got {number}")
    return number
