"""The one table of formats: what a suffix means, and the door that uses it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from dpindex.vectors.archive import open_npz
from dpindex.vectors.hdf5 import open_hdf5
from dpindex.vectors.location import Location, locate, reading
from dpindex.vectors.parquet import open_parquet
from dpindex.vectors.raw import open_npy, open_vecs
from dpindex.vectors.source import VectorSource

__all__ = ["open_vectors"]

_OPENERS: dict[str, Callable[[Location, ExitStack], VectorSource]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".fvecs": partial(open_vecs, value="<f4"),
    ".bvecs": partial(open_vecs, value="u1"),
    ".ivecs": partial(open_vecs, value="<i4"),
    ".hdf5": open_hdf5,
    ".h5": open_hdf5,
    ".parquet": open_parquet,
}


def open_vectors(location: str | os.PathLike[str]) -> VectorSource:
    """Open a file of vectors, to be read in chunks; close it, or use it in a ``with``.

    ``location`` is ``PATH`` or ``PATH:KEY``. The suffix tells the format: .npy; .npz (an array by
    key, or a CSR or CSC matrix saved by scipy); .fvecs, .bvecs, .ivecs; .hdf5 or .h5 (a dataset by
    key, ``train`` if none is given); .parquet (a list column by key). Where there is only one
    matrix no key is needed.

    Raises InputError, one sentence that begins with ``location``, when the file is missing, empty,
    damaged, of an unknown format, or holds anything but a real matrix with at least one row and one
    column. Damage further in is found when the rows there are read.

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
    found = locate(location)
    opener = _OPENERS.get(found.suffix)
    if opener is None:
        raise found.error(
            f"no vector format has the suffix {found.suffix!r}; use one of {', '.join(_OPENERS)}."
        )
    with reading(found.name), ExitStack() as resources:
        source = opener(found, resources)
        source.own(resources.pop_all())
        return source
