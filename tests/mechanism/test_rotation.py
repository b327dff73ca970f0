"""Public rotations: orthogonal, the same on repeats, dense and sparse alike."""

import math

import numpy as np
import pytest
from helpers.common import folded, normal
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dpindex.mechanism import projections
from dpindex.mechanism.projections import Rotation, on_grid

SIZES = [(1, 64), (48, 64), (64, 64), (100, 64), (384, 128), (384, 512), (700, 1024)]


@folded("dim, k", SIZES)
def test_it_is_part_of_a_rotation(dim, k):
    """Where all places are kept its rows are orthogonal and equally long."""
    rotation = Rotation(dim, k, 0)
    matrix = rotation.apply(np.eye(dim)).astype(np.float64)
    padded = rotation.padded
    assert padded >= max(dim, k)
    if k == padded:
        assert_allclose(matrix @ matrix.T, k * np.eye(dim), atol=1e-3)
    if dim == padded:
        assert_allclose(matrix.T @ matrix, padded * np.eye(k), atol=1e-3)


@pytest.mark.slow
def test_inner_products_are_kept_on_average():
    rng = default_rng(0)
    x, y = rng.normal(size=(2, 384))
    y += x
    x /= np.linalg.norm(x)
    y /= np.linalg.norm(y)
    pair = np.stack([x, y])
    norms = np.abs(x).max() * np.abs(y).max()  # what apply divides by
    found = []
    for seed in range(150):
        rotation = Rotation(384, 64, seed)
        one, other = rotation.apply(pair).astype(np.float64)
        found.append(one @ other * norms * rotation.scale**2)
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - x @ y) < 6 * error
    factor = Rotation(384, 64, 0).inner_product_factor
    expected = (1 + (x @ y) ** 2) * factor
    assert np.var(found) == pytest.approx(expected, rel=0.5)


@folded("dim", [48, 5000])
def test_rows_alone_in_a_batch_and_sparse_are_the_same(dim):
    """With the map written out and without it."""
    map_ = Rotation(dim, 64, 1)
    x = normal(70, dim, 1)
    x[:, np.arange(dim) % 3 > 0] = 0
    x[7] = 0
    whole = map_.apply(x)
    alone = np.concatenate([map_.apply(row[None]) for row in x])
    assert_array_equal(alone, whole)
    assert_array_equal(map_.apply_sparse(sparse.csr_matrix(x)), whole)
    assert_array_equal(map_.apply(-x), -whole)
    assert not whole[7].any()
    assert whole.dtype == np.float32


def test_the_map_written_out_is_the_transform(monkeypatch):
    x = normal(30, 100, 1)
    written = Rotation(100, 64, 1).apply(x)
    monkeypatch.setattr(projections, "MAX_WRITTEN", 0)
    monkeypatch.setattr(projections, "matrix_product", None)
    assert_array_equal(Rotation(100, 64, 1).apply(x), written)


@folded("dtype", [np.int8, np.uint8, np.bool_, np.float16, np.int64])
def test_types(dtype):
    numbers = np.array([[-128, 1, 0], [0, 0, 0], [127, -1, 3]])
    x = numbers.astype(dtype)
    wide = x.astype(np.float64)
    most = np.abs(wide).max(axis=1, keepdims=True)
    wanted = wide / np.maximum(most, 1e-300)
    assert_allclose(on_grid(x), wanted * 2**20, atol=0.6)
    if dtype is not np.float16:
        dense = Rotation(3, 64, 0).apply(x)
        thin = Rotation(3, 64, 0).apply_sparse(sparse.csr_matrix(x))
        assert_array_equal(thin, dense)


def test_single_and_double_precision_are_the_same():
    """Where doubles hold no more than floats do; tiny and huge values too."""
    x = normal(300, 40).astype(np.float32)
    x[0] *= np.float32(1e38) / np.abs(x[0]).max()
    x[1] *= np.float32(1e-40)
    x[2, 1:] *= np.float32(1e-30)
    assert_array_equal(on_grid(x), on_grid(x.astype(np.float64)))
    extreme = np.array([[1e308, -1e308, 5e-324]])
    assert np.isfinite(on_grid(extreme)).all()
