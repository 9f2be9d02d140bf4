"""Episodes with a lookback, and replay buffers that are right at every boundary."""

from __future__ import annotations

from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode, batch, stack_last, unbatch
from ringback.replay import ReplayBuffer, ReplayRatio, Sequences, Transitions, sequence_priority
from ringback.runner import EnvRunner

__version__ = "0.1.0"

__all__ = [
    "EnvRunner",
    "InfiniteLookbackBuffer",
    "ReplayBuffer",
    "ReplayRatio",
    "Sequences",
    "SingleAgentEpisode",
    "Transitions",
    "batch",
    "sequence_priority",
    "stack_last",
    "unbatch",
]
