"""The dense Rademacher projection: exact, portable, and every attribute in every coordinate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dpindex.projections import Rademacher
from dpindex.randomness import PublicStream, public

SHAPES = [(1, 1), (1, 9), (7, 1), (12, 12), (5, 64), (300, 33)]


def test_known_answer() -> None:
    """A published index relies on these bits: they may never change."""
    assert Rademacher(4, 6, seed=7).apply(np.eye(4)).tolist() == [
        [1, 1, 1, -1, 1, 1],
        [-1, -1, -1, 1, -1, 1],
        [1, -1, -1, 1, -1, -1],
        [-1, 1, 1, -1, 1, 1],
    ]


@pytest.mark.parametrize(("dim", "k"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_sparse_and_integers_agree(dim: int, k: int, dtype: type[np.floating]) -> None:
    signs = PublicStream(3, f"rademacher/{dim}/{k}").signs(dim * k).reshape(dim, k)
    # As large as float32 sums may be: 2^24 / dim.
    most = min(2**24 // dim, 2**20) if dtype == np.float32 else 2**40
    rng = np.random.default_rng(k)
    x = rng.integers(-most + 1, most, (40, dim)).astype(dtype)
    x[rng.random(x.shape) < 0.3] = 0
    wanted = x.astype(np.int64) @ signs.astype(np.int64)
    projection = Rademacher(dim, k, 3)
    dense = projection.apply(x)
    assert dense.dtype == dtype
    np.testing.assert_array_equal(dense, wanted)
    np.testing.assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)
    for i in range(5):  # a row alone has the bits it has in a batch
        np.testing.assert_array_equal(projection.apply(x[i : i + 1]), wanted[i : i + 1])


@pytest.mark.parametrize(("dim", "k"), SHAPES)
def test_sensitivity_by_brute_force(dim: int, k: int) -> None:
    """Changing one attribute by β moves every coordinate by β: L1 kβ, L2 √k β before the gain."""
    beta = 4096.0
    x = np.random.default_rng(1).integers(-4096, 4097, (1, dim)).astype(np.float64)
    projection = Rademacher(dim, k, 2)
    for sign in (1, -1):
        change = projection.apply(x + sign * beta * np.eye(dim)) - projection.apply(x)
        assert (np.abs(change) == beta).all()
        np.testing.assert_allclose(projection.scale * np.linalg.norm(change, axis=1), beta)
    assert projection.max_column_l1 == dim


def test_inner_products_over_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """E⟨x,y⟩ = ⟨u,v⟩ and Var = (‖u‖²‖v‖² + ⟨u,v⟩² − 2Σu_i²v_i²)/k (Li & Li 2023, Sec. 3).

    6000 seeds; within 6 standard errors each, so a false alarm has probability below 1e-7.
    """
    monkeypatch.setattr(public, "_BLOCK", 1024)  # shorter prefixes of the same stream: faster
    dim, k = 12, 4
    u, v = np.random.default_rng(0).normal(size=(2, dim))
    products = np.empty(6000)
    for seed in range(len(products)):
        projection = Rademacher(dim, k, seed)
        x, y = projection.apply(np.stack([u, v])) * projection.scale
        products[seed] = x @ y
    norms = (u @ u) * (v @ v) + (u @ v) ** 2
    variance = (norms - 2 * float((u**2 * v**2).sum())) / k
    deviations = products - u @ v
    error = 6 / np.sqrt(len(products))
    assert abs(deviations.mean()) <= error * np.sqrt(variance)
    assert abs((deviations**2).mean() - variance) <= error * (deviations**2).std()
    assert projection.inner_product_factor == 1 / k


def test_spread_is_the_root_mean_square_of_a_coordinate() -> None:
    projection = Rademacher(12, 8, 0)
    assert (projection.apply(np.eye(12)) ** 2).mean() == projection.rms**2
