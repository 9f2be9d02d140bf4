"""The slow model of an episode: plain lists, read one item after the other. No cleverness."""

from __future__ import annotations

from typing import Any

MISSING = object()


class Track:
    """Items of which the first are lookback; an item's time is its place less the lookback."""

    def __init__(self, items: list[Any], lookback: int) -> None:
        self.items = list(items)
        self.lookback = lookback

    @property
    def end(self) -> int:
        return len(self.items) - self.lookback

    def at(self, time: int) -> Any:
        for place, item in enumerate(self.items):
            if place - self.lookback == time:
                return item
        return MISSING

    def time_of(self, index: int, neg: bool) -> int:
        if index >= 0 or neg:
            return index
        return self.end + index

    def get(self, indices: Any = None, neg: bool = False, fill: Any = MISSING) -> Any:
        if indices is None:
            return [self.at(t) for t in range(self.end)]
        if isinstance(indices, slice):
            return self._slice(indices, neg, fill)
        if isinstance(indices, list):
            return [self.get(i, neg, fill) for i in indices]
        item = self.at(self.time_of(indices, neg))
        if item is MISSING and fill is MISSING:
            raise IndexError(indices)
        return fill if item is MISSING else item

    def times_of(self, s: slice, neg: bool, filled: bool) -> list[int]:
        step = 1 if s.step is None else s.step
        up = step > 0
        start = self.time_of(s.start, neg) if s.start is not None else (0 if up else self.end - 1)
        stop = self.time_of(s.stop, neg) if s.stop is not None else (self.end if up else -1)
        if not filled:
            # As Python's own sequences clip; only present bounds can be outside.
            low, high = (-self.lookback, self.end) if up else (-self.lookback - 1, self.end - 1)
            start, stop = min(max(start, low), high), min(max(stop, low), high)
        elif max(start, stop) < -self.lookback or min(start, stop) >= self.end:
            # Wholly outside, a filled slice runs from the one bound to the other whichever way.
            start, stop = (min(start, stop), max(start, stop)) if up else (max(start, stop), min(start, stop))
        return list(range(start, stop, step))

    def _slice(self, s: slice, neg: bool, fill: Any) -> list[Any]:
        out = []
        for time in self.times_of(s, neg, fill is not MISSING):
            item = self.at(time)
            out.append(fill if item is MISSING else item)
        return out


class Episode:
    """An episode as five tracks; the names are those of the real one."""

    def __init__(self, id_: str, t_started: int = 0) -> None:
        self.id_ = id_
        self.t_started = t_started
        self.lookback = 0
        self.observations: list[Any] = []
        self.infos: list[Any] = []
        self.actions: list[Any] = []
        self.rewards: list[Any] = []
        self.extras: dict[str, list[Any]] = {}
        self.terminated = False
        self.truncated = False
        self.custom: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.rewards) - self.lookback

    @property
    def t(self) -> int:
        return self.t_started + len(self)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    def track(self, name: str) -> Track:
        items = self.extras[name] if name in self.extras else getattr(self, name)
        return Track(items, self.lookback)

    def reset(self, observation: Any, info: Any) -> None:
        self.observations.append(observation)
        self.infos.append(info)

    def step(
        self, observation: Any, action: Any, reward: float, info: Any, terminated: bool, truncated: bool, extras: Any
    ) -> None:
        before = len(self.rewards)
        for key in set(self.extras) | set(extras):
            column = self.extras.setdefault(key, [0.0] * before)
            column.append(extras.get(key, 0.0))
        self.observations.append(observation)
        self.infos.append(info)
        self.actions.append(action)
        self.rewards.append(reward)
        self.terminated, self.truncated = terminated, truncated

    def part(self, first: int, last: int, lookback: int) -> Episode:
        """Steps first <= t < last, and up to ``lookback`` before them."""
        out = Episode(self.id_, self.t_started + first)
        out.lookback = min(lookback, self.lookback + first)
        begin = self.lookback + first - out.lookback
        end = self.lookback + last
        out.observations = self.observations[begin : end + 1]
        out.infos = self.infos[begin : end + 1]
        out.actions = self.actions[begin:end]
        out.rewards = self.rewards[begin:end]
        out.extras = {key: column[begin:end] for key, column in self.extras.items()}
        out.custom = dict(self.custom)
        return out

    def cut(self, lookback: int) -> Episode:
        return self.part(len(self), len(self), lookback)

    def slice(self, start: int | None, stop: int | None, lookback: int | None) -> Episode:
        steps = list(range(len(self)))[start:stop]
        if steps:
            first, last = steps[0], steps[-1] + 1
        else:
            first = last = len(list(range(len(self)))[: (0 if start is None else start)])
        out = self.part(first, last, self.lookback if lookback is None else lookback)
        holds_the_end = last == len(self) and (first < last or len(self) == 0)
        if holds_the_end:
            out.terminated, out.truncated = self.terminated, self.truncated
        return out

    def join(self, other: Episode) -> None:
        steps = len(self.rewards)
        count = len(other)
        keys = set(self.extras) | (set(other.extras) if count else set())
        for key in keys:
            column = self.extras.setdefault(key, [0.0] * steps)
            column += other.extras[key][other.lookback :] if key in other.extras else [0.0] * count
        self.observations += other.observations[other.lookback + 1 :]
        self.infos[-1:] = other.infos[other.lookback :]
        self.actions += other.actions[other.lookback :]
        self.rewards += other.rewards[other.lookback :]
        if other.done:
            self.terminated, self.truncated = other.terminated, other.truncated
        self.custom.update(other.custom)
