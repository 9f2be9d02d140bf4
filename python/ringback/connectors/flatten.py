"""The piece that makes one vector of what a module is to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from ringback.episodes.space_rules import LeafRules, rules_for
from ringback.episodes.structure import leaves, map_pair

from .columns import Columns, replaced, stacked
from .connector import Piece
from .observations import note_change
from .spaces import bounds_of
from .steps import steps_in

__all__ = ["Flatten"]

Array: TypeAlias = np.ndarray[Any, Any]


class Flatten(Piece):
    """Puts one vector for each row, float32, in the place of the observations.

    Discrete and MultiDiscrete leaves of the observations become one-hot codes, all others their numbers in a row; the
    leaves stand side by side in the order of their space.

    Parameters
    ----------
    columns : str or sequence of str, default "obs"
        What to put into the vector, in this order: the observations, and other columns, whose numbers are taken as they
        are, such as those of `PreviousActionsRewards`. Only the column ``"obs"`` is left of them.
    input_observation_space, input_action_space : Space, optional
        What comes in; by name only, as the columns come first here.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    ValueError
        If a column is not there; if observations are there that are not to go into the vector; if there is no space to
        flatten the observations by; if no column is named, or one twice.
    TypeError
        If the space has leaves that are not made of numbers; if columns are no str.

    Notes
    -----
    Where the batch has next observations and only observations are flattened, those are flattened too. A time axis
    stays. The result for observations is that of ``gymnasium.spaces.flatten``, row by row.

    References
    ----------
    RLlib 2.60, ``FlattenObservations``, whose arguments begin with the spaces. gymnasium 1.4,
    ``gymnasium.spaces.flatten``.

    Examples
    --------
    >>> space = gym.spaces.Dict({"left": gym.spaces.Discrete(3), "x": gym.spaces.Box(-9, 9, (2,))})
    >>> piece = Flatten(input_observation_space=space)
    >>> batch = {"obs": {"left": np.array([2, 0]), "x": np.array([[5.0, 6.0], [7.0, 8.0]])}}
    >>> piece(batch=batch, episodes=[])["obs"].tolist()
    [[0.0, 0.0, 1.0, 5.0, 6.0], [1.0, 0.0, 0.0, 7.0, 8.0]]
    >>> piece.observation_space.shape
    (5,)
    """

    def __init__(
        self,
        columns: str | Sequence[str] = Columns.OBS,
        *,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.columns = (columns,) if isinstance(columns, str) else checked(columns)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    def __repr__(self) -> str:
        return f"{self.name}({self.columns!r})"

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space[Any], input_action_space: gym.Space[Any] | None
    ) -> gym.Space[Any] | None:
        """Return the Box of the vectors; None as long as the size of another column is not known."""
        bounds: list[tuple[Array, Array]] = []
        for name in self.columns:
            space = input_observation_space if name == Columns.OBS else self.input_column_spaces.get(name)
            if space is None:
                return None
            bounds += [vector_bounds(rule, name == Columns.OBS) for rule in leaves(rules_for(space).struct)]
        low, high = (np.concatenate(side) for side in zip(*bounds, strict=True))
        return gym.spaces.Box(low, high, low.shape, np.float32)

    def __call__(
        self,
        *,
        rl_module: Any = None,
        batch: dict[str, Any],
        episodes: Sequence[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Put the vectors into the column."""
        missing = [name for name in self.columns if name not in batch]
        if missing:
            raise ValueError(f"Flatten: columns must be in the batch ({sorted(batch)}), got {missing}")
        if Columns.OBS in batch and Columns.OBS not in self.columns:
            raise ValueError(f"Flatten: columns must name 'obs' too where the batch has it, got {self.columns}")
        parts: dict[str, list[Array]] = {}
        leading = 1
        if Columns.OBS in self.columns:
            parts[Columns.OBS] = self._observations(batch, Columns.OBS)
            leading = parts[Columns.OBS][0].ndim - 1
        for name in self.columns:
            if name != Columns.OBS:
                parts[name] = [vectors(leaf, leading) for leaf in leaves(stacked(batch[name]))]
        like = batch[self.columns[0]]
        for name in self.columns:
            del batch[name]
        batch[Columns.OBS] = replaced(like, np.concatenate([part for name in self.columns for part in parts[name]], -1))
        note_change(shared_data, batch, self.name)
        if self.columns == (Columns.OBS,) and Columns.NEXT_OBS in batch:
            vector = np.concatenate(self._observations(batch, Columns.NEXT_OBS), -1)
            batch[Columns.NEXT_OBS] = replaced(batch[Columns.NEXT_OBS], vector)
        return batch

    def _observations(self, batch: dict[str, Any], name: str) -> list[Array]:
        """Code each leaf, (..., n) float32; padding stays 0 in all places."""
        space = self.input_observation_space
        if space is None:
            raise ValueError("Flatten: input_observation_space must be given to flatten observations, got None")
        rules, arrays = rules_for(space).struct, stacked(batch[name])
        if Columns.SEQ_LENS not in batch:
            return leaves(map_pair(coded, rules, arrays, "Flatten"))
        lengths = stacked(batch[Columns.SEQ_LENS])

        def coded_steps(rule: LeafRules, leaf: Array, path: str) -> Array:
            steps = steps_in(lengths, leaf.shape[1])
            codes = coded(rule, leaf[steps], path)
            out = np.zeros((*steps.shape, codes.shape[-1]), np.float32)
            out[steps] = codes
            return out

        return leaves(map_pair(coded_steps, rules, arrays, "Flatten"))


def checked(columns: Any) -> tuple[str, ...]:
    """Return the names of several columns if they are such."""
    if not isinstance(columns, (list, tuple)):
        raise TypeError(f"Flatten: columns must be a str or a sequence of str, got {type(columns).__name__}")
    if not all(isinstance(name, str) for name in columns):
        kinds = ", ".join(type(name).__name__ for name in columns)
        raise TypeError(f"Flatten: columns must be a str or a sequence of str, got {type(columns).__name__} of {kinds}")
    if not columns:
        raise ValueError("Flatten: columns must name a column, got none")
    if len(set(columns)) < len(columns):
        raise ValueError(f"Flatten: columns must differ, got {tuple(columns)}")
    return tuple(columns)


def coded(rule: LeafRules, leaf: Array, path: str) -> Array:
    """Make vectors of a leaf (..., *D) of observations."""
    leading = leaf.shape[: leaf.ndim - len(rule.shape)]
    if isinstance(rule.space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        rows: Array = rule.one_hot(leaf.reshape(-1, *rule.shape))
        return rows.reshape(*leading, rows.shape[-1])
    return vectors(leaf, len(leading))


def vectors(leaf: Array, leading: int) -> Array:
    """Make vectors of what lies behind the leading axes."""
    rows: Array = leaf.reshape(*leaf.shape[:leading], -1)
    return rows.astype(np.float32, copy=False)


def vector_bounds(rule: LeafRules, one_hot: bool) -> tuple[Array, Array]:
    """Return the bounds of a leaf's vector, float32."""
    if one_hot and isinstance(rule.space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        n = int(np.sum(rule.n))
        return np.zeros(n, np.float32), np.ones(n, np.float32)
    low, high = bounds_of(rule, "Flatten")
    return low.astype(np.float32).ravel(), high.astype(np.float32).ravel()
