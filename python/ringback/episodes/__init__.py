"""Episodes with a lookback: whole trajectories, read by index, slice and fill."""

from __future__ import annotations

from .lookback_buffer import InfiniteLookbackBuffer
from .one_hot import one_hot, one_hot_multidiscrete
from .single_agent_episode import SingleAgentEpisode
from .structure import batch, unbatch

__all__ = [
    "InfiniteLookbackBuffer",
    "SingleAgentEpisode",
    "batch",
    "one_hot",
    "one_hot_multidiscrete",
    "unbatch",
]
