"""Replay buffers."""

from __future__ import annotations

from ringback._core import Sequences, Transitions
from ringback.replay.buffer import ReplayBuffer
from ringback.replay.ratio import ReplayRatio
from ringback.replay.sequence_priority import sequence_priority

__all__ = ["ReplayBuffer", "ReplayRatio", "Sequences", "Transitions", "sequence_priority"]
