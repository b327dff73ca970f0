"""Arrays in .npz archives, and the sparse matrices that scipy saves as .npz."""

from __future__ import annotations

import os
import struct
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from dpindex.vectors.location import MAX_RATIO, Location
from dpindex.vectors.raw import Npy, npy_source
from dpindex.vectors.source import ArraySource, Chunk, VectorSource, is_real

__all__ = ["Archive", "open_npz"]

_RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: MAX_RATIO, zipfile.ZIP_LZMA: 1 << 13}
"""How much each way of compressing can shrink data at most; bzip2 has no useful bound."""

_MAX_DICTIONARY = 1 << 26
"""What LZMA uses at its highest preset."""

_SPARSE_MARKS = {"data", "format", "shape"}
_MAX_TEXT_BYTES = 64


class Archive:
    """A zip of .npy members, streamed: members are named by key, without the suffix."""

    def __init__(self, location: Location, resources: ExitStack) -> None:
        self._location = location
        self._resources = resources
        self._zip = resources.enter_context(zipfile.ZipFile(location.path))
        names = [name for name in self._zip.namelist() if name.endswith(".npy")]
        self.keys = [name.removesuffix(".npy") for name in names]

    def member(self, key: str) -> Npy:
        """The array ``key``, its declared size checked against the bytes that are there."""
        if key not in self.keys:
            raise self._location.error(
                f"it has no array {key!r}; name one of {', '.join(self.keys) or '(none)'}."
            )
        info = self._zip.getinfo(f"{key}.npy")
        ratio = _RATIOS.get(info.compress_type)
        if ratio is None:
            raise self._location.error(
                f"array {key!r} is compressed in a way that is not read here; save it again with"
                " numpy.savez_compressed."
            )
        stored = min(info.compress_size, self._location.size)
        if info.file_size > ratio * stored:
            raise self._location.error(
                f"array {key!r} claims {info.file_size} bytes, more than can come from the"
                f" {stored} stored; the file is damaged."
            )
        if info.compress_type == zipfile.ZIP_LZMA and self._dictionary(info) > _MAX_DICTIONARY:
            raise self._location.error(
                f"array {key!r} needs more than {_MAX_DICTIONARY >> 20} MB to decompress; save it"
                " again with numpy.savez_compressed."
            )
        stream = self._resources.enter_context(self._zip.open(info))
        return Npy(f"{self._location.name}: array {key!r}", stream, info.file_size)

    def _dictionary(self, info: zipfile.ZipInfo) -> int:
        """Bytes that LZMA would allocate, up to 4 GB whatever the file's size (APPNOTE 5.8.8)."""
        with open(self._location.path, "rb") as file:
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            file.seek(name + extra, os.SEEK_CUR)
            return int.from_bytes(file.read(9)[5:], "little")


def open_npz(location: Location, resources: ExitStack) -> VectorSource:
    archive = Archive(location, resources)
    if location.key is None and set(archive.keys) >= _SPARSE_MARKS:
        return _open_sparse(location, archive)
    key = _sole_matrix(location, archive) if location.key is None else location.key
    return npy_source(replace(location, key=key), archive.member(key), seekable=False)


def _sole_matrix(location: Location, archive: Archive) -> str:
    members = {key: archive.member(key) for key in archive.keys}
    found = [k for k, npy in members.items() if len(npy.shape) == 2 and is_real(npy.dtype)]
    if len(found) != 1:
        raise location.error(
            f"it has {len(found)} matrices among its arrays ({', '.join(archive.keys) or 'none'});"
            " name one as PATH:KEY."
        )
    return found[0]


def _open_sparse(location: Location, archive: Archive) -> VectorSource:
    """A matrix as written by ``scipy.sparse.save_npz``, by its members ``format`` and ``shape``."""
    layout = _text(location, archive.member("format"))
    if layout not in ("csr", "csc"):
        raise location.error(f"its sparse format is {layout!r}; save it as CSR.")
    stored = archive.member("shape")
    if stored.shape != (2,) or stored.dtype.kind not in "iu":
        raise location.error("its member 'shape' is not two integers; save the matrix again.")
    rows, columns = (int(length) for length in stored.read())
    if layout == "csr":
        return _Csr(location, archive, (rows, columns))
    # Unlike in CSR, where indptr has an entry for each, nothing in the file bears the rows out.
    if rows > MAX_RATIO * location.size:
        raise location.error(f"it declares {rows} rows, far more than it can hold.")
    transposed = _Csr(location, archive, (columns, rows), line="column")
    return ArraySource(location, transposed.read().T.tocsr())


class _Csr(VectorSource):
    """A CSR matrix of which only ``indptr`` is held; indices and values are streamed."""

    def __init__(
        self, location: Location, archive: Archive, shape: tuple[int, int], line: str = "row"
    ) -> None:
        values = archive.member("data")
        super().__init__(location, shape, values.dtype, is_sparse=True)
        self._line = line
        indices = self._integers(archive, "indices")
        indptr = self._integers(archive, "indptr")
        if indptr.shape != (self.shape[0] + 1,) or not indices.shape == values.shape:
            raise self._error(
                f"its members do not fit together (indptr {indptr.shape}, indices {indices.shape},"
                f" data {values.shape}, {self.shape[0]} {line}s); save the matrix again."
            )
        self._indptr = _checked_indptr(location, indptr.read(), indices.shape[0], line)
        self._indices = indices.items()
        self._values = values.items()

    def _integers(self, archive: Archive, key: str) -> Npy:
        npy = archive.member(key)
        if len(npy.shape) != 1 or npy.dtype.kind not in "iu":
            raise self._error(f"its member {key!r} is not a list of integers; save it again.")
        return npy

    def _rows(self, start: int, stop: int) -> Chunk:
        indptr = self._indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        indices = self._indices.read(first, last)
        wrong = np.flatnonzero((indices < 0) | (indices >= self.shape[1]))
        if wrong.size:
            line = start + int(np.searchsorted(indptr - first, wrong[0], side="right")) - 1
            raise self._error(
                f"{self._line} {line} has an index {indices[wrong[0]]}, outside 0 to"
                f" {self.shape[1] - 1}; save the matrix again."
            )
        values = self._values.read(first, last).astype(self.dtype, copy=False)
        parts = (values, indices.astype(np.int64, copy=False), indptr - first)
        chunk = scipy.sparse.csr_matrix(parts, shape=(stop - start, self.shape[1]))
        chunk.sum_duplicates()
        return chunk


def _checked_indptr(
    location: Location, stored: npt.NDArray[Any], entries: int, line: str
) -> npt.NDArray[np.int64]:
    indptr = stored.astype(np.int64)
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size or indptr[0] != 0 or indptr[-1] != entries:
        place = f"it falls at {line} {falls[0]}" if falls.size else f"{indptr[0]} to {indptr[-1]}"
        raise location.error(
            f"indptr must rise from 0 to the {entries} stored entries ({place}); save the matrix"
            " again."
        )
    return indptr


def _text(location: Location, npy: Npy) -> str:
    if npy.shape != () or npy.dtype.kind not in "SU" or npy.dtype.itemsize > _MAX_TEXT_BYTES:
        raise location.error("its member 'format' is not a word; save the matrix again.")
    value = npy.read().item()
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
