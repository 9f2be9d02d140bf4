"""Bounds for counts, from the distribution of the statistic itself."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np

SIGMAS = 4.5  # each side about 3 in a million, and the seeds are fixed


def chi_squared_quantile(freedom: int, sigmas: float) -> float:
    """Return the chi-squared quantile at a normal quantile (Wilson and Hilferty, 1931)."""
    part = 2 / (9 * freedom)
    return float(freedom * max(0.0, 1 - part + sigmas * sqrt(part)) ** 3)


def assert_uniform(drawn: Iterable[int], support: Iterable[int], batch_size: int = 1) -> None:
    """Check that draws are uniform over exactly this support.

    With `batch_size` above 1 the draws come in batches without replacement, whose counts scatter less: the statistic is
    scaled by (N - 1) / (N - batch_size). Counts that scatter too little fail too.
    """
    support = sorted(support)
    values, found = np.unique(np.fromiter(drawn, np.int64), return_counts=True)
    assert values.tolist() == support, "the support is another one"
    size = len(support)
    expected = found.sum() / size
    assert expected > 8, "too few draws to judge"
    assert size > batch_size, "nothing left to chance"
    statistic = ((found - expected) ** 2 / expected).sum() * (size - 1) / (size - batch_size)
    low, high = chi_squared_quantile(size - 1, -SIGMAS), chi_squared_quantile(size - 1, SIGMAS)
    assert low < statistic < high, f"chi-squared {statistic:.1f} is outside ({low:.1f}, {high:.1f})"
