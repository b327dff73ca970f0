"""No projection: the raw coordinates, and what every projection of the table must hold to."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dpindex.mechanism.projections import Identity, Projection
from dpindex.mechanism.projections.dense import Oporp, Rademacher


def test_identity_changes_nothing() -> None:
    x = np.random.default_rng(0).integers(-9, 10, (5, 7)).astype(np.float32)
    identity = Identity(7)
    assert identity.apply(x) is x
    np.testing.assert_array_equal(identity.apply_sparse(sparse.csr_matrix(x)), x)
    assert (identity.dim, identity.k, identity.max_column_l1, identity.scale) == (7, 7, 1, 1.0)
    assert identity.inner_product_factor == 0.0
    assert identity.rms == pytest.approx(7**-0.5)


@pytest.mark.parametrize(
    "projection",
    [Identity(24), Oporp(24, 8, 1), Oporp(24, 36, 1, 3), Oporp(23, 9, 1), Rademacher(24, 10, 1)],
)
def test_facts_hold_for_the_map_in_use(projection: Projection) -> None:
    """``max_column_l1``, ``rms`` and ``scale`` against the explicit matrix of each map."""
    matrix = projection.apply(np.eye(projection.dim))
    assert matrix.shape == (projection.dim, projection.k)
    assert set(np.unique(matrix)) <= {-1.0, 0.0, 1.0}
    assert np.abs(matrix).sum(axis=0).max() == projection.max_column_l1
    assert (matrix**2).mean() == pytest.approx(projection.rms**2)
    # Squared norms keep their size: every attribute has weight 1 after the scale.
    np.testing.assert_allclose((matrix**2).sum(axis=1) * projection.scale**2, 1.0)
