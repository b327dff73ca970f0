"""Checks of arguments that several layers take, so that one mistake has one message."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Integers,
    Vectors,
    as_table,
    canonical_csr,
    is_masked,
    issparse,
)
from dpindex.base.errors import InputError

MAX_ID_LENGTH = 4096
"""Characters that an id may have."""

_MIN_EPSILON = 1e-3
_MAX_EPSILON = 64.0
_MIN_DELTA = 1e-30
_MAX_INT64 = np.iinfo(np.int64).max
_MAX_PADDED_BYTES = 1 << 30
_MAX_PADDING = 16
MAX_TEXT = 1 << 16
"""Bytes of the JSON text of a spec."""

_Object = TypeVar("_Object")

Fault = tuple[tuple[int, ...], str]
"""The index of a value, and what is wrong with it."""


def finite_number(value: Any, name: str, above: float | None = None) -> float:
    """``value`` as a float, if it is a real number (NumPy's too), finite and large enough."""
    try:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        number = float(value) if real else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{name} must be a finite number, not {value!r}.", field=name)
    if above is not None and not number > above:
        raise InputError(f"{name} must be above {above:g}, not {value!r}.", field=name)
    return number + 0.0  # −0 becomes 0: equal numbers have equal text


def whole_number(value: Any, name: str, low: int, high: int) -> int:
    """``value`` as an int, if it is a whole number in [low, high]."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        whole = int(value) if real else low - 1
    except (ValueError, OverflowError):  # NaN and infinity
        whole = low - 1
    if not low <= whole <= high or whole != value:
        raise InputError(
            f"{name} must be a whole number from {low} to {high}, not {value!r}.",
            field=name,
        )
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


def real_matrix(x: Vectors, columns: int, name: str = "vectors", min_rows: int = 1) -> Any:
    """Rows of real numbers as an ndarray or a canonical CSR matrix, shape (n, columns).

    A single vector of shape (columns,) is one row. The values themselves are not looked at.
    """
    if is_masked(x):
        raise InputError(f"{name} have a mask, which would be lost; fill the missing values.")
    is_sparse = issparse(x)
    try:
        rows: Any = x if is_sparse else as_table(x)
    except ValueError as error:
        detail = ""
        if str(error).startswith("row "):
            detail = f": {error}"
        raise InputError(f"{name} must all be equally long, and numbers{detail}.") from None
    if np.dtype(rows.dtype).kind not in "biuf":
        raise InputError(f"{name} must be real numbers, not {rows.dtype}.")
    if rows.ndim == 1 and not is_sparse:
        rows = rows[None, :]
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


def as_matrix(dimensions: int) -> str:
    """How an array ``x`` of another number of dimensions becomes a table of vectors."""
    if dimensions > 2:
        return "make each item one row with x.reshape(len(x), -1)"
    return "make a single vector one row with x.reshape(1, -1)"


def id_array(ids: Any, error: Callable[[str], InputError] = InputError) -> AnyArray:
    """Ids as a new array of shape (n,): int64, or strings of at most 4096 characters.

    ``ids`` is one id, or a list or array of whole numbers or of strings; ``error`` turns the
    sentence that refuses anything else into an exception.

    >>> id_array(range(3)), id_array("one")
    (array([0, 1, 2]), array(['one'], dtype='<U3'))
    """
    if isinstance(ids, np.ndarray):
        ids = np.atleast_1d(ids)
    elif isinstance(ids, str | int | np.integer):
        ids = [ids]
    if not isinstance(ids, np.ndarray) or ids.dtype.kind == "O":
        iterable = isinstance(ids, Iterable) and not isinstance(ids, bytes)
        ids = _array_of_list(list(ids) if iterable else [None], error)
    array: AnyArray = ids
    if not array.size and array.dtype.kind != "U":
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        found = f"{array.ndim} dimension(s) of type {array.dtype}"
        raise error(f"ids must be a list of whole numbers or of strings, not {found}.")
    if array.dtype.kind != "U":
        if int(array.max()) > _MAX_INT64:
            raise error(f"id {array.max()} is too large; ids must fit into 64-bit signed integers.")
        return array.astype(np.int64)
    array = array.astype(array.dtype.newbyteorder("="))
    # NumPy takes any 32 bits for a character, half a surrogate pair included.
    points = array.view(np.uint32)
    width = array.dtype.itemsize // 4
    wrong = np.flatnonzero((points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF)))
    if wrong.size:
        row = wrong[0] // width
        raise error(f"row {row} has an id that is not text; ids must be text that UTF-8 can hold.")
    if width > MAX_ID_LENGTH:
        check_id_lengths(np.char.str_len(array), error)
    return array


def other_kind_of_ids(has_text: bool, others: str) -> InputError:
    """Return the error for ids of another kind than those of an index.

    Parameters
    ----------
    has_text : bool
        The ids of the index are strings, and not whole numbers.
    others : str
        Which ids are of another kind, the subject of a sentence.
    """
    kind = "strings" if has_text else "whole numbers"
    return InputError(f"the ids of this index are {kind}; {others} must be {kind} too.")


def _array_of_list(values: list[Any], error: Callable[[str], InputError]) -> AnyArray:
    # NumPy would turn [1, "a"] into strings and [True] into numbers, and drop final NULs.
    if values and all(isinstance(value, str) for value in values):
        if any(value.endswith("\0") for value in values):
            raise error("an id ends with a NUL character; ids must be plain text.")
        check_id_lengths(np.fromiter(map(len, values), np.int64, len(values)), error)
        return np.array(values, dtype=np.str_)
    if all(isinstance(value, int | np.integer) and type(value) is not bool for value in values):
        try:
            return np.fromiter(map(int, values), np.int64, len(values))
        except OverflowError:
            raise error("ids must fit into 64-bit signed integers.") from None
    raise error("ids must be a list of whole numbers or of strings.")


def check_id_lengths(lengths: Integers, error: Callable[[str], InputError] = InputError) -> None:
    """Refuse strings with these numbers of characters as ids, if one array of them is too large.

    NumPy pads each to the longest; up to 1 GB, or 16 times what they need, is allowed.
    """
    longest = int(lengths.max(initial=0))
    count = len(lengths)
    if longest > MAX_ID_LENGTH:
        raise error(
            f"the id in row {int(np.argmax(lengths))} has {longest} characters; at most"
            f" {MAX_ID_LENGTH} are allowed."
        )
    if 4 * count * longest > max(_MAX_PADDED_BYTES, 4 * _MAX_PADDING * int(lengths.sum())):
        raise error(
            f"the longest id has {longest} characters, to which all {count} would be padded: that"
            " takes too much memory; shorten the long ones."
        )


def not_finite(values: AnyArray) -> Fault | None:
    """The index of the first NaN or infinity, and which of them it is; None if there is none."""
    finite = np.isfinite(values)
    if finite.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~finite)[0])
    kind = "NaN" if np.isnan(values[place]) else "infinite"
    return place, f"is {kind}; every value must be a finite number"


def check_values(
    rows: Any, first_row: int = 0, find: Callable[[AnyArray], Fault | None] = not_finite
) -> None:
    """Refuse an ndarray or CSR matrix with a value in which ``find`` finds a fault, naming it.

    By default NaN and infinities are refused.
    """
    is_sparse = issparse(rows)
    if fault := find(rows.data if is_sparse else rows):
        place, what = fault
        if is_sparse:
            row = int(np.searchsorted(rows.indptr, place[0], side="right")) - 1
            place = (row, int(rows.indices[place]))
        raise InputError(f"row {first_row + place[0]}, column {place[1]} {what}.")


def json_value(text: str | bytes, name: str) -> Any:
    """The value of a JSON text of at most 64 KiB."""
    if len(text) > MAX_TEXT:
        raise InputError(f"{name} is not valid JSON: it has over {MAX_TEXT} characters.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not valid JSON: {error}.") from None


def checked_fields(data: Any, cls: Any, name: str) -> dict[str, Any]:
    """``data``, if it is a dict of fields of the dataclass ``cls`` and lacks no required one."""
    if not isinstance(data, dict):
        raise InputError(f"{name} must be an object with fields.")
    known = {field.name: field.default is MISSING for field in fields(cls)}
    if strange := sorted(set(data) - set(known), key=str):
        raise InputError(f"{name} has an unknown field {strange[0]!r}.")
    if missing := [field for field, required in known.items() if required and field not in data]:
        raise InputError(f"{name} lacks the field {missing[0]!r}.")
    return data


def from_kind(data: Any, kinds: Mapping[str, type[_Object]], name: str) -> _Object:
    """The object of a dataclass in the table ``kinds`` that ``{"kind": …, field: …}`` describes."""
    kind = None
    if isinstance(data, dict):
        kind = data.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{name} must be an object whose kind is {' or '.join(kinds)}.")
    rest = {field: value for field, value in data.items() if field != "kind"}
    return kinds[kind](**checked_fields(rest, kinds[kind], f"{name} {kind}"))
