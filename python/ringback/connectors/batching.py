"""Pieces between columns of single rows, columns of arrays, and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np

from ringback.episodes.structure import map_structure, unstack
from ringback.errors import MissingExtraError

from .columns import Columns, Rows, by_episode, items_of, replaced, row_count, stacked
from .connector import Piece
from .own_episodes import single_agent_episodes

__all__ = ["BatchItems", "ListItems", "ToNumpy", "ToTensor", "Unbatch"]


@cache
def torch_for(where: str) -> Any:
    """Import torch.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        return import_module("torch")
    except ImportError:
        raise MissingExtraError(where, "train", "torch") from None


class BatchItems(Piece):
    """Turns each column of rows into arrays with a leading batch axis.

    Columns that are arrays or tensors already stay what they are; ``"infos"`` becomes a list.

    Raises
    ------
    ValueError
        If the columns differ in the number of rows.

    References
    ----------
    RLlib 2.60, ``BatchIndividualItems``.

    Examples
    --------
    >>> BatchItems()(batch={"obs": {("a",): [1, 2], ("b",): [5]}}, episodes=[])
    {'obs': array([1, 2, 5])}
    """

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
        """Batch all columns."""
        if len(batch) > 1:
            check_rows_agree(batch, "BatchItems")
        for name, column in batch.items():
            batch[name] = batched(name, column)
        return batch


class ToTensor(Piece):
    """Turns all columns into torch tensors, batching those that are not batched.

    Parameters
    ----------
    device : str or torch.device, optional
        Where to; the CPU by default.
    input_observation_space, input_action_space : Space, optional
        What comes in; by name only, as the device comes first here.
    pin_memory : bool, default False
        Whether to copy through page-locked memory, so that the copy to an accelerator runs while Python goes on.
    **kwargs
        RLlib's options that mean nothing here; see `Piece`.

    Raises
    ------
    MissingExtraError
        If torch is not installed.
    ValueError
        If the columns differ in the number of rows.

    Notes
    -----
    float64 becomes float32, which modules compute in; other dtypes are kept. On the CPU a tensor shares the memory of
    the array that it is made of, where nothing had to be converted. ``"infos"`` stay a list, and arrays that no tensor
    can hold (strings, objects) stay arrays.

    References
    ----------
    RLlib 2.60, ``NumpyToTensor``, whose arguments begin with the spaces.

    Examples
    --------
    >>> ToTensor()(batch={"obs": [1.5, 2.5]}, episodes=[])
    {'obs': tensor([1.5000, 2.5000])}
    """

    def __init__(
        self,
        device: Any = None,
        *,
        input_observation_space: gym.Space[Any] | None = None,
        input_action_space: gym.Space[Any] | None = None,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        torch = torch_for("ToTensor")
        self._from_numpy = torch.from_numpy
        self.device = None if device is None else torch.device(device)
        self.pin_memory = pin_memory

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
        """Make the tensors."""
        if len(batch) > 1:
            check_rows_agree(batch, "ToTensor")
        stays = self.device is None and not self.pin_memory
        for name, column in batch.items():
            if name == Columns.INFOS:
                batch[name] = batched(name, column)
                continue
            arrays = stacked(column)
            if type(arrays) is not np.ndarray:
                batch[name] = map_structure(self._tensor, arrays)
            elif stays and arrays.dtype.num in _KEPT and arrays.flags.carray:
                batch[name] = self._from_numpy(arrays)  # the commonest case, in the fewest words
            else:
                batch[name] = self._tensor(arrays)
        return batch

    def _tensor(self, leaf: Any) -> Any:
        torch = torch_for("ToTensor")
        if not isinstance(leaf, torch.Tensor):
            array = np.asarray(leaf)
            if array.dtype.kind not in "fiubc":
                return leaf
            if array.dtype == np.float64:
                array = array.astype(np.float32)
            # torch shares no memory that it may not write to, or that runs backwards.
            leaf = torch.from_numpy(array if array.flags.carray else array.copy())
        elif leaf.dtype == torch.float64:
            leaf = leaf.float()
        if self.pin_memory and leaf.device.type == "cpu":
            leaf = leaf.pin_memory()
        return leaf if self.device is None else leaf.to(self.device, non_blocking=self.pin_memory)


class ToNumpy(Piece):
    """Turns all tensors of the batch into arrays on the CPU.

    Notes
    -----
    Dtypes are kept, but for bfloat16, which NumPy does not have: float32. Arrays share the memory of CPU tensors.

    References
    ----------
    RLlib 2.60, ``TensorToNumpy``.

    Examples
    --------
    >>> import torch
    >>> ToNumpy()(batch={"actions": torch.tensor([1, 2])}, episodes=[])
    {'actions': array([1, 2])}
    """

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
        """Make the arrays."""
        for name, column in batch.items():
            if type(column) is not np.ndarray:
                batch[name] = without_tensors(column)
        return batch


class Unbatch(Piece):
    """Gives each row back to its episode: ``{(episode id,): [row, ...]}``.

    The rows are those of the episodes, in order, one each.

    Raises
    ------
    ValueError
        If a column has another number of rows.

    References
    ----------
    RLlib 2.60, ``UnBatchToIndividualItems``.

    Examples
    --------
    >>> from ringback import SingleAgentEpisode
    >>> episodes = [SingleAgentEpisode("a", observations=[0]), SingleAgentEpisode("b", observations=[0])]
    >>> dict(Unbatch()(batch={"actions": np.array([3, 4])}, episodes=episodes)["actions"])
    {('a',): [np.int64(3)], ('b',): [np.int64(4)]}
    """

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
        """Assign the rows to the episodes."""
        keys = single_agent_episodes(episodes, False)[1]
        for name, column in batch.items():
            if by_episode(column):
                continue
            count = row_count(column)
            if count != len(keys):
                raise ValueError(
                    f"Unbatch: column {name!r} must have a row for each of {len(keys)} episodes, got {count}"
                )
            if isinstance(column, list):
                rows: dict[Any, list[Any]] = {}
                for key, item in zip(keys, column, strict=True):
                    rows.setdefault(key, []).append(item)
                batch[name] = Rows.of(rows)
            else:
                batch[name] = Rows(column, keys)
        return batch


class ListItems(Piece):
    """Turns each column into the list of its rows, in the order of the episodes, as a vector environment takes them.

    References
    ----------
    RLlib 2.60, ``ListifyDataForVectorEnv``.

    Examples
    --------
    >>> ListItems()(batch={"actions": {("a",): [3], ("b",): [4]}, "logp": np.array([-0.5, -1.5])}, episodes=[])
    {'actions': [3, 4], 'logp': [np.float64(-0.5), np.float64(-1.5)]}
    """

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
        """Make the lists."""
        for name, column in batch.items():
            items = items_of(column)
            batch[name] = unstack(column) if items is None else items
        return batch


# The dtypes whose arrays torch can share as they are, by number.
_KEPT = {np.dtype(name).num for name in ("b1", "u1", "i1", "i2", "i4", "i8", "f2", "f4")}


def check_rows_agree(batch: dict[str, Any], where: str) -> None:
    """Raise if two columns of rows of episodes differ in the number of rows; infos have no time axis, ever.

    Raises
    ------
    ValueError
        If they do, as when some pieces learn and others act.
    """
    counts = {name: row_count(column) for name, column in batch.items() if name != Columns.INFOS and by_episode(column)}
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"{where}: all columns must have one number of rows, got {counts}; a learner's pieces need "
            "as_learner_connector=True"
        )


def batched(name: str, column: Any) -> Any:
    """Turn a column into arrays; infos into a list."""
    if name != Columns.INFOS:
        return stacked(column)
    items = items_of(column)
    return column if items is None else items


def without_tensors(data: Any) -> Any:
    """Turn the tensors of a column in any form into arrays."""
    if isinstance(data, Rows) and data.is_stacked:
        return replaced(data, map_structure(as_array, data.arrays))
    if isinstance(data, list):
        return [map_structure(as_array, item) for item in data]
    if by_episode(data):
        return {key: without_tensors(rows) for key, rows in data.items()}
    return map_structure(as_array, data)


def as_array(leaf: Any) -> Any:
    """Turn a tensor into an array on the CPU; anything else comes back as it is."""
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "detach"):
        return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf
    leaf = leaf.detach().cpu()
    return (leaf.float() if str(leaf.dtype) == "torch.bfloat16" else leaf).numpy()
