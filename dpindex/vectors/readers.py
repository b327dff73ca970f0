"""``open_vectors`` and ``read_ids``: the formats of input files, by suffix."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.checks import id_array
from dpindex.vectors.csv import open_csv
from dpindex.vectors.hdf5 import hdf5_ids, open_hdf5
from dpindex.vectors.npy import npy_ids, npz_ids, open_npy, open_npz, open_vecs
from dpindex.vectors.parquet import open_parquet, parquet_ids
from dpindex.vectors.source import Location, VectorSource, locate

_Ids: TypeAlias = AnyArray | list[str]
_MAX_PIPED = 1 << 30


def open_vectors(location: str | os.PathLike[str]) -> VectorSource:
    """Open a file of vectors, to be read in chunks; close it, or use it in a ``with``.

    Parameters
    ----------
    location : path
        ``PATH`` or ``PATH:KEY``; no key is needed where there is only one matrix. The suffix tells
        the format: .npy; .npz (an array by key, or a CSR or CSC matrix saved by scipy); .fvecs,
        .bvecs, .ivecs; .hdf5 or .h5 (a dataset by key, ``train`` if none is given); .parquet (a
        list column by key); .csv (numbers separated by commas, perhaps below a line of names).

    Raises
    ------
    InputError
        One sentence that begins with ``location``, when the file is missing, empty, damaged, of an
        unknown format, or holds anything but a real matrix with at least one row and one column.
        Damage further in is found when the rows there are read.

    >>> import os, tempfile
    >>> import numpy as np
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "vectors.npy")
    >>> np.save(path, np.arange(12, dtype=np.float32).reshape(4, 3))
    >>> with open_vectors(path) as source:
    ...     print(source.shape, source.dtype)
    ...     for first, chunk in source.chunks(rows_per_chunk=3):
    ...         print(first, chunk.sum(axis=1))
    (4, 3) float32
    0 [ 3. 12. 21.]
    3 [30.]
    >>> folder.cleanup()
    """
    file, opened = locate(location, _VECTORS, "vector format")
    with file.reading():
        try:
            return opened(file)
        except BaseException:
            file.resources.close()
            raise


def read_ids(location: str | os.PathLike[str]) -> AnyArray:
    """Read a file of ids, one for each vector; duplicates are not looked for.

    Parameters
    ----------
    location : path
        A .npy file; a UTF-8 .txt file of one id a line, without the space around it; ``-`` or a
        pipe for such lines; or ``PATH:KEY``, an array in .npz or .hdf5/.h5 or a column of .parquet.

    Returns
    -------
    Array of shape (n,), n ≥ 1, int64 or unicode strings of 1 to 4096 characters. Lines of text
    become integers only if every one of them is an int64 in plain decimal: ``007`` stays a string.

    Raises
    ------
    InputError
        For a file that cannot be read, an empty id (by line or row), or any other type.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ids.txt")
    ...     _ = path.write_text("anna\\nbert\\n")
    ...     print(read_ids(path))
    ['anna' 'bert']
    """
    if (name := os.fsdecode(location)) == "-" or _is_pipe(name):
        return _checked(Location(name, name, None, 0, 0), _piped_ids)
    file, read = locate(location, _IDS, "file of ids")
    if file.key is None and read not in (npy_ids, _txt_ids):
        raise file.error("name the array or column that holds the ids, as PATH:KEY.")
    return _checked(file, read)


def _checked(file: Location, read: Callable[[Location], _Ids]) -> AnyArray:
    with file.reading(), file.resources:
        ids = checked_ids(read(file), file)
        if not ids.size:
            raise file.error("it holds no ids; write one for every vector.")
        return ids


def checked_ids(ids: Any, location: Location) -> AnyArray:
    """Return ids of a file as an array; InputError for another type, and for an empty id."""
    array = id_array(ids, location.error)
    if array.dtype.kind == "U":
        empty = np.flatnonzero(array == "")
        if empty.size:
            raise location.error(f"row {empty[0]} has an empty id; give it one.")
    return array


def _is_pipe(name: str) -> bool:
    """Whether it is the standard input or a named pipe: what is in it is seen by reading alone.

    Pipes hold text, so one under the suffix of another format is none of these.
    """
    if os.path.splitext(name)[1] in _IDS.keys() - {".txt"}:
        return False
    try:
        return name == "/dev/stdin" or stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False


def _piped_ids(location: Location) -> _Ids:
    with open(
        0 if location.name == "-" else location.path, "rb", closefd=location.name != "-"
    ) as f:
        data = f.read(_MAX_PIPED + 1)
    if len(data) > _MAX_PIPED:
        raise location.error(f"it has over {_MAX_PIPED} bytes; save the ids to a file.")
    if data:
        return _lines(location, data)
    return []


def _txt_ids(location: Location) -> _Ids:
    return _lines(location, location.open_binary().read())


def _lines(location: Location, data: bytes) -> _Ids:
    text = data.decode("utf-8-sig")
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    if "" in lines:
        raise location.error(f"line {lines.index('') + 1} is empty; write one id on every line.")
    try:
        numbers = np.array([int(line) for line in lines], dtype=np.int64)
    except (ValueError, OverflowError):
        return lines
    if list(map(str, numbers.tolist())) == lines:
        return numbers
    return lines


_VECTORS: dict[str, Callable[[Location], VectorSource]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".fvecs": partial(open_vecs, value="<f4"),
    ".bvecs": partial(open_vecs, value="u1"),
    ".ivecs": partial(open_vecs, value="<i4"),
    ".hdf5": open_hdf5,
    ".h5": open_hdf5,
    ".parquet": open_parquet,
    ".csv": open_csv,
}
VECTOR_SUFFIXES = frozenset(_VECTORS)
_IDS: dict[str, Callable[[Location], _Ids]] = {
    ".npy": npy_ids,
    ".txt": _txt_ids,
    ".npz": npz_ids,
    ".hdf5": hdf5_ids,
    ".h5": hdf5_ids,
    ".parquet": parquet_ids,
}
