"""Files of vectors and of ids: one reader for each suffix."""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, canonical_csr, release_pages
from dpindex.base.errors import escaped, naming
from dpindex.base.files import AnyPath
from dpindex.base.ids import ids_of_file
from dpindex.data.columns import COLUMN_SUFFIXES, column_ids, open_vectors_of_columns
from dpindex.data.source import MAX_RATIO, Location, VectorSource, by_rows, is_matrix, locate
from dpindex.data.text import OPEN_TEXT, text_ids, txt_ids

_Ids: TypeAlias = AnyArray | list[str]
_MAX_PIPED = 1 << 30
_PIECE = 1 << 20


def open_vectors(location: AnyPath) -> VectorSource:
    """Open a file of vectors, to be read in chunks; close it, or use it in a ``with``.

    Parameters
    ----------
    location : path
        ``PATH`` or ``PATH:KEY``; no key is needed where there is only one matrix. The suffix tells
        the format: .npy; .npz (an array by key, or a CSR or CSC matrix saved by scipy); .fvecs,
        .bvecs, .ivecs; .fbin, .u8bin, .i8bin, .ibin; .hdf5 or .h5 (a dataset by key, ``train`` if
        none is given, also the sparse sets of ann-benchmarks); .parquet, .arrow, .feather (a list
        column by key, or columns of numbers by ``first:last`` or a pattern such as ``d*``); .csv
        and .tsv (numbers, perhaps below a line of names). A first line that may be either is
        refused: ``PATH:header=yes`` says that it is names, and ``PATH:header=no`` a vector.

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


def read_ids(location: AnyPath) -> AnyArray:
    """Read a file of ids, one for each vector; duplicates are not looked for.

    Parameters
    ----------
    location : path
        A .npy file; a UTF-8 .txt file of one id a line, spaces included; ``-`` or a
        pipe for such lines; or ``PATH:KEY``, an array in .npz or .hdf5/.h5 or a column of .parquet,
        .arrow or .feather.

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
    name = os.fsdecode(location)
    read: Callable[[Location], _Ids] = _piped_ids
    if name == "-" or _is_pipe(name):
        file = Location(name, name)
    else:
        file, read = locate(name, _IDS, "file of ids")
        if file.key is None and read not in (npy_ids, txt_ids):
            raise file.error("name the array or column that holds the ids, as PATH:KEY.")
    with file.reading(), file.resources:
        with naming(escaped(file.name)):
            ids = ids_of_file(read(file))
        if not ids.size:
            raise file.error("it holds no ids; write one for every vector.")
        return ids


def _is_pipe(name: str) -> bool:
    """Whether it is the standard input or a named pipe: what is in it is seen by reading alone.

    Pipes hold text, so one under the suffix of another format is none of these.
    """
    if os.path.splitext(name)[1] in _IDS.keys() - {".txt"}:
        return False
    try:
        return name == "/dev/stdin" or Path(name).is_fifo()
    except (OSError, ValueError):
        return False


def _piped_ids(location: Location) -> _Ids:
    if location.name == "-":
        if sys.stdin is None:  # closed by who started the process
            raise location.error("standard input is closed; name a file of ids.")
        data = sys.stdin.buffer.read(_MAX_PIPED + 1)
    else:
        with open(location.path, "rb") as file:
            data = file.read(_MAX_PIPED + 1)
    if len(data) > _MAX_PIPED:
        raise location.error(f"it has over {_MAX_PIPED} bytes; save the ids to a file.")
    if data:
        return text_ids(location, data)
    return []


def open_hdf5(location: Location) -> VectorSource:
    """The dataset of the key; without one ``train``, or the only matrix."""
    import h5py

    file = _hdf5(location)
    if location.key is None:
        # Hard links only: looking at any other kind would open what it points to.
        datasets = {}
        for key in file:
            link = file.get(key, getlink=True)
            if isinstance(link, h5py.HardLink) and isinstance(file[key], h5py.Dataset):
                datasets[key] = file[key]
        if "train" in datasets:
            location = replace(location, key="train")
        else:
            held = "no dataset 'train' and {} matrices among its datasets"
            location = location.sole(datasets, is_matrix, held)
    dataset = _dataset(location, file)
    if len(dataset.shape) == 1 and f"size_{location.key}" in file:
        return _open_sets(location, file, dataset)
    stream = by_rows(lambda start, stop: dataset[start:stop])
    return VectorSource(location, dataset.shape, dataset.dtype, stream)


def _open_sets(location: Location, file: Any, items: Any) -> VectorSource:
    """Sets in the sparse layout of ann-benchmarks, as rows of 0 and 1.

    ``train`` holds the members of all sets, ``size_train`` their number in each, and the attribute
    ``dimension`` the number of columns (ann_benchmarks/datasets.py, write_sparse_output).
    """
    sizes = _dataset(replace(location, key=f"size_{location.key}"), file)
    columns = file.attrs.get("dimension")
    stated = np.asarray(columns)
    if stated.shape or stated.dtype.kind not in "iu" or sizes.ndim != 1:
        raise location.error("a file of sets needs the attribute 'dimension', a whole number.")
    if sizes.dtype.kind not in "iu" or items.dtype.kind not in "iu":
        raise location.error("members of sets and their numbers must be whole numbers.")
    counts = np.asarray(sizes[...], np.int64)
    ends = np.append(0, np.cumsum(counts))
    if (counts < 0).any() or ends[-1] != items.shape[0]:
        raise location.error(
            f"its sets have {ends[-1]} members by {sizes.name}, and {items.shape[0]} are stored; "
            f"the file is damaged."
        )

    def read_rows(start: int, stop: int) -> Any:
        members = np.asarray(items[ends[start] : ends[stop]], np.int64)
        wrong = np.flatnonzero((members < 0) | (members >= int(columns)))
        if wrong.size:
            row = np.searchsorted(ends, ends[start] + wrong[0], side="right") - 1
            raise location.error(f"row {row} has a member that is not in 0 … {int(columns) - 1}.")
        places = ends[start : stop + 1] - ends[start]
        ones = np.ones(len(members), np.uint8)
        matrix = canonical_csr(
            scipy.sparse.csr_matrix((ones, members, places), (stop - start, int(columns)))
        )
        matrix.data[:] = 1  # a member that is given twice is in the set
        return matrix

    shape = (len(counts), int(columns))
    return VectorSource(location, shape, np.dtype(np.uint8), by_rows(read_rows), is_sparse=True)


def hdf5_ids(location: Location) -> AnyArray | list[str]:
    """The ids in a dataset of integers or strings."""
    import h5py

    dataset = _dataset(location, _hdf5(location))
    text = h5py.check_string_dtype(dataset.dtype)
    if text is not None and len(dataset.shape) == 1:
        return list(dataset.asstr()[:])
    if dataset.dtype.hasobject:  # such as lists and references
        raise location.error(f"dataset {location.key!r} holds no integers or strings.")
    return np.asarray(dataset[...])


def _hdf5(location: Location) -> Any:
    import h5py

    file = h5py.File(location.path, "r")
    location.resources.enter_context(file)
    location.check_names(file)
    return file


def _dataset(location: Location, file: Any) -> Any:
    """The dataset that ``location`` names, in this file and no larger than its stored bytes."""
    import h5py

    key = location.key
    dataset = file.get(key)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise location.error(f"it has no dataset {key!r}; name one of {', '.join(file)}.")
    if dataset.file.filename != file.filename or dataset.external or dataset.is_virtual:
        raise location.error(f"dataset {key!r} lies in another file; name that file instead.")
    item_bytes = dataset.id.get_type().get_size()
    values = math.prod(dataset.shape)
    chunk_values = math.prod(dataset.chunks or ())
    declared = max(values, chunk_values) * item_bytes
    stored = min(dataset.id.get_storage_size(), location.size)
    ratio = 1
    if dataset.id.get_create_plist().get_nfilters():
        ratio = MAX_RATIO
    if declared > ratio * stored:
        raise location.error(
            f"dataset {key!r} declares {declared} bytes, but {stored} are stored; the file is"
            " damaged, or was never written to the end."
        )
    return dataset


_LOADED_BYTES = 1 << 28
_LOADED_RATIO = 8
_SPARSE_MEMBERS = {"data", "format", "shape"}


def _mapped(location: Location) -> AnyArray:
    """The array in a .npy file, of which pages are read when they are used; never an object."""
    location.refuse_key()
    with open(location.path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":  # NumPy would call it pickled, and say how to load it
            raise location.error("it does not begin as a .npy file; give it its right suffix.")
    array: Any = np.load(location.path, mmap_mode="r")
    left = location.size - array.offset
    if array.nbytes != left:
        raise location.error(
            f"its header declares shape {array.shape} of {array.dtype}, but {left} bytes follow it;"
            " the file is damaged."
        )
    return array  # type: ignore[no-any-return]


def _of_mapped(location: Location, array: AnyArray) -> VectorSource:
    """A source of rows that are copied from a mapped file, which takes no memory in between."""

    def read_rows(start: int, stop: int) -> AnyArray:
        rows = array[start:stop].copy()
        release_pages(array)
        return rows

    return VectorSource(location, array.shape, array.dtype, by_rows(read_rows))


def _as_matrix(array: AnyArray) -> AnyArray:
    """Return an array of one dimension as one vector, as it is in memory; others as they are."""
    if array.ndim == 1:
        return array[np.newaxis]
    return array


def open_npy(location: Location) -> VectorSource:
    """The array of the file, as one vector if it has one dimension."""
    return _of_mapped(location, _as_matrix(_mapped(location)))


def npy_ids(location: Location) -> AnyArray:
    """The array of the file, in memory."""
    return np.array(_mapped(location))


def open_vecs(location: Location, value: str) -> VectorSource:
    """Rows of an int32 number of columns and then as many values, all little-endian."""
    location.refuse_key()
    (columns,) = np.fromfile(location.path, "<i4", 1).tolist()
    if not 0 < columns * np.dtype(value).itemsize < location.size:
        raise location.error(f"row 0 declares {columns} columns; the file is damaged.")
    fields = [("columns", "<i4"), ("values", value, (columns,))]
    row = np.dtype(fields)
    rows, surplus = divmod(location.size, row.itemsize)

    def read_rows(start: int, stop: int) -> AnyArray:
        block = np.fromfile(
            location.path,
            row,
            count=stop - start,
            offset=start * row.itemsize,
        )
        declared = block["columns"]
        wrong = np.flatnonzero(declared != columns)
        if wrong.size:
            raise location.error(
                f"row {start + wrong[0]} declares {declared[wrong[0]]} columns and row 0 {columns};"
                f" all rows must be of one length."
            )
        return block["values"]

    if surplus:
        read_rows(0, min(rows, _PIECE // row.itemsize))  # a row that differs says more
        raise location.error(
            f"row {rows} has {surplus} of its {row.itemsize} bytes; the file is cut short, or a row"
            f" before it does not have {columns} columns."
        )
    shape = (rows, columns)
    return VectorSource(location, shape, np.dtype(value), by_rows(read_rows))


def open_bin(location: Location, value: str) -> VectorSource:
    """Two uint32, the rows and the columns, and then all values, little-endian: big-ann-benchmarks.

    Sources: https://big-ann-benchmarks.com/neurips21.html, "Dataset file format".
    """
    location.refuse_key()
    header = np.fromfile(location.path, "<u4", 2)
    if len(header) < 2:
        raise location.error("it has no eight bytes of rows and columns; the file is damaged.")
    rows, columns = header.tolist()
    left = location.size - header.nbytes
    if rows * columns * np.dtype(value).itemsize != left:
        raise location.error(
            f"it declares {rows} x {columns} values of {np.dtype(value).itemsize} byte(s), but "
            f"{left} bytes follow; the file is cut short, or its suffix is another's."
        )
    if not left:
        raise location.error(f"it is {rows} x {columns}; it needs a row and a column.")
    array = np.memmap(location.path, value, "r", header.nbytes, (rows, columns))
    return _of_mapped(location, array)


def _archive(location: Location) -> Any:
    """The arrays in a .npz file by key, each of which is loaded when it is asked for, and whole."""
    with zipfile.ZipFile(location.path) as archive:
        declared = sum(member.file_size for member in archive.infolist())
    if declared > max(_LOADED_BYTES, _LOADED_RATIO * location.size):
        raise location.error(
            f"its arrays take {declared} bytes of memory, and the file has {location.size}; save"
            " them as .npy."
        )
    arrays = np.load(location.path)
    location.resources.enter_context(arrays)
    location.check_names(arrays.files)
    return arrays


def npz_ids(location: Location) -> AnyArray:
    """The array of the key."""
    return _array(location, _archive(location))


def _array(location: Location, arrays: Any) -> AnyArray:
    if location.key not in arrays.files:
        names = ", ".join(arrays.files) or "(none)"
        raise location.error(f"it has no array {location.key!r}; name one of {names}.")
    array: AnyArray = arrays[location.key]
    return array


def open_npz(location: Location) -> VectorSource:
    """The array of the key; without one the only matrix, or a sparse one that fills the file."""
    arrays = _archive(location)
    if location.key is None and set(arrays.files) >= _SPARSE_MEMBERS:
        return _open_sparse(location)
    if location.key is None:
        location = location.sole(arrays, is_matrix, "{} matrices among its arrays")
    array = _array(location, arrays)
    return VectorSource.in_memory(location, _as_matrix(array))


def _open_sparse(location: Location) -> VectorSource:
    """A matrix saved by ``scipy.sparse.save_npz``."""
    matrix = scipy.sparse.load_npz(location.path)
    if matrix.format not in ("csr", "csc"):
        raise location.error(f"its sparse format is {matrix.format!r}; save it as CSR.")
    # Unlike in CSR, where indptr has an entry for each, no member of CSC confirms their number.
    if matrix.shape[0] > MAX_RATIO * location.size:
        raise location.error(f"it declares {matrix.shape[0]} rows, far more than it can hold.")
    location.check_matrix(matrix.shape, matrix.dtype)
    return VectorSource.in_memory(location, canonical_csr(matrix))


_VECTORS: dict[str, Callable[[Location], VectorSource]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".fvecs": partial(open_vecs, value="<f4"),
    ".bvecs": partial(open_vecs, value="u1"),
    ".ivecs": partial(open_vecs, value="<i4"),
    ".fbin": partial(open_bin, value="<f4"),
    ".u8bin": partial(open_bin, value="u1"),
    ".i8bin": partial(open_bin, value="i1"),
    ".ibin": partial(open_bin, value="<i4"),
    ".hdf5": open_hdf5,
    ".h5": open_hdf5,
    **dict.fromkeys(COLUMN_SUFFIXES, open_vectors_of_columns),
    **OPEN_TEXT,
}
VECTOR_SUFFIXES = frozenset(_VECTORS)
_IDS: dict[str, Callable[[Location], _Ids]] = {
    ".npy": npy_ids,
    ".txt": txt_ids,
    ".npz": npz_ids,
    ".hdf5": hdf5_ids,
    ".h5": hdf5_ids,
    **dict.fromkeys(COLUMN_SUFFIXES, column_ids),
}
