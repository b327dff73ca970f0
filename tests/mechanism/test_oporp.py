"""OPORP against its definition, built here attribute by attribute."""

import numpy as np
import pytest
from helpers.specs import folded
from scipy import sparse

from dpindex.mechanism.projections.dense import Oporp
from dpindex.mechanism.public_random import PublicStream

SHAPES = [
    # (dim, k, repetitions)
    (1, 1, 1),
    (2, 1, 1),
    (7, 1, 1),
    (7, 7, 1),
    (8, 4, 1),
    (10, 6, 1),  # padding of 2
    (11, 8, 2),
    (65, 64, 1),  # nearly all padding
    (24, 24, 3),
    (9, 27, 3),  # each repetition has k = dim
    (100, 96, 4),
    (784, 128, 1),
    (33, 1024, 64),
]

EXPECTED = [
    [0, 1, 0, 0, 0, 0, 0, -1],
    [0, 0, -1, 0, -1, 0, 0, 0],
    [-1, 0, 0, 0, 0, 0, 0, -1],
    [0, 0, 0, 1, 0, 1, 0, 0],
    [0, 0, 0, 1, 1, 0, 0, 0],
    [0, 0, 1, 0, 0, 0, 1, 0],
    [1, 0, 0, 0, 0, 1, 0, 0],
    [0, 0, 0, 1, 0, -1, 0, 0],
    [1, 0, 0, 0, 0, 0, 0, 1],
    [0, 0, 1, 0, 0, 0, 1, 0],
    [0, -1, 0, 0, 0, 0, -1, 0],
]


def definition(dim, k, seed, repetitions):
    """The matrix, from Li & Li Alg. 4 and the stream alone: pad, permute, cut into bins, sign."""
    bins = k // repetitions
    length = -(-dim // bins)
    matrix = np.zeros((dim, k), dtype=np.int64)
    for repetition in range(repetitions):
        stream = PublicStream(seed, f"oporp/{dim}/{bins}/{repetition}")
        places = stream.permutation(bins * length)
        signs = stream.signs(dim)
        for position, attribute in enumerate(places):
            if attribute < dim:
                column = repetition * bins + position // length
                matrix[attribute, column] = signs[attribute]
    return matrix


def test_known_answer():
    """A published index relies on these bits: they may never change."""
    assert Oporp(11, 8, seed=7, repetitions=2).apply(np.eye(11)).tolist() == EXPECTED


@folded(("dim", "k", "repetitions"), SHAPES)
def test_each_attribute_lies_in_one_bin_of_bounded_length(dim, k, repetitions):
    matrix = Oporp(dim, k, 3, repetitions).apply(np.eye(dim)).reshape(dim, repetitions, -1)
    assert (np.abs(matrix).sum(axis=2) == 1).all()
    lengths = np.abs(matrix).sum(axis=0)
    bins = k // repetitions
    length = -(-dim // bins)
    assert Oporp(dim, k, 3, repetitions).max_column_l1 == length
    assert lengths.max() <= length
    if dim % bins == 0:
        assert (lengths == length).all()


@folded(("dim", "k", "repetitions"), SHAPES)
@folded("dtype", [np.float32, np.float64])
def test_dense_sparse_and_definition_agree(dim, k, repetitions, dtype):
    rng = np.random.default_rng(dim)
    x = rng.integers(-4096, 4097, (9, dim)).astype(dtype)
    x[rng.random(x.shape) < 0.5] = 0
    x[4] = 0
    projection = Oporp(dim, k, 5, repetitions)
    wanted = x.astype(np.int64) @ definition(dim, k, 5, repetitions)
    dense = projection.apply(x)
    assert dense.dtype == dtype
    assert dense.shape == (9, k)
    np.testing.assert_array_equal(dense, wanted)
    np.testing.assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)
    for i in range(len(x)):  # a row alone has the bits it has in a batch
        np.testing.assert_array_equal(projection.apply(x[i : i + 1]), wanted[i : i + 1])


def test_input_is_left_alone_and_may_be_laid_out_in_any_way():
    x = np.random.default_rng(0).integers(-99, 100, (20, 22)).astype(np.float32)
    projection = Oporp(11, 4, 1)
    wanted = x[:, ::2].astype(np.int64) @ definition(11, 4, 1, 1)
    before = x.copy()
    np.testing.assert_array_equal(projection.apply(x[:, ::2]), wanted)
    np.testing.assert_array_equal(projection.apply(np.asfortranarray(x[:, ::2])), wanted)
    np.testing.assert_array_equal(x, before)
    assert projection.apply(x[:0, ::2]).shape == (0, 4)


@pytest.mark.parametrize(("dim", "k", "repetitions"), [(10, 6, 1), (12, 4, 1), (10, 12, 2)])
def test_sensitivity_by_brute_force(dim, k, repetitions):
    """Changing any one attribute by β moves one bin of each repetition by β, from any start."""
    beta = 4096
    x = np.random.default_rng(1).integers(-beta, beta + 1, (1, dim)).astype(np.float64)
    projection = Oporp(dim, k, 2, repetitions)
    neighbours = np.concatenate([x + beta * np.eye(dim), x - beta * np.eye(dim)])
    moved = projection.apply(neighbours) - projection.apply(x)
    change = moved.reshape(2 * dim, repetitions, k // repetitions)
    assert (np.abs(change).sum(axis=2) == beta).all()  # L1
    assert (np.sqrt((change**2).sum(axis=2)) == beta).all()  # L2
    assert (np.count_nonzero(change, axis=2) == 1).all()


def test_seed_dim_bins_and_repetition_all_matter():
    matrices = [
        Oporp(12, 4, 0).apply(np.eye(12)),
        Oporp(12, 4, 1).apply(np.eye(12)),
        *np.hsplit(Oporp(12, 8, 2, 2).apply(np.eye(12)), 2),
    ]
    for i, one in enumerate(matrices):
        for other in matrices[:i]:
            assert (one != other).any()
    np.testing.assert_array_equal(
        Oporp(12, 4, 2).apply(np.eye(12)), Oporp(12, 8, 2, 2).apply(np.eye(12))[:, :4]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "k", "repetitions"),
    [(12, 4, 1), (12, 12, 1), (10, 6, 1), (9, 8, 1), (8, 1, 1), (12, 12, 3)],
)
def test_inner_products_over_seeds(dim, k, repetitions):
    """E⟨x,y⟩ = ⟨u,v⟩, and the variance of Li & Li Thm 3.10 with p the padded dimension.

    6000 seeds; mean and variance within 6 standard errors (the variance's from the fourth moment
    of the same sample): a false alarm has probability below 1e-7 each, and the seeds are fixed. The
    tolerance on the variance is below 20 %. With k = dim the product is exact.
    """
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, dim))
    products = np.empty(6_000)
    for seed in range(len(products)):
        projection = Oporp(dim, k, seed, repetitions)
        x, y = projection.apply(np.stack([u, v])) * projection.scale
        products[seed] = x @ y
    padded = projection.bins * projection.max_column_l1
    factor = (padded - projection.bins) / max(1, padded - 1) / k
    variance = factor * ((u @ u) * (v @ v) + (u @ v) ** 2 - 2 * float((u**2 * v**2).sum()))
    assert projection.inner_product_factor == pytest.approx(factor)
    deviations = products - u @ v
    error = 6 / np.sqrt(len(products))
    assert abs(deviations.mean()) <= error * np.sqrt(variance) + 1e-12
    spread = (deviations**2).std()
    assert abs((deviations**2).mean() - variance) <= error * spread + 1e-12
    assert error * spread <= 0.2 * variance + 1e-12


def test_spread_is_the_root_mean_square_of_a_coordinate():
    """The squares of a unit vector add up to one over the k/t bins of a repetition."""
    projection = Oporp(12, 8, 0, 2)
    squares = projection.apply(np.eye(12)) ** 2
    assert squares.mean() == pytest.approx(projection.rms**2)


@folded(("dim", "k", "repetitions"), SHAPES)
def test_low_the_sensitivity_counts_every_repetition(dim, k, repetitions):
    """One attribute moves one bin of each repetition by its sign."""
    moved = np.abs(definition(dim, k, 0, repetitions)).sum(axis=1)
    stated = Oporp(dim, k, seed=0, repetitions=repetitions).sensitivity
    assert (moved == repetitions).all()
    assert (stated.count, stated.l1, stated.l2_squared) == (repetitions,) * 3
