"""Files of vectors and of ids: one reader for each suffix."""

from __future__ import annotations

import math
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy

from dpindex.base.arrays import AnyArray, Doubles, canonical_csr, id_array
from dpindex.base.errors import escaped, naming
from dpindex.base.files import AnyPath, release_pages
from dpindex.data.parquet import open_parquet, parquet_ids
from dpindex.data.source import MAX_RATIO, Location, VectorSource, by_rows, is_matrix, locate

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


def read_ids(location: AnyPath) -> AnyArray:
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
    name = os.fsdecode(location)
    read: Callable[[Location], _Ids] = _piped_ids
    if name == "-" or _is_pipe(name):
        file = Location(name, name)
    else:
        file, read = locate(name, _IDS, "file of ids")
        if file.key is None and read not in (npy_ids, _txt_ids):
            raise file.error("name the array or column that holds the ids, as PATH:KEY.")
    with file.reading(), file.resources:
        ids = checked_ids(read(file), file)
        if not ids.size:
            raise file.error("it holds no ids; write one for every vector.")
        return ids


def checked_ids(ids: Any, location: Location) -> AnyArray:
    """Return ids of a file as an array; InputError for another type, and for an empty id."""
    with naming(escaped(location.name)):
        array = id_array(ids)
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
        return name == "/dev/stdin" or Path(name).is_fifo()
    except (OSError, ValueError):
        return False


def _piped_ids(location: Location) -> _Ids:
    if location.name == "-":
        data = sys.stdin.buffer.read(_MAX_PIPED + 1)
    else:
        with open(location.path, "rb") as file:
            data = file.read(_MAX_PIPED + 1)
    if len(data) > _MAX_PIPED:
        raise location.error(f"it has over {_MAX_PIPED} bytes; save the ids to a file.")
    if data:
        return _lines(location, data)
    return []


def _txt_ids(location: Location) -> _Ids:
    location.refuse_key()
    return _lines(location, Path(location.path).read_bytes())


def _lines(location: Location, data: bytes) -> _Ids:
    text = data.decode("utf-8-sig")
    whole = text.removesuffix("\n")
    lines = [line.strip() for line in whole.split("\n")]
    if "" in lines:
        raise location.error(f"line {lines.index('') + 1} is empty; write one id on every line.")
    try:
        numbers = np.array([int(line) for line in lines], dtype=np.int64)
    except (ValueError, OverflowError):
        return lines
    if [str(number) for number in numbers.tolist()] == lines:
        return numbers
    return lines


def open_csv(location: Location) -> VectorSource:
    """The file is read once for its shape; every line is checked when its row is read."""
    location.refuse_key()
    text = open(location.path, encoding="utf-8-sig")  # noqa: SIM115
    location.resources.enter_context(text)

    def lines() -> Iterator[str]:
        text.seek(0)
        try:
            yield from (line for line in text if line.strip())
        except UnicodeDecodeError:  # its message repeats what it cannot read
            raise location.error("it is not text in UTF-8; save it again.") from None

    first = next(lines(), "")
    cells = first.split(",")
    columns = len(cells)
    skipped = 0 if _is_numbers(first) else 1
    # Taken for names, a row of numbers with a gap would be left out without a word.
    if any(not cell.strip() for cell in cells) and any(map(_is_numbers, cells)):
        raise location.error(
            "its first line has numbers and an empty cell, and is neither names nor a vector; fill "
            "the missing values."
        )
    rows = sum(1 for _ in lines()) - skipped

    def stream(firsts: range) -> Iterator[Doubles]:
        left = islice(lines(), skipped + firsts.start, None)
        for start in firsts:
            chunk = list(islice(left, firsts.step))
            yield _numbers(location, chunk, start, columns)

    shape = (rows, columns)
    return VectorSource(location, shape, np.dtype(np.float64), stream)


def _numbers(
    location: Location,
    lines: list[str],
    first: int,
    columns: int,
) -> Doubles:
    try:
        numbers = _parsed(lines)
        if numbers.shape[1] == columns:
            return numbers
    except ValueError:
        pass
    for row, line in enumerate(lines, first):
        cells = line.strip().split(",")
        if len(cells) != columns:
            raise location.error(
                f"row {row} has {len(cells)} values and the first line {columns}; all lines must "
                f"have as many, separated by commas."
            )
        for column, cell in enumerate(cells):
            if not _is_numbers(cell):
                raise location.error(
                    f"row {row}, column {column} is no number (its text is not shown); a .csv of "
                    f"vectors holds numbers only: leave other columns out."
                )
    raise location.error("its lines are no numbers separated by commas.")


def _parsed(lines: Iterable[str]) -> Doubles:
    return np.loadtxt(
        lines,
        delimiter=",",
        ndmin=2,
        comments=None,
        quotechar='"',
    )


def _is_numbers(line: str) -> bool:
    if not line.strip():
        return False
    try:
        return _parsed([line]).size > 0
    except ValueError:
        return False


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
    stream = by_rows(lambda start, stop: dataset[start:stop])
    return VectorSource(location, dataset.shape, dataset.dtype, stream)


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
    return array[np.newaxis] if array.ndim == 1 else array


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
