"""Checks of arguments that several layers take, so that one mistake has one message."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.arrays import Vectors, canonical_csr
from dpindex.errors import InputError

__all__ = ["checked_delta", "checked_epsilon", "finite_number", "real_matrix", "whole_number"]

_MIN_EPSILON, _MAX_EPSILON = 1e-3, 64.0
_MIN_DELTA = 1e-30


def finite_number(value: Any, name: str, above: float | None = None) -> float:
    """``value`` as a float, if it is a real number (NumPy's too), finite and large enough."""
    try:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        number = float(value) if real else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {value!r}.")
    if above is not None and not number > above:
        raise InputError(f"{name} must be above {above:g}, not {value!r}.")
    return number + 0.0  # −0 becomes 0: equal numbers have equal text


def whole_number(value: Any, name: str, low: int, high: int) -> int:
    """``value`` as an int, if it is a whole number in [low, high]."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        whole = int(value) if real else low - 1
    except (ValueError, OverflowError):  # NaN and infinity
        whole = low - 1
    if not low <= whole <= high or whole != value:
        raise InputError(f"{name} must be a whole number from {low} to {high}, not {value!r}.")
    return whole


def checked_epsilon(value: Any) -> float:
    """An epsilon as a float in [0.001, 64]."""
    epsilon = finite_number(value, "epsilon", above=0.0)
    if not _MIN_EPSILON <= epsilon <= _MAX_EPSILON:
        raise InputError(
            f"epsilon must lie in [{_MIN_EPSILON:g}, {_MAX_EPSILON:g}], not {epsilon:g}."
        )
    return epsilon


def checked_delta(value: Any, name: str, max_delta: float = 1.0) -> float:
    """A delta that a mechanism called ``name`` needs, as a float in [1e-30, max_delta)."""
    delta = finite_number(value, "delta")
    if not _MIN_DELTA <= delta < max_delta:
        raise InputError(
            f"{name} needs a delta in [{_MIN_DELTA:g}, {max_delta:g}), for example 1e-6, not "
            f"{delta:g}: its guarantee is an approximate one."
        )
    return delta


def real_matrix(x: Vectors, columns: int, name: str = "vectors") -> Any:
    """Rows of real numbers as an ndarray or a canonical CSR matrix, shape (n, columns), n ≥ 1.

    A single vector of shape (columns,) is one row. The values themselves are not looked at.
    """
    if np.ma.isMaskedArray(x):
        raise InputError(f"{name} have a mask, which would be lost; fill the missing values.")
    rows: Any = x
    if not sparse.issparse(x):
        try:
            rows = np.asarray(x)
        except ValueError:
            raise InputError(f"{name} must all be equally long, and numbers.") from None
    if np.dtype(rows.dtype).kind not in "biuf":
        raise InputError(f"{name} must be real numbers, not {rows.dtype}.")
    if sparse.issparse(x):
        try:
            rows = canonical_csr(x) if x.ndim == 2 else x
        except ValueError as error:
            raise InputError(f"the sparse matrix is malformed: {error}.") from None
    elif rows.ndim == 1:
        rows = rows[None, :]
    if rows.ndim != 2:
        raise InputError(f"{name} must form a table of two dimensions, not {rows.ndim}.")
    if rows.shape[0] == 0:
        raise InputError(f"there are no {name}: the input has no rows.")
    if rows.shape[1] != columns:
        raise InputError(f"{name} have {rows.shape[1]} columns where {columns} are expected.")
    return rows
