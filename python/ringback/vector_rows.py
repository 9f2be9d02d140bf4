"""What the rows of a vector environment mean: the one place that knows gymnasium's autoreset modes.

A vector environment packs the steps of E sub-environments into the rows of arrays. Each row is a step, or the start of
an episode, or one after the other, and each of the three modes says it differently at the end of an episode:

- `NEXT_STEP`: the row is a plain step; the *next* call ignores the action, and its row is a start and nothing else.
- `SAME_STEP`: the row is a step, but its observation and info are already those of the next start; the step's own are
  in ``final_obs`` and ``final_info``.
- `DISABLED`: the row is a plain step; whoever steps must reset the sub-environment, through a mask, before the next
  call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ringback.errors import EnvError

__all__ = ["VectorRows", "VectorStep", "row_splitter", "rows_of_all"]

Array = np.ndarray[Any, Any]
Mask = npt.NDArray[np.bool_]

# The second names: gymnasium before 1.0, and simulators that kept them.
FINAL_OBSERVATION = ("final_obs", "final_observation")
FINAL_INFO = "final_info"
# What the vector form of gymnasium's RecordEpisodeStatistics adds at an end, beside the infos of a reset or not.
STATISTICS = "episode"

SMALL = 4096  # bytes of an array
BOOL = np.dtype(bool)
NO_FINALS: Mapping[int, Any] = MappingProxyType({})


class VectorRows:
    """Tells which rows of a vector environment are steps and which are starts.

    Parameters
    ----------
    envs : gymnasium.vector.VectorEnv
        Only its number of sub-environments, its spaces and its autoreset mode are read.
    where : str
        Who asks, for messages.

    Attributes
    ----------
    num_envs : int
        Number of sub-environments E.
    mode : gymnasium.vector.AutoresetMode
        The autoreset mode.
    waiting : ndarray, shape (E,), bool
        Whose episode has ended, without the start of the next one so far.
    playing : ndarray, shape (E,), bool, or None
        Which rows of the next call will be steps, if they are all reset that must be; None: all will be.
    num_playing : int
        How many.
    nobody : ndarray, shape (E,), bool
        All False, not to be written.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], where: str) -> None:
        self.num_envs = int(envs.num_envs)
        self.mode = autoreset_mode(envs, where)
        self.space: gym.Space[Any] = envs.single_observation_space
        self.split = row_splitter(self.space)
        self.nobody: Mask = np.zeros(self.num_envs, bool)
        self.nobody.flags.writeable = False
        self._wait(self.nobody, 0)
        self._like = (self.num_envs, *(self.space.shape or ())), self.space.dtype
        # What the sub-environments returned last, where they run in this process.
        self._returned: Sequence[Any] = getattr(envs.unwrapped, "_env_obs", ())

    @property
    def must_reset(self) -> Mask | None:
        """Which sub-environments must be reset before the next step; None: none has to be."""
        return self.waiting if self.playing is not None and self.mode is AutoresetMode.DISABLED else None

    def reset(self, mask: Mask | None = None) -> None:
        """Take note of a reset of all sub-environments, or of those in the mask."""
        waiting = self.nobody if mask is None else self.waiting & ~mask
        self._wait(waiting, int(waiting.sum()))

    def _wait(self, waiting: Mask, count: int) -> None:
        self.waiting: Mask = waiting
        self.playing: Mask | None = ~waiting if count else None
        self.num_playing = self.num_envs - count

    def check(self, observations: Any) -> None:
        """Raise an `EnvError` if observations are not E rows of the observation space."""
        if type(observations) is np.ndarray and (observations.shape, observations.dtype) == self._like:
            return  # what is nearly always so
        wrong = misfit(self.space, observations, self.num_envs)
        if wrong is not None:
            raise EnvError(wrong)

    def read(
        self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Mapping[str, Any]
    ) -> VectorStep:
        """Read what ``envs.step`` returned, without taking note of it.

        Parameters
        ----------
        observations, rewards, terminations, truncations, infos
            As the vector environment returned them.

        Returns
        -------
        VectorStep
            What the rows mean. It refers to the arrays given here, so it is good until the next call of the
            environment.

        Raises
        ------
        EnvError
            If there is not one row for each sub-environment, or an ending row hides its final observation, or the reset
            has overwritten that (seen where the sub-environments run in this process).
        """
        step = VectorStep(self, observations, infos)
        step.rewards, step.terminations, step.truncations = self._one_each(rewards, terminations, truncations)
        step.reward_items = step.rewards.tolist()
        if self.playing is not None and self.mode is AutoresetMode.NEXT_STEP:
            step.starts, step.steps = self.waiting, self.playing
        # For a few rows bytes are looked through more quickly than arrays.
        if 1 in step.terminations.tobytes() or 1 in step.truncations.tobytes():
            step.ended = step.terminations | step.truncations
            if step.steps is not None:
                step.ended &= step.steps
            step.num_ended = step.ended.tobytes().count(1)
        if step.num_ended and self.mode is AutoresetMode.DISABLED:
            step.to_reset = step.ended
        if step.num_ended and self.mode is AutoresetMode.SAME_STEP:
            step.starts = step.ended
            ends = np.flatnonzero(step.ended).tolist()
            step.finals = {index: final_observation(infos, index, self.space) for index in ends}
            for index, final in step.finals.items():
                if index < len(self._returned) and have_a_common_array(final, self._returned[index]):
                    raise EnvError(
                        "the last observation of an episode must not be in the array of the next one's first, "
                        "which has overwritten it, got one array for both",
                        env_index=index,
                    )
        return step

    def _one_each(self, rewards: Any, terminations: Any, truncations: Any) -> tuple[Array, Mask, Mask]:
        """Return one value for each sub-environment of all three."""
        shape = (self.num_envs,)
        if (
            type(rewards) is type(terminations) is type(truncations) is np.ndarray
            and rewards.shape == terminations.shape == truncations.shape == shape
            and terminations.dtype is truncations.dtype is BOOL
        ):
            return rewards, terminations, truncations  # what is nearly always so
        columns = np.asarray(rewards), np.asarray(terminations, bool), np.asarray(truncations, bool)
        if not columns[0].shape == columns[1].shape == columns[2].shape == shape:
            for name, column in zip(("rewards", "terminations", "truncations"), columns, strict=True):
                if column.shape != shape:
                    raise EnvError(
                        f"{name} must have one row for each of {self.num_envs} sub-environments, "
                        f"got shape {column.shape}"
                    )
        return columns

    def accept(self, step: VectorStep) -> None:
        """Take note of a step."""
        if self.mode is not AutoresetMode.SAME_STEP and (step.num_ended or self.playing is not None):
            self._wait(step.ended, step.num_ended)


class VectorStep:
    """One call of ``envs.step``, read.

    Attributes
    ----------
    observations : structure of ndarray, shape (E, *D)
        What each sub-environment shows now: of a start, its first observation.
    rewards, terminations, truncations : ndarray, shape (E,)
        Of the rows that are steps; other rows mean nothing.
    reward_items : list
        The rewards once more, one item a row.
    ended : ndarray, shape (E,), bool
        Which rows are steps that end an episode.
    num_ended : int
        How many do.
    steps : ndarray, shape (E,), bool, or None
        Which rows are steps; None: all are.
    starts : ndarray, shape (E,), bool, or None
        Which rows start an episode; None: none does.
    to_reset : ndarray, shape (E,), bool, or None
        Which sub-environments whoever steps must reset before the next call; None: none.
    finals : mapping of int to Any
        The last observations of the episodes that ended, where `observations` shows the start of the next one.
    has_infos : bool
        Whether any info is there at all.
    """

    __slots__ = (
        "_infos",
        "_rows",
        "_shown",
        "_shown_rows",
        "ended",
        "finals",
        "has_infos",
        "num_ended",
        "observations",
        "reward_items",
        "rewards",
        "starts",
        "steps",
        "terminations",
        "to_reset",
        "truncations",
    )

    rewards: Array
    reward_items: list[Any]
    terminations: Mask
    truncations: Mask

    def __init__(self, rows: VectorRows, observations: Any, infos: Mapping[str, Any]) -> None:
        self._rows = rows
        self._infos = infos
        self.has_infos = bool(infos)
        self.observations = observations
        self.ended = rows.nobody
        self.num_ended = 0
        self.steps: Mask | None = None
        self.starts: Mask | None = None
        self.to_reset: Mask | None = None
        self.finals: Mapping[int, Any] = NO_FINALS
        self._shown: Any = None
        self._shown_rows: list[Any] | None = None

    def shown(self) -> Any:
        """Return what each sub-environment goes on from, of a start its first observation, as arrays; a copy.

        Each call gives the same arrays, and `successors` does too where no row differs.
        """
        if self._shown is None:
            self._shown = owned(self.observations)
        return self._shown

    def shown_rows(self) -> list[Any]:
        """Return the same, one item a sub-environment."""
        if self._shown_rows is None:
            self._shown_rows = self._rows.split(self.observations)
        return self._shown_rows

    def successors(self) -> Any:
        """Return what each step led to as arrays, shape (E, *D); a copy."""
        if not self.finals:
            return self.shown()
        arrays = owned(self.observations)
        for index, final in self.finals.items():
            arrays = with_row(arrays, index, final)
        return arrays

    def successor_rows(self) -> list[Any]:
        """Return what each step led to, one item a sub-environment; copies."""
        rows = self.shown_rows()
        if self.finals:
            rows = rows.copy()
            for index, final in self.finals.items():
                rows[index] = fitted(final, rows[index], index)
        return rows

    def nan_rewards(self) -> Mask | None:
        """Return which steps have NaN as reward; None: none has. What the other rows have there means nothing."""
        total = sum(self.reward_items)  # quicker than NumPy for a few, and no NaN can hide in a sum
        if total == total:
            return None
        mask: Mask = np.isnan(self.rewards)
        if self.steps is not None:
            mask &= self.steps
        return mask if mask.any() else None

    def step_infos(self) -> list[dict[str, Any]]:
        """Return the info of each step, one dict a sub-environment; copies."""
        count = self._rows.num_envs
        rows = info_rows(self._infos, count)
        if self.finals:
            finals = final_infos(self._infos, count)
            for index in self.finals:
                statistics = {STATISTICS: rows[index][STATISTICS]} if STATISTICS in rows[index] else {}
                rows[index] = {**finals[index], **statistics}
        return rows

    def start_infos(self) -> list[dict[str, Any]]:
        """Return the info of each start, one dict a sub-environment; copies."""
        rows = info_rows(self._infos, self._rows.num_envs)
        for index in self.finals:
            rows[index].pop(STATISTICS, None)
        return rows


def autoreset_mode(envs: VectorEnv[Any, Any, Any], where: str) -> AutoresetMode:
    """Return the autoreset mode that a vector environment declares."""
    declared = envs.metadata.get("autoreset_mode")
    try:
        return declared if isinstance(declared, AutoresetMode) else AutoresetMode(declared)
    except ValueError:
        raise ValueError(
            f'{where}: env.metadata["autoreset_mode"] must be a gymnasium.vector.AutoresetMode, got {declared!r}; '
            "without it the ends of episodes cannot be read"
        ) from None


# ---- rows of observations and actions --------------------------------------------------------------------------------

Splitter = Callable[[Any], list[Any]]


def row_splitter(space: gym.Space[Any]) -> Splitter:
    """Return a function from batched values of a space to a list of items, none of which shares memory with them."""
    if isinstance(space, spaces.Dict):
        parts = {key: row_splitter(part) for key, part in space.spaces.items()}
        return lambda values: [
            dict(zip(parts, row, strict=True))
            for row in zip(*(split(values[key]) for key, split in parts.items()), strict=True)
        ]
    if isinstance(space, spaces.Tuple):
        splits = [row_splitter(part) for part in space.spaces]
        return lambda values: list(zip(*(split(v) for split, v in zip(splits, values, strict=True)), strict=True))
    if is_array_space(space):
        return leaf_rows
    return lambda values: [owned(row) for row in values]


def is_array_space(space: gym.Space[Any]) -> bool:
    """Tell whether gymnasium batches a space's values into one array."""
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def leaf_rows(array: Any) -> list[Any]:
    """List the rows of an array, each a copy; those of a vector are scalars.

    Small ones share one copy: an array header is larger than they are, so keeping one of them keeps little alive.
    """
    if array.ndim == 1:
        return list(array)
    return list(array.copy()) if array.nbytes <= SMALL else [row.copy() for row in array]


def rows_of_all(arrays: list[Any]) -> list[Any]:
    """List the rows of several arrays of one shape, one array after the other, as `leaf_rows` does."""
    at_once = max(1, SMALL // max(1, arrays[0].nbytes)) if arrays else 1
    rows: list[Any] = []
    for first in range(0, len(arrays), at_once):
        rows += leaf_rows(np.concatenate(arrays[first : first + at_once]))
    return rows


def owned(value: Any) -> Any:
    """Return a copy that shares no memory with an environment's or a module's arrays."""
    if type(value) is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if isinstance(value, np.ndarray | np.generic):
        return value.copy() if not value.dtype.hasobject else copied(value)
    if type(value) is dict:
        return {key: owned(item) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(map(owned, value))
    return copied(value)


def copied(value: Any) -> Any:
    """Return a deep copy; the thing itself if it cannot be copied (a lock, a handle)."""
    try:
        return copy.deepcopy(value)
    except TypeError:
        return value


def with_row(arrays: Any, index: int, item: Any) -> Any:
    """Return a structure of arrays with another row `index`; it is changed in place where that can be done."""
    if isinstance(arrays, np.ndarray) and not arrays.dtype.hasobject:
        arrays[index] = fitted(item, arrays[index], index)
        return arrays
    if isinstance(arrays, dict):
        expect(isinstance(item, Mapping) and item.keys() == arrays.keys(), item, f"the keys {sorted(arrays)}", index)
        return {key: with_row(value, index, item[key]) for key, value in arrays.items()}
    expect(isinstance(item, tuple) and len(item) == len(arrays), item, f"{len(arrays)} parts", index)
    return tuple(with_row(value, index, part) for value, part in zip(arrays, item, strict=True))


def fitted(item: Any, like: Any, index: int) -> Any:
    """Return a copy of a final observation in the structure and dtype of another row, of which it has the shape."""
    if isinstance(like, dict):
        expect(isinstance(item, Mapping) and item.keys() == like.keys(), item, f"the keys {sorted(like)}", index)
        return {key: fitted(item[key], value, index) for key, value in like.items()}
    if isinstance(like, tuple):
        expect(isinstance(item, tuple) and len(item) == len(like), item, f"{len(like)} parts", index)
        return tuple(fitted(part, value, index) for part, value in zip(item, like, strict=True))
    if not isinstance(like, np.ndarray | np.generic):
        return owned(item)
    array = np.asarray(item)
    fits = array.shape == like.shape and np.can_cast(array.dtype, like.dtype, "same_kind")
    expect(fits, array, f"shape {like.shape} and dtype {like.dtype}", index)
    # Scalars stay scalars.
    return array.astype(like.dtype) if isinstance(like, np.ndarray) else array.astype(like.dtype)[()]


def expect(holds: bool, got: Any, rule: str, index: int) -> None:
    """Raise the error of a final observation that does not fit."""
    if not holds:
        found = f"shape {got.shape} and dtype {got.dtype}" if isinstance(got, np.ndarray) else repr(got)
        raise EnvError(f"the final observation must have {rule}, got {found}", env_index=index)


def final_observation(infos: Mapping[str, Any], index: int, space: gym.Space[Any]) -> Any:
    """Return the final observation of one sub-environment in `SAME_STEP` mode, in whatever container it comes."""
    for key in FINAL_OBSERVATION:
        mask = infos.get(f"_{key}")
        final = None if key not in infos or (mask is not None and not mask[index]) else row_of(infos[key], index, space)
        if final is not None:
            return final
    got = f"infos with {sorted(infos)}" if infos.keys().isdisjoint(FINAL_OBSERVATION) else "None"
    raise EnvError(f'infos["final_obs"] must hold the last observation of an episode, got {got}', env_index=index)


def have_a_common_array(a: Any, b: Any) -> bool:
    """Tell whether two observations of one structure are kept in the same array."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return any(have_a_common_array(value, b.get(key)) for key, value in a.items())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return any(map(have_a_common_array, a, b))
    return isinstance(a, np.ndarray) and a is b


def row_of(values: Any, index: int, space: gym.Space[Any]) -> Any:
    """Return row `index` of a list or an array of items, or of a structure of arrays."""
    if isinstance(values, Mapping) and isinstance(space, spaces.Dict):
        return {key: row_of(values[key], index, part) for key, part in space.spaces.items() if key in values}
    if isinstance(values, tuple) and isinstance(space, spaces.Tuple) and len(values) == len(space.spaces):
        return tuple(row_of(value, index, part) for value, part in zip(values, space.spaces, strict=True))
    return values[index]


# ---- what does not fit -----------------------------------------------------------------------------------------------


def misfit(space: gym.Space[Any], values: Any, count: int, path: str = "observations") -> str | None:
    """Say what is wrong with batched values of a space; None if nothing is."""
    if is_array_space(space):
        shape = (count, *(space.shape or ()))
        if not isinstance(values, np.ndarray) or values.shape != shape:
            return f"{path} must have shape {shape}, got {described(values)}"
        if values.dtype != space.dtype and not np.can_cast(values.dtype, space.dtype or object, "same_kind"):
            return f"{path} must have a dtype that fits {space.dtype}, got {values.dtype}"
        return None
    children: Iterable[tuple[Any, gym.Space[Any]]]
    if isinstance(space, spaces.Dict):
        if not isinstance(values, Mapping) or values.keys() != space.spaces.keys():
            got = sorted(values) if isinstance(values, Mapping) else described(values)
            return f"{path} must have the keys {sorted(space.spaces)}, got {got}"
        children = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        if not isinstance(values, tuple) or len(values) != len(space.spaces):
            return f"{path} must be a tuple of {len(space.spaces)}, got {described(values)}"
        children = enumerate(space.spaces)
    else:
        found = len(values) if hasattr(values, "__len__") else described(values)
        return None if found == count else f"{path} must have {count} rows, got {found}"
    wrongs = (misfit(part, values[key], count, f"{path}/{key}") for key, part in children)
    return next((wrong for wrong in wrongs if wrong is not None), None)


def described(values: Any) -> str:
    """Describe an array by its shape, a tuple by its length, anything else by its type."""
    if isinstance(values, np.ndarray):
        return f"shape {values.shape}"
    return f"a tuple of {len(values)}" if isinstance(values, tuple) else type(values).__name__


# ---- infos -----------------------------------------------------------------------------------------------------------


def info_rows(infos: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the infos of each sub-environment: those that its mask, where there is one, calls present; copies."""
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in infos.items():
        if key in (*FINAL_OBSERVATION, FINAL_INFO) or is_mask(key, infos):
            continue
        items = info_column(values, count)
        mask = infos.get(f"_{key}")
        for index in range(count) if mask is None else np.flatnonzero(mask).tolist():
            rows[index][key] = items[index] if isinstance(items[index], dict) else owned(items[index])
    return rows


def is_mask(key: Any, infos: Mapping[str, Any]) -> bool:
    """Tell whether a key is the mask of another one."""
    return isinstance(key, str) and key[:1] == "_" and key[1:] in infos


def info_column(values: Any, count: int) -> Any:
    """Return one item for each sub-environment; a value that does not come in rows is everybody's."""
    if isinstance(values, Mapping):
        return info_rows(values, count)
    in_rows = isinstance(values, np.ndarray | list | tuple) and np.ndim(values) != 0 and len(values) == count
    return values if in_rows else [values] * count


def final_infos(infos: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the infos of the steps that ended an episode in `SAME_STEP` mode, {} for the others."""
    finals = infos.get(FINAL_INFO, {})
    if isinstance(finals, Mapping):
        return info_rows(finals, count)
    return [dict(copied(final)) if isinstance(final, Mapping) else {} for final in finals]
