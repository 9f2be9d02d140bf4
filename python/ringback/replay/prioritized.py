"""The replay buffer that draws by priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from ringback.replay.buffer import ReplayBuffer

if TYPE_CHECKING:
    import torch


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws what surprised more often: proportional prioritised replay.

    A start is drawn with a probability proportional to its priority ``(abs_td + eps) ** alpha``, with replacement.
    ``sample_transitions`` and ``sample_sequences`` take ``beta`` (default 0.4) and give ``weights`` (B, 1) float32,
    ``(N p) ** -beta`` over the largest, so they are at most 1. ``update_priorities`` takes the errors back.

    Parameters
    ----------
    capacity, observation_space, action_space, device
        As of ``ReplayBuffer``.
    alpha : float
        At least 0: how much priorities count; 0 is uniform.
    sequence_length : int, optional
        Draw windows of so many steps instead of transitions: a window's priority is its first step's. No other length
        can be drawn then.
    period : int
        Of windows, as in ``sample_sequences``.
    pad : bool
        Of windows, as in ``sample_sequences``.
    stack : int or dict, optional
        The largest frame stack that will be asked for: steps whose older frames are evicted are not drawn.
    new_priority : {"max_live", "max_ever"}
        What a start gets before its first update: the largest priority in the buffer (1 if there is none), or the
        largest ever given.
    weights : {"buffer", "batch"}
        The largest weight, which all are divided by: of any start in the buffer, or of the batch.
    draw : {"stratified", "independent"}
        One draw out of each B-th part of the mass, or each out of all of it.
    eps : float
        At least 0: keeps a start without error alive.
    **options
        ``seed``, ``extras``, ``cast``, ``on_mismatch`` of ``ReplayBuffer``.

    Raises
    ------
    ValueError
        A number out of range or an unknown choice.

    Notes
    -----
    A step becomes a start when its window is complete: a transition at once, a window of L with its L-th row, however
    streams interleave; steps that are no start have no mass and do not enter the weights. Of a buffer that was split,
    only the training side has priorities; its validation side draws uniformly, with weights of 1.
    Draws and updates cost O(B log N). Sums are exact to float64: each is summed anew from what it is made of.

    References
    ----------
    Schaul et al., Prioritized experience replay, 2016, sections 3.3 and 3.4. For sequences: Kapturowski et al., 2019,
    section 2.3, see ``sequence_priority``.

    Examples
    --------
    >>> buffer = PrioritizedReplayBuffer(1000, 1, 1, seed=0)
    >>> for t in range(4):
    ...     _ = buffer.add([t], [0], float(t), [t + 1], terminated=False)
    >>> buffer.update_priorities([0, 1, 2], [0.0, 0.0, 0.0])
    0
    >>> batch = buffer.sample_transitions(8, beta=0.5)
    >>> set(batch.ids.tolist()), float(batch.weights.max()) < 0.1
    ({3}, True)
    """

    def __init__(
        self,
        capacity: int,
        observation_space: gym.Space[Any] | int,
        action_space: gym.Space[Any] | int,
        device: str | torch.device | None = None,
        *,
        alpha: float = 0.6,
        sequence_length: int | None = None,
        period: int = 1,
        pad: bool = False,
        stack: int | Mapping[str, int] | None = None,
        new_priority: Literal["max_live", "max_ever"] = "max_live",
        weights: Literal["buffer", "batch"] = "buffer",
        draw: Literal["stratified", "independent"] = "stratified",
        eps: float = 1e-6,
        seed: int | Sequence[int] | None = None,
        extras: Mapping[str, Any] | None = None,
        cast: Mapping[str, Any] | None = None,
        on_mismatch: Literal["keep", "split", "raise"] = "keep",
    ) -> None:
        for name, value in (("alpha", alpha), ("eps", eps)):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"PrioritizedReplayBuffer: {name} must be a number, got {value!r}")
            if not 0 <= value < float("inf"):
                raise ValueError(f"PrioritizedReplayBuffer: {name} must be finite and >= 0, got {value!r}")
        self._priority_rule = {
            "alpha": float(alpha),
            "eps": float(eps),
            "sequence_length": sequence_length,
            "period": period,
            "pad": pad,
            "stack": stack,
            "new_priority": new_priority,
            "weights": weights,
            "draw": draw,
        }
        super().__init__(
            capacity,
            observation_space,
            action_space,
            device,
            seed=seed,
            extras=extras,
            cast=cast,
            on_mismatch=on_mismatch,
        )

    @property
    def alpha(self) -> float:
        """How much priorities count."""
        return float((self._priority_rule or {})["alpha"])

    def update_priorities(self, ids: npt.ArrayLike, abs_td: Any) -> int:
        """Give drawn starts new priorities: ``(abs_td + eps) ** alpha``.

        Parameters
        ----------
        ids : int array, shape (B,)
            ``ids`` of transitions, ``start_ids`` of sequences. The last of duplicates wins.
        abs_td : float array or tensor, shape (B,) or (B, 1)
            Absolute TD errors; of a sequence see ``sequence_priority``.

        Returns
        -------
        int
            How many were skipped: stale ids, and steps that are no start (any more).

        Raises
        ------
        ValueError
            A negative, infinite or NaN error, or another number of them than of ids. Nothing has changed then.
        IndexError
            An id that was never given.

        Notes
        -----
        O(B log N).
        """
        return self._update_priorities(ids, abs_td)

    def priorities(self, ids: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the priorities of live steps; 0 for a step that is no start.

        Parameters
        ----------
        ids : int array, shape (K,)

        Returns
        -------
        ndarray, shape (K,), float64

        Raises
        ------
        IndexError
            An id that is stale or was never given.
        """
        return self._priorities(ids)

    def _options(self) -> dict[str, Any]:
        return super()._options() | (self._priority_rule or {})
