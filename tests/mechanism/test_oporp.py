"""OPORP against the oracle, which places attribute by attribute."""

import numpy as np
from helpers.specs import folded
from independent.oracle import oporp
from numpy.testing import assert_array_equal
from scipy import sparse

from dpindex.mechanism.projections.dense import Oporp

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
    """The matrix of the oracle."""
    spec = {"dim": dim, "k": k, "seed": seed, "repetitions": repetitions}
    return np.array(oporp(spec).matrix, dtype=np.int64)


def test_known_answer():
    """A published index relies on these bits: they may never change."""
    assert Oporp(11, 8, seed=7, repetitions=2).apply(np.eye(11)).tolist() == EXPECTED


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
    assert_array_equal(dense, wanted)
    assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)
    for i in range(len(x)):  # a row alone has the bits it has in a batch
        assert_array_equal(projection.apply(x[i : i + 1]), wanted[i : i + 1])


@folded(("dim", "k", "repetitions"), SHAPES)
def test_low_the_sensitivity_counts_every_repetition(dim, k, repetitions):
    """One attribute moves one bin of each repetition by its sign."""
    moved = np.abs(definition(dim, k, 0, repetitions)).sum(axis=1)
    stated = Oporp(dim, k, seed=0, repetitions=repetitions).sensitivity
    assert (moved == repetitions).all()
    assert (stated.count, stated.l1, stated.l2_squared) == (repetitions,) * 3
