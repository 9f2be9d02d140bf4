"""Batches as JAX arrays (the optional extra ``jax``).

>>> from ringback.integrations.jax import to_jax  # doctest: +SKIP
>>> batch = to_jax(buffer.sample_transitions(256))  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

from ringback._core import BATCH_FIELDS, Sequences, Transitions
from ringback.episodes.structure import map_structure
from ringback.errors import MissingExtraError
from ringback.replay.batch_fields import batch_of, fields_of

__all__ = ["to_jax"]

_Batch = TypeVar("_Batch", Transitions, Sequences)
# They go back to the buffer, and JAX makes 32-bit integers of 64-bit ones unless it is told otherwise.
_HANDLES = frozenset({"ids", "start_ids", "sources"})
_registered: set[type] = set()


def to_jax(batch: _Batch) -> _Batch:
    """Turn the arrays or tensors of a batch into JAX arrays.

    Parameters
    ----------
    batch : Transitions or Sequences
        Of NumPy arrays or torch tensors; it stays as it is.

    Returns
    -------
    Transitions or Sequences
        The same kind with JAX arrays, nested ones included, on the device of the data; ``ids``, ``start_ids`` and
        ``sources`` as they are. Both kinds are pytrees from now on, and may be arguments of ``jax.jit``.

        An array is a **view** of the batch's memory where JAX can use that: aligned to 64 bytes, as a fresh batch is,
        and of a dtype that JAX keeps (with ``jax_enable_x64`` off, 64-bit numbers become 32-bit copies). JAX takes its
        arrays for constant, so do not write to the batch afterwards, nor hand it to ``out=``.

    Raises
    ------
    MissingExtraError
        If jax is not installed.
    TypeError
        If it is no batch.

    Notes
    -----
    O(number of arrays) without copies, by DLPack.

    References
    ----------
    Python array API standard 2024.12, "Data interchange mechanisms".
    """
    if not isinstance(batch, (Transitions, Sequences)):
        raise TypeError(f"to_jax: batch must be Transitions or Sequences, got {type(batch).__name__}")
    try:
        from_dlpack = import_module("jax.dlpack").from_dlpack
    except ImportError:
        raise MissingExtraError("to_jax", "jax", "jax") from None
    kind = type(batch)
    _register(kind)
    values = {
        name: value if value is None or name in _HANDLES else map_structure(from_dlpack, value)
        for name, value in fields_of(batch).items()
    }
    return batch_of(kind, values)


def _register(kind: type[Any]) -> None:
    """Let JAX look into batches of a kind."""
    if kind in _registered:
        return
    names = BATCH_FIELDS[kind.__name__]

    def flatten(batch: Any) -> tuple[tuple[Any, ...], None]:
        return tuple(fields_of(batch).values()), None

    def unflatten(_: None, children: Any) -> Any:
        return batch_of(kind, dict(zip(names, children, strict=True)))

    import_module("jax.tree_util").register_pytree_node(kind, flatten, unflatten)
    _registered.add(kind)
