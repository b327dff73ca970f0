"""Dense projections: portable integers of the stated law, exact sums, exact norms."""

import numpy as np

from dpindex.mechanism.papers.dense import Gaussian, Rademacher, Uniform
from dpindex.mechanism.projections.dense import operator_norm

KINDS = [Rademacher, Gaussian, Uniform]


def test_operator_norm_of_zero_and_of_equal_columns():
    assert operator_norm(np.zeros((4, 3), np.int8)) >= 1  # as if one entry were 1
    ones = np.ones((9, 4), np.int8)
    assert 6 <= operator_norm(ones) <= 6 * (1 + 1e-8)


def test_entries_are_kept_in_bytes():
    """A map is as small in memory as its entries allow: the largest may take a gigabyte."""
    for kind in KINDS:
        assert kind(64, 32, 0).entries.dtype == np.int8
