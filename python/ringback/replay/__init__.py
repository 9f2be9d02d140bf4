"""Replay buffers."""

from __future__ import annotations

from ringback._core import Sequences, Transitions
from ringback.replay.batches import Batches
from ringback.replay.buffer import ReplayBuffer
from ringback.replay.hindsight import hindsight
from ringback.replay.mixing import Mix, mix
from ringback.replay.prioritized import PrioritizedReplayBuffer
from ringback.replay.ratio import ReplayRatio
from ringback.replay.sequence_priority import sequence_priority
from ringback.replay.splits import split_episodes
from ringback.replay.views import BufferView

__all__ = [
    "Batches",
    "BufferView",
    "Mix",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReplayRatio",
    "Sequences",
    "Transitions",
    "hindsight",
    "mix",
    "sequence_priority",
    "split_episodes",
]
