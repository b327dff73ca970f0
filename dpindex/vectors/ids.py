"""Files of ids: one id for each vector, integers or strings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import check_padding
from dpindex.errors import InputError
from dpindex.vectors.archive import Archive
from dpindex.vectors.hdf5 import open_dataset
from dpindex.vectors.location import Location, import_extra, locate, open_binary, reading
from dpindex.vectors.parquet import column_type, open_file
from dpindex.vectors.raw import Npy

__all__ = ["read_ids"]

_DECIMAL = re.compile("0|-?[1-9][0-9]{0,18}")
_MAX_LETTERS = 1024
_INT64 = np.iinfo(np.int64)


def read_ids(location: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The ids in a file: ``(n,)``, either int64 or unicode strings; duplicates are not looked for.

    ``location`` is a .npy file; a UTF-8 .txt file of one id a line (space around it is dropped);
    or ``PATH:KEY``, an array in .npz or .hdf5/.h5 or a column of .parquet. Lines become integers
    only if every one of them is an int64 in plain decimal: ``007`` stays a string.

    Raises InputError for a file that cannot be read, an empty id (by line or row), or any other
    type.
    """
    found = locate(location)
    reader = _READERS.get(found.suffix)
    if reader is None:
        raise found.error(
            f"no file of ids has the suffix {found.suffix!r}; use one of {', '.join(_READERS)}."
        )
    with reading(found.name), ExitStack() as resources:
        return _checked(found, reader(found, resources))


def _read_npy(location: Location, resources: ExitStack) -> npt.NDArray[Any]:
    stream = open_binary(location, resources)
    return Npy(location.name, stream, location.size).read()


def _read_txt(location: Location, resources: ExitStack) -> npt.NDArray[Any]:
    text = open_binary(location, resources).read().decode("utf-8-sig")
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if "" in lines:
        raise location.error(f"line {lines.index('') + 1} is empty; write one id on every line.")
    if all(_is_int64(line) for line in lines):
        return np.array([int(line) for line in lines], dtype=np.int64)
    return _strings(location, lines)


def _read_npz(location: Location, resources: ExitStack) -> npt.NDArray[Any]:
    return Archive(location, resources).member(_key(location)).read()


def _read_hdf5(location: Location, resources: ExitStack) -> npt.NDArray[Any]:
    dataset = open_dataset(location, resources, _key(location))
    is_text = import_extra("h5py", location.name).check_string_dtype(dataset.dtype) is not None
    if is_text and len(dataset.shape) == 1:
        return _strings(location, dataset.asstr()[:].tolist())
    return np.asarray(dataset[...])


def _read_parquet(location: Location, resources: ExitStack) -> npt.NDArray[Any]:
    file = open_file(location, resources)
    key = _key(location)
    kind = column_type(location, file, key)
    types = import_extra("pyarrow.types", location.name)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if not (is_text or types.is_integer(kind)):
        raise location.error(f"column {key!r} is of type {kind}; ids are integers or strings.")
    column = file.read(columns=[key]).column(0)
    column.validate(full=True)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise location.error(f"row {row} is null; every vector needs an id.")
    return _strings(location, column.to_pylist()) if is_text else np.asarray(column.to_numpy())


_READERS: dict[str, Callable[[Location, ExitStack], npt.NDArray[Any]]] = {
    ".npy": _read_npy,
    ".txt": _read_txt,
    ".npz": _read_npz,
    ".hdf5": _read_hdf5,
    ".h5": _read_hdf5,
    ".parquet": _read_parquet,
}


def _key(location: Location) -> str:
    if location.key is None:
        raise location.error("name the array or column that holds the ids, as PATH:KEY.")
    return location.key


def _is_int64(text: str) -> bool:
    return bool(_DECIMAL.fullmatch(text)) and _INT64.min <= int(text) <= _INT64.max


def _strings(location: Location, values: Sequence[str]) -> npt.NDArray[np.str_]:
    longest = max(range(len(values)), key=lambda row: len(values[row]), default=0)
    if not values:
        return np.empty(0, dtype=np.str_)
    if len(values[longest]) > _MAX_LETTERS:  # numpy pads every id to the longest
        raise location.error(
            f"id number {longest + 1} has {len(values[longest])} characters; at most"
            f" {_MAX_LETTERS} are allowed."
        )
    try:
        check_padding(len(values), len(values[longest]), sum(map(len, values)))
    except InputError as error:
        raise location.error(str(error)) from None
    return np.array(values, dtype=np.str_)


def _checked(location: Location, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise location.error(
            f"it has {ids.ndim} dimension(s) of type {ids.dtype}; ids must be a plain list of"
            " integers or strings."
        )
    if not ids.size:
        raise location.error("it holds no ids; write one for every vector.")
    if ids.dtype.kind == "U":
        _check_strings(location, ids)
        return ids.astype(ids.dtype.newbyteorder("="), copy=False)
    if ids.max() > _INT64.max:
        raise location.error(f"id {ids.max()} is too large; ids must fit into an int64.")
    return ids.astype(np.int64, copy=False)


def _check_strings(location: Location, ids: npt.NDArray[Any]) -> None:
    lengths = np.char.str_len(ids)
    if not lengths.all():
        raise location.error(f"row {int(np.argmin(lengths))} has an empty id; give it one.")
    # numpy takes any 32 bits for a letter; a letter is what UTF-8 can write
    letters = ids.astype(ids.dtype.newbyteorder("="), copy=False).view(np.uint32)
    wrong = np.flatnonzero((letters > 0x10FFFF) | ((letters >= 0xD800) & (letters <= 0xDFFF)))
    if wrong.size:
        row = wrong[0] // (ids.dtype.itemsize // 4)
        raise location.error(f"row {row} has an id that is not text; the file is damaged.")
