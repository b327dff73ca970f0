"""Checks of scalar parameters and of matrices, in the one voice that every message has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.arrays import Floats, Vectors
from dpindex.errors import InputError

__all__ = ["box", "matrix", "number", "whole"]


def whole(value: Any, name: str, least: int, most: int) -> int:
    """A whole number in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, not {value!r}.")
    if not least <= value <= most:
        raise InputError(f"{name} must lie in [{least}, {most}], not {value}.")
    return int(value)


def number(value: Any, name: str, *, above: float | None = None) -> float:
    """A finite number, above ``above`` if that is given."""
    real = isinstance(value, int | float | np.integer | np.floating)
    if not real or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, not {value!r}.")
    if above is not None and value <= above:
        raise InputError(f"{name} must be above {above:g}, not {value!r}.")
    return float(value)


def matrix(x: Vectors, dim: int, name: str) -> Any:
    """Vectors as an ndarray or CSR matrix of real numbers, shape (n, dim); (dim,) is one row."""
    if np.ma.isMaskedArray(x):
        raise InputError(f"{name} have a mask, which would be lost; fill the missing values.")
    if sparse.issparse(x):
        rows: Any = sparse.csr_matrix(x)
    else:
        rows = np.asarray(x)
        if rows.ndim == 1:
            rows = rows[None, :]
    if np.dtype(rows.dtype).kind not in "biuf":
        raise InputError(f"{name} must be real numbers, not {rows.dtype}.")
    if rows.ndim != 2 or rows.shape[1] != dim:
        shape = " × ".join(str(length) for length in rows.shape)
        raise InputError(f"{name} must have {dim} columns; the shape is {shape}.")
    return rows


def box(bounds: Any, name: str, dim: int) -> tuple[Floats, Floats]:
    """``(low, high)``, numbers or one for each of ``dim`` columns, as arrays of shape (dim,)."""
    try:
        low, high = (np.broadcast_to(np.asarray(b, dtype=np.float64), (dim,)) for b in bounds)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be (low, high), numbers or one for each column.") from None
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise InputError(f"{name} must be finite, each low below its high.")
    return low, high
