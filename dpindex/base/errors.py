"""The errors that a user meets, and checks of numbers and of JSON that raise them.

Every error is an :class:`InputError`. A subclass exists where a caller must tell the cause apart.
One warning is of results that mean little.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, TypeVar


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong, where, and what to do.

    Parameters
    ----------
    sentence : str
    field : str
        The parameter to change, such as "ids", or several, as "ids, ledger". Where the sentence
        does not name it, it is appended in parentheses; the command line appends its own options.

    >>> print(InputError("give every vector an id.", field="ids"))
    give every vector an id (ids).
    >>> print(InputError("beta must be above 0, not -1.", field="beta"))
    beta must be above 0, not -1.
    """

    def __init__(self, sentence: str, *, field: str = "") -> None:
        super().__init__(sentence)
        self.field = field

    def __str__(self) -> str:
        return self.pointing_at(self.field)

    def pointing_at(self, name: str) -> str:
        """Return the sentence, with a name of what to change at its end unless it is in it."""
        sentence = str(self.args[0])
        if name in sentence:
            return sentence
        return f"{sentence.removesuffix('.')} ({name})."


class NoGuaranteeError(InputError):
    """These parameters have no mechanism: no proof covers them, or no code can hold the noise.

    >>> from dpindex import Spec, attribute
    >>> try:
    ...     Spec("dp-signrp-rr", dim=8, epsilon=1.0, delta=1e-6, adjacency=attribute(1.0))
    ... except NoGuaranteeError as error:
    ...     print(str(error)[:40])
    dp-signrp-rr with a delta needs min_norm
    """


class NoDenoiserError(InputError):
    """No denoiser can be learned: the method has none or no noise, or the codes say too little."""


class DamagedError(InputError):
    """A file is damaged, cut off, of another version, or not of the expected kind.

    >>> from dpindex import codes_from_bytes
    >>> try:
    ...     codes_from_bytes(b"other bytes")
    ... except DamagedError as error:
    ...     print(error)
    these bytes hold no dpindex codes.
    """


class BusyError(InputError):
    """Another process holds the lock of an index or a ledger.

    Whoever waits may try again; what was asked for has not happened.

    >>> issubclass(BusyError, InputError)
    True
    """


class StorageError(InputError):
    """A file or an object store cannot be read or written: missing, full, denied, unreachable.

    >>> from dpindex.data import open_vectors
    >>> try:
    ...     open_vectors("nowhere.npy")
    ... except StorageError as error:
    ...     print(error)
    nowhere.npy: No such file or directory; check the path.
    """


class MissingPackageError(InputError):
    """A package of an optional extra is not installed."""


class QualityWarning(UserWarning):
    """The release is private as stated, but its results mean little.

    >>> issubclass(QualityWarning, UserWarning)
    True
    """


@contextmanager
def naming(name: str, *, but: Collection[str] = ()) -> Iterator[None]:
    """Let the sentence of an :class:`InputError` begin with the name of the file it is about.

    The error keeps its class. One about a parameter in ``but`` is not about the file.

    >>> with naming("x.npy"):
    ...     raise InputError("row 3 is empty.")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: x.npy: row 3 is empty.
    """
    try:
        yield
    except InputError as error:
        sentence = str(error.args[0])
        if error.field not in but and not sentence.startswith(name):
            error.args = (f"{name}: {sentence}",)
        raise


_MAX_REASON = 200


def escaped(text: str) -> str:
    r"""Return text on one line, in which characters that cannot be printed are Python's escapes.

    >>> print(escaped("year\n\x1b[2Jepsilon = 0.1"))
    year\n\x1b[2Jepsilon = 0.1
    """
    letters = []
    for letter in text:
        if not letter.isprintable():
            letter = ascii(letter)[1:-1]
        letters.append(letter)
    return "".join(letters)


def one_line(error: object) -> str:
    r"""Return what an error of another library says, on one line of at most 200 characters.

    >>> one_line(ValueError("no such\n  column"))
    'no such column'
    """
    return " ".join(str(error).split())[:_MAX_REASON]


def refuse_unprintable(names: Iterable[str], kind: str) -> None:
    r"""Refuse names that could forge what is printed around them.

    Raises
    ------
    InputError
        For a name with a line break, an escape sequence or another character that is not printed.

    >>> refuse_unprintable(["year", "a\nb"], "column")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: the name of column 'a\nb' has characters that cannot be ...
    """
    for name in names:
        if not name.isprintable():
            raise InputError(
                f"the name of {kind} {escaped(repr(name))} has characters that cannot be printed;"
                " rename it."
            )


EXTRAS = {
    "accounting": "dp-accounting",
    "cloud": "obstore pyarrow",
    "dask": "distributed",
    "duckdb": "duckdb pyarrow",
    "embed": "pyarrow",
    "eval": "jinja2 pillow",
    "io": "h5py pyarrow",
    "lance": "lancedb",
    "langchain": "langchain-core",
    "model2vec": "model2vec",
    "milvus": "pymilvus milvus-lite==2.5.1 setuptools~=80.9 pyarrow",
    "plot": "matplotlib",
    "postgres": "psycopg[binary] pyarrow",
    "serve": "starlette uvicorn",
}
"""Packages of each extra. Messages name them: pip finds them wherever dpindex came from."""


def import_extra(module: str, need: str, extra: str) -> Any:
    """The module of that name; InputError, which states the ``need``, if it is not installed.

    >>> import_extra("no_such_module", "pictures need matplotlib", "io")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.MissingPackageError: pictures need matplotlib; run pip install h5py pyarrow.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError(f"{need}; run pip install {EXTRAS[extra]}.") from error


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
