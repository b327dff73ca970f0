"""Dense projections: portable integers of the stated law, exact sums, exact norms."""

import numpy as np
import pytest

from dpindex.mechanism.papers.dense import Gaussian, Rademacher, Uniform
from dpindex.mechanism.projections.dense import operator_norm

KINDS = [Rademacher, Gaussian, Uniform]
KNOWN = {
    Rademacher: [
        [1, 1, 1, -1, 1, 1],
        [-1, -1, -1, 1, -1, 1],
        [1, -1, -1, 1, -1, -1],
        [-1, 1, 1, -1, 1, 1],
    ],
    Gaussian: [[10, 9, 20, -2, -4], [20, -8, 14, 11, 7], [-9, -35, -11, -25, 23]],
    Uniform: [[9, -15, -39, -29, -19], [43, -53, 21, -1, -17], [-23, -39, -11, 33, 13]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_known_answers(kind):
    """A published index relies on these integers: they may never change."""
    dim, k = np.shape(KNOWN[kind])
    assert kind(dim, k, seed=7).apply(np.eye(dim)).tolist() == KNOWN[kind]


def test_operator_norm_of_zero_and_of_equal_columns():
    assert operator_norm(np.zeros((4, 3), np.int8)) >= 1  # as if one entry were 1
    ones = np.ones((9, 4), np.int8)
    assert 6 <= operator_norm(ones) <= 6 * (1 + 1e-8)


def test_entries_are_kept_in_bytes():
    """A map is as small in memory as its entries allow: the largest may take a gigabyte."""
    for kind in KINDS:
        assert kind(64, 32, 0).entries.dtype == np.int8
