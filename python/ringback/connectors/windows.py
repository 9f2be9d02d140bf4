"""What pieces read from episodes: the newest item of each, the rows of all steps, windows of the last k."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from ringback._core import lookback_window, rows_newest, rows_stack
from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode
from ringback.episodes.filling import first_seen, lost_steps_error
from ringback.episodes.lookback_buffer import last_items, last_windows
from ringback.episodes.space_rules import LeafRules, rules_for
from ringback.episodes.structure import leaves, stack
from ringback.errors import EpisodeError

__all__ = ["Windows", "joined", "newest", "stacked_items_of"]

_TIME = attrgetter("t")

Array: TypeAlias = np.ndarray[Any, Any]


def stacked_items_of(track: InfiniteLookbackBuffer, items: list[Any], where: str) -> Any:
    """Stack items of a track in list form as array form has them.

    Items that are not as the space says, as custom pieces may have written them, are stacked as they are.
    """
    space = track.space
    if space is None:
        return stack(items, where)
    rows = rows_stack(items)
    if rows is not None and is_as_said(rows, space):
        return rows
    try:
        return rules_for(space).stack(items, where, checked=False)
    except ValueError:
        return stack(items, where)


def is_as_said(rows: Array, space: gym.Space[Any]) -> bool:
    """Tell whether stacked items are what the rules of the space would make of them."""
    leaf = rules_for(space).struct
    if type(leaf) is not LeafRules or rows.shape[1:] != leaf.shape:
        return False
    return rows.dtype is leaf.dtype or (leaf.dtype is not None and rows.dtype == leaf.dtype)


def newest(episodes: Sequence[SingleAgentEpisode], name: str, where: str) -> Any:
    """Stack the last item of a track of each episode: a structure of arrays (E, *D), a copy."""
    rows = rows_newest(episodes, name)
    track: InfiniteLookbackBuffer = getattr(episodes[0], name)
    if rows is not None and (track.space is None or is_as_said(rows, track.space)):
        return rows
    try:
        items = last_items([getattr(episode, name) for episode in episodes])
    except IndexError:
        raise not_reset_error(where) from None
    return stacked_items_of(track, items, where)


def not_reset_error(where: str) -> EpisodeError:
    """Word the error for an episode that has no observation yet."""
    return EpisodeError(f"{where}: each episode must be reset first, got one without observation")


def joined(rows: list[Any], where: str) -> Any:
    """Put structures of arrays one after the other: a copy, also of a single one."""
    if not rows:
        raise EpisodeError(f"{where}: episodes must have at least one step, got none")
    if all(type(part) is np.ndarray for part in rows):
        try:
            return np.concatenate(rows)
        except ValueError:
            pass  # words the error
    return stack(rows, where, joined=True)


class Windows:
    """Where the windows of the last k items lie, for rows at times t of several episodes.

    A window covers the times t-k .. t-1, or t-k+1 .. t. Times before t = 0 are missing, whatever a lookback holds for
    them: an episode has nothing before its first step.

    Parameters
    ----------
    episodes : sequence of SingleAgentEpisode
        In list or array form.
    depth : int
        k, at least 1.
    own : bool
        Whether the window ends with the item at the row's own time (observations), or the one before (what led there).
    times : str
        Which rows: "newest", one an episode, at its newest observation; "steps", those of all its steps; "all", both.
    where : str
        Who reads, for messages.

    Raises
    ------
    EpisodeError
        If an item was there at a time t >= 0, but is neither in the chunk nor in its lookback.

    Attributes
    ----------
    counts : list of int, or None
        Rows of each episode; None for one each.
    index : ndarray, shape (R, k), int64, or None
        Where the items of each window are among all items that are read, episode after episode; missing ones point at
        the episode's first. None if all windows lie there one after the other.
    missing : ndarray, shape (R, k), bool, or None
        Which are missing; None if none are.
    """

    __slots__ = ("_depth", "_episodes", "_fresh", "_slices", "_whole", "counts", "index", "missing")

    def __init__(self, episodes: Sequence[SingleAgentEpisode], depth: int, own: bool, times: str, where: str) -> None:
        self._depth = depth
        self._fresh = False  # whether what was read is nobody else's
        self._episodes = episodes
        self._slices: list[slice] = []
        self.counts: list[int] | None = None
        self.index: Array | None = None
        self.missing: Array | None = None
        ahead = int(own)
        # All the way back there is a step before: nothing to be found out.
        self._whole = times == "newest" and min(map(_TIME, episodes)) >= depth - ahead
        if self._whole:
            self._whole = min([one.rewards.len_incl_lookback() for one in episodes]) >= depth - ahead
        if not self._whole:
            self._find(times, ahead, where)

    def _find(self, times: str, ahead: int, where: str) -> None:
        episodes, depth = self._episodes, self._depth
        counts: list[int] = []
        base: list[int] = []
        floors: list[int] = []
        there, short = 0, False
        for episode in episodes:
            started, now, lookback = episode.t_started, episode.t, episode.rewards.lookback
            row = now if times == "newest" else started
            rows = now + (times != "steps") - row
            begin = first_seen(started, lookback)
            first_wanted = row + ahead - depth
            if begin <= first_wanted:
                missing, first, count = 0, first_wanted, depth + rows - 1
            else:
                missing, first, count, _ = lookback_window(begin, now + ahead, first_wanted, row + rows - 1 + ahead)
            if rows and missing and begin:
                raise lost_steps_error(where, first_wanted, started, lookback)
            if not rows:
                first, count = started, 0
            self._slices.append(slice(first - started, first - started + count))
            counts.append(rows)
            base.append(there + first_wanted - first)
            floors.append(there)
            there += count
            short = short or missing > 0
        if times != "newest":
            self.counts = counts
        if times != "newest" or short:
            self._place(counts, base, floors, there, short)

    def _place(self, counts: list[int], base: list[int], floors: list[int], there: int, short: bool) -> None:
        begins = np.repeat(np.array(base) - np.cumsum(counts) + counts, counts)
        index = (begins + np.arange(len(begins)))[:, None] + np.arange(self._depth)
        if short:
            floor = np.repeat(np.array(floors), counts)[:, None]
            self.missing = index < floor
            # A window of which nothing is there points at the next episode's items, or behind all: it will be filled.
            index = np.minimum(np.maximum(index, floor), max(there - 1, 0))
        self.index = index

    def read(self, name: str, where: str) -> Any:
        """Read all items of a track that the windows need, each once: a structure of arrays; None if there are none."""
        tracks: list[InfiniteLookbackBuffer] = list(map(attrgetter(name), self._episodes))
        if self._whole:
            return self._read_whole(tracks, where)
        parts: list[Any] = []
        items: list[Any] = []
        last: InfiniteLookbackBuffer | None = None
        for track, rows in zip(tracks, self._slices, strict=True):
            if rows.stop == rows.start:
                continue
            found = track.get(rows, neg_index_as_lookback=True)
            if track.finalized:
                if items and last is not None:
                    parts.append(stacked_items_of(last, items, where))
                    items = []
                parts.append(found)
            else:
                items.extend(found)
                last = track
        if items and last is not None:
            parts.append(stacked_items_of(last, items, where))
        if sum(len(leaves(part)[0]) for part in parts) != sum(rows.stop - rows.start for rows in self._slices):
            raise not_reset_error(where)
        if not parts:
            return None
        self._fresh = len(parts) > 1 or bool(items)
        return parts[0] if len(parts) == 1 else joined(parts, where)

    def _read_whole(self, tracks: list[InfiniteLookbackBuffer], where: str) -> Any:
        self._fresh = True
        items = last_windows(tracks, self._depth)
        if items is not None:
            return stacked_items_of(tracks[0], items, where)
        parts = [track.get(slice(-self._depth, None)) for track in tracks]
        listed = [k for k, track in enumerate(tracks) if not track.finalized]
        for k in listed:
            parts[k] = stacked_items_of(tracks[k], parts[k], where)
        return joined(parts, where)

    def take(self, leaf: Array, depth: int, fill: Any) -> Array:
        """Put the last `depth` items of each window together.

        Parameters
        ----------
        leaf : ndarray, shape (M, *D)
            A leaf of what :meth:`read` gave; not to be used for anything else.
        depth : int
            At most that of the windows.
        fill : scalar, or None
            Stands for what is missing; None is the episode's first item.

        Returns
        -------
        ndarray, shape (R, depth, *D)
            Shares no memory with an episode.
        """
        if self.index is None:
            windows: Array = leaf.reshape(len(self._episodes), self._depth, *leaf.shape[1:])
            if depth == self._depth and self._fresh:
                return windows
            last: Array = windows[:, self._depth - depth :].copy()
            return last
        rows: Array = leaf.take(self.index[:, self._depth - depth :], 0)
        if fill is not None and self.missing is not None:
            rows[self.missing[:, self._depth - depth :]] = fill
        return rows
