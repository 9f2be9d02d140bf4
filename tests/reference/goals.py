"""Which goals a relabelled row may get, and how a mix shares out a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.reference.replay import Array, ReplayOracle, Row
from tests.reference.windows import SideOf, no_split

ACHIEVED = "observation/achieved_goal"


def goals(oracle: ReplayOracle, number: int, strategy: str, side_of: SideOf = no_split) -> list[Array]:
    """Return the goals that were achieved at the live steps that a strategy may choose from; none: the row stays real.

    A step's goal is the one that it led to. `future` begins with the step's own; `final` is the last of a finished
    episode; `episode` takes all that are live. All of them lie on the step's own side of a split.
    """
    episode, t = oracle.home[number]
    side = side_of(episode, t)
    reached: dict[int, Row] = {u: step.successor for u, step in episode.steps.items() if side_of(episode, u) == side}
    if strategy == "future":
        times = [u for u in reached if u >= t]
    elif strategy == "final":
        times = [u for u in reached if episode.closed and u == episode.next_t - 1]
    else:
        times = list(reached)
    return [reached[u][ACHIEVED] for u in sorted(times)]


def shares(batch_size: int, parts: Sequence[float]) -> list[int]:
    """Return how many rows each source gives: the whole part of its share, then one each by the largest remainder."""
    exact = [batch_size * part / sum(parts) for part in parts]
    counts = [int(np.floor(count + 1e-9)) for count in exact]
    order = sorted(range(len(parts)), key=lambda source: (round(counts[source] - exact[source], 9), source))
    for source in order[: batch_size - sum(counts)]:
        counts[source] += 1
    return counts
