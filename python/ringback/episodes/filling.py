"""When a fill is wrong: it must not stand for a step that there was."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from ringback._core import lookback_positions
from ringback.errors import EpisodeError

__all__ = ["READER", "first_seen", "lost_steps_error", "reader", "refuse_lost_steps"]

# While it holds a list, whose one item is the name of who reads, a read that would fill a step t >= 0 of its episode
# raises. Such a step existed, but is neither in the chunk nor in its lookback: a fill would show the module what it
# never sees elsewhere.
READER: ContextVar[list[str] | None] = ContextVar("reader", default=None)


def reader() -> str | None:
    """Return who reads; None where fills are the reader's own business."""
    reading = READER.get()
    return None if reading is None else reading[0]


def first_seen(t_started: int, lookback: int) -> int:
    """Return the time of the oldest item of a chunk that counts, t >= 0: an episode has nothing before its first step.

    Whatever a lookback holds for times before t = 0 is not read. If the answer is above 0, older items were there, but
    are lost.

    Parameters
    ----------
    t_started, lookback : int
        The time of the chunk's first item, and how many items there are before it.
    """
    return max(t_started - lookback, 0)


def lost_steps_error(
    where: str, first_wanted: int, t_started: int, lookback: int, *, asker: str | None = None, hint: str = ""
) -> EpisodeError:
    """Word the error for a read of a step that was there but is lost.

    Parameters
    ----------
    where : str
        What was called.
    first_wanted : int
        The time of the oldest item that is asked for; below 0 where a fill would stand for what was never there.
    t_started, lookback : int
        As for :func:`first_seen`.
    asker : str, optional
        For whom, instead of the time at which the chunk begins.
    hint : str, default ""
        What to add.
    """
    needed = t_started - max(first_wanted, 0)
    whose = f"at t = {t_started}" if asker is None else f"for {asker}"
    steps = "1 step" if needed == 1 else f"{needed} steps"
    return EpisodeError(f"{where}: the lookback must hold {steps} {whose}, got {lookback}{hint}")


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
    lost = first_seen(t_started, lookback)
    if not lost:
        return
    # As if nothing had been forgotten: then what is lost are the first positions.
    found = lookback_positions(size + lost, t_started, indices, neg, True, where)
    if isinstance(found, int):
        positions: Any = (found,)
    else:
        positions = range(*found[1].indices(size + lost)) if isinstance(found, tuple) else found
    asked = [position for position in positions if 0 <= position < lost]
    if asked:
        hint = "; a fill may only stand for times before the episode's first step"
        raise lost_steps_error(where, min(asked), t_started, lookback, asker=reader(), hint=hint)
