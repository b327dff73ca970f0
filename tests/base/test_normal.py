"""Quantiles and tails, against SciPy; tails as integers are tested with the laws that use them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from dpindex.base.normal import cosine_tails, quantiles


@pytest.mark.parametrize("count", [1, 2, 33, 4096])
def test_quantiles(count: int) -> None:
    expected = special.ndtri((np.arange(count) + 0.5) / count)
    np.testing.assert_allclose(quantiles(count), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("dim", "error"), [(1.001, 1e-4), (1.5, 1e-6), (2, 1e-6), (7, 1e-6), (784, 1e-6), (1e6, 1e-6)]
)
def test_cosine_tails(dim: float, error: float) -> None:
    """Down to tails of 1e-30, by the incomplete beta function."""
    cosines = np.tanh(np.linspace(-6, 12, 1000) / np.sqrt(max(dim, 4)))
    half = special.betainc((dim - 1) / 2, 0.5, 1 - cosines**2) / 2
    expected = np.where(cosines > 0, half, 1 - half)
    np.testing.assert_allclose(cosine_tails(cosines, dim), expected, rtol=error, atol=1e-300)
