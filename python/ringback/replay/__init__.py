"""Replay buffers."""

from __future__ import annotations

from ringback._core import Sequences, Transitions
from ringback.replay.buffer import ReplayBuffer

__all__ = ["ReplayBuffer", "Sequences", "Transitions"]
