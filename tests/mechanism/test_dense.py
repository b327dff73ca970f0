"""Dense projections: portable integers of the stated law, exact sums, exact norms."""

import math

import mpmath
import numpy as np
import pytest
from helpers.specs import folded
from scipy import sparse

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


@folded("kind", KINDS)
@folded(("dim", "k"), SHAPES)
@folded("dtype", [np.float32, np.float64])
def test_dense_sparse_and_integers_agree(kind, dim, k, dtype):
    """Up to the largest sums that the float type holds exactly."""
    projection = kind(dim, k, 3)
    matrix = projection.apply(np.eye(dim)).astype(np.int64)
    most = (2**24 if dtype == np.float32 else 2**46) // projection.max_column_l1
    rng = np.random.default_rng(k)
    x = rng.integers(-most + 1, most, (40, dim)).astype(dtype)
    x[rng.random(x.shape) < 0.3] = 0
    wanted = x.astype(np.int64) @ matrix
    dense = projection.apply(x)
    assert dense.dtype == dtype
    np.testing.assert_array_equal(dense, wanted)
    np.testing.assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)
    for i in range(5):  # a row alone has the bits it has in a batch
        np.testing.assert_array_equal(projection.apply(x[i : i + 1]), wanted[i : i + 1])


@folded("kind", KINDS)
@folded(("dim", "k"), SHAPES)
def test_sensitivities_by_brute_force(kind, dim, k):
    """Move every attribute by one and look: largest L1, L2 and count; largest move of each j."""
    projection = kind(dim, k, 9)
    x = np.random.default_rng(1).integers(-50, 50, (1, dim)).astype(np.float64)
    for sign in (1, -1):
        moved = projection.apply(x + sign * np.eye(dim)) - projection.apply(x)
        sizes = projection.sensitivity
        assert sizes.l1 == np.abs(moved).sum(axis=1).max()
        assert sizes.l2_squared == (moved**2).sum(axis=1).max()
        assert sizes.count == np.count_nonzero(moved, axis=1).max()
        np.testing.assert_array_equal(projection.largest, np.abs(moved).max(axis=0).clip(1))
        assert projection.max_column_l1 == np.abs(moved).sum(axis=0).max()


def test_signs_move_every_coordinate_by_the_change():
    """Before the scale 1/√k the L1 sensitivity of fair signs is kβ, and after it the L2 one β."""
    projection = Rademacher(12, 9, 2)
    change = projection.apply(4096.0 * np.eye(12))
    assert (np.abs(change) == 4096).all()
    np.testing.assert_allclose(projection.scale * np.linalg.norm(change, axis=1), 4096)


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


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kurtosis"), [(Rademacher, 1.0), (Gaussian, 3.0), (Uniform, 1.8)])
def test_inner_products_over_seeds(kind, kurtosis):
    """E⟨x,y⟩ = ⟨u,v⟩ and Var = (‖u‖²‖v‖² + ⟨u,v⟩² + (κ−3)Σu_i²v_i²)/k with the entries' kurtosis.

    Li & Li 2023, Sec. 3, for κ = 1. 6000 fixed seeds, within 6 standard errors each.
    """
    dim = 12
    k = 4
    u, v = np.random.default_rng(0).normal(size=(2, dim))
    products = np.empty(6000)
    for seed in range(len(products)):
        projection = kind(dim, k, seed)
        x, y = projection.apply(np.stack([u, v])) * projection.scale
        products[seed] = x @ y
    norms = (u @ u) * (v @ v) + (u @ v) ** 2
    variance = (norms + (kurtosis - 3) * float((u**2 * v**2).sum())) / k
    deviations = products - u @ v
    error = 6 / np.sqrt(len(products))
    assert abs(deviations.mean()) <= error * np.sqrt(variance)
    rounding = 0.0 if kind is Rademacher else 0.001
    assert abs((deviations**2).mean() - variance) <= error * (deviations**2).std() + rounding
    assert projection.inner_product_factor == 1 / k


@pytest.mark.parametrize("kind", KINDS)
def test_rms_is_the_root_mean_square_of_a_coordinate(kind):
    """Exactly for signs; in the mean over entries, within 6 standard errors, for the others."""
    projection = kind(400, 50, 0)
    squares = projection.apply(np.eye(400)) ** 2
    slack = 6 * squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - projection.rms**2) <= slack
    assert projection.scale == pytest.approx(1 / (math.sqrt(50) * projection.rms))


def test_entries_are_kept_in_bytes():
    """A map is as small in memory as its entries allow: the largest may take a gigabyte."""
    for kind in KINDS:
        assert kind(64, 32, 0).entries.dtype == np.int8
