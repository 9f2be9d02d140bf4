"""Batches as a mapping of their fields, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ringback._core import BATCH_FIELDS, Sequences, Transitions

__all__ = ["batch_of", "fields_of"]

_Batch = TypeVar("_Batch", bound=Transitions | Sequences)


def fields_of(batch: Transitions | Sequences) -> dict[str, Any]:
    """Return all fields of a batch by name, None for those that were not asked for.

    Parameters
    ----------
    batch : Transitions or Sequences

    Returns
    -------
    dict
        A new one, of the batch's own arrays.
    """
    return {name: getattr(batch, name) for name in BATCH_FIELDS[type(batch).__name__]}


def batch_of(kind: type[_Batch], fields: Mapping[str, Any]) -> _Batch:
    """Make a batch of fields; those that are not given are None.

    Parameters
    ----------
    kind : type
        ``Transitions`` or ``Sequences``.
    fields : mapping
        At least those that the batch unpacks into.

    Returns
    -------
    Transitions or Sequences
        Of the same arrays.
    """
    names = BATCH_FIELDS[kind.__name__]
    unpacked = names[: kind.n_sequence_fields]
    # From Python 3.13 on a field that is given twice is refused.
    return kind([fields[name] for name in unpacked], {n: fields[n] for n in names[len(unpacked) :] if n in fields})
