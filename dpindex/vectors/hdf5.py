"""Datasets in HDF5 files; the layout of ann-benchmarks names them ``train`` and ``test``."""

from __future__ import annotations

import math
import struct
from contextlib import ExitStack
from dataclasses import replace
from typing import IO, Any

import numpy as np

from dpindex.vectors.location import MAX_RATIO, Location, import_extra
from dpindex.vectors.source import Chunk, VectorSource, is_real

__all__ = ["open_dataset", "open_hdf5"]


_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("object", "<u4")])
_HEAP = struct.Struct("<5s3xQ")
_OBJECT = struct.Struct("<H6xQ")


class _Hdf5(VectorSource):
    def __init__(self, location: Location, dataset: Any) -> None:
        super().__init__(location, dataset.shape, dataset.dtype)
        self._dataset = dataset

    def _rows(self, start: int, stop: int) -> Chunk:
        return self._dataset[start:stop]


def open_hdf5(location: Location, resources: ExitStack) -> VectorSource:
    file = _open(location, resources)
    key = _default_key(location, file) if location.key is None else location.key
    return _Hdf5(replace(location, key=key), _dataset(location, file, key))


def open_dataset(location: Location, resources: ExitStack, key: str) -> Any:
    """The dataset ``key``, of any shape and type, its size and that of its strings checked."""
    dataset = _dataset(location, _open(location, resources), key)
    text = import_extra("h5py", location.name).check_string_dtype(dataset.dtype)
    if text is not None and text.length is None:
        _check_strings(location, dataset, key)
    return dataset


def _open(location: Location, resources: ExitStack) -> Any:
    h5py = import_extra("h5py", location.name)
    return resources.enter_context(h5py.File(location.path, "r"))


def _default_key(location: Location, file: Any) -> str:
    h5py = import_extra("h5py", location.name)
    # hard links only: looking at any other kind would open what it points to
    own = [k for k in file if isinstance(file.get(k, getlink=True), h5py.HardLink)]
    if "train" in own:
        return "train"
    datasets = {k: file[k] for k in own if isinstance(file[k], h5py.Dataset)}
    found = [k for k, d in datasets.items() if len(d.shape or ()) == 2 and is_real(d.dtype)]
    if len(found) != 1:
        raise location.error(
            f"it has no dataset 'train' and {len(found)} matrices among its datasets"
            f" ({', '.join(datasets) or 'none'}); name one as PATH:KEY."
        )
    return str(found[0])


def _dataset(location: Location, file: Any, key: str) -> Any:
    h5py = import_extra("h5py", location.name)
    dataset = file.get(key)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise location.error(f"it has no dataset {key!r}; name one of {', '.join(file)}.")
    if dataset.file.filename != file.filename or dataset.external or dataset.is_virtual:
        raise location.error(f"dataset {key!r} lies in another file; name that file instead.")
    _check_size(location, dataset, key)
    return dataset


def _check_strings(location: Location, dataset: Any, key: str) -> None:
    """Refuse strings that HDF5 itself would read without looking.

    It allocates up to 4 GB for a length before it looks whether the file has as much, and walks for
    ever through a heap with an object of size 0. A string is stored as a reference: its length, and
    the address and number of an object in a heap.
    """
    if dataset.id.get_create_plist().get_nfilters():
        raise location.error(f"dataset {key!r} holds compressed strings; save it uncompressed.")
    if dataset.file.id.get_create_plist().get_sizes() != (8, 8):  # bytes of addresses and sizes
        raise location.error(f"dataset {key!r} is of an old format; save it again.")
    if dataset.chunks is None:
        extents = [(dataset.id.get_offset(), dataset.id.get_storage_size())]
    else:
        chunks = map(dataset.id.get_chunk_info, range(dataset.id.get_num_chunks()))
        extents = [(chunk.byte_offset, chunk.size) for chunk in chunks]
    declared, heaps = 0, set[int]()
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
        start, rest = dataset.file.userblock_size, location.size
        for heap in heaps - {0}:  # an empty string lies nowhere
            rest -= _heap_size(file, start + heap, location.size)
            if rest < 0:
                raise location.error(f"the heaps of dataset {key!r} overlap; the file is damaged.")


def _heap_size(file: IO[bytes], address: int, most: int) -> int:
    """Bytes of a global heap, of which every object lies inside it (HDF5 format, III.E)."""
    if address + _HEAP.size > most:
        raise ValueError("a heap of strings lies beyond the end")
    file.seek(address)
    mark, size = _HEAP.unpack(file.read(_HEAP.size))
    if mark != b"GCOL\1" or not _HEAP.size <= size <= most - address:
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


def _check_size(location: Location, dataset: Any, key: str) -> None:
    """Refuse a dataset larger than its stored bytes can be, before a row of it is allocated."""
    item_bytes = dataset.id.get_type().get_size()
    declared = max(math.prod(dataset.shape), math.prod(dataset.chunks or ())) * item_bytes
    stored = min(dataset.id.get_storage_size(), location.size)
    ratio = MAX_RATIO if dataset.id.get_create_plist().get_nfilters() else 1
    if declared > ratio * stored:
        raise location.error(
            f"dataset {key!r} declares shape {dataset.shape}, {declared} bytes, but {stored} are"
            " stored; the file is damaged, or was never written to the end."
        )
