"""When a fill is wrong: it must not stand for a step that there was."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from ringback._core import lookback_positions
from ringback.errors import EpisodeError

__all__ = ["READER", "reader", "refuse_lost_steps"]

# While it holds a list, whose one item is the name of who reads, a read that would fill a step t >= 0 of its episode
# raises. Such a step existed, but is neither in the chunk nor in its lookback: a fill would show the module what it
# never sees elsewhere.
READER: ContextVar[list[str] | None] = ContextVar("reader", default=None)


def reader() -> str | None:
    """Return who reads; None where fills are the reader's own business."""
    reading = READER.get()
    return None if reading is None else reading[0]


def refuse_lost_steps(size: int, lookback: int, t_started: int, indices: Any, neg: bool, where: str) -> None:
    """Raise if indices mean a step t >= 0 that is older than all there is.

    Parameters
    ----------
    size, lookback, t_started : int
        How many items there are, how many of them are lookback, and the time of the first one after it.
    indices, neg
        What is read, as in ``InfiniteLookbackBuffer.get``.
    where : str
        Who reads, for the message.
    """
    lost = t_started - lookback
    if lost <= 0:
        return
    # As if nothing had been forgotten: then what is lost are the first positions.
    found = lookback_positions(size + lost, t_started, indices, neg, True, where)
    if isinstance(found, int):
        positions: Any = (found,)
    else:
        positions = range(*found[1].indices(size + lost)) if isinstance(found, tuple) else found
    asked = [position for position in positions if 0 <= position < lost]
    if asked:
        needed = t_started - min(asked)
        raise EpisodeError(
            f"{where}: the lookback must hold {needed} steps for {reader()}, got {lookback}; a fill may only stand for "
            "times before the episode's first step"
        )
