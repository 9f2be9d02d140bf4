"""Returns and advantages of many chunks at once: arrays of steps, one chunk after the other, no loop over time.

Sums that run backwards in time are made by doubling: after k rounds each step holds the sum of the 2**k steps from it
on, so that T steps take about log2(T) rounds over whole arrays. Nothing is divided by a power of gamma: the sums are as
accurate as those of a loop, for gamma 0 and 1 too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

__all__ = ["NStepSums", "discounted_sums", "gae", "last_rows", "n_step_returns", "returns_to_go"]

Array: TypeAlias = np.ndarray[Any, Any]


def last_rows(lengths: Sequence[int] | Array, *flags: Array | None) -> Array:
    """Find for each row the row with which its segment ends.

    Parameters
    ----------
    lengths : sequence of int, shape (E,)
        Steps of each chunk, N in all; a segment never goes on into the next chunk.
    *flags : ndarray, shape (N,), bool, optional
        Rows that are the last of their segment as well.

    Returns
    -------
    ndarray, shape (N,), int64
        The row numbers.

    Examples
    --------
    >>> last_rows([3, 2], np.array([True, False, False, False, False])).tolist()
    [0, 2, 2, 4, 4]
    """
    counts = np.asarray(lengths, np.int64)
    ends = np.zeros(int(counts.sum()), bool)
    ends[np.cumsum(counts)[counts > 0] - 1] = True
    for flag in flags:
        if flag is not None:
            ends |= flag.astype(bool, copy=False)
    last = np.flatnonzero(ends)
    return np.repeat(last, np.diff(last, prepend=-1))


def discounted_sums(items: Array, last: Array, factor: float) -> Array:
    """Sum up each segment from every row to its end, each later item discounted by one more factor.

    Parameters
    ----------
    items : ndarray, shape (N,)
        What is summed.
    last : ndarray, shape (N,), int64
        The last row of each row's segment: :func:`last_rows`.
    factor : float
        In [0, 1].

    Returns
    -------
    ndarray, shape (N,), float64
        ``y[i] = items[i] + factor * y[i + 1]`` inside of a segment. O(N log T).

    Examples
    --------
    >>> discounted_sums(np.array([1, 1, 1, 5, 5]), last_rows([3, 2]), 0.5).tolist()
    [1.75, 1.5, 1.0, 7.5, 5.0]
    """
    sums = items.astype(np.float64)
    if factor == 0.0 or not len(sums):
        return sums
    left = last - np.arange(len(sums))
    longest = int(left.max())
    width = 1
    while width <= longest:
        # Row i has the sum of `width` rows; row i + width that of the next ones, if they are in the segment at all.
        more = factor**width * sums[width:]
        np.copyto(more, 0.0, where=left[:-width] < width)
        sums[:-width] += more
        width *= 2
    return sums


def returns_to_go(rewards: Array, lengths: Sequence[int] | Array, gamma: float) -> Array:
    """Sum up the discounted rewards from each step to the end of its chunk.

    Parameters
    ----------
    rewards : ndarray, shape (N,)
        Rewards of all steps of all chunks.
    lengths : sequence of int, shape (E,)
        Steps of each chunk, N in all.
    gamma : float
        Discount factor in [0, 1].

    Returns
    -------
    ndarray, shape (N,), float64
        ``R[t] = rewards[t] + gamma * R[t + 1]``, 0 behind the chunk.

    Raises
    ------
    ValueError
        If gamma is not in [0, 1], or the lengths are not those of the rewards.

    Examples
    --------
    >>> returns_to_go(np.array([1.0, 2.0, 4.0, 7.0]), [3, 1], gamma=0.5).tolist()
    [3.0, 4.0, 4.0, 7.0]
    """
    where = "returns_to_go"
    check_fraction(gamma, where, "gamma")
    check_rows(where, lengths, rewards=rewards)
    return discounted_sums(rewards, last_rows(lengths), gamma)


def gae(
    rewards: Array,
    values: Array,
    final_values: Array,
    lengths: Sequence[int] | Array,
    terminateds: Array,
    truncateds: Array | None = None,
    *,
    gamma: float,
    lambda_: float,
) -> tuple[Array, Array]:
    """Estimate advantages.

    Parameters
    ----------
    rewards : ndarray, shape (N,)
        Rewards of all steps of all chunks.
    values : ndarray, shape (N,)
        Value of the observation at which each step was taken.
    final_values : ndarray, shape (E,)
        Value of the observation behind each chunk's last step. That of a terminated chunk (or one of length 0) is not
        used, and may be NaN.
    lengths : sequence of int, shape (E,)
        Steps of each chunk, N in all.
    terminateds : ndarray, shape (N,), bool
        Whether step t led to a terminal state: nothing comes after it, its successor counts 0.
    truncateds : ndarray, shape (N,), bool, optional
        Whether the episode was stopped at step t: the sum ends, but the value of the successor counts. The last step of
        each chunk is treated like that unless it is terminated; one with both flags is terminated.
    gamma, lambda_ : float
        Discount factor and the weight of later differences, both in [0, 1].

    Returns
    -------
    advantages, value_targets : ndarray, shape (N,), float64
        ``A[t] = delta[t] + gamma * lambda_ * A[t + 1]`` with ``delta[t] = rewards[t] + gamma * V[t + 1] - V[t]``, and
        ``A + V``.

    Raises
    ------
    ValueError
        If gamma or lambda_ is not in [0, 1], or the lengths of the arrays do not go together.

    References
    ----------
    Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", equations 11
    (delta) and 16 (the sum).

    Examples
    --------
    The second of two chunks was truncated: the value 10 behind it counts.

    >>> advantages, targets = gae(
    ...     rewards=np.array([1.0, 1.0, 1.0]),
    ...     values=np.array([0.0, 2.0, 0.0]),
    ...     final_values=np.array([10.0, 10.0]),
    ...     lengths=[2, 1],
    ...     terminateds=np.array([False, True, False]),
    ...     gamma=0.5,
    ...     lambda_=0.5,
    ... )
    >>> advantages.tolist(), targets.tolist()
    ([1.75, -1.0, 6.0], [1.75, 1.0, 6.0])
    """
    where = "gae"
    check_fraction(gamma, where, "gamma")
    check_fraction(lambda_, where, "lambda_")
    check_rows(where, lengths, rewards=rewards, values=values, terminateds=terminateds, truncateds=truncateds)
    if len(final_values) != len(lengths):
        raise ValueError(
            f"{where}: final_values must hold one value for each of the {len(lengths)} chunks, got {len(final_values)}"
        )
    counts = np.asarray(lengths, np.int64)
    here = values.astype(np.float64)
    following = np.empty_like(here)
    following[:-1] = here[1:]
    there = counts > 0
    following[np.cumsum(counts)[there] - 1] = np.asarray(final_values)[there]
    # Not a product with 0: what lies behind a terminal step may be NaN.
    following[terminateds.astype(bool, copy=False)] = 0.0
    deltas = rewards + gamma * following - here
    advantages = discounted_sums(deltas, last_rows(counts, terminateds, truncateds), gamma * lambda_)
    return advantages, advantages + here


class NStepSums(NamedTuple):
    """What :func:`n_step_returns` gives.

    Attributes
    ----------
    rewards : ndarray, shape (N,), float64
        Discounted sums.
    discounts : ndarray, shape (N,), float64
        ``gamma**m``, 0 if the last summed step is terminated.
    n_steps : ndarray, shape (N,), int64
        m, how many rewards were summed.
    last : ndarray, shape (N,), int64
        The row of the last summed step.
    """

    rewards: Array
    discounts: Array
    n_steps: Array
    last: Array


def n_step_returns(
    rewards: Array,
    lengths: Sequence[int] | Array,
    terminateds: Array,
    truncateds: Array | None = None,
    *,
    n_step: int,
    gamma: float,
) -> NStepSums:
    """Sum up to n discounted rewards from each step on.

    Parameters
    ----------
    rewards : ndarray, shape (N,)
        Rewards of all steps of all chunks.
    lengths : sequence of int, shape (E,)
        Steps of each chunk, N in all.
    terminateds, truncateds : ndarray, shape (N,), bool
        Steps with which an episode ended: no sum goes on behind them, nor behind the end of a chunk.
    n_step : int
        Rewards in a sum, at most.
    gamma : float
        Discount factor in [0, 1].

    Returns
    -------
    NStepSums
        Sums, discounts, numbers of summed steps and last rows, as ``ReplayBuffer.sample_transitions(n_step=...)``
        gives them.

    Raises
    ------
    ValueError
        If n_step is below 1, gamma is not in [0, 1], or the lengths do not go together.
    TypeError
        If n_step is no integer.

    Notes
    -----
    O(N n), with the additions in the order in which the buffer makes them.

    References
    ----------
    Sutton and Barto 2018, "Reinforcement learning", equation 7.1.

    Examples
    --------
    >>> sums = n_step_returns(np.ones(4), [4], np.array([False] * 4), n_step=3, gamma=0.5)
    >>> sums.rewards.tolist(), sums.n_steps.tolist(), sums.discounts.tolist()
    ([1.75, 1.75, 1.5, 1.0], [3, 3, 2, 1], [0.125, 0.125, 0.25, 0.5])
    """
    where = "n_step_returns"
    check_n_step(n_step, where)
    check_fraction(gamma, where, "gamma")
    check_rows(where, lengths, rewards=rewards, terminateds=terminateds, truncateds=truncateds)
    rows = np.arange(len(rewards))
    last = np.minimum(last_rows(lengths, terminateds, truncateds), rows + (n_step - 1))
    n_steps = last - rows + 1
    most = int(n_steps.max(initial=1))
    powers = np.cumprod(np.full(most, gamma, np.float64))  # powers[k - 1] is gamma to the k
    items = rewards.astype(np.float64)
    sums = items.copy()
    for k in range(1, most):
        sums[:-k] += np.where(n_steps[:-k] > k, powers[k - 1] * items[k:], 0.0)
    discounts = np.where(terminateds[last], 0.0, powers[n_steps - 1])
    return NStepSums(sums, discounts, n_steps, last)


def check_fraction(value: Any, where: str, name: str) -> None:
    """Raise unless it is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{where}: {name} must be a number in [0, 1], got {value!r}")
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{where}: {name} must be in [0, 1], got {value!r}")


def check_n_step(value: Any, where: str) -> None:
    """Raise unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where}: n_step must be an integer >= 1, got {value!r}")
    if value < 1:
        raise ValueError(f"{where}: n_step must be >= 1, got {value!r}")


def check_rows(where: str, lengths: Sequence[int] | Array, **columns: Array | None) -> None:
    """Raise unless all columns have shape (N,), N being the sum of the lengths."""
    steps = int(np.sum(lengths))
    for name, column in columns.items():
        if column is not None and np.shape(column) != (steps,):
            raise ValueError(
                f"{where}: {name} must have shape ({steps},) for {len(lengths)} chunks, got {np.shape(column)}"
            )
