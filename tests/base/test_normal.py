"""Quantiles, against SciPy; tails as integers are tested with the laws that use them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from dpindex.base.normal import quantiles


@pytest.mark.parametrize("count", [1, 2, 33, 4096])
def test_quantiles(count: int) -> None:
    expected = special.ndtri((np.arange(count) + 0.5) / count)
    np.testing.assert_allclose(quantiles(count), expected, rtol=0, atol=1e-14)
