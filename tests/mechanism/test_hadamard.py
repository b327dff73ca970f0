"""The fast Johnson–Lindenstrauss transform against its factors written out as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import hadamard

from dpindex.mechanism.projections.sparse import FastJL, walsh_hadamard

SHAPES = [(1, 1), (2, 3), (7, 4), (64, 8), (100, 33)]


def test_known_answer() -> None:
    """A published index relies on these integers: they may never change."""
    assert FastJL(4, 3, 7).apply(np.eye(4)).tolist() == FAST_JL


FAST_JL = [[-11, -24, -19], [-11, -22, -19], [-11, -24, 19], [-11, -22, 19]]


@pytest.mark.parametrize("size", [1, 2, 8, 256])
def test_walsh_hadamard(size: int) -> None:
    x = np.random.default_rng(0).integers(-99, 100, (5, size)).astype(np.float64)
    np.testing.assert_array_equal(walsh_hadamard(x.copy()), x @ hadamard(size))


def _matrix(projection: FastJL) -> np.ndarray[Any, Any]:
    """``D·H·P^T`` from the parts alone, dim × k."""
    spread = hadamard(projection.padded)[: projection.dim] * projection._signs[:, None]
    return np.asarray(spread @ projection._sparse.toarray().T)


@pytest.mark.parametrize(("dim", "k"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_fast_way_is_the_product_of_the_factors(dim: int, k: int, dtype: Any) -> None:
    projection = FastJL(dim, k, 3)
    x = np.random.default_rng(2).integers(-30, 31, (9, dim)).astype(dtype)
    x[:, ::3] = 0
    wanted = x.astype(np.float64) @ _matrix(projection)
    fast = projection.apply(x)
    assert fast.dtype == dtype
    np.testing.assert_array_equal(fast, wanted)
    np.testing.assert_array_equal(projection.apply_sparse(sparse.csr_matrix(x)), wanted)


@pytest.mark.parametrize(("dim", "k"), SHAPES)
def test_sensitivities_by_brute_force(dim: int, k: int) -> None:
    projection = FastJL(dim, k, 1)
    moved = np.abs(projection.apply(np.eye(dim)))
    sizes = projection.sensitivity
    assert sizes.l1 == max(1, moved.sum(axis=1).max())
    assert sizes.l2_squared == max(1, (moved**2).sum(axis=1).max())
    assert sizes.count == max(1, np.count_nonzero(moved, axis=1).max())
    np.testing.assert_array_equal(projection.largest, np.maximum(moved.max(axis=0), 1))
    assert projection.max_column_l1 >= moved.sum(axis=0).max()


@pytest.mark.slow
def test_inner_products_over_seeds() -> None:
    """Unbiased within 6 standard errors, the variance within 15 % of the factor's promise."""
    u, v = np.random.default_rng(0).normal(size=(2, 60))
    products, promised = np.empty(3000), 0.0
    for seed in range(len(products)):
        projection = FastJL(60, 8, seed)
        x, y = projection.apply(np.stack([u, v])) * projection.scale
        products[seed] = x @ y
        promised = projection.inner_product_factor
    variance = promised * ((u @ u) * (v @ v) + (u @ v) ** 2)
    deviations = products - u @ v
    assert abs(deviations.mean()) <= 6 * np.sqrt(variance / len(products))
    assert (deviations**2).mean() == pytest.approx(variance, rel=0.15)
