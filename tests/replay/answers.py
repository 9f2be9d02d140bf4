"""All answers to a request at once: the buffer draws each of them, and the slow twin says what each must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.reference.windows import Place, Request, SideOf, WindowOracle, no_split
from tests.replay.twin import Twin, assert_batch
from tests.replay.worlds import Space, vector

LOOKS = ("observations", "ids", "mask")  # that no two windows have in common


def options_of(request: Request) -> dict[str, Any]:
    """Return the keywords of a sampler that say the same; the length goes by place."""
    given = {field.name: getattr(request, field.name) for field in fields(request)}
    default = {field.name: field.default for field in fields(request)}
    return {name: value for name, value in given.items() if value != default[name] and name not in ("length", "whole")}


def row_of(part: Any, row: int, axis: int = 0) -> Any:
    """Return one row of a batch's field, still with a batch axis."""
    if isinstance(part, Mapping):
        return {name: row_of(value, row, axis) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(row_of(value, row, axis) for value in part)
    return None if part is None else np.take(part, [row], axis)


def identify(windows: WindowOracle, places: Sequence[Place], batch: Any) -> list[int]:
    """Return which of the places each drawn window is; one that begins behind a last step is known by its content."""
    axis = 1 if windows.request.time_major else 0
    named = {windows.id_at(*place.here): index for index, place in enumerate(places)}
    behind = {
        _print_of(windows.sequences([place]), 0, axis): index
        for index, place in enumerate(places)
        if windows.id_at(*place.here) == -1
    }
    found = []
    for row, number in enumerate(batch.start_ids.tolist()):
        assert number in named, f"no window starts at {number}"
        if number >= 0:
            found.append(named[number])
        else:
            given = _print_of({name: getattr(batch, name) for name in LOOKS}, row, axis)
            assert given in behind, f"row {row} looks like no window"
            found.append(behind[given])
    return found


def _print_of(batch: Mapping[str, Any], row: int, axis: int) -> bytes:
    """Return what a window looks like."""
    return b"".join(_bytes(row_of(batch[name], row, axis)) for name in LOOKS)


def _bytes(part: Any) -> bytes:
    if isinstance(part, Mapping):
        return b"".join(_bytes(part[name]) for name in sorted(part))
    if isinstance(part, tuple):
        return b"".join(_bytes(value) for value in part)
    return b"" if part is None else bytes(np.ascontiguousarray(part).tobytes())


def check_windows(source: Any, windows: WindowOracle, replace: bool = False, **more: Any) -> Any:
    """Draw every window once (or many times), compare the set and each content; return all in the order of writing."""
    request, places = windows.request, windows.places()
    assert places, "nothing to draw"
    want = SimpleNamespace(**windows.sequences(places))
    options = options_of(request) | more | {"replace": replace}
    count = 40 * len(places) if replace else len(places)
    if request.whole:
        batch = source.sample_episodes(count, request.length, **options)
    else:
        batch = source.sample_sequences(count, request.length, **options)
    found = identify(windows, places, batch)
    assert sorted(set(found)) == list(range(len(places))), "not all windows were drawn, or some twice"
    assert_batch(batch, windows.sequences([places[index] for index in found]))
    return want


class FullTwin(Twin):
    """Both buffers, with the requests that the plain twin does not know."""

    def __init__(
        self,
        capacity: int,
        observation_space: Space | int = 1,
        action_space: Space | int = 1,
        extras: Mapping[str, Space] | None = None,
        **options: Any,
    ) -> None:
        spaces = [vector(space) if isinstance(space, int) else space for space in (observation_space, action_space)]
        super().__init__(capacity, spaces[0], spaces[1], extras, **options)

    def play(
        self, episode: int, length: int, end: str | None = "terminated", stream: int = 0, start: int = 0
    ) -> list[int]:
        """Add steps whose observation, reward and negated action are 1000 * episode + step; return their ids."""
        ids = []
        for t in range(start, start + length):
            final, count = t == start + length - 1, 1000 * episode + t
            flags = (final and end in ("terminated", "both"), final and end in ("truncated", "both"))
            extras = {name: np.full(space.shape or (), count, space.dtype) for name, space in self.slow.extras.items()}
            ids.append(
                self.add(
                    np.full(1, count, np.float32),
                    np.full(1, -count, np.float32),
                    float(count),
                    np.full(1, count + 1, np.float32),
                    *flags,
                    stream,
                    extras or None,
                )
            )
        return ids

    def oracle(self, side_of: SideOf = no_split, side: Any = "all", **request: Any) -> WindowOracle:
        """Return the slow answers to a request."""
        return WindowOracle(self.slow, Request(**request), side_of, side)

    def starts(self, **request: Any) -> list[int]:
        """Return the ids of all starts, which both agree on."""
        starts = self.oracle(**request).starts()
        assert self.real.valid_starts(**request).tolist() == starts
        return starts

    def windows(self, **request: Any) -> Any:
        """Draw every window that answers a request; return all in the order of writing."""
        return check_windows(self.real, self.oracle(**request))

    def transitions(self, **request: Any) -> Any:
        """Draw every step that answers a request, and get it by its id; return all in the order of writing."""
        oracle = self.oracle(**request)
        starts = oracle.starts()
        want = SimpleNamespace(**oracle.transitions(starts))
        real: Any = self.real
        batch = real.sample_transitions(len(starts), **options_of(oracle.request))
        assert sorted(batch.ids.tolist()) == starts
        assert_batch(batch, oracle.transitions(batch.ids.tolist()))
        assert_batch(real.get(starts, **options_of(oracle.request)), vars(want))
        return want


def numbers(part: Any) -> list[list[int]]:
    """Return (B, W, 1) as plain ints."""
    return [[int(value) for value in row] for row in np.asarray(part)[..., 0]]
