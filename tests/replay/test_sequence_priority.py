"""One priority a window: the largest error and the mean, mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ringback.replay.sequence_priority import sequence_priority


def slow(errors: Any, mask: Any, eta: float) -> list[float]:
    """Say the same with loops."""
    out = []
    for row, counted in zip(errors, mask, strict=True):
        kept = [float(error) for error, counts in zip(row, counted, strict=True) if counts]
        out.append(eta * max(kept) + (1 - eta) * sum(kept) / len(kept))
    return out


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (3, 1), (1, 6)])
def test_mixes_maximum_and_mean_of_the_counted_steps(eta: float, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    errors, mask = rng.exponential(size=shape), rng.random(shape) < 0.6
    mask[np.arange(shape[0]), rng.integers(shape[1], size=shape[0])] = True
    want = slow(errors, mask, eta)
    np.testing.assert_allclose(sequence_priority(errors, mask, eta), want, rtol=1e-12)
    np.testing.assert_allclose(sequence_priority(errors[..., None], mask[..., None], eta), want, rtol=1e-12)
    np.testing.assert_allclose(sequence_priority(errors, eta=eta), slow(errors, np.ones(shape, bool), eta), rtol=1e-12)


def test_what_is_left_out_may_be_anything_and_nothing_given_changes() -> None:
    errors = np.array([[1.0, np.nan, 3.0], [-5.0, 2.0, np.inf]])
    mask = np.array([[True, False, True], [False, True, False]])
    kept = errors.copy()
    np.testing.assert_allclose(sequence_priority(errors, mask), [0.9 * 3 + 0.1 * 2, 2.0])
    np.testing.assert_array_equal(errors, kept)


def test_tensors_with_a_gradient_are_read_and_answers_are_float64() -> None:
    errors = torch.tensor([[[1.0], [3.0]]], requires_grad=True)
    out = sequence_priority(errors.abs(), torch.tensor([[[True], [True]]]))
    assert out.dtype == np.float64
    assert out.shape == (1,)
    np.testing.assert_allclose(out, [2.9])


@pytest.mark.parametrize(
    ("error", "errors", "options", "message"),
    [
        (ValueError, [1.0, 2.0], {}, r"abs_td must have shape \(B, L\) or \(B, L, 1\), got \(2,\)$"),
        (ValueError, np.ones((2, 3, 2)), {}, r"abs_td must have shape \(B, L\) or \(B, L, 1\), got \(2, 3, 2\)$"),
        (ValueError, np.ones((2, 0)), {}, r"abs_td must have shape"),
        (TypeError, [["a"]], {}, "abs_td must hold real numbers, got dtype <U1$"),
        (ValueError, [[1.0, -3.0]], {}, "abs_td must be finite and >= 0, got -3.0$"),
        (ValueError, [[1.0, np.nan]], {}, "abs_td must be finite and >= 0, got nan$"),
        (ValueError, [[1.0, np.inf]], {}, "abs_td must be finite and >= 0, got inf$"),
        (ValueError, [[1.0]], {"eta": 1.5}, r"eta must be in \[0, 1\], got 1.5$"),
        (TypeError, [[1.0]], {"mask": [[1]]}, "mask must be bool, got dtype int64$"),
        (ValueError, [[1.0]], {"mask": [[True, False]]}, r"mask must have the shape of abs_td \(1, 1\), got \(1, 2\)$"),
        (ValueError, [[1.0], [1.0]], {"mask": [[True], [False]]}, "count a step of each window, got none in row 1$"),
    ],
)
def test_what_makes_no_priority_is_refused(error: Any, errors: Any, options: Any, message: str) -> None:
    with pytest.raises(error, match=rf"^sequence_priority: .*{message}"):
        sequence_priority(errors, **options)
