"""Datasets in HDF5 files; the layout of ann-benchmarks names them ``train`` and ``test``.

The HDF5 library trusts what a file declares, so declared sizes and links to other files are checked
here before it follows them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.vectors.source import MAX_RATIO, Location, VectorSource, by_rows, is_matrix


def open_hdf5(location: Location) -> VectorSource:
    import h5py

    file = location.resources.enter_context(h5py.File(location.path, "r"))
    location.check_names(file)
    if location.key is None:
        # Hard links only: looking at any other kind would open what it points to.
        keys = [key for key in file if isinstance(file.get(key, getlink=True), h5py.HardLink)]
        if "train" in keys:
            location = replace(location, key="train")
        else:
            sets = {key: file[key] for key in keys if isinstance(file[key], h5py.Dataset)}
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
    if text is not None and len(dataset.shape) == 1:
        return list(dataset.asstr()[:])
    if dataset.dtype.hasobject:  # such as lists and references
        raise location.error(f"dataset {location.key!r} holds no integers or strings.")
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
