"""List columns of Parquet files, decoded a bounded batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError
from dpindex.vectors.location import Location, import_extra
from dpindex.vectors.source import Chunk, VectorSource

__all__ = ["column_type", "open_file", "open_parquet"]

_BATCH_BYTES = 1 << 20


_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
"""Arrow's names for what numpy calls otherwise; its own conversion wants pandas."""


def open_parquet(location: Location, resources: ExitStack) -> VectorSource:
    file = open_file(location, resources)
    key = _sole_list(location, file) if location.key is None else location.key
    kind = column_type(location, file, key)
    if not _is_list(location, kind):
        raise location.error(f"column {key!r} is of type {kind}; vectors need a list of numbers.")
    location = replace(location, key=key)
    shape = (file.metadata.num_rows, _width(location, file))
    return _Parquet(location, file, shape, kind.value_type)


def open_file(location: Location, resources: ExitStack) -> Any:
    parquet = import_extra("pyarrow.parquet", location.name)
    # a small read buffer and no prefetch: either would hold whole row groups
    file = parquet.ParquetFile(
        location.path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
    )
    return resources.enter_context(file)


def column_type(location: Location, file: Any, key: str) -> Any:
    """The Arrow type of column ``key``, or an InputError that lists the columns."""
    names = file.schema_arrow.names
    if names.count(key) != 1:
        raise location.error(f"it has no single column {key!r}; name one of {', '.join(names)}.")
    return file.schema_arrow.field(key).type


def _is_list(location: Location, kind: Any) -> bool:
    types = import_extra("pyarrow.types", location.name)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return is_list and any(
        is_kind(kind.value_type)
        for is_kind in (types.is_integer, types.is_floating, types.is_boolean)
    )


def _sole_list(location: Location, file: Any) -> str:
    found = [field.name for field in file.schema_arrow if _is_list(location, field.type)]
    if len(found) != 1:
        raise location.error(
            f"it has {len(found)} list columns of numbers among its columns"
            f" ({', '.join(file.schema_arrow.names)}); name one as PATH:KEY."
        )
    return str(found[0])


class _Parquet(VectorSource):
    """Reads forward; going back starts again at the first row."""

    def __init__(self, location: Location, file: Any, shape: tuple[int, int], value: Any) -> None:
        super().__init__(location, shape, np.dtype(_FLOATS.get(str(value), str(value))))
        self._file = file
        self._rewind()

    def _rewind(self) -> None:
        self._next = 0
        self._batches = self._decode()
        self._rest = np.empty((0, self.shape[1]), self.dtype)

    def _decode(self) -> Iterator[npt.NDArray[Any]]:
        size = max(1, _BATCH_BYTES // (self.shape[1] * self.dtype.itemsize))
        first = 0
        for column in _columns(self._location, self._file, size):
            yield _matrix(self._location, column, first, self.shape[1])
            first += len(column)

    def _rows(self, start: int, stop: int) -> Chunk:
        if start < self._next:
            self._rewind()
        passed, self._next = self._next, self.shape[0] + 1  # should this fail, begin again
        for _ in self._take(start - passed):
            pass
        chunk = np.concatenate([self._rest[:0], *self._take(stop - start)])
        self._next = stop
        return chunk

    def _take(self, count: int) -> Iterator[npt.NDArray[Any]]:
        """The next ``count`` rows, in parts."""
        while count:
            if not len(self._rest):
                self._rest = self._following()
            part, self._rest = self._rest[:count], self._rest[count:]
            count -= len(part)
            yield part

    def _following(self) -> npt.NDArray[Any]:
        batch = next(self._batches, None)
        if batch is None:
            raise self._error(
                f"it ends before the {self.shape[0]} rows it declares; the file is damaged."
            )
        return batch


def _columns(location: Location, file: Any, rows: int) -> Iterator[Any]:
    for batch in file.iter_batches(rows, columns=[location.key], use_threads=False):
        column = batch.column(location.key)
        column.validate(full=True)
        yield column


def _width(location: Location, file: Any) -> int:
    """The number of values in the first row, by which every other is judged."""
    for column in _columns(location, file, 1):
        if column.null_count:
            raise _null_row(location, 0)
        return len(column[0])
    return 0


def _null_row(location: Location, row: int) -> InputError:
    return location.error(f"row {row} is null; every row must be a vector.")


def _matrix(location: Location, column: Any, first: int, width: int) -> npt.NDArray[Any]:
    """A list column as an array ``(rows, width)``; ``first`` is the number of its first row."""
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        raise _null_row(location, first + int(np.argmax(nulls)))
    values = column.flatten()
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)
    if wrong.size:
        raise location.error(
            f"row {first + wrong[0]} has {lengths[wrong[0]]} values and row 0 {width}; all rows"
            " must be of one length."
        )
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise location.error(f"row {first + at // width} has a null; fill the missing values.")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), width)
