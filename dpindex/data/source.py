"""``VectorSource``: a matrix of vectors that is read in chunks, from a file or from memory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Indices,
    canonical_csr,
    is_masked,
    issparse,
    stacked,
)
from dpindex.base.checks import check_values
from dpindex.base.errors import (
    EXTRAS,
    InputError,
    StorageError,
    escaped,
    naming,
    one_line,
    refuse_unprintable,
)
from dpindex.base.files import AnyPath
from dpindex.base.tables import as_matrix, as_table, column_names
from dpindex.data.stores import is_url

MAX_RATIO = 1032
"""The largest factor by which a DEFLATE stream can grow; a file that claims more is damaged."""

CHUNK_NUMBERS = 1 << 22
SPARSE_ROWS = 4096

Chunk: TypeAlias = Any
"""An ``npt.NDArray`` or, from a sparse source, a ``scipy.sparse.csr_matrix``."""

Stream: TypeAlias = Callable[[range], Iterator[Chunk]]
"""From ``range(start, rows, size)`` to the chunks of ``size`` rows that begin there, in any byte
order and layout; the last ends with row ``rows``."""

Reader = TypeVar("Reader")


@dataclass(frozen=True)
class Location:
    """A regular, non-empty file, the key of an array in it, and what has to be closed with it.

    Of vectors that are in no file of their own there is the name alone, for messages.
    """

    name: str
    path: str = ""
    key: str | None = None
    size: int = 0
    resources: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

    def error(self, sentence: str, *, field: str = "") -> InputError:
        """The error that names the file; foreign names in its sentence are escaped."""
        return InputError(escaped(f"{self.name}: {sentence}"), field=field)

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names of columns, arrays or datasets that cannot be printed."""
        with naming(escaped(self.name)):
            refuse_unprintable(names, "column or array")

    def sole(
        self,
        arrays: Mapping[str, Any],
        fits: Callable[[Any], bool],
        held: str,
    ) -> Location:
        """The location with the key of the only array that fits.

        Raises InputError if there is not exactly one; ``held`` says what the file has, ``{}`` being
        their number.
        """
        keys = [key for key, array in arrays.items() if fits(array)]
        names = ", ".join(arrays) or "none"
        if not keys:
            raise self.error(f"it has {held.format('no')} ({names}); save the vectors as numbers.")
        if len(keys) > 1:
            raise self.error(f"it has {held.format(len(keys))} ({names}); name one as PATH:KEY.")
        return replace(self, key=keys[0])

    def check_matrix(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Refuse anything but a real matrix with at least one row and one column."""
        if not _is_real_type(dtype):
            raise self.error(f"its values are {dtype}; use bool, integers or floats of 16-64 bits.")
        if len(shape) != 2:
            raise self.error(f"it has {len(shape)} dimension(s), not 2; {as_matrix(len(shape))}.")
        if min(shape) < 1:
            raise self.error(f"it is {shape[0]} x {shape[1]}; it needs a row and a column.")

    def refuse_key(self) -> None:
        """Refuse the key of a file whose format has none."""
        if self.key is not None:
            raise self.error("files of this format have no keys; leave out the part after ':'.")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn whatever a parser raises on foreign bytes into one :class:`InputError`.

        Every exception is caught because zipfile, zlib, numpy, HDF5 and Arrow raise a dozen
        unrelated types for a damaged file and document none of them. The cause stays chained.
        """
        try:
            yield
        except InputError:
            raise
        except ImportError as error:
            needed = f"reading it needs {error.name}; run pip install {EXTRAS['io']}."
            raise self.error(needed) from error
        except MemoryError as error:
            needed = str(error) or f"it has {self.size} bytes"
            remedy = "save it as .npy, which is read in parts, or split it"
            raise self.error(f"not enough memory ({needed}); {remedy}.") from error
        except PermissionError as error:
            raise self.error("permission denied; make the file readable.") from error
        except Exception as error:
            reason = one_line(error) or type(error).__name__
            advice = "check that the file is whole and is what its suffix says"
            if "Python objects" in reason or "Object arrays" in reason:  # NumPy's words
                advice = "save numbers or text, such as array.astype(float)"
            raise self.error(f"cannot be read ({reason}); {advice}.") from error


def locate(
    location: AnyPath,
    readers: Mapping[str, Reader],
    what: str,
) -> tuple[Location, Reader]:
    """The file that ``PATH`` or ``PATH:KEY`` names, and the reader of its suffix."""
    name = os.path.expanduser(os.fsdecode(location))
    path, key = split_key(name)
    try:
        status = os.stat(path)
    except ValueError as error:  # a null byte
        raise InputError(f"{name!r} cannot be the name of a file.") from error
    except OSError as error:
        reason = error.strerror or "it cannot be found"
        raise StorageError(f"{name}: {reason}; check the path.") from error
    file = Location(name, path, key, status.st_size)
    if stat.S_ISDIR(status.st_mode):
        raise file.error("this is a directory; name a file in it.")
    if not stat.S_ISREG(status.st_mode):
        raise file.error("this is not a regular file; save the vectors to one first.")
    if file.size == 0:
        raise file.error("the file is empty; write it again.")
    _, suffix = os.path.splitext(path.lower())
    if suffix not in readers:
        fault = f"no {what} has the suffix {suffix!r}"
        if not suffix:
            fault = "its name has no suffix to say what it holds"
        raise file.error(f"{fault}; use one of {', '.join(readers)}.")
    return file, readers[suffix]


def split_key(name: str) -> tuple[str, str | None]:
    """Path or URL, and key; what exists as written has no key."""
    if is_url(name):
        path, _, key = name.rpartition(":")
        if key.startswith("//"):
            return name, None
        return path, key
    path = name
    while not os.path.exists(path):
        # From the right, so that a file 'a:b.npz' is found in 'a:b.npz:key'.
        path, colon, _ = path.rpartition(":")
        if not colon:
            return name, None
    key = name.removeprefix(path)
    if not key:
        return name, None
    return path, key[1:]


def _is_real_type(dtype: np.dtype[Any]) -> bool:
    """Whether vectors may have this dtype: bool, any integer, or a float of at most 64 bits."""
    if dtype.kind == "f":
        return dtype.itemsize <= 8
    return dtype.kind in "biu"


def is_matrix(array: Any) -> bool:
    """Whether an array, or what stands for one in a file, has the form of vectors."""
    return len(array.shape or ()) == 2 and _is_real_type(array.dtype)


def by_rows(read_rows: Callable[[int, int], Chunk]) -> Stream:
    """The stream of a function that reads any range of rows, given as ``start`` and ``stop``."""

    def stream(firsts: range) -> Iterator[Chunk]:
        for first in firsts:
            yield read_rows(first, min(first + firsts.step, firsts.stop))

    return stream


def clipped(vectors: Any, low: float, high: float) -> Any:
    """Return an array, or a CSR matrix within whose limits zero lies, clipped."""
    wide = vectors.astype(np.result_type(vectors.dtype, np.float16))  # a copy
    values = wide
    if issparse(vectors):
        values = wide.data
    np.clip(values, low, high, out=values)
    return wide


class VectorSource(AbstractContextManager["VectorSource"]):
    """A matrix of vectors that is read a few rows at a time.

    Get one from :func:`open_vectors` or :func:`as_source`; close it, or use it in a ``with``.
    Values are passed on as they are stored, NaN and infinity included: their user checks them. Use
    one source in one thread at a time.

    Parameters
    ----------
    location : Location
        How the user named the source, for messages.
    shape, dtype, is_sparse
        As below.
    stream : callable
        Yields the rows from a given one on.
    attributes : sequence of str
        As below.

    Attributes
    ----------
    name : str
        The source as the user named it; every error message begins with it.
    shape : (int, int)
        Rows and columns, both at least 1.
    dtype : numpy.dtype
        bool, integer or float16/32/64, in the machine's byte order.
    is_sparse : bool
        Whether chunks are ``scipy.sparse.csr_matrix`` (with sorted indices and no duplicates)
        rather than C-contiguous arrays.
    attributes : tuple of str
        Names of the columns, if they have any.

    >>> with as_source([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "three vectors") as source:
    ...     print(source.name, source.shape, source.dtype, source.is_sparse)
    ...     for first, chunk in source.chunks(2):
    ...         print(first, chunk.tolist())
    three vectors (3, 2) float64 False
    0 [[1.0, 2.0], [3.0, 4.0]]
    2 [[5.0, 6.0]]
    """

    def __init__(
        self,
        location: Location,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        stream: Stream,
        *,
        is_sparse: bool = False,
        attributes: Sequence[str] = (),
    ) -> None:
        location.check_matrix(shape, dtype)
        self.name = location.name
        rows, columns = shape
        self.shape = (int(rows), int(columns))
        self.dtype = dtype.newbyteorder("=")
        self.is_sparse = is_sparse
        self.attributes = tuple(attributes)
        self._location = location
        self._stream = stream
        self._closed = False

    @classmethod
    def in_memory(
        cls, location: Location, array: Chunk, attributes: Sequence[str] = ()
    ) -> VectorSource:
        """A source of ``array``, an ndarray or a canonical CSR matrix; ``location`` is its name.

        Its columns may have names, the ``attributes``.
        """
        return cls(
            location,
            array.shape,
            array.dtype,
            stream=by_rows(lambda start, stop: array[start:stop]),
            is_sparse=issparse(array),
            attributes=attributes,
        )

    def mapped(self, function: Callable[[Chunk], Chunk], dtype: np.dtype[Any]) -> VectorSource:
        """A source of what a function makes of chunks; closing it closes this one.

        Parameters
        ----------
        function : callable
            From a chunk to one of the same shape and kind.
        dtype : numpy.dtype
            Of that chunk.
        """

        def stream(firsts: range) -> Iterator[Chunk]:
            return map(function, self._stream(firsts))

        return VectorSource(
            self._location,
            self.shape,
            dtype,
            stream,
            is_sparse=self.is_sparse,
            attributes=self.attributes,
        )

    def clipped(self, low: float, high: float) -> VectorSource:
        """A source of the same vectors, clipped to limits; closing it closes this one.

        Parameters
        ----------
        low, high : float
            Limits, within which zero lies if the source is sparse.

        >>> as_source([[1, 300]]).clipped(0.0, 255.0).read().tolist()
        [[1.0, 255.0]]
        """
        dtype = np.result_type(self.dtype, np.float16)
        return self.mapped(partial(clipped, low=low, high=high), dtype)

    def chunks(
        self, rows_per_chunk: int | None = None, start: int = 0
    ) -> Iterator[tuple[int, Chunk]]:
        """Pairs ``(first_row, chunk)`` from row ``start`` to the end.

        Every chunk has shape (rows_per_chunk, columns), the last perhaps fewer rows; treat it as
        read-only. The default is 4096 rows of a sparse source, and as many rows of a dense one as
        hold 2^22 numbers.

        Raises
        ------
        InputError
            For a wrong range; while iterating, for a closed source, and where the file is damaged.
        """
        rows = self.shape[0]
        if rows_per_chunk is None:
            rows_per_chunk = max(1, CHUNK_NUMBERS // self.shape[1])
            if self.is_sparse:
                rows_per_chunk = SPARSE_ROWS
        if rows_per_chunk < 1:
            raise self._location.error(f"a chunk needs at least one row, not {rows_per_chunk}.")
        if not 0 <= start <= rows:
            raise self._location.error(f"reading cannot start at row {start}; it has {rows} rows.")
        return self._chunks(range(start, rows, rows_per_chunk))

    def _chunks(self, firsts: range) -> Iterator[tuple[int, Chunk]]:
        stream = self._stream(firsts)
        for first in firsts:
            if self._closed:
                raise self._location.error("it has been closed; open it again.")
            with self._location.reading():
                chunk = next(stream)
                if not self.is_sparse:
                    chunk = np.ascontiguousarray(chunk, dtype=self.dtype)
                if self.dtype == np.bool_ and not self.is_sparse:
                    chunk = chunk.view(np.uint8) != 0  # no reader checks that a bool is 0 or 1
            yield first, chunk

    def read(self) -> Chunk:
        """All rows at once, to be treated as read-only."""
        rows = self.shape[0]
        ((_, chunk),) = self.chunks(rows)
        return chunk

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._closed = True
        self._location.resources.close()

    def __exit__(self, *exception: object) -> None:
        self.close()


def dense_rows(source: VectorSource, rows: Indices) -> AnyArray:
    """Return some rows of a source as a dense array.

    Parameters
    ----------
    source : VectorSource, shape (n, p)
    rows : integer array, shape (m,)
        Row numbers in [0, n), ascending, at least one.

    Returns
    -------
    array of shape (m, p), of the source's dtype

    >>> dense_rows(as_source(np.eye(3)), np.array([0, 2])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    found = taken_rows(source, rows)
    return np.asarray(found.toarray() if issparse(found) else found)


def taken_rows(source: VectorSource, rows: Indices) -> Any:
    """Return some rows of a source as they are kept: an array or a CSR matrix.

    Parameters as of :func:`dense_rows`.

    >>> taken_rows(as_source(np.eye(3)), np.array([2])).tolist()
    [[0.0, 0.0, 1.0]]
    """
    parts = []
    for first, chunk in source.chunks():
        places = rows - first
        in_chunk = (places >= 0) & (places < chunk.shape[0])
        parts.append(chunk[places[in_chunk]])
    return stacked(parts)


def check_finite(source: VectorSource) -> None:
    """Raise InputError, with the name of the source and the row, for NaN or an infinite value."""
    with naming(source.name):
        for first_row, chunk in source.chunks():
            check_values(chunk, first_row)


def check_columns(source: VectorSource, other: VectorSource) -> None:
    """Raise InputError unless the vectors of two sources have as many columns."""
    columns = source.shape[1]
    wanted = other.shape[1]
    if columns != wanted:
        raise InputError(
            f"{source.name} has {columns} columns where {other.name} has {wanted}; they must be "
            f"vectors of one kind."
        )


def check_one_each(source: VectorSource, lines: Sized | None, what: str) -> None:
    """Raise InputError if there are lines, and not one for each vector of a source."""
    count = source.shape[0]
    if lines is not None and len(lines) != count:
        raise InputError(
            f"{source.name} has {count} vectors, and there are {len(lines)} {what}; give one for "
            f"each vector."
        )


def as_source(X: Any, name: str = "array") -> VectorSource:
    """Wrap vectors in memory as a source.

    Parameters
    ----------
    X : ndarray, memory map, scipy sparse matrix, nested lists, DataFrame, column of lists (Arrow,
        pandas or polars) or VectorSource, shape (n, p)
        Real numbers. Not copied where a view will do; such views are read-only. A source is
        returned as it is.
    name : str
        What error messages begin with.

    Raises
    ------
    InputError
        For anything that is not a real matrix with at least one row and one column.

    >>> as_source([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).shape
    (3, 2)
    """
    if isinstance(X, VectorSource):
        return X
    return VectorSource.in_memory(Location(name), in_memory(X, name), column_names(X))


def in_memory(X: Any, name: str) -> Any:
    """Return vectors as a read-only array or a canonical CSR matrix, as :func:`as_source` does."""
    location = Location(name)
    if is_masked(X):
        raise location.error("it has a mask, which would be lost; fill the missing values first.")
    try:
        if issparse(X):
            location.check_matrix(X.shape, X.dtype)
            return canonical_csr(X)
        array = as_table(X, "its vectors").view()
    except InputError as error:
        raise location.error(str(error)) from None
    except (ValueError, TypeError) as error:
        raise location.error(f"this is not a matrix of real numbers ({error}).") from error
    location.check_matrix(array.shape, array.dtype)
    array.flags.writeable = False
    return array
