"""Checks of what a person hands over: tables of vectors, numbers, and objects of JSON."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray, Vectors, canonical_csr, is_masked, issparse
from dpindex.base.errors import InputError
from dpindex.base.tables import as_matrix, as_table

Fault = tuple[tuple[int, ...], str]
"""The index of a value, and what is wrong with it."""


def real_matrix(
    x: Vectors,
    columns: int,
    name: str = "vectors",
    min_rows: int = 1,
) -> Any:
    """Rows of real numbers as an ndarray or a canonical CSR matrix, shape (n, columns).

    A single vector of shape (columns,) is one row. The values themselves are not looked at.
    """
    # An array of numbers is asked nothing more: small adds and searches are mostly such questions.
    is_plain = type(x) is np.ndarray and x.dtype != object
    if not is_plain and is_masked(x):
        raise InputError(f"{name} have a mask, which would be lost; fill the missing values.")
    is_sparse = not is_plain and issparse(x)
    rows: Any = x if is_plain or is_sparse else as_table(x, name)
    if np.dtype(rows.dtype).kind not in "biuf":
        raise InputError(f"{name} must be real numbers, not {rows.dtype}.")
    if rows.ndim == 1:
        rows = rows.reshape(1, -1)
    if rows.ndim != 2:
        remedy = as_matrix(rows.ndim)
        raise InputError(f"{name} must form a table of two dimensions, not {rows.ndim}; {remedy}.")
    try:
        rows = canonical_csr(rows) if is_sparse else rows
    except ValueError as error:
        raise InputError(f"the sparse matrix is malformed: {error}.") from None
    if rows.shape[0] < min_rows:
        raise InputError(f"there are no {name}: the input has no rows.")
    if rows.shape[1] != columns:
        raise InputError(f"{name} have {rows.shape[1]} columns where {columns} are expected.")
    return rows


def not_finite(values: AnyArray) -> Fault | None:
    """The index of the first NaN or infinity, and which of them it is; None if there is none."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    place = tuple(np.argwhere(~finite)[0].tolist())
    kind = "infinite"
    if np.isnan(values[place]):
        kind = "NaN"
    return place, f"is {kind}; every value must be a finite number"


def check_values(
    rows: Any,
    first_row: int = 0,
    find: Callable[[AnyArray], Fault | None] = not_finite,
) -> None:
    """Refuse an ndarray or CSR matrix with a value in which ``find`` finds a fault, naming it.

    By default NaN and infinities are refused.
    """
    is_sparse = not isinstance(rows, np.ndarray)
    if fault := find(rows.data if is_sparse else rows):
        place, what = fault
        if is_sparse:
            row = int(np.searchsorted(rows.indptr, place[0], side="right")) - 1
            place = (row, int(rows.indices[place]))
        raise InputError(f"row {first_row + place[0]}, column {place[1]} {what}.")


_MIN_EPSILON = 1e-3
_MAX_EPSILON = 64.0
_MIN_DELTA = 1e-30


def finite_number(
    value: Any,
    name: str,
    above: float | None = None,
) -> float:
    """``value`` as a float, if it is a real number (NumPy's too), finite and large enough."""
    number = math.nan
    if _is_real(value):
        with suppress(OverflowError):  # a whole number that no float holds
            number = float(value)
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {value!r}.", field=name)
    if above is not None and not number > above:
        raise InputError(f"{name} must be above {above:g}, not {value!r}.", field=name)
    return number + 0.0  # −0 becomes 0: equal numbers have equal text


def whole_number(
    value: Any,
    name: str,
    low: int,
    high: int,
) -> int:
    """``value`` as an int, if it is a whole number in [low, high]."""
    whole = low - 1
    if _is_real(value):
        with suppress(ValueError, OverflowError):  # NaN and infinity
            whole = int(value)
    if not low <= whole <= high or whole != value:
        raise InputError(
            f"{name} must be a whole number from {low} to {high}, not {value!r}.",
            field=name,
        )
    return whole


def at_least_one(value: Any, name: str) -> int:
    """``value`` as an int, if it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {value!r}.", field=name)
    return int(value)


def _is_real(value: Any) -> bool:
    """Whether it is a real number, NumPy's too, and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def checked_epsilon(value: Any) -> float:
    """An epsilon as a float in [0.001, 64]."""
    epsilon = finite_number(value, "epsilon", above=0.0)
    if not _MIN_EPSILON <= epsilon <= _MAX_EPSILON:
        raise InputError(
            f"epsilon must lie in [{_MIN_EPSILON:g}, {_MAX_EPSILON:g}], not {epsilon:g}."
        )
    return epsilon


def checked_delta(
    value: Any,
    name: str,
    max_delta: float = 1.0,
) -> float:
    """A delta that a mechanism called ``name`` needs, as a float in [1e-30, max_delta)."""
    delta = finite_number(value, "delta")
    if not _MIN_DELTA <= delta < max_delta:
        raise InputError(
            f"{name} needs a delta in [{_MIN_DELTA:g}, {max_delta:g}), for example 1e-6, not "
            f"{delta:g}: its guarantee is an approximate one."
        )
    return delta


MAX_TEXT = 1 << 20
"""Bytes of the JSON text of a spec, which may name the ranges of some ten thousand columns."""

_Object = TypeVar("_Object")
_Kind = TypeVar("_Kind", bound="Narrowed")


def json_value(text: str | bytes, name: str) -> Any:
    """The value of a JSON text of at most 1 MiB."""
    if len(text) > MAX_TEXT:
        raise InputError(f"{name} is not valid JSON: it has over {MAX_TEXT} characters.")
    try:
        return json.loads(text, object_pairs_hook=unique_fields)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not valid JSON: {error}.") from None


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; ValueError for a name that stands there twice.

    Which value counts is up to each reader, so that people and programs may read two epsilons.
    """
    fields_read = dict(pairs)
    if len(fields_read) < len(pairs):
        raise ValueError("an object has a name twice")
    return fields_read


def checked_fields(data: Any, cls: Any, name: str) -> dict[str, Any]:
    """``data``, if it is a dict of fields of the dataclass ``cls`` and lacks no required one."""
    if not isinstance(data, dict):
        raise InputError(f"{name} must be an object with fields.")
    strange = set(data) - {field.name for field in fields(cls)}
    if strange:
        raise InputError(f"{name} has an unknown field {min(strange, key=str)!r}.")
    for field in fields(cls):
        if field.default is MISSING and field.name not in data:
            raise InputError(f"{name} lacks the field {field.name!r}.")
    return data


def from_kind(
    data: Any,
    kinds: Mapping[str, type[_Object]],
    name: str,
) -> _Object:
    """The object of a dataclass in the table ``kinds`` that ``{"kind": …, field: …}`` describes."""
    kind = None
    if isinstance(data, dict):
        kind = data.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{name} must be an object whose kind is {' or '.join(kinds)}.")
    rest = {field: value for field, value in data.items() if field != "kind"}
    return kinds[kind](**checked_fields(rest, kinds[kind], f"{name} {kind}"))


class Narrowed:
    """A class of objects that a caller takes for those of one of its subclasses."""

    @classmethod
    def of(cls: type[_Kind], given: Narrowed) -> _Kind:
        """Return what is given as one of this class; TypeError if it is of another one.

        >>> Narrowed.of(Narrowed()) is None
        False
        """
        if not isinstance(given, cls):
            raise TypeError(f"{type(given).__name__} is no {cls.__name__}")
        return given
