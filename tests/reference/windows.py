"""Every window that may be drawn, and what each must hold: read row by row from the list of episodes.

A line is what a window may run along: one episode, or one numbered stream from episode to episode. The windows of a
line are its runs of rows; nothing else is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference.replay import Array, Episode, ReplayOracle, Row, discounted, join, power

OPTIONAL = ("next_observations", "discounts", "n_steps", "is_terminal", "start_state", "sources")  # or None
Cell = dict[str, Any]  # one row of a batch: arrays without batch and time, structured fields still as leaves
SideOf = Callable[[Episode, int], Any]  # which side of a split a step is on; None: on neither
Stack = int | Mapping[str, int] | None


def no_split(episode: Episode, t: int) -> Any:
    """Put all steps on one side."""
    return "all"


@dataclass(frozen=True)
class Request:
    """What is asked for: the arguments of the samplers under their own names."""

    length: int = 1
    burn_in: int = 0
    pad: bool = False
    period: int = 1
    whole: bool = False
    n_step: int = 1
    gamma: float | None = None
    stack: Stack = None
    stack_fill: Any = "first"
    cross_episodes: bool = False
    layout: str = "step"
    next_observations: bool = False
    time_major: bool = False
    start_state: str | None = None

    @property
    def arrival(self) -> bool:
        """Tell whether rewards lie with the observations that they led to."""
        return self.layout == "arrival"


@dataclass(frozen=True)
class Place:
    """A row on its line."""

    line: Sequence[tuple[Episode, int]]
    index: int

    @property
    def here(self) -> tuple[Episode, int]:
        """Return the row's episode and time."""
        return self.line[self.index]


class WindowOracle:
    """All answers to one request on one side of a buffer."""

    def __init__(self, oracle: ReplayOracle, request: Request, side_of: SideOf = no_split, side: Any = "all") -> None:
        self.oracle, self.request = oracle, request
        self.side_of, self.side = side_of, side
        self.known: dict[tuple[int, int, int | None], Cell] = {}  # cells that were made; nothing is written meanwhile
        observed = [path for path in oracle.leaves if path.split("/")[0] == "observation"]
        if isinstance(request.stack, Mapping):
            self.stacks = {f"observation/{path}": k for path, k in request.stack.items()}
        else:
            self.stacks = dict.fromkeys(observed, request.stack) if request.stack else {}

    @property
    def history(self) -> int:
        """Return how many older frames the largest stack needs."""
        return max([k for k in self.stacks.values() if k is not None], default=1) - 1

    # ------------------------------------------------------------------ which windows there are

    def rows(self, episode: Episode) -> list[int]:
        """Return the times of an episode at which a row can be read in full."""
        first = episode.first
        begin = 0 if first == 0 else first + self.history + self.request.arrival
        end = episode.next_t + (self.request.arrival and episode.closed)
        return [t for t in range(begin, end) if self.side_at(episode, t) == self.side]

    def side_at(self, episode: Episode, t: int) -> Any:
        """Return the side of a row; the row behind the last step goes with that step."""
        return self.side_of(episode, min(t, episode.next_t - 1))

    def lines(self) -> list[list[tuple[Episode, int]]]:
        """Return every line, each without a gap."""
        stored = [episode for episode in self.oracle.episodes if episode.steps]
        groups: dict[Any, list[Episode]] = {}
        for place, episode in enumerate(stored):
            alone = not self.request.cross_episodes or isinstance(episode.key, str)
            groups.setdefault(("episode", place) if alone else ("stream", episode.key), []).append(episode)
        return [line for group in groups.values() for line in self._without_gaps(group)]

    def _without_gaps(self, episodes: Sequence[Episode]) -> list[list[tuple[Episode, int]]]:
        """Cut a stream where a row between two others cannot be read or is on another side."""
        lines: list[list[tuple[Episode, int]]] = [[]]
        for episode in episodes:
            readable = self.rows(episode)
            for t in range(episode.first, episode.next_t + 1):
                if t in readable:
                    lines[-1].append((episode, t))
                elif t < episode.next_t:
                    lines.append([])
        return [line for line in lines if line]

    def places(self) -> list[Place]:
        """Return where windows may start, in the order of writing."""
        request, found = self.request, []
        for line in self.lines():
            for index, (episode, t) in enumerate(line):
                if request.whole:
                    complete = t == 0 and episode.closed and len(line) == episode.next_t + request.arrival
                    good = complete and len(line) <= request.length
                else:
                    good = t % request.period == 0 and index + (1 if request.pad else request.length) <= len(line)
                if good:
                    found.append(Place(line, index))
        return sorted(found, key=self._age)

    def _age(self, place: Place) -> float:
        episode, t = place.here
        return episode.steps[t].number if t < episode.next_t else episode.steps[t - 1].number + 0.5

    def starts(self) -> list[int]:
        """Return the ids at which windows may start, oldest first."""
        return [self.id_at(*place.here) for place in self.places()]

    def place_of(self, number: int) -> Place:
        """Return where a live step lies on its line, be it a start or not."""
        episode, t = self.oracle.home[number]
        for line in self.lines():
            if (episode, t) in line:
                return Place(line, line.index((episode, t)))
        raise KeyError(number)

    # ------------------------------------------------------------------ what a row holds

    def id_at(self, episode: Episode, t: int) -> int:
        """Return the row's id; the row behind the last step has none."""
        return episode.steps[t].number if t < episode.next_t else -1

    def frame(self, episode: Episode, t: int) -> Row:
        """Return observation t of an episode."""
        return episode.steps[t].observation if t in episode.steps else episode.steps[t - 1].successor

    def stacked(self, episode: Episode, t: int, newest: Row) -> Row:
        """Return an observation with its older frames before it, where that is asked for."""
        answer: Row = {}
        for path, value in newest.items():
            k = self.stacks.get(path)
            if k is None:
                answer[path] = value
                continue
            frames = []
            for u in range(t - k + 1, t):
                if u >= 0:
                    frames.append(self.frame(episode, u)[path])
                elif self.request.stack_fill == "first":
                    frames.append(self.frame(episode, 0)[path] if t > 0 else value)
                else:
                    frames.append(np.full(value.shape, self.request.stack_fill, value.dtype))
            answer[path] = np.stack([*frames, value])
        return answer

    def summed(self, episode: Episode, t: int, n: int | None = None) -> list[int]:
        """Return the times of the steps whose rewards a row sums: of one episode, of one side, all live."""
        side, times = self.side_at(episode, t), []
        for u in range(t, min(t + (self.request.n_step if n is None else n), episode.next_t)):
            if self.side_at(episode, u) != side:
                break
            times.append(u)
        return times

    def step_cell(self, episode: Episode, t: int, n: int | None = None) -> Cell:
        """Return a row of steps: what was seen, what was done, what came of it; n may be the row's own."""
        request, step = self.request, episode.steps[t]
        steps = [episode.steps[u] for u in self.summed(episode, t, n)]
        m, last = len(steps), steps[-1]
        cell: Cell = {
            "observations": self.stacked(episode, t, step.observation),
            "actions": step.action,
            "rewards": np.float32(discounted([s.reward for s in steps], request.gamma)),
            "dones": np.float32(last.terminated),
            "terminations": np.bool_(last.terminated),
            "truncations": np.bool_(last.truncated),
            "is_first": np.bool_(t == 0),
            "is_last": np.bool_(t == episode.next_t - 1),
            "ids": np.int64(step.number),
            "extras": step.extras,
            "next_observations": self.stacked(episode, t + m, last.successor),
        }
        if request.gamma is not None:
            cell["n_steps"] = np.int64(m)
            cell["discounts"] = np.float32(power(request.gamma, m) * (not last.terminated))
        return cell

    def arrival_cell(self, episode: Episode, t: int) -> Cell:
        """Return a row of arrivals: an observation, what came with it, and what was done then."""
        before = episode.steps[t - 1] if t > 0 else None
        step = episode.steps.get(t)
        some = next(iter(episode.steps.values()))
        terminated = before is not None and before.terminated
        return {
            "observations": self.stacked(episode, t, self.frame(episode, t)),
            "actions": step.action if step else blank(some.action),
            "rewards": before.reward if before else np.float32(0),
            "dones": np.float32(terminated),
            "terminations": np.bool_(terminated),
            "truncations": np.bool_(before is not None and before.truncated),
            "is_first": np.bool_(t == 0),
            "is_last": np.bool_(step is None),
            "is_terminal": np.bool_(terminated),
            "ids": np.int64(self.id_at(episode, t)),
            "extras": step.extras if step else blank(some.extras),
        }

    def cell(self, episode: Episode, t: int, n: int | None = None) -> Cell:
        """Return a row in the layout that is asked for."""
        key = (id(episode), t, n)
        if key not in self.known:
            self.known[key] = self.arrival_cell(episode, t) if self.request.arrival else self.step_cell(episode, t, n)
        return self.known[key]

    # ------------------------------------------------------------------ what a batch holds

    def window(self, place: Place, n_steps: Sequence[int] | None) -> tuple[list[Cell], list[bool], list[bool]]:
        """Return the window's rows, which of them are real, and which are to be trained on."""
        request = self.request
        burn = min(request.burn_in, place.index)
        trained = min(request.length, len(place.line) - place.index)
        rows = place.line[place.index - burn : place.index + trained]
        cells = [self.cell(*row, None if n_steps is None else n_steps[k]) for k, row in enumerate(rows)]
        padding = request.burn_in + request.length - len(cells)
        valid = [True] * len(cells) + [False] * padding
        mask = [False] * burn + [True] * trained + [False] * padding
        empty = blank(cells[0]) | {"ids": np.int64(-1)}
        return cells + [empty] * padding, valid, mask

    def sequences(self, places: Sequence[Place], n_steps: Any = None) -> dict[str, Any]:
        """Return the batch that holds exactly these windows; the n of each row, [B][W], may be its own."""
        request = self.request
        windows = [self.window(place, None if n_steps is None else n_steps[k]) for k, place in enumerate(places)]
        names = list(windows[0][0][0])
        summing = request.n_step > 1 or n_steps is not None
        if not request.next_observations and not summing and "next_observations" in names:
            names.remove("next_observations")
        batch = {name: self._fold(name, [[cell[name] for cell in cells] for cells, _, _ in windows]) for name in names}
        ragged = request.pad or request.whole or request.burn_in > 0
        batch["valid"] = column([valid for _, valid, _ in windows], np.bool_) if ragged else None
        batch["mask"] = column([mask for _, _, mask in windows], np.bool_) if ragged else None
        if request.start_state is not None:
            batch["start_state"] = _from_start(batch["extras"].pop(request.start_state))
        if request.time_major:
            batch = {name: part if name == "start_state" else _swapped(part) for name, part in batch.items()}
        batch["start_ids"] = np.array([self.id_at(*place.here) for place in places], np.int64)
        burnt = column([sum(valid) - sum(mask) for _, valid, mask in windows], np.int64)
        batch["lengths"] = column([sum(mask) for _, _, mask in windows], np.int64) if ragged else None
        batch["burn_in_lengths"] = burnt if request.burn_in > 0 else None
        return {name: None for name in OPTIONAL} | batch

    def transitions(self, numbers: Iterable[int], n_steps: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the batch that holds exactly these steps; row i sums at most `n_steps[i]` rewards if that is given."""
        numbers = list(numbers)
        cells = [
            self.cell(*self.oracle.home[number], None if n_steps is None else n_steps[row])
            for row, number in enumerate(numbers)
        ]
        names = [name for name in cells[0] if name not in ("is_first", "is_last")]
        return {name: self._fold(name, [[cell[name]] for cell in cells], squeeze=True) for name in names}

    def reach(self, number: int) -> int:
        """Return how many rewards can be summed from a step on, however many are asked for."""
        return len(self.summed(*self.oracle.home[number], self.oracle.written))

    def _fold(self, name: str, table: Sequence[Sequence[Any]], squeeze: bool = False) -> Any:
        """Turn cells [B][W] into arrays (B, W, ...), or (B, ...) for transitions."""

        def whole(parts: Sequence[Sequence[Any]]) -> Array:
            array = np.array([[np.asarray(part) for part in row] for row in parts])
            return array[:, 0] if squeeze else array

        if name == "ids":
            return whole(table)
        first = table[0][0]
        if not isinstance(first, Mapping):
            return whole(table)[..., None]
        columns = {path: whole([[cell[path] for cell in row] for row in table]) for path in first}
        if name == "extras":
            return {extra: join(extra, self.oracle.spaces[extra], columns) for extra in self.oracle.extras}
        field = {"actions": "action"}.get(name, "observation")
        return join(field, self.oracle.spaces[field], columns)


def blank(value: Any) -> Any:
    """Return zeros of the same structure."""
    if isinstance(value, Mapping):
        return {name: blank(part) for name, part in value.items()}
    return np.zeros_like(value)


def column(values: Any, dtype: Any) -> Array:
    """Return scalars with the last axis of one that every scalar has."""
    return np.array(values, dtype)[..., None]


def _each(change: Callable[[Array], Array], value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _each(change, part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_each(change, part) for part in value)
    return None if value is None else change(value)


def _from_start(value: Any) -> Any:
    return _each(lambda array: array[:, 0], value)


def _swapped(value: Any) -> Any:
    return _each(lambda array: array.swapaxes(0, 1), value)
