"""Datasets in HDF5 files; the layout of ann-benchmarks names them ``train`` and ``test``.

The HDF5 library trusts what a file declares, so declared sizes, links to other files and the
references of strings are checked here before it follows them.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import IO, Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.vectors.source import MAX_RATIO, Location, VectorSource, by_rows, is_matrix

_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("object", "<u4")])
_HEAP = struct.Struct("<5s3xQ")
_OBJECT = struct.Struct("<H6xQ")


def open_hdf5(location: Location) -> VectorSource:
    import h5py

    file = location.resources.enter_context(h5py.File(location.path, "r"))
    location.check_names(file)
    if location.key is None:
        # Hard links only: looking at any other kind would open what it points to.
        own = [key for key in file if isinstance(file.get(key, getlink=True), h5py.HardLink)]
        if "train" in own:
            location = replace(location, key="train")
        else:
            sets = {key: file[key] for key in own if isinstance(file[key], h5py.Dataset)}
            held = "no dataset 'train' and {} matrices among its datasets"
            location = location.sole(sets, is_matrix, held)
    dataset = _dataset(location, file)
    stream = by_rows(lambda start, stop: dataset[start:stop])
    return VectorSource(location, dataset.shape, dataset.dtype, stream)


def hdf5_ids(location: Location) -> AnyArray | list[str]:
    """The ids in a dataset of integers or strings."""
    import h5py

    file = location.resources.enter_context(h5py.File(location.path, "r"))
    location.check_names(file)
    dataset = _dataset(location, file)
    text = h5py.check_string_dtype(dataset.dtype)
    if text is None and dataset.dtype.hasobject:  # such as lists, whose heaps are not checked
        raise location.error(f"dataset {location.key!r} holds no integers or strings.")
    if text is not None and text.length is None:
        _check_strings(location, dataset)
    if text is not None and len(dataset.shape) == 1:
        return list(dataset.asstr()[:])
    return np.asarray(dataset[...])


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
    declared = max(math.prod(dataset.shape), math.prod(dataset.chunks or ())) * item_bytes
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


def _check_strings(location: Location, dataset: Any) -> None:
    """Refuse strings whose references or heaps are damaged.

    HDF5 allocates up to 4 GB for a declared length before it reads, and does not terminate on a
    heap with an object of size 0. A string is stored as a reference: its length, and the address of
    a heap and the number of an object in it.
    """
    key = location.key
    if dataset.id.get_create_plist().get_nfilters():
        raise location.error(f"dataset {key!r} holds compressed strings; save it uncompressed.")
    if dataset.file.id.get_create_plist().get_sizes() != (8, 8):  # bytes of addresses and sizes
        raise location.error(f"dataset {key!r} is of an old format; save it again.")
    if dataset.chunks is None:
        extents = [(dataset.id.get_offset(), dataset.id.get_storage_size())]
    else:
        chunks = map(dataset.id.get_chunk_info, range(dataset.id.get_num_chunks()))
        extents = [(chunk.byte_offset, chunk.size) for chunk in chunks]
    declared = 0
    heaps = set[int]()
    with open(location.path, "rb") as file:
        for offset, size in extents:
            file.seek(offset)
            references = np.frombuffer(file.read(min(size, location.size)), _REFERENCE)
            declared += int(references["length"].sum(dtype=np.int64))
            heaps.update(references["heap"].tolist())
        if declared > location.size:
            raise location.error(
                f"dataset {key!r} declares {declared} bytes of strings in a file of"
                f" {location.size}; the file is damaged."
            )
        start = dataset.file.userblock_size
        rest = location.size
        for heap in heaps - {0}:  # an empty string has no heap
            rest -= _heap_size(file, start + heap, location.size)
            if rest < 0:
                raise location.error(f"the heaps of dataset {key!r} overlap; the file is damaged.")


def _heap_size(file: IO[bytes], address: int, file_size: int) -> int:
    """Bytes of a global heap, every object of which lies inside it (HDF5 format, III.E)."""
    if address + _HEAP.size > file_size:
        raise ValueError("a heap of strings lies beyond the end")
    file.seek(address)
    mark, size = _HEAP.unpack(file.read(_HEAP.size))
    if mark != b"GCOL\1" or not _HEAP.size <= size <= file_size - address:
        raise ValueError("a heap of strings is damaged")
    objects = file.read(size - _HEAP.size)
    at = 0
    while at + _OBJECT.size <= len(objects):
        number, length = _OBJECT.unpack_from(objects, at)
        # Object 0 is free space, and counts its own header.
        step = _OBJECT.size + -(-length // 8) * 8 if number else length
        if step < _OBJECT.size or at + step > len(objects):
            raise ValueError("a heap of strings is damaged")
        at += step
    return int(size)
