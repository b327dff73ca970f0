"""Checks of numbers and of JSON that a person hands over."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError

_MIN_EPSILON = 1e-3


_MAX_EPSILON = 64.0


_MIN_DELTA = 1e-30


MAX_TEXT = 1 << 20
"""Bytes of the JSON text of a spec, which may name the ranges of some ten thousand columns."""


_Object = TypeVar("_Object")


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
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
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


def json_value(text: str | bytes, name: str) -> Any:
    """The value of a JSON text of at most 1 MiB."""
    if len(text) > MAX_TEXT:
        raise InputError(f"{name} is not valid JSON: it has over {MAX_TEXT} characters.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not valid JSON: {error}.") from None


def json_columns(columns: Mapping[str, AnyArray]) -> dict[str, list[Any]]:
    """Return arrays by name as lists of plain values: JSON has no NaN, so None is in its place.

    >>> json_columns({"score": np.array([0.5, np.nan]), "id": np.array([7, 9])})
    {'score': [0.5, None], 'id': [7, 9]}
    """
    lists = {}
    for name, column in columns.items():
        values = column.astype(object)
        if column.dtype.kind == "f":
            values[~np.isfinite(column)] = None
        elif column.dtype.kind == "O":
            is_bad = [isinstance(one, float) and not math.isfinite(one) for one in column.flat]
            values[np.reshape(is_bad, column.shape).astype(np.bool_)] = None
        lists[name] = values.tolist()
    return lists


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
