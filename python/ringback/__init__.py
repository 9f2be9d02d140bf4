"""Episodes with a lookback, and replay buffers that are right at every boundary."""

from __future__ import annotations

from ringback import connectors, plot
from ringback.episodes import InfiniteLookbackBuffer, SingleAgentEpisode, batch, stack_last, unbatch
from ringback.recorder import VectorRecorder
from ringback.replay import (
    PrioritizedReplayBuffer,
    ReplayBuffer,
    ReplayRatio,
    Sequences,
    Transitions,
    hindsight,
    mix,
    sequence_priority,
    split_episodes,
)
from ringback.runner import EnvRunner

__version__ = "0.1.0"

__all__ = [
    "EnvRunner",
    "InfiniteLookbackBuffer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReplayRatio",
    "Sequences",
    "SingleAgentEpisode",
    "Transitions",
    "VectorRecorder",
    "batch",
    "connectors",
    "hindsight",
    "mix",
    "plot",
    "sequence_priority",
    "split_episodes",
    "stack_last",
    "unbatch",
]
