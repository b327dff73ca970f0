"""Arrays stored as plain bytes: .npy files, .npz archives of them, and the .fvecs family.

``np.load`` and ``scipy.sparse.load_npz`` are not used: they read archives whole and allocate what a
member declares. A memory map is not used either: the pages that were touched count as resident, so
that a long pass over it looks like the whole file in memory.
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import replace
from typing import IO, Any

import numpy as np
import scipy
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic

from dpindex.base.arrays import AnyArray
from dpindex.vectors.source import MAX_RATIO, Location, VectorSource, by_rows, is_matrix

_HEADER_BYTES = 16_384
_PIECE = 1 << 20
_LOADED_BYTES = 1 << 28
_LOADED_RATIO = 8
_PARSERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}

_SPARSE_MEMBERS = {"data", "format", "shape"}


def _items(stream: IO[bytes], offset: int, item: np.dtype[Any], start: int, stop: int) -> AnyArray:
    """Items ``start`` to ``stop`` of those that lie one after another from ``offset``."""
    buffer = np.empty((stop - start) * item.itemsize, np.uint8)
    stream.seek(offset + start * item.itemsize)
    filled = 0
    while filled < buffer.size:  # in pieces: a compressed member copies what it hands out
        count = stream.readinto(buffer[filled : filled + _PIECE])  # type: ignore[attr-defined]
        if not count:
            raise EOFError(f"it ends {buffer.size - filled} bytes too early")
        filled += count
    if item.base == np.bool_:
        np.minimum(buffer, 1, out=buffer)  # numpy does not check that a bool is 0 or 1
    return np.frombuffer(buffer, item)


class _Npy:
    """One .npy array that fills a stream of ``size`` bytes; its header must agree with the size.

    Pickled objects are never loaded.
    """

    def __init__(self, location: Location, stream: IO[bytes], size: int) -> None:
        # A bounded prefix, so that a false header length cannot make the parser read the file.
        head = io.BytesIO(stream.read(_HEADER_BYTES))
        version = read_magic(head)
        if version not in _PARSERS:
            raise location.error(f".npy format {version} is not supported; save it again.")
        self.shape, self._is_fortran, self.dtype = _PARSERS[version](head)
        self._location = location
        self._stream = stream
        self._offset = head.tell()
        if self.dtype.hasobject:
            raise location.error("it holds Python objects; save an array of numbers.")
        declared = math.prod(self.shape) * self.dtype.itemsize
        left = size - self._offset
        if min(self.shape, default=0) < 0 or declared != left:
            raise location.error(
                f"its header declares shape {self.shape} of {self.dtype}, but {left} bytes follow"
                " it; the file is damaged."
            )

    def items(self, start: int, stop: int, shape: tuple[int, ...] = ()) -> AnyArray:
        """Items ``start`` to ``stop`` in the order of storage; they have this ``shape``."""
        return _items(self._stream, self._offset, np.dtype((self.dtype, shape)), start, stop)

    def read(self) -> AnyArray:
        """The whole array.

        Raises
        ------
        InputError
            If it takes over 256 MiB and over 8 times its file, as compressed zeros do.
        """
        declared = math.prod(self.shape) * self.dtype.itemsize
        if declared > max(_LOADED_BYTES, _LOADED_RATIO * self._location.size):
            raise self._location.error(
                f"it takes {declared} bytes of memory, since it is not stored row after row, and"
                f" the file has {self._location.size}; save it as .npy."
            )
        flat = self.items(0, math.prod(self.shape))
        return flat.reshape(self.shape, order="F" if self._is_fortran else "C")

    def source(self, location: Location, *, seekable: bool) -> VectorSource:
        """A source of its rows; in column order, without seeking, the array is loaded whole.

        An array of one dimension is one vector, as it is in memory.
        """
        if len(self.shape) == 1:
            return VectorSource.in_memory(location, self.read()[np.newaxis])
        if self._is_fortran and not seekable:
            return VectorSource.in_memory(location, self.read())
        return VectorSource(location, self.shape, self.dtype, by_rows(self._rows))

    def _rows(self, start: int, stop: int) -> AnyArray:
        if not self._is_fortran:
            return self.items(start, stop, self.shape[1:])
        firsts = range(0, math.prod(self.shape), self.shape[0])
        return np.stack([self.items(first + start, first + stop) for first in firsts], axis=1)


def open_npy(location: Location) -> VectorSource:
    npy = _Npy(location, location.open_binary(), location.size)
    return npy.source(location, seekable=True)


def npy_ids(location: Location) -> AnyArray:
    return _Npy(location, location.open_binary(), location.size).read()


def open_vecs(location: Location, value: str) -> VectorSource:
    """Rows of an int32 number of columns and then as many values, all little-endian."""
    stream = location.open_binary()
    columns = int.from_bytes(stream.read(4), "little", signed=True)
    if not 0 < columns * np.dtype(value).itemsize < location.size:
        raise location.error(f"row 0 declares {columns} columns; the file is damaged.")
    row = np.dtype([("columns", "<i4"), ("values", value, (columns,))])
    rows, surplus = divmod(location.size, row.itemsize)

    def read_rows(start: int, stop: int) -> AnyArray:
        block = _items(stream, 0, row, start, stop)
        wrong = np.flatnonzero(block["columns"] != columns)
        if wrong.size:
            raise location.error(
                f"row {start + wrong[0]} declares {block['columns'][wrong[0]]} columns and row 0"
                f" {columns}; all rows must be of one length."
            )
        return block["values"]

    if surplus:
        read_rows(0, min(rows, _PIECE // row.itemsize))  # a row that differs says more
        raise location.error(
            f"row {rows} has {surplus} of its {row.itemsize} bytes; the file is cut short, or a row"
            f" before it does not have {columns} columns."
        )
    return VectorSource(location, (rows, columns), np.dtype(value), by_rows(read_rows))


class _Archive:
    """A zip of .npy members, streamed; members are named by key, without the suffix."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._zip = location.resources.enter_context(zipfile.ZipFile(location.path))
        names = [name for name in self._zip.namelist() if name.endswith(".npy")]
        self.keys = [name.removesuffix(".npy") for name in names]
        location.check_names(self.keys)

    def member(self, key: str | None) -> _Npy:
        """The array ``key``."""
        if key not in self.keys:
            names = ", ".join(self.keys) or "(none)"
            raise self._location.error(f"it has no array {key!r}; name one of {names}.")
        location = replace(self._location, name=f"{self._location.name}: array {key!r}")
        info = self._zip.getinfo(f"{key}.npy")
        stream = location.resources.enter_context(self._zip.open(info))
        return _Npy(location, stream, info.file_size)


def npz_ids(location: Location) -> AnyArray:
    return _Archive(location).member(location.key).read()


def open_npz(location: Location) -> VectorSource:
    archive = _Archive(location)
    if location.key is None and set(archive.keys) >= _SPARSE_MEMBERS:
        return _open_sparse(location, archive)
    if location.key is None:
        arrays = {key: archive.member(key) for key in archive.keys}
        location = location.sole(arrays, is_matrix, "{} matrices among its arrays")
    return archive.member(location.key).source(location, seekable=False)


def _open_sparse(location: Location, archive: _Archive) -> VectorSource:
    """A matrix saved by ``scipy.sparse.save_npz``."""
    layout = archive.member("format").read().astype(str)
    lengths = archive.member("shape").read()
    if lengths.shape != (2,) or lengths.dtype.kind not in "iu":
        raise location.error("its member 'shape' is not two integers; save the matrix again.")
    rows, columns = lengths.tolist()
    if layout == "csr":
        return _open_csr(location, archive, (rows, columns))
    if layout != "csc":
        raise location.error(f"its sparse format is {str(layout)!r}; save it as CSR.")
    # Unlike in CSR, where indptr has an entry for each, no member confirms the number of rows.
    if rows > MAX_RATIO * location.size:
        raise location.error(f"it declares {rows} rows, far more than it can hold.")
    transposed = _open_csr(location, archive, (columns, rows), line="column")
    return VectorSource.in_memory(location, transposed.read().T.tocsr())


def _open_csr(
    location: Location, archive: _Archive, shape: tuple[int, int], line: str = "row"
) -> VectorSource:
    """A CSR matrix of which only ``indptr`` is held in memory; the rest is streamed."""
    values, indices, indptr = map(archive.member, ("data", "indices", "indptr"))
    location.check_matrix(shape, values.dtype)
    for key, npy in ("indices", indices), ("indptr", indptr):
        if len(npy.shape) != 1 or npy.dtype.kind not in "iu":
            raise location.error(f"its member {key!r} is not a list of integers; save it again.")
    if indptr.shape != (shape[0] + 1,) or not indices.shape == values.shape:
        raise location.error(
            f"its members do not fit together (indptr {indptr.shape}, indices {indices.shape},"
            f" data {values.shape}, {shape[0]} {line}s); save the matrix again."
        )
    ends = indptr.read().astype(np.int64)
    entries = indices.shape[0]
    falls = np.flatnonzero(ends[1:] < ends[:-1])
    if falls.size or ends[0] != 0 or ends[-1] != entries:
        place = f"it falls at {line} {falls[0]}" if falls.size else f"{ends[0]} to {ends[-1]}"
        raise location.error(
            f"indptr must rise from 0 to the {entries} entries ({place}); save the matrix again."
        )

    def read_rows(start: int, stop: int) -> Any:
        first = ends[start]
        last = ends[stop]
        columns = indices.items(first, last)
        wrong = np.flatnonzero((columns < 0) | (columns >= shape[1]))
        if wrong.size:
            place = np.searchsorted(ends, first + wrong[0], side="right") - 1
            raise location.error(
                f"{line} {place} has an index {columns[wrong[0]]}, outside 0 to"
                f" {shape[1] - 1}; save the matrix again."
            )
        data = values.items(first, last).astype(values.dtype.newbyteorder("="), copy=False)
        parts = (data, columns.astype(np.int64, copy=False), ends[start : stop + 1] - first)
        chunk = scipy.sparse.csr_matrix(parts, shape=(stop - start, shape[1]))
        chunk.sum_duplicates()
        return chunk

    return VectorSource(location, shape, values.dtype, by_rows(read_rows), is_sparse=True)
