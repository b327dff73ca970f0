"""Unit vectors, of which a projection makes its entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.mechanism.spec import Spec

__all__ = ["unit_vectors"]

_CHUNK_ENTRIES = 1 << 22


def unit_vectors(spec: Spec, count: int | None = None) -> Iterator[tuple[slice, Any]]:
    """Yield the first ``count`` unit vectors, or all, some at a time: their attributes, and a CSR.

    >>> spec = Spec("dp-oporp-staircase", dim=3, k=3, epsilon=1.0)
    >>> [(attributes, unit.toarray().tolist()) for attributes, unit in unit_vectors(spec, 2)]
    [(slice(0, 2, None), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])]
    """
    if count is None:
        count = spec.dim
    rows = max(1, _CHUNK_ENTRIES // max(spec.dim, spec.code_length))
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        unit = sparse.eye(stop - start, spec.dim, start, np.float32, "csr")
        yield slice(start, stop), unit
