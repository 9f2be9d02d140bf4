"""Hindsight experience replay: rows of a batch whose goal is one that was reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ringback._core import Transitions
from ringback.replay.batch_fields import batch_of, fields_of

__all__ = ["hindsight"]

_Array = npt.NDArray[Any]
_GOALS = ("achieved_goal", "desired_goal")


def hindsight(
    buffer: Any,
    batch: Transitions,
    strategy: Literal["future", "final", "episode"] = "future",
    *,
    ratio: float = 0.8,
    reward_fn: Callable[[_Array, _Array, dict[str, _Array]], Any],
    terminated_fn: Callable[[_Array, _Array, dict[str, _Array]], Any] | None = None,
    gamma: float | None = None,
    seed: int | np.random.Generator | None = None,
) -> Transitions:
    """Give a share of a batch's rows a goal that their own episode has reached, and the rewards for that goal.

    Parameters
    ----------
    buffer : ReplayBuffer or view of a split
        Where the batch comes from. Its observations are a dict with the keys ``achieved_goal`` and ``desired_goal``,
        and more.
    batch : Transitions, of B rows
        Of single steps or of n-step sums; it stays as it is.
    strategy : {"future", "final", "episode"}
        Which of the goals that were reached on the same side of a split and are still stored: that of the step itself
        or of a later one, each as likely; that of the episode's last step (of a finished episode; rows of an open one
        stay as they are); that of any step.
    ratio : float, default 0.8
        Share of rows to relabel, in [0, 1]; of B rows the nearest whole number, drawn at random.
    reward_fn : callable
        From (achieved_next, desired, infos) to M rewards, (M,) or (M, 1), for all steps at once: the goal that each
        step reached, (M, *G), the goal that it is to be judged by, (M, *G), and a dict of the buffer's extras at these
        steps, (M, *shape) each. All are NumPy arrays. ``env.unwrapped.compute_reward`` of a goal environment of
        gymnasium-robotics is one.
    terminated_fn : callable, optional
        From the same to M bools: whether a step ends the episode for this goal. An n-step row then ends at the first
        that does: it sums no further, and leads to what that step led to. A row that does not end although the stored
        step did is truncated, as there is nothing after it. Default: flags stay as they are stored.
    gamma : float, optional
        The discount of the batch. Default: as its ``discounts`` say; only where all rows of an n-step batch terminate,
        they do not.
    seed : int or numpy.random.Generator, optional
        Which rows and goals are drawn. Default: the ids of the batch decide, so that the same batch gets the same
        goals.

    Returns
    -------
    Transitions
        The fields that differ are copies: ``desired_goal`` in ``observations`` and ``next_observations`` (of stacks: in
        each frame), ``rewards``, with `terminated_fn` also ``dones``, ``terminations``, ``truncations``, ``discounts``,
        ``n_steps`` and all of ``next_observations``. The others are those of the batch.

    Raises
    ------
    IndexError
        If a row's step is no longer stored.
    TypeError
        If the batch is none of single steps, or its observations have no goals.
    ValueError
        If an argument is out of range, or the functions' answers have another shape.

    Notes
    -----
    O(B n) with n the largest number of rewards in a row, whatever the size of the buffer: one call for the places of
    the steps, one for the steps to read, one read.

    References
    ----------
    Andrychowicz et al. 2017, section 4.5 (strategies).

    Examples
    --------
    >>> from gymnasium.spaces import Box, Dict
    >>> from ringback import ReplayBuffer
    >>> cell = Box(-1000.0, 1000.0, (1,))
    >>> names = ("observation", "achieved_goal", "desired_goal")
    >>> buffer = ReplayBuffer(100, Dict({name: cell for name in names}), 1, seed=0)
    >>> def walk(t):
    ...     return {"observation": [t], "achieved_goal": [t], "desired_goal": [99]}
    >>> for t in range(10):
    ...     _ = buffer.add(walk(t), [1], -1.0, walk(t + 1), False, t == 9)
    >>> def reward(achieved, desired, infos):
    ...     return np.where(achieved == desired, 0.0, -1.0)
    >>> batch = hindsight(buffer, buffer.sample_transitions(10), "final", ratio=0.5, reward_fn=reward)
    >>> sorted(batch.observations["desired_goal"].ravel().tolist())
    [10.0, 10.0, 10.0, 10.0, 10.0, 99.0, 99.0, 99.0, 99.0, 99.0]
    """
    where = "hindsight"
    _check(batch, strategy, ratio, where)
    store = getattr(buffer, "buffer", buffer)
    ids = _numpy(batch.ids)
    t, first, end, is_open = store._locate(ids)
    random = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(_entropy(ids, seed))
    rows = np.sort(random.permutation(len(ids))[: int(ratio * len(ids) + 0.5)])
    if strategy == "final":
        rows = rows[~is_open[rows]]
    if not len(rows):
        return batch
    begin = {"future": t, "final": end - 1, "episode": first}[strategy][rows]
    goal_times = random.integers(begin, end[rows])

    # One place for each summed reward of each row: row number, and how many steps after the row's own.
    summed = np.ones(len(rows), np.int64) if batch.n_steps is None else _numpy(batch.n_steps)[rows, 0]
    row = np.repeat(np.arange(len(rows)), summed)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(summed) - summed, summed)
    owners = ids[rows]
    times = np.concatenate((goal_times, t[rows][row] + offset))
    steps = store.get(store._steps_at(np.concatenate((owners, owners[row])), times))
    reached = _numpy(steps.next_observations["achieved_goal"])
    goals, achieved = reached[: len(rows)], reached[len(rows) :]
    infos = {name: _numpy(value)[len(rows) :] for name, value in steps.extras.items()}
    rewards = _answer(reward_fn(achieved, goals[row], infos), len(row), "reward_fn", where)

    values = fields_of(batch)
    if terminated_fn is None:
        left = summed
    else:
        ends = _answer(terminated_fn(achieved, goals[row], infos), len(row), "terminated_fn", where).astype(bool)
        left, terminated = _first_end(ends, row, offset, summed)
        last = len(rows) + np.cumsum(summed) - summed + left - 1  # of each row's summed steps, among those read
        _end_rows(values, rows, steps, last, left, summed, terminated, where)
    powers = _powers(batch, gamma, int(summed.max()), terminated_fn is not None, where)
    if terminated_fn is not None and batch.discounts is not None:
        values["discounts"] = _replaced(batch.discounts, rows, np.where(terminated, 0.0, powers[left])[:, None])
    table = np.zeros((len(rows), int(summed.max())))
    table[row, offset] = rewards
    sums = np.cumsum(table * powers[:-1], axis=1)[np.arange(len(rows)), left - 1]
    values["rewards"] = _replaced(batch.rewards, rows, sums[:, None])
    for name in ("observations", "next_observations"):
        old = values[name]["desired_goal"]
        new = goals if old.ndim == goals.ndim else goals[:, None]
        values[name] = {**values[name], "desired_goal": _replaced(old, rows, new)}
    return batch_of(Transitions, values)


def _check(batch: Any, strategy: str, ratio: float, where: str) -> None:
    if not isinstance(batch, Transitions):
        raise TypeError(f"{where}: batch must be Transitions, got {type(batch).__name__}")
    if not isinstance(batch.observations, dict) or not set(_GOALS) <= batch.observations.keys():
        got = list(batch.observations) if isinstance(batch.observations, dict) else "no dict"
        raise TypeError(f"{where}: observations must be a dict with the keys {list(_GOALS)}, got {got}")
    if strategy not in ("future", "final", "episode"):
        raise ValueError(f"{where}: strategy must be 'future', 'final' or 'episode', got {strategy!r}")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float, np.number)):
        raise TypeError(f"{where}: ratio must be a number, got {ratio!r}")
    if not 0 <= ratio <= 1:
        raise ValueError(f"{where}: ratio must be in [0, 1], got {ratio!r}")


def _entropy(ids: npt.NDArray[np.int64], seed: Any) -> Any:
    return np.ascontiguousarray(ids).view(np.uint32) if seed is None else seed


def _first_end(
    ends: npt.NDArray[np.bool_], row: _Array, offset: _Array, summed: _Array
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return how many steps of each row are left when it ends at the first end, and whether it ends."""
    table = np.zeros((len(summed), int(summed.max())), bool)
    table[row, offset] = ends
    terminated: npt.NDArray[np.bool_] = np.any(table, axis=1)
    return np.where(terminated, table.argmax(axis=1) + 1, summed), terminated


def _end_rows(
    values: dict[str, Any],
    rows: _Array,
    steps: Transitions,
    last: _Array,
    left: _Array,
    summed: _Array,
    terminated: npt.NDArray[np.bool_],
    where: str,
) -> None:
    """Let rows end where their last summed step now is."""
    cut = left < summed
    if cut.any():

        def ended(old: Any, new: Any) -> Any:
            if isinstance(old, dict):
                return {name: ended(old[name], new[name]) for name in old}
            if isinstance(old, tuple):
                return tuple(ended(*pair) for pair in zip(old, new, strict=True))
            if old.ndim != new.ndim:
                raise ValueError(
                    f"{where}: terminated_fn must be None for n-step rows of stacked observations, got one"
                )
            return _replaced(old, rows[cut], _numpy(new)[last[cut]])

        values["next_observations"] = ended(values["next_observations"], steps.next_observations)
    terminations, truncations = (_numpy(values[name])[rows, 0] for name in ("terminations", "truncations"))
    truncated = ~cut & (truncations | (terminations & ~terminated))
    values["dones"] = _replaced(values["dones"], rows, terminated[:, None])
    values["terminations"] = _replaced(values["terminations"], rows, terminated[:, None])
    values["truncations"] = _replaced(values["truncations"], rows, truncated[:, None])
    if values["n_steps"] is not None:
        values["n_steps"] = _replaced(values["n_steps"], rows, left[:, None])


def _powers(
    batch: Transitions, gamma: float | None, n: int, discounts_change: bool, where: str
) -> npt.NDArray[np.float64]:
    """Return gamma ** 0 .. gamma ** n, by repeated multiplication as in the core."""
    if gamma is not None:
        if isinstance(gamma, bool) or not isinstance(gamma, (int, float, np.number)):
            raise TypeError(f"{where}: gamma must be a number, got {gamma!r}")
        if not 0 <= gamma <= 1:
            raise ValueError(f"{where}: gamma must be in [0, 1], got {gamma!r}")
    if batch.discounts is None or (n == 1 and not discounts_change):
        return np.ones(n + 1)  # of single steps only gamma ** 0 is used
    discounts, summed = _numpy(batch.discounts)[:, 0].astype(np.float64), _numpy(batch.n_steps)[:, 0]
    told = discounts > 0
    discounts, summed = discounts[told], summed[told]
    if gamma is None:
        if len(discounts):
            gamma = _shortest(discounts, summed)
        else:
            raise ValueError(f"{where}: gamma must be given where all rows terminate, got None")
    elif not _agree(gamma, summed, discounts, 1e-5):
        raise ValueError(f"{where}: gamma must be that of the batch ({_shortest(discounts, summed):g}), got {gamma!r}")
    return np.cumprod(np.array([1.0] + [gamma] * n))


def _shortest(discounts: npt.NDArray[np.float64], summed: _Array) -> float:
    """Find the discount of one step as it was written: the shortest decimal that these float32 numbers agree with."""
    k = int(np.argmin(summed))
    exact = float(discounts[k] ** (1 / summed[k]))
    for digits in range(1, 8):
        if _agree(round(exact, digits), summed, discounts, 1.2e-7):
            return round(exact, digits)
    return min(exact, 1.0)


def _agree(gamma: float, summed: _Array, discounts: npt.NDArray[np.float64], tolerance: float) -> bool:
    return bool((np.abs(gamma**summed - discounts) <= tolerance * discounts).all())


def _answer(values: Any, count: int, name: str, where: str) -> _Array:
    array = np.asarray(_numpy(values) if hasattr(values, "detach") else values)
    if array.shape not in ((count,), (count, 1)):
        raise ValueError(f"{where}: {name} must return shape ({count},) or ({count}, 1), got {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{where}: {name} must return numbers, got dtype {array.dtype}")
    return array.reshape(-1)


def _numpy(leaf: Any) -> _Array:
    array: _Array = leaf if isinstance(leaf, np.ndarray) else leaf.detach().cpu().numpy()
    return array


def _replaced(leaf: Any, rows: _Array, values: _Array) -> Any:
    """Return a copy with some rows replaced, in the dtype and on the device of the leaf."""
    if isinstance(leaf, np.ndarray):
        out = leaf.copy()
        out[rows] = values
        return out
    copy = leaf.clone()
    copy[rows] = leaf.new_tensor(np.ascontiguousarray(values))
    return copy
