"""Torch tensors out of batches, without linking to torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringback._core import Sequences, Transitions
from ringback.errors import MissingExtraError
from ringback.replay.batch_fields import batch_of, fields_of

if TYPE_CHECKING:
    import torch


class ToTensors:
    """Turn the arrays of a batch into tensors on a device.

    Parameters
    ----------
    device : str or torch.device
        On the CPU the tensors share the arrays' memory; elsewhere they are copies.

    Raises
    ------
    MissingExtraError
        torch is not installed.
    ValueError
        No such device here.
    """

    def __init__(self, device: str | torch.device) -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError("ReplayBuffer", "train", "torch") from error
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"ReplayBuffer: device must be one that torch can use, got {device!r} ({reason})"
            ) from error
        self._from_numpy = torch.from_numpy
        self._copies = self.device.type != "cpu"

    def __call__(self, batch: Transitions | Sequences) -> Transitions | Sequences:
        """Return the same kind of batch with tensors for arrays, nested ones included. O(number of arrays)."""
        return batch_of(type(batch), {name: self._convert(value) for name, value in fields_of(batch).items()})

    def _convert(self, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return {key: self._convert(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(self._convert(part) for part in value)
        tensor = self._from_numpy(value) if not hasattr(value, "numpy") else value
        return tensor.to(self.device, non_blocking=True) if self._copies else tensor
