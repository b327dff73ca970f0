"""Arrays that lie in a stream as plain bytes: .npy, and the .fvecs family.

They are read with ``readinto`` rather than mapped: the pages of a map that were touched count as
resident, so a long pass over a map looks like the whole file in memory.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError
from dpindex.vectors.location import Location, open_binary
from dpindex.vectors.source import ArraySource, Chunk, VectorSource

__all__ = ["Npy", "RawArray", "npy_source", "open_npy", "open_vecs"]

_HEADER_BYTES = 16_384
_PIECE = 1 << 20
_PARSERS: dict[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class RawArray:
    """Items of one dtype (scalars, rows or records), one after another from ``offset``."""

    def __init__(self, stream: IO[bytes], offset: int, item: np.dtype[Any]) -> None:
        self._stream = stream
        self._offset = offset
        self._item = item

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Items ``start`` to ``stop``, in memory of their own."""
        buffer = np.empty((stop - start) * self._item.itemsize, np.uint8)
        self._stream.seek(self._offset + start * self._item.itemsize)
        filled = 0
        while filled < buffer.size:  # in pieces: a compressed member copies what it hands out
            count = self._stream.readinto(buffer[filled : filled + _PIECE])  # type: ignore[attr-defined]
            if not count:
                raise EOFError(f"it ends {buffer.size - filled} bytes too early")
            filled += count
        if self._item.base == np.bool_:
            np.minimum(buffer, 1, out=buffer)  # numpy takes any other byte for a bool at its word
        return np.frombuffer(buffer, self._item)


class Npy:
    """One .npy array that fills a stream of ``size`` bytes: its header, believed only if it fits.

    Pickled objects are never loaded. ``name`` is what an error message begins with.
    """

    def __init__(self, name: str, stream: IO[bytes], size: int) -> None:
        # A bounded prefix, so that a false header length cannot make the parser read the file.
        head = io.BytesIO(stream.read(_HEADER_BYTES))
        version = np.lib.format.read_magic(head)
        if version not in _PARSERS:
            raise InputError(f"{name}: .npy format {version} is not supported; save it again.")
        self.shape, self.is_fortran, self.dtype = _PARSERS[version](head)
        self._stream = stream
        self._offset = head.tell()
        if self.dtype.hasobject:
            raise InputError(f"{name}: it holds Python objects; save an array of numbers.")
        declared = math.prod(self.shape) * self.dtype.itemsize
        if min(self.shape, default=0) < 0 or declared != size - self._offset:
            raise InputError(
                f"{name}: its header declares shape {self.shape} of {self.dtype}, but"
                f" {size - self._offset} bytes follow it; the file is cut short or damaged."
            )

    def items(self, shape: tuple[int, ...] = ()) -> RawArray:
        """The array as a run of items of this ``shape``: ``()`` for scalars."""
        return RawArray(self._stream, self._offset, np.dtype((self.dtype, shape)))

    def read(self) -> npt.NDArray[Any]:
        """The whole array."""
        flat = self.items().read(0, math.prod(self.shape))
        return flat.reshape(self.shape, order="F" if self.is_fortran else "C")


class _RowMajor(VectorSource):
    def __init__(self, location: Location, npy: Npy) -> None:
        super().__init__(location, npy.shape, npy.dtype)
        self._array = npy.items(shape=self.shape[1:])

    def _rows(self, start: int, stop: int) -> Chunk:
        return self._array.read(start, stop)


class _ColumnMajor(VectorSource):
    def __init__(self, location: Location, npy: Npy) -> None:
        super().__init__(location, npy.shape, npy.dtype)
        self._array = npy.items()

    def _rows(self, start: int, stop: int) -> Chunk:
        rows, columns = self.shape
        firsts = range(0, rows * columns, rows)
        return np.stack([self._array.read(j + start, j + stop) for j in firsts], axis=1)


class _Vecs(VectorSource):
    """Rows of ``int32 dimension`` and then as many values, all little-endian."""

    def __init__(self, location: Location, stream: IO[bytes], value: np.dtype[Any]) -> None:
        columns = int.from_bytes(stream.read(4), "little", signed=True)
        row_bytes = 4 + columns * value.itemsize
        if columns < 1 or row_bytes > location.size:
            raise location.error(
                f"row 0 declares {columns} columns, which a file of {location.size} bytes cannot"
                " hold; the file is damaged."
            )
        rows, rest = divmod(location.size, row_bytes)
        super().__init__(location, (rows, columns), value)
        self._array = RawArray(
            stream, 0, np.dtype([("columns", "<i4"), ("values", value, (columns,))])
        )
        if rest:
            self._rows(0, min(rows, _PIECE // row_bytes))  # a row that differs says more
            raise location.error(
                f"row {rows} has {rest} of its {row_bytes} bytes; the file is cut short, or a row"
                f" before it does not have {columns} columns."
            )

    def _rows(self, start: int, stop: int) -> Chunk:
        block = self._array.read(start, stop)
        wrong = np.flatnonzero(block["columns"] != self.shape[1])
        if wrong.size:
            raise self._error(
                f"row {start + wrong[0]} declares {block['columns'][wrong[0]]} columns and row 0"
                f" {self.shape[1]}; all rows must be of one length."
            )
        return block["values"]


def npy_source(location: Location, npy: Npy, *, seekable: bool) -> VectorSource:
    """Stream ``npy`` by rows; column order in a stream that only reads forward is loaded whole."""
    if not npy.is_fortran:
        return _RowMajor(location, npy)
    if seekable:
        return _ColumnMajor(location, npy)
    return ArraySource(location, npy.read())


def open_npy(location: Location, resources: ExitStack) -> VectorSource:
    stream = open_binary(location, resources)
    return npy_source(location, Npy(location.name, stream, location.size), seekable=True)


def open_vecs(location: Location, resources: ExitStack, value: str) -> VectorSource:
    return _Vecs(location, open_binary(location, resources), np.dtype(value))
