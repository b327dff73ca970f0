"""Dense projections: portable integers of the stated law, exact sums, exact norms."""

import math

import mpmath
import numpy as np
import pytest

from dpindex.mechanism.papers.dense import Gaussian, Rademacher, Uniform
from dpindex.mechanism.projections.dense import operator_norm
from dpindex.mechanism.public_random import PublicStream

KINDS = [Rademacher, Gaussian, Uniform]
SHAPES = [(1, 1), (1, 9), (7, 1), (7, 3), (12, 12), (5, 64), (40, 64), (300, 33)]

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


def test_signs_are_those_of_the_public_stream():
    signs = PublicStream(3, "rademacher/40/9").signs(360).reshape(40, 9)
    np.testing.assert_array_equal(Rademacher(40, 9, 3).apply(np.eye(40)), signs)


def test_uniform_entries():
    """All 64 odd integers, as often as each other: chi-square within 6.5 deviations, seed fixed."""
    entries = Uniform(512, 256, 3).apply(np.eye(512)).ravel()
    values, counts = np.unique(entries, return_counts=True)
    assert values.tolist() == list(range(-63, 64, 2))
    expected = entries.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 63 + 6.5 * math.sqrt(126)
    assert (values**2).mean() == (64**2 - 1) / 3
    assert Uniform(2, 2, 0).rms == pytest.approx(math.sqrt(1365))


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (60, 12), (12, 60), (300, 40)])
def test_operator_norm_is_a_bound_and_a_tight_one(shape):
    """Against 60-digit arithmetic on the Gram matrix where small, NumPy's SVD else."""
    entries = np.random.default_rng(3).integers(-90, 91, shape)
    bound = operator_norm(entries)
    true = float(np.linalg.norm(entries.astype(np.float64), 2))
    assert true * (1 - 1e-13) <= bound <= true * (1 + 1e-8)
    if max(shape) <= 12:
        with mpmath.workdps(60):
            exact = max(mpmath.eigsy(mpmath.matrix((entries.T @ entries).tolist()))[0])
            assert mpmath.sqrt(exact) <= bound


def test_operator_norm_of_zero_and_of_equal_columns():
    assert operator_norm(np.zeros((4, 3), np.int8)) >= 1  # as if one entry were 1
    ones = np.ones((9, 4), np.int8)
    assert 6 <= operator_norm(ones) <= 6 * (1 + 1e-8)


def test_entries_are_kept_in_bytes():
    """A map is as small in memory as its entries allow: the largest may take a gigabyte."""
    for kind in KINDS:
        assert kind(64, 32, 0).entries.dtype == np.int8
