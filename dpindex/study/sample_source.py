"""Checks of the vectors that a user gives as a public sample, and the rows that a plan takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from dpindex.base.arrays import spaced
from dpindex.base.checks import check_values
from dpindex.base.errors import DamagedError, InputError, StorageError, naming
from dpindex.data import VectorSource, as_source, dense_rows, taken_rows
from dpindex.data.source import check_finite
from dpindex.mechanism.grid import first_fault
from dpindex.storage.directory import IndexDirectory
from dpindex.study.goal import MAX_DENSE_DIM

# Vectors that a plan needs, and entries of one.
_MIN_ROWS = 500
_MAX_ENTRIES = 2**17


def checked_queries(queries: Any, dim: int) -> VectorSource:
    """Return public queries; InputError unless they have ``dim`` columns."""
    source = as_source(queries, "the public queries")
    if source.shape[1] != dim:
        raise InputError(f"{source.name} has {source.shape[1]} columns, and the sample {dim}.")
    return source


def checked_sample(source: VectorSource, n: int, skip_leak_check: bool) -> None:
    """Refuse a public sample that is too small or looks private.

    Raises
    ------
    InputError
        With the remedy.
    """
    rows = source.shape[0]
    if rows < _MIN_ROWS:
        raise InputError(
            f"{source.name} has {rows} rows; a plan needs at least {_MIN_ROWS} public vectors."
        )
    reason = None
    if not skip_leak_check:
        reason = _suspicion(source, n)
    if reason is not None:
        raise InputError(
            f"{source.name} looks like the private vectors themselves ({reason}), and parameters "
            f"that are chosen by looking at private data reveal something that no epsilon covers; "
            f"name another public sample instead, or allow it if it is public after all or you "
            f"accept that.",
            field="skip_leak_check",
        )
    check_finite(source)


def refuse_outside(source: VectorSource, bounds: tuple[float, float], scale: float) -> None:
    """Refuse a value outside the bounds in any row, though a plan takes some of them alone."""
    find = partial(first_fault, bounds=bounds, scale=scale, clip=False)
    with naming(source.name):
        for first_row, chunk in source.chunks():
            check_values(chunk, first_row, find)


def _suspicion(source: VectorSource, n: int) -> str | None:
    """Return why the sample looks like the private collection itself, or None if it does not.

    It does if it has exactly the n rows of the collection, or if an index in its directory or in
    the working directory was built from as many rows of as many columns.

    This detects accidents only. No program can tell a copy of private vectors in memory, under
    another size, or in part from public data; whoever declares a sample public is responsible.
    """
    rows, columns = source.shape
    if rows == n:
        return f"it has exactly the {n} rows of the collection that is planned for"
    file_folder = Path(source.name.partition(":")[0]).resolve().parent
    for folder in dict.fromkeys((Path.cwd(), file_folder)):
        for path in filter(Path.is_dir, sorted(folder.glob("*"))):
            directory = IndexDirectory(path)
            try:
                manifest = directory.manifest()
            except (DamagedError, StorageError):  # no index, damaged, or of another version
                continue
            if (manifest.count, manifest.settings.spec.dim) == (rows, columns):
                return f"{directory.path} holds as many codes, of as many attributes"
    return None


def sample_rows(source: VectorSource, count: int) -> Any:
    """Return at most ``count`` rows, evenly spaced, float32: an array, or a CSR matrix if wide.

    Raises
    ------
    InputError
        For wide rows of too many entries.
    """
    rows, columns = source.shape
    chosen = spaced(rows, count)
    if columns <= MAX_DENSE_DIM:
        return dense_rows(source, chosen).astype(np.float32)
    sample = scipy.sparse.csr_matrix(taken_rows(source, chosen), dtype=np.float32)
    sample.eliminate_zeros()
    if sample.nnz > _MAX_ENTRIES * sample.shape[0]:
        raise InputError(
            f"{source.name} has {sample.nnz // sample.shape[0]} entries a row; a plan takes at "
            f"most {_MAX_ENTRIES}."
        )
    return sample
