"""Public ranges of a table's columns, and vectors brought to 0 … 1 by them."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpindex.base.arrays import AnyArray, Doubles, Floats, Vectors
from dpindex.base.checks import MAX_TEXT, checked_fields
from dpindex.base.errors import InputError, naming
from dpindex.base.files import AnyPath, parse_file
from dpindex.base.ids import id_array
from dpindex.base.tables import column_names
from dpindex.data.source import VectorSource, as_source

_HEADER = ["column", "low", "high"]
_DECIDING = 0.8
_EXACT = 2**53
"""Whole numbers up to here are floats as they are."""
_SHOWN = 12


@dataclass(frozen=True)
class Ranges:
    """The public range of every column of a table: think of a scaler that learns nothing.

    A value x of a column becomes (x − low) / (high − low), so that its range becomes 0 … 1. Values
    outside the range stay outside, for the spec's bounds to refuse or to clip. Ranges are published
    in effect: take them from a data sheet or from public data, never from the private table, whose
    largest value is private. Queries, and all vectors of one index, need the same ranges.

    Parameters
    ----------
    columns : sequence of str
        Names, in the order of the columns.
    lows, highs : sequence of float
        Ends of the ranges, low < high.

    Raises
    ------
    InputError
        For a range that is empty, constant or not finite, a name that stands twice, and sequences
        of other lengths.

    >>> ranges = Ranges(("age", "income"), (0, 0), (120, 1_000_000))
    >>> ranges.scale([[30, 50_000]]).tolist()
    [[0.25, 0.05]]
    """

    columns: tuple[str, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def __post_init__(self) -> None:
        names = tuple(map(str, self.columns))
        lows = tuple(map(float, self.lows))
        highs = tuple(map(float, self.highs))
        if not len(names) == len(lows) == len(highs) or not names:
            raise InputError(
                f"ranges need a low and a high for each column, not {len(lows)} and {len(highs)} "
                f"for {len(names)}."
            )
        times = Counter(names)  # names that are counted one by one cost their square
        for name, low, high in zip(names, lows, highs, strict=True):
            if times[name] > 1:
                raise InputError(f"column {name!r} has two ranges; leave one out.")
            if not np.isfinite([low, high, high - low]).all():
                raise InputError(f"the range of column {name!r} must be finite.")
            if low == high:
                raise InputError(
                    f"column {name!r} is a constant, {low:g}: it tells no rows apart; leave the "
                    f"column out of the vectors, or give its range."
                )
            if low > high:
                raise InputError(
                    f"the range of column {name!r} needs low < high, not {low:g} to {high:g}."
                )
        fields = {"columns": names, "lows": lows, "highs": highs}
        for name, values in fields.items():
            object.__setattr__(self, name, values)

    @classmethod
    def read(cls, path: AnyPath) -> Ranges:
        """Read a .csv file whose first line is ``column,low,high``.

        It has a line for each column, in the order of the columns; or these are numbers from 0, in
        any order.

        Raises
        ------
        InputError
            For a file that is none, which the sentence begins with.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = folder + "/ranges.csv"
        ...     with open(path, "w") as file:
        ...         _ = file.write("column,low,high\\nage,0,120\\nincome,0,1e6\\n")
        ...     Ranges.read(path).highs
        (120.0, 1000000.0)
        """
        return parse_file(path, MAX_TEXT, cls._parsed)

    @classmethod
    def _parsed(cls, data: bytes) -> Ranges:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError("it is not text in UTF-8; save it again.") from None
        lines = list(filter(None, csv.reader(io.StringIO(text))))
        if not lines or [cell.strip().lower() for cell in lines[0]] != _HEADER:
            raise InputError("its first line must be column,low,high.")
        rows = []
        for number, cells in enumerate(lines[1:], 2):
            try:
                name, low, high = cells
                rows.append((name.strip(), float(low), float(high)))
            except ValueError:
                raise InputError(
                    f"line {number} must hold a column and two numbers, low and high."
                ) from None
        numbers = {str(number) for number in range(len(rows))}
        if {name for name, _, _ in rows} == numbers:
            rows.sort(key=lambda row: int(row[0]))
        columns = [()] * 3
        if rows:
            columns = list(zip(*rows, strict=True))
        return cls(*columns)

    def scale(self, vectors: Vectors) -> Doubles:
        """Return vectors with every column's range brought to 0 … 1, shape (n, p).

        In float64, whatever the type of the vectors: the proof of a guarantee has room for its
        roundings, and none for two more of float32.

        Raises
        ------
        InputError
            For vectors that are no matrix of real numbers, that are sparse, or that have another
            number of columns.

        >>> Ranges(("t",), (15,), (25,)).scale([[20.0], [30.0]]).tolist()
        [[0.5], [1.5]]
        """
        scaled = self.source(as_source(vectors, "the vectors"))
        return np.asarray(scaled.read())

    def unscale(self, vectors: Floats) -> Doubles:
        """Return scaled vectors, shape (n, p), in the units of the data again.

        >>> Ranges(("t",), (15,), (25,)).unscale(np.array([[0.5]])).tolist()
        [[20.0]]
        """
        lows, highs = np.array([self.lows, self.highs])
        return np.asarray(lows + vectors * (highs - lows))

    def source(self, source: VectorSource) -> VectorSource:
        """Return a source of the same vectors, scaled chunk by chunk; closing it closes both.

        Raises
        ------
        InputError
            For sparse vectors, and another number or order of columns.

        >>> Ranges(("t",), (15,), (25,)).source(as_source([[20.0]])).read().tolist()
        [[0.5]]
        """
        if source.is_sparse:
            raise InputError(f"{source.name}: sparse vectors take no ranges, which move zeros.")
        self.check_columns(source.shape[1], source.name)
        self.check_order(source.attributes, source.name)
        scaled = self.scaling(source.dtype)
        return source.mapped(scaled, np.dtype(np.float64))

    def __str__(self) -> str:
        """The ends of the ranges by the names of their columns, twelve columns at most."""
        columns = self.columns[:_SHOWN]
        ends = zip(columns, self.lows, self.highs, strict=False)
        shown = ", ".join(f"{name} {low:g} to {high:g}" for name, low, high in ends)
        more = ""
        if len(self.columns) > _SHOWN:
            more = f" and {len(self.columns) - _SHOWN} more"
        return (
            f"{self.digest[:8]}: {shown}{more}; each is brought to 0 … 1 first, so that distances "
            f"and changes are in ranges, and not in the units of the data"
        )

    def check_columns(self, columns: int, name: str) -> None:
        """Raise InputError, which begins with a name, for another number of columns."""
        if columns != len(self.columns):
            raise InputError(
                f"{name}: there are {len(self.columns)} ranges for {columns} columns; give one for "
                f"each, in their order."
            )

    def check_order(self, attributes: Sequence[str], name: str, *, field: str = "") -> None:
        """Raise InputError, which begins with a name, if of the attributes one has another's range.

        The ``field`` of the error is the parameter that held the vectors.

        Those that have numbers for names, or other names than the ranges, are taken in order. One
        column of lists has no names of attributes.
        """
        if len(attributes) != len(self.columns):
            return
        places = {own: place for place, own in enumerate(self.columns) if not own.isdecimal()}
        for place, own in enumerate(attributes):
            if places.get(own, place) != place:
                raise InputError(
                    f"{name}: {own!r} is column {place + 1} of the vectors and {places[own] + 1} "
                    f"of the ranges; bring both into one order.",
                    field=field,
                )

    def check_frame(self, vectors: Any, name: str) -> None:
        """Raise InputError as :meth:`check_order` if vectors are a frame with such columns.

        ``name`` is what the message calls them.
        """
        self.check_order(column_names(vectors), name)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {name: list(values) for name, values in vars(self).items()}

    @classmethod
    def from_dict(cls, data: Any) -> Ranges:
        """The inverse of :meth:`to_dict`; InputError if ``data`` is anything else."""
        try:
            return cls(**checked_fields(data, cls, "ranges"))
        except InputError:
            raise
        except (TypeError, ValueError):
            raise InputError("ranges must be {columns: […], lows: […], highs: […]}.") from None

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that tell ranges apart, whatever their columns are called."""
        text = repr((self.lows, self.highs))
        digest = hashlib.sha256(text.encode())
        return digest.hexdigest()[:16]

    def deciding(self, vectors: Vectors) -> list[tuple[str, float]]:
        """Return the columns that decide which rows are near, of *public* vectors.

        Parameters
        ----------
        vectors : array, shape (n, p)
            Public vectors before they are scaled, n ≥ 2.

        Returns
        -------
        The fewest columns that hold four fifths of the squared distance between two rows, each with
        its share, the largest first.

        Raises
        ------
        InputError
            For vectors that :meth:`scale` refuses.

        >>> ranges = Ranges(("a", "b", "c"), (0, 0, 0), (1, 1, 1000))
        >>> ranges.deciding([[0, 1, 1], [1, 0, 2], [0, 0, 3]])
        [('a', 0.5), ('b', 0.5)]
        """
        variances = self.scale(vectors).var(axis=0)
        shares = variances / max(float(variances.sum()), 1e-300)
        chosen: list[tuple[str, float]] = []
        held = 0.0
        for column in np.argsort(-shares, kind="stable"):
            if held >= _DECIDING:
                break
            share = float(shares[column])
            held += share
            name = self.columns[column]
            chosen.append((name, round(share, 2)))
        return chosen

    def scaling(self, dtype: np.dtype[Any]) -> Callable[[AnyArray], AnyArray]:
        """Return the function that scales chunks of ``dtype``; InputError if a range exceeds it.

        An end that the type rounds to a value beyond it is accepted there, as that end. Ranges
        themselves are not rounded: a change would count as more of a range than it is.
        """
        lows, highs = ends = np.array([self.lows, self.highs])
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                ends = ends.astype(dtype).astype(np.float64)
        inexact = np.abs(ends).max(axis=0) > _EXACT
        if dtype.kind in "iu" and inexact.any():
            column = self.columns[int(np.argmax(inexact))]
            raise InputError(
                f"the range of column {column!r} goes beyond 2^53, where floats do not tell whole "
                f"numbers apart, and small changes would become large ones; subtract its low end "
                f"from the column."
            )
        wide = ~np.isfinite(ends).all(axis=0)
        if wide.any():
            column = self.columns[int(np.argmax(wide))]
            raise InputError(
                f"the range of column {column!r} goes beyond {dtype} numbers, which end at "
                f"{np.finfo(dtype).max:g}; give the vectors as float32."
            )

        def scaled(chunk: AnyArray) -> AnyArray:
            values = chunk.astype(np.float64)
            is_low = (ends[0] <= values) & (values < lows)
            values = np.where(is_low, lows, values)
            is_high = (highs < values) & (values <= ends[1])
            values = np.where(is_high, highs, values)
            return np.asarray((values - lows) / (highs - lows))

        return scaled


def one_per_person(
    vectors: ArrayLike,
    persons: Sequence[Any],
    how: Literal["mean", "first"] = "mean",
) -> tuple[Doubles, AnyArray]:
    """Return one vector for each person, and the persons in sorted order.

    What is returned for a person depends on that person's vectors alone, so one release of it under
    ``adjacency=dpindex.record("person")`` hides everything that this person gave.

    Parameters
    ----------
    vectors : array of shape (n, dim)
    persons : sequence of n names or numbers
        Whose vector each row is. Names are published as ids, and are not protected.
    how : "mean" or "first"
        ``"mean"``: the mean direction, of norm 1 (rows count equally, whatever their norms; zeros
        where rows cancel out). ``"first"``: the person's first row as it is.

    Raises
    ------
    InputError
        If there is not one person for each row, for persons that cannot be ids, whole numbers of 64
        bits or strings, and for another ``how``.

    >>> vectors, persons = one_per_person([[1, 0], [0, 2], [3, 4]], ["ann", "ann", "bob"])
    >>> vectors.round(2).tolist(), persons.tolist()
    ([[0.71, 0.71], [0.6, 0.8]], ['ann', 'bob'])
    """
    rows = np.asarray(vectors, dtype=np.float64)
    with naming("persons"):
        labels = id_array(persons)
    if rows.ndim != 2 or labels.shape != (len(rows),):
        raise InputError(
            f"persons must name one person for each row of the vectors: got shapes {labels.shape} "
            f"and {rows.shape}."
        )
    names, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    if how == "first":
        return rows[first], names
    if how != "mean":
        raise InputError(f"how must be 'mean' or 'first', not {how!r}.")
    by_person = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    sums = np.add.reduceat(_at_norm_1(rows[by_person]), starts)
    return _at_norm_1(sums), names


def _at_norm_1(rows: Doubles) -> Doubles:
    """Return rows divided by their norms; rows of zeros stay zeros."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    directions: Doubles = rows / norms
    return directions
