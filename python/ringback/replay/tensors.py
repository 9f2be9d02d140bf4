"""Torch tensors out of arrays, without linking to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringback.errors import MissingExtraError

if TYPE_CHECKING:
    import torch


def to_tensor_on(device: str | torch.device) -> tuple[Callable[[Any], Any], bool]:
    """Return what makes a tensor on a device of an array.

    Parameters
    ----------
    device : str or torch.device
        On the CPU a tensor shares the array's memory; elsewhere it is a copy.

    Returns
    -------
    tuple of callable and bool
        The second tells that the first takes arrays only, no tensors.

    Raises
    ------
    MissingExtraError
        torch is not installed.
    ValueError
        No such device here.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("ReplayBuffer", "train", "torch") from error
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"ReplayBuffer: device must be one that torch can use, got {device!r} ({reason})") from error
    from_numpy = torch.from_numpy
    if target.type == "cpu":
        return from_numpy, True

    def copied(value: Any) -> Any:
        tensor = value if hasattr(value, "numpy") else from_numpy(value)
        return tensor.to(target, non_blocking=True)

    return copied, False
