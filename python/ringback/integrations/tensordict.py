"""Batches as TensorDicts, under the names that torchrl uses (the optional extra ``tensordict``).

>>> from ringback.integrations.tensordict import to_tensordict  # doctest: +SKIP
>>> data = to_tensordict(buffer.sample_transitions(256))  # doctest: +SKIP
>>> loss = torchrl_loss(data)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ringback._core import Sequences, Transitions
from ringback.errors import MissingExtraError
from ringback.replay.batch_fields import fields_of

__all__ = ["to_tensordict"]

# Where torchrl's modules look for a field; the others go by their own names, extras by the names they were given.
_NAMES: dict[str, Any] = {
    "observations": "observation",
    "actions": "action",
    "rewards": ("next", "reward"),
    "next_observations": ("next", "observation"),
    "terminations": ("next", "terminated"),
    "truncations": ("next", "truncated"),
    "n_steps": "steps_to_next_obs",
    "is_first": "is_init",
    "ids": "index",
    "weights": "_weight",
}
# Once a window, not once a row of it.
_ONCE_A_WINDOW = frozenset({"start_ids", "lengths", "burn_in_lengths", "weights", "start_state", "sources"})
_LEFT_OUT = frozenset({"dones", "extras"})


def to_tensordict(batch: Transitions | Sequences, *, time_major: bool = False) -> Any:
    """View a batch as a TensorDict that torchrl's losses can read.

    Parameters
    ----------
    batch : Transitions or Sequences
        Of NumPy arrays or torch tensors; it stays as it is.
    time_major : bool, default False
        Whether the sequences were drawn with ``time_major=True``.

    Returns
    -------
    tensordict.TensorDict
        Of batch size [B], for sequences [B, W] (time first: [W, B]), on the data's device. Its tensors share the memory
        of the batch. In it are

        - ``"observation"``, ``"action"``, ``("next", "observation")`` where the batch has successors; dicts are nested
          TensorDicts, tuples are such with the keys ``"0"``, ``"1"``, ...
        - ``("next", "reward")``, ``("next", "terminated")``, ``("next", "truncated")`` and ``("next", "done")``, which
          is new: either of the two
        - ``"steps_to_next_obs"`` (``n_steps``), ``"is_init"`` (``is_first``), ``"index"`` (``ids``), ``"_weight"``
          (``weights``)
        - each extra, and every other field, by its own name. What there is once a window is expanded over its rows,
          without a copy.

    Raises
    ------
    MissingExtraError
        If tensordict is not installed.
    TypeError
        If it is no batch.
    ValueError
        If an extra has the name of something else.

    Notes
    -----
    O(number of arrays). The rewards of an n-step batch are sums: give the loss's value estimator ``gamma`` and it reads
    ``"steps_to_next_obs"``.

    References
    ----------
    torchrl 0.14, ``MultiStep`` and ``TD0Estimator`` (names of the entries).
    """
    where = "to_tensordict"
    if not isinstance(batch, (Transitions, Sequences)):
        raise TypeError(f"{where}: batch must be Transitions or Sequences, got {type(batch).__name__}")
    try:
        tensordict_class = import_module("tensordict").TensorDict
    except ImportError:
        raise MissingExtraError(where, "tensordict", "tensordict") from None
    as_tensor = import_module("torch").as_tensor
    windows = isinstance(batch, Sequences)
    size = tuple(batch.ids.shape)
    entries: dict[Any, Any] = {}
    fields = {name: value for name, value in fields_of(batch).items() if name not in _LEFT_OUT}
    for name, value in (*fields.items(), *batch.extras.items()):
        if value is None:
            continue
        key = _NAMES.get(name, name) if name in fields else name
        if key in entries or key == "next":
            raise ValueError(f"{where}: extras must have names of their own, got {name!r}")
        value = _tensors(value, as_tensor)
        if windows and name in _ONCE_A_WINDOW:
            value = value.unsqueeze(0 if time_major else 1).expand(*size, *value.shape[1:])
        entries[key] = value
    entries["next", "done"] = entries["next", "terminated"] | entries["next", "truncated"]
    data = tensordict_class({}, batch_size=size, device=entries["next", "done"].device)
    for key, value in entries.items():
        data[key] = tensordict_class(value, batch_size=size) if isinstance(value, dict) else value
    return data


def _tensors(value: Any, as_tensor: Any) -> Any:
    if isinstance(value, tuple):
        value = {str(k): part for k, part in enumerate(value)}
    if isinstance(value, dict):
        return {name: _tensors(part, as_tensor) for name, part in value.items()}
    return as_tensor(value) if isinstance(value, np.ndarray) else value
