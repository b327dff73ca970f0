"""Unit vectors, of which a projection makes its entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.base.arrays import row_blocks
from dpindex.mechanism.spec import Spec

__all__ = ["unit_vectors"]

_CHUNK_ENTRIES = 1 << 22


def unit_vectors(spec: Spec, count: int | None = None) -> Iterator[tuple[slice, Any]]:
    """Yield the first ``count`` unit vectors, or all, some at a time: their attributes, and a CSR.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=3, k=3, epsilon=1.0, adjacency=attribute(1.0))
    >>> [(attributes, unit.toarray().tolist()) for attributes, unit in unit_vectors(spec, 2)]
    [(slice(0, 2, None), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])]
    """
    if count is None:
        count = spec.dim
    for rows in row_blocks(count, _CHUNK_ENTRIES // max(spec.dim, spec.code_length)):
        unit = sparse.eye(rows.stop - rows.start, spec.dim, rows.start, np.float32, "csr")
        yield rows, unit
