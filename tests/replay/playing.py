"""Play counting episodes into a buffer, and read it back in the order of writing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringback import ReplayBuffer

Array = NDArray[Any]


def play(
    buffer: ReplayBuffer,
    episode: int,
    length: int,
    end: str | None = "terminated",
    stream: int = 0,
    start: int = 0,
    size: int = 1,
) -> list[int]:
    """Add steps whose observation, reward and negated action all are 1000 * episode + step; return their ids."""
    ids = []
    for t in range(start, start + length):
        final = t == start + length - 1
        count = 1000 * episode + t
        ids.append(
            buffer.add(
                np.full(size, count, np.float32),
                np.full(1, -count, np.float32),
                float(count),
                np.full(size, count + 1, np.float32),
                final and end in ("terminated", "both"),
                final and end in ("truncated", "both"),
                stream,
            )
        )
    return ids


def counts(array: Array) -> list[int]:
    """Return the first number of each row as plain ints."""
    return [int(row) for row in array.reshape(array.shape[0], -1)[:, 0]]


def live(buffer: ReplayBuffer) -> list[int]:
    """Return the live ids, oldest first."""
    return [int(i) for i in buffer.valid_starts()]


def content(buffer: ReplayBuffer) -> list[int]:
    """Return the observations of all live steps in the order of writing."""
    return counts(buffer.get(buffer.valid_starts()).observations)


def everything(buffer: ReplayBuffer, n_step: int = 1, gamma: float | None = None) -> dict[str, list[float]]:
    """Draw every live step once and return each scalar field as a list in the order of writing."""
    batch = buffer.sample_transitions(len(buffer), n_step=n_step, gamma=gamma)
    order = np.argsort(batch.ids)
    names = ["observations", "actions", "rewards", "next_observations", "dones", "terminations", "truncations"]
    names += [] if gamma is None else ["discounts", "n_steps"]
    return {name: getattr(batch, name)[order].reshape(len(buffer), -1)[:, 0].tolist() for name in names}


def assert_consistent(batch: Any) -> None:
    """Check that the fields of each row of a batch belong to one step of `play`."""
    observations = batch.observations[..., :1]
    np.testing.assert_array_equal(observations, batch.rewards)
    np.testing.assert_array_equal(batch.actions, -batch.rewards)
    if batch.next_observations is not None:
        np.testing.assert_array_equal(batch.next_observations, batch.observations + 1)
