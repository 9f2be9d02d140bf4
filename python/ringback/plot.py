"""Pictures of a replay buffer (the optional extra ``plot``): what is in it, and what its priorities do.

>>> import ringback  # doctest: +SKIP
>>> ringback.plot.occupancy(buffer).savefig("memory.png")  # doctest: +SKIP
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringback.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PriorityHistory", "occupancy", "priorities"]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_BINS = 200


class PriorityHistory:
    """Takes down the priorities of a whole memory from time to time, for :func:`priorities`.

    Parameters
    ----------
    buffer : PrioritizedReplayBuffer
        Whose priorities.
    resolution : int, default 200
        Points that the memory is reduced to in each record, by age and by rank.
    unit : str, default "steps added"
        What time is counted in.

    Examples
    --------
    >>> history = PriorityHistory(buffer)  # doctest: +SKIP
    >>> for step in range(100_000):  # doctest: +SKIP
    ...     ...  # act, learn, update priorities
    ...     if step % 1_000 == 0:
    ...         history.record()
    >>> ringback.plot.priorities(history)  # doctest: +SKIP
    """

    def __init__(self, buffer: Any, resolution: int = _BINS, unit: str = "steps added") -> None:
        if not hasattr(buffer, "priorities"):
            raise TypeError(f"PriorityHistory: buffer must have priorities, got {buffer!r}")
        if isinstance(resolution, bool) or not isinstance(resolution, (int, np.integer)):
            raise TypeError(f"PriorityHistory: resolution must be an integer, got {resolution!r}")
        if resolution < 2:
            raise ValueError(f"PriorityHistory: resolution must be >= 2, got {resolution}")
        self.unit = unit
        self._buffer, self._resolution = buffer, int(resolution)
        self._times: list[float] = []
        self._by_age: list[_Floats] = []
        self._by_rank: list[tuple[_Floats, _Floats]] = []

    def __len__(self) -> int:
        return len(self._times)

    @property
    def capacity(self) -> int:
        """N of the buffer, in steps."""
        return int(self._buffer.capacity)

    @property
    def times(self) -> _Floats:
        """When there was a record: shape (R,), float64."""
        return np.array(self._times, np.float64)

    @property
    def by_age(self) -> _Floats:
        """Mean priority of steps of one age: shape (R, resolution), float64, the newest first.

        Bin k is of the ages [k, k + 1) * capacity / resolution; NaN where nothing of that age has a priority.
        """
        return np.array(self._by_age).reshape(len(self), self._resolution)

    @property
    def by_rank(self) -> list[tuple[_Floats, _Floats]]:
        """Ranks, 1 for the largest, and the priorities that have them: for each record two arrays, float64."""
        return list(self._by_rank)

    def record(self, time: float | None = None) -> None:
        """Take down the priorities as they are now.

        Parameters
        ----------
        time : float, optional
            Later than that of the last record, in `unit`. Default: the steps added so far; where none are added between
            records, count something else, such as updates.

        Raises
        ------
        ValueError
            If it is no later.

        Notes
        -----
        O(N log N).
        """
        stats = self._buffer.stats()
        added, size = int(stats["added"]), int(stats["size"])
        at = float(added if time is None else time)
        if self._times and not at > self._times[-1]:
            raise ValueError(f"PriorityHistory.record: time must be > {self._times[-1]:g} (the last one), got {at:g}")
        values = np.asarray(self._buffer.priorities(np.arange(added - size, added)), np.float64)[::-1]
        some = values > 0  # steps that are no starts, or held out, have none
        bins = np.flatnonzero(some) * self._resolution // self.capacity
        count = np.bincount(bins, minlength=self._resolution)
        total = np.bincount(bins, weights=values[some], minlength=self._resolution)
        ordered = np.sort(values[some])[::-1]
        ranks = np.unique(np.geomspace(1, max(len(ordered), 1), self._resolution).astype(np.int64))[: len(ordered)]
        self._times.append(at)
        self._by_age.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
        self._by_rank.append((ranks.astype(np.float64), ordered[ranks - 1]))


def priorities(source: PriorityHistory | Any) -> Figure:
    """Draw the priorities of a whole memory over training.

    Parameters
    ----------
    source : PriorityHistory or PrioritizedReplayBuffer
        The records to draw; a buffer is one record, of now.

    Returns
    -------
    matplotlib.figure.Figure
        Left a heat map: the mean priority by age, the newest at the bottom, over the steps added. Right the priorities
        sorted, one line for each record (of more than 60, so many evenly), from the coldest colour at the start to the
        warmest at the end. Both scales of priority are logarithmic. ``savefig`` writes it; no display is touched.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ValueError
        If there is no record, or no step has a priority.

    References
    ----------
    Schaul et al. 2016, "Prioritized Experience Replay", Figure 10.
    """
    where = "plot.priorities"
    if isinstance(source, PriorityHistory):
        history = source
    else:
        history = PriorityHistory(source)
        history.record()
    if not len(history):
        raise ValueError(f"{where}: history must have a record, got none")
    if not any(len(values) for _, values in history.by_rank):
        raise ValueError(f"{where}: a step must have a priority, got none")
    figure = _figure(where, (11, 4.2))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_ages(figure, left, history)
    _draw_ranks(figure, right, history)
    return figure


def _draw_ages(figure: Figure, axes: Axes, history: PriorityHistory) -> None:
    norm = import_module("matplotlib.colors").LogNorm
    table = history.by_age
    times = history.times
    middles = (times[1:] + times[:-1]) / 2
    first, last = (times[0] - middles[0], times[-1] - middles[-1]) if len(middles) else (-0.5, 0.5)
    edges = np.concatenate(([times[0] + first], middles, [times[-1] + last]))
    ages = np.linspace(0, history.capacity, table.shape[1] + 1)
    low, high = float(np.nanmin(table)), float(np.nanmax(table))
    high = high if high > low else low * 1.01
    mesh = axes.pcolormesh(edges, ages, table.T, norm=norm(low, high), cmap="viridis", rasterized=True)
    axes.set(title="priority by age", xlabel=history.unit, ylabel="age in steps", facecolor="0.92")
    if len(history) == 1:
        axes.set_xticks(times)
    figure.colorbar(mesh, ax=axes, label="mean priority")


def _draw_ranks(figure: Figure, axes: Axes, history: PriorityHistory) -> None:
    matplotlib = import_module("matplotlib")
    shown = np.unique(np.linspace(0, len(history) - 1, min(len(history), 60)).astype(np.int64))
    times = history.times
    low, high = float(times[0]), float(times[-1])
    colours = import_module("matplotlib.cm").ScalarMappable(
        import_module("matplotlib.colors").Normalize(low, high if high > low else low + 1),
        matplotlib.colormaps["coolwarm"],
    )
    for k in shown.tolist():
        ranks, values = history.by_rank[k]
        axes.loglog(ranks, values, color=colours.to_rgba(float(times[k])), lw=1)
    axes.set(title="priorities, sorted", xlabel="rank", ylabel="priority")
    axes.grid(alpha=0.3)
    if len(history) > 1:
        figure.colorbar(colours, ax=axes, label=history.unit)


def occupancy(buffer: Any, sides: Mapping[str, Any] | None = None) -> Figure:
    """Draw which episodes hold what part of a memory, by age.

    Parameters
    ----------
    buffer : ReplayBuffer
        With at least one step.
    sides : mapping of str to view, optional
        Views of the buffer's split by a name to show, such as ``{"train": train, "validation": validation}``.

    Returns
    -------
    matplotlib.figure.Figure
        Above, a bar for each episode from its oldest to its newest stored step; episodes that were written side by side
        lie above one another, so that streams that take turns have a row each, or nearly so. Below, how the steps of
        each age divide between the sides, or between finished and open episodes. The newest step is at the right.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    ValueError
        If the buffer is empty.

    Notes
    -----
    O(N), and O(E log E) for E episodes.
    """
    where = "plot.occupancy"
    stats = buffer.stats()
    added, size = int(stats["added"]), int(stats["size"])
    if not size:
        raise ValueError(f"{where}: buffer must hold a step, got none")
    figure = _figure(where, (11, 5.2))
    ids = np.arange(added - size, added)
    _, first, end, is_open = buffer._locate(ids)
    starts, one = np.unique(buffer._steps_at(ids, first), return_index=True)
    ends = buffer._steps_at(ids[one], end[one] - 1)
    if sides is None:
        names, kinds = ["finished", "open"], is_open.astype(np.int64)
    else:
        names, kinds = [*sides, "unused"], np.full(size, len(sides))
        for k, view in enumerate(sides.values()):
            kinds[np.asarray(view.valid_starts()) - (added - size)] = k
    names = [name for k, name in enumerate(names) if (kinds == k).any() or name not in ("unused", "open")]
    colours = [f"C{k}" for k in range(len(names))]
    if "unused" in names:
        colours[-1] = "0.75"
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    rows = _rows(starts, ends)
    _draw_episodes(above, starts - added, ends - added, rows, [colours[k] for k in kinds[one].tolist()])
    above.set(
        title=f"{len(starts)} episode{'s' if len(starts) > 1 else ''} in {size} of {buffer.capacity} steps",
        ylabel="side by side",
    )
    bins = min(_BINS, size)
    edges = np.linspace(-size, 0, bins + 1)
    parts = [ids[kinds == k] - added + 0.5 for k in range(len(names))]
    below.hist(parts, edges, stacked=True, color=colours, label=names)
    below.set(xlabel="age in steps (the newest at the right)", ylabel="steps")
    below.set_xlim(-size, 0)
    below.legend(loc="upper left", fontsize="small")
    below.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    return figure


def _rows(starts: _Ints, ends: _Ints) -> _Ints:
    """Give each span a row of which it has no other's part: the one that has been free for longest, if any is.

    Streams that take turns end and begin their episodes in the same order, and so keep to their rows.
    """
    rows = np.zeros(len(starts), np.int64)
    free: deque[int] = deque()
    busy: list[tuple[int, int]] = []
    for k, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while busy and busy[0][0] < start:
            free.append(heapq.heappop(busy)[1])
        rows[k] = free.popleft() if free else len(busy)
        heapq.heappush(busy, (end, int(rows[k])))
    return rows


def _draw_episodes(axes: Axes, starts: _Ints, ends: _Ints, rows: _Ints, colours: list[str]) -> None:
    collection = import_module("matplotlib.collections").PolyCollection
    left, right = starts.astype(np.float64), ends + 1.0
    low, high = rows + 0.6, rows + 1.4
    corners = np.stack([left, low, left, high, right, high, right, low], axis=1).reshape(-1, 4, 2)
    axes.add_collection(collection(corners, facecolors=colours, edgecolors="white", linewidths=0.6))
    axes.set_ylim(0.4, int(rows.max()) + 1.6)
    axes.yaxis.set_major_locator(import_module("matplotlib.ticker").MaxNLocator(integer=True))


def _figure(where: str, size: tuple[float, float]) -> Figure:
    try:
        module = import_module("matplotlib.figure")  # no pyplot: neither a display nor a global state is touched
    except ImportError:
        raise MissingExtraError(where, "plot", "matplotlib") from None
    figure: Figure = module.Figure(figsize=size, layout="constrained")
    return figure
