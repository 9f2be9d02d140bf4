"""One priority for a window out of the errors of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["sequence_priority"]


def sequence_priority(abs_td: Any, mask: Any = None, eta: float = 0.9) -> npt.NDArray[np.float64]:
    """Mix the largest and the mean error of each window: eta * max + (1 - eta) * mean.

    Parameters
    ----------
    abs_td : array or tensor, shape (B, L) or (B, L, 1), float
        Absolute TD errors, unweighted. What the mask leaves out may be anything, NaN too.
    mask : array or tensor, same shape, bool, optional
        The steps that count, such as a batch's ``mask``, which leaves out burn-in and padding. Default: all.
    eta : float, default 0.9
        Share of the maximum, in [0, 1].

    Returns
    -------
    ndarray, shape (B,), float64
        Ready for ``update_priorities(batch.start_ids, ...)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a counted error is negative, NaN or infinite, or a window has no counted step.

    Notes
    -----
    O(B L), on the CPU; a tensor elsewhere is copied there.

    References
    ----------
    Kapturowski et al. 2019 (R2D2), section 2.3.

    Examples
    --------
    >>> sequence_priority([[1.0, 3.0], [2.0, 9.0]], mask=[[True, True], [True, False]], eta=0.5).tolist()
    [2.5, 2.0]
    """
    where = "sequence_priority"
    errors = _as_array(abs_td)
    if errors.dtype.kind not in "fiu":
        raise TypeError(f"{where}: abs_td must hold real numbers, got dtype {errors.dtype}")
    if errors.ndim not in (2, 3) or errors.shape[2:] not in ((), (1,)) or errors.shape[1] == 0:
        raise ValueError(f"{where}: abs_td must have shape (B, L) or (B, L, 1), got {errors.shape}")
    if isinstance(eta, bool) or not 0 <= eta <= 1:
        raise ValueError(f"{where}: eta must be in [0, 1], got {eta!r}")
    counted = np.ones(errors.shape, bool) if mask is None else _as_array(mask)
    if counted.dtype != bool:
        raise TypeError(f"{where}: mask must be bool, got dtype {counted.dtype}")
    if counted.shape != errors.shape:
        raise ValueError(f"{where}: mask must have the shape of abs_td {errors.shape}, got {counted.shape}")
    errors, counted = errors.reshape(errors.shape[:2]).astype(np.float64), counted.reshape(errors.shape[:2])
    errors[~counted] = 0.0
    if not (np.isfinite(errors).all() and (errors >= 0).all()):
        bad = errors[~(np.isfinite(errors) & (errors >= 0))][0]
        raise ValueError(f"{where}: abs_td must be finite and >= 0, got {float(bad)!r}")
    steps = counted.sum(axis=1)
    if not steps.all():
        raise ValueError(f"{where}: mask must count a step of each window, got none in row {int(np.argmin(steps))}")
    result: npt.NDArray[np.float64] = eta * errors.max(axis=1) + (1 - eta) * (errors.sum(axis=1) / steps)
    return result


def _as_array(values: Any) -> npt.NDArray[Any]:
    """Take a NumPy view of an array, a list, or a tensor with or without gradient; a copy of one that is elsewhere."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
