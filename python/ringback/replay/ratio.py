"""How often steps are sampled for each one that is added: a limiter of either side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

__all__ = ["ReplayRatio"]

_LONGEST_NAP = 0.01  # seconds


class Counting(Protocol):
    """What is limited: a replay buffer, or anything that counts its steps as one does."""

    @property
    def capacity(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...


class ReplayRatio:
    """Keeps the steps sampled from a buffer in proportion to the steps added to it.

    Parameters
    ----------
    buffer : ReplayBuffer
        Its counters ``size``, ``added`` and ``sampled`` are read, whoever moves them.
    samples_per_step : float
        Steps to sample for each step added, above 0: batches of 256 transitions every fourth step are 64. A window of
        L steps counts as L.
    min_size : int, default 1
        Steps to be stored before the first sample. Those added until then earn no samples, so that no burst of updates
        follows a warm-up; nor do those that were there when the limiter was made, such as a loaded data set.
    slack : float, optional
        How many samples may be outstanding before adding waits as well, so that a fast actor does not run away from
        the learner. It must be at least one sample and one addition together, or both sides could wait for one another.
        Default: adding never waits.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Every call reads the buffer's counters: O(1). The limiter keeps two fixed numbers and may be used by any number of
    threads; it does not reserve, so that threads that sample side by side may go over by a batch each.

    References
    ----------
    Cassirer et al. 2021 (Reverb), "SampleToInsertRatio".

    Examples
    --------
    >>> from ringback import ReplayBuffer
    >>> buffer = ReplayBuffer(1000, 1, 1, seed=0)
    >>> ratio = ReplayRatio(buffer, samples_per_step=8, min_size=100)
    >>> updates = 0
    >>> for t in range(200):
    ...     _ = buffer.add([t], [0], 0.0, [t + 1], False)
    ...     while ratio.may_sample(32):
    ...         updates += len(buffer.sample_transitions(32).ids) // 32
    >>> updates
    25
    >>> ratio.sample_waits_for(32)
    '4 more steps added: 32 samples need 32 earned ones, 0 are left'
    """

    def __init__(
        self, buffer: Counting, samples_per_step: float, *, min_size: int = 1, slack: float | None = None
    ) -> None:
        where = "ReplayRatio"
        self._ratio = _positive(samples_per_step, "samples_per_step", where)
        self._slack = None if slack is None else _positive(slack, "slack", where)
        if isinstance(min_size, bool) or not isinstance(min_size, (int, np.integer)):
            raise TypeError(f"{where}: min_size must be an integer, got {min_size!r}")
        if not 1 <= min_size <= buffer.capacity:
            raise ValueError(f"{where}: min_size must be in [1, {buffer.capacity}] (the capacity), got {min_size}")
        self._buffer, self._min_size = buffer, int(min_size)
        stats = buffer.stats()
        # The step with this number is the first that earns samples; only adding makes the size grow.
        self._added = stats["added"] + max(self._min_size - stats["size"], 0)
        self._sampled = stats["sampled"]

    def __repr__(self) -> str:
        return f"<ReplayRatio of {self._ratio:g} samples a step, {self.outstanding:g} outstanding>"

    @property
    def outstanding(self) -> float:
        """Samples that were earned by added steps and not yet drawn; negative if more were drawn."""
        return self._outstanding(self._buffer.stats())

    def _outstanding(self, stats: dict[str, Any]) -> float:
        earning: int = max(stats["added"] - self._added, 0)
        drawn: int = stats["sampled"] - self._sampled
        return earning * self._ratio - drawn

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def may_sample(self, count: int) -> bool:
        """Tell whether so many steps may be sampled now.

        Parameters
        ----------
        count : int
            Of one call: the batch size, times the length for windows.

        Returns
        -------
        bool

        Raises
        ------
        ValueError
            If count is below 1, or so large that adding would wait for sampling and sampling for adding.
        """
        return self.sample_waits_for(count) is None

    def sample_waits_for(self, count: int) -> str | None:
        """Say what must happen before so many steps may be sampled; None: nothing.

        Parameters
        ----------
        count : int
            As in :meth:`may_sample`.

        Returns
        -------
        str or None
        """
        count = _count(count, "ReplayRatio.may_sample")
        if self._slack is not None and self._slack < count + self._ratio:
            raise ValueError(
                f"ReplayRatio.may_sample: count must be <= slack - samples_per_step "
                f"({self._slack - self._ratio:g}), got {count}"
            )
        stats = self._buffer.stats()
        if stats["size"] < self._min_size:
            missing = self._min_size - stats["size"]
            need = f"{self._min_size} are needed before the first sample, {stats['size']} are stored"
            return f"{_more(missing, 'step')} added: {need}"
        left = self._outstanding(stats)
        if left >= count:
            return None
        missing = math.ceil((count - left) / self._ratio)
        return f"{_more(missing, 'step')} added: {count} samples need {count} earned ones, {left:g} are left"

    def wait_to_sample(self, count: int, timeout: float = 60.0) -> None:
        """Wait until so many steps may be sampled: for a thread that learns while another one adds.

        Parameters
        ----------
        count : int
            As in :meth:`may_sample`.
        timeout : float, default 60
            Seconds to wait at most.

        Raises
        ------
        TimeoutError
            If it took longer; the message says what was waited for.
        """
        self._wait(lambda: self.sample_waits_for(count), timeout, "ReplayRatio.wait_to_sample")

    # ---- adding ------------------------------------------------------------------------------------------------------

    def may_add(self, count: int = 1) -> bool:
        """Tell whether so many steps may be added now; always, if there is no `slack`.

        Parameters
        ----------
        count : int, default 1
            Of one call.

        Returns
        -------
        bool
        """
        return self.add_waits_for(count) is None

    def add_waits_for(self, count: int = 1) -> str | None:
        """Say what must happen before so many steps may be added; None: nothing.

        Parameters
        ----------
        count : int, default 1
            As in :meth:`may_add`.

        Returns
        -------
        str or None
        """
        count = _count(count, "ReplayRatio.may_add")
        if self._slack is None:
            return None
        if count * self._ratio > self._slack:
            most = f"{self._slack / self._ratio:g}"
            raise ValueError(f"ReplayRatio.may_add: count must be <= slack / samples_per_step ({most}), got {count}")
        stats = self._buffer.stats()
        earning = max(stats["added"] + count - max(stats["added"], self._added), 0)
        excess = self._outstanding(stats) + earning * self._ratio - self._slack
        if excess <= 0 or not earning:
            return None
        return (
            f"{_more(math.ceil(excess), 'sample')} drawn: {count} step{'' if count == 1 else 's'} would leave "
            f"{excess + self._slack:g} outstanding, {self._slack:g} are allowed"
        )

    def wait_to_add(self, count: int = 1, timeout: float = 60.0) -> None:
        """Wait until so many steps may be added: for a thread that acts while another one learns.

        Parameters
        ----------
        count : int, default 1
            As in :meth:`may_add`.
        timeout : float, default 60
            Seconds to wait at most.

        Raises
        ------
        TimeoutError
            If it took longer; the message says what was waited for.
        """
        self._wait(lambda: self.add_waits_for(count), timeout, "ReplayRatio.wait_to_add")

    @staticmethod
    def _wait(missing: Callable[[], str | None], timeout: float, where: str) -> None:
        if isinstance(timeout, bool) or not timeout >= 0:
            raise ValueError(f"{where}: timeout must be >= 0 seconds, got {timeout!r}")
        deadline = time.monotonic() + timeout
        nap = _LONGEST_NAP / 64
        while (reason := missing()) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{where}: waited {timeout:g} s for {reason}")
            time.sleep(min(nap, left))
            nap = min(2 * nap, _LONGEST_NAP)

    # ---- state -------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, int]:
        """Return where counting began; with the buffer's own state, a resumed run goes on as if it had not stopped."""
        return {"added": self._added, "sampled": self._sampled}

    def set_state(self, state: dict[str, int]) -> None:
        """Take over what :meth:`get_state` gave.

        Parameters
        ----------
        state : dict
            Of a limiter of the same buffer, whose state was restored too. Without this call a limiter that is made
            after the buffer was restored begins anew: nothing is outstanding then.
        """
        self._added, self._sampled = int(state["added"]), int(state["sampled"])


def _positive(value: float, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{where}: {name} must be a number, got {value!r}")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{where}: {name} must be finite and > 0, got {value!r}")
    return float(value)


def _count(value: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{where}: count must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{where}: count must be >= 1, got {value}")
    return int(value)


def _more(count: int, thing: str) -> str:
    return f"{count} more {thing}" if count == 1 else f"{count} more {thing}s"
