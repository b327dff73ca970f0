"""Public knowledge of the private vectors: a sample of the same kind, or a few facts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Integers,
    Singles,
    finite_number,
    in_units_of_largest,
    spaced,
    unit,
)
from dpindex.base.errors import DamagedError, InputError, StorageError
from dpindex.data import VectorSource, dense_rows
from dpindex.mechanism.projections.dense import normal_integers
from dpindex.mechanism.public_random import PublicStream
from dpindex.storage.directory import IndexDirectory

__all__ = ["MAX_DENSE_DIM", "Facts", "Sample", "checked_source", "in_groups", "sample_rows"]

MAX_DENSE_DIM = 4096
"""Attributes up to which vectors are held dense; wider ones are sparse matrices."""

_MIN_ROWS = 500
_MAX_ENTRIES = 2**17
_SYNTHETIC_ROWS = 2000
_NORMAL_BITS = 8

_COMPARED = 500
_TENTH = 9
_FORTIETH = 39
_TINY = 1e-7
_GROUPED = 2.0
"""How much nearer than predicted the nearest vector is in a sample with near duplicates."""


@dataclass(frozen=True)
class Facts:
    """Public facts about a collection, for when there is no public sample of its kind.

    They are a rough substitute: synthetic vectors lack the many small regularities of real ones,
    which a denoiser exploits. Prefer a public sample, even a small one.

    Parameters
    ----------
    norm : float
        Typical norm of a vector after scaling, (0, ∞).
    neighbour_cosine : float
        Cosine of a vector and its tenth nearest in the collection, (typical_cosine, 1).
    typical_cosine : float
        Mean cosine of two random vectors, [0, 1).
    decay : float
        The j-th largest variance is proportional to ``j^−decay``, [0, 4); 1 to 2 for images and
        embeddings.

    Raises
    ------
    InputError
        For a fact out of its range.

    >>> Facts(norm=1.0, neighbour_cosine=0.8, decay=1.5).sample(16).shape[1]
    16
    """

    norm: float
    neighbour_cosine: float
    typical_cosine: float = 0.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        finite_number(self.norm, "the typical norm", above=0.0)
        for name, high in (("typical_cosine", 1.0), ("neighbour_cosine", 1.0), ("decay", 4.0)):
            words = f"the {name.replace('_', ' ')}"
            value = finite_number(vars(self)[name], words)
            if not 0.0 <= value < high:
                raise InputError(f"{words} must lie in [0, {high:g}), not {value:g}.")
        if self.neighbour_cosine <= self.typical_cosine:
            raise InputError(
                f"the neighbour cosine, {self.neighbour_cosine:g}, must be above the typical "
                f"cosine, {self.typical_cosine:g}."
            )

    def sample(self, dim: int) -> Singles:
        """Return synthetic vectors with these properties, in scaled units, float32, (2000, dim).

        Each is ``√t·mean + √(1 − t)·z`` brought to the typical norm, where t is the typical cosine
        and z a Gaussian vector of norm 1 with decaying variances along random directions.
        """
        stream = PublicStream(0, "plan facts")
        z = _normal(_SYNTHETIC_ROWS, dim, stream) * np.arange(1, dim + 1) ** (-self.decay / 2)
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        rotation = np.linalg.qr(_normal(dim, dim, stream))[0]
        mean = np.sign(_normal(1, dim, stream)[0]) / math.sqrt(dim)
        vectors = math.sqrt(self.typical_cosine) * mean
        vectors = vectors + math.sqrt(1 - self.typical_cosine) * (z @ rotation)
        vectors *= self.norm / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Sample:
    """Public vectors, and what is known of the queries of the collection.

    Attributes
    ----------
    vectors : float32 array or CSR matrix, shape (m, dim)
        Vectors like those of the collection.
    groups : int array, shape (m,)
        Vectors of one group, such as captions of one picture, resemble each other more than others
        do. Queries come without siblings: the group of a sampled query is left out.
    queries : float32 array or CSR matrix, shape (q, dim), optional
        Vectors like the queries. Without them vectors of the sample play queries.
    """

    vectors: Any
    groups: Integers
    queries: Any = None

    @classmethod
    def of(
        cls,
        source: VectorSource,
        count: int,
        groups: AnyArray | None = None,
        queries: VectorSource | None = None,
    ) -> Sample:
        """Return at most ``count`` vectors of a source, evenly spaced, and as many queries.

        Raises
        ------
        InputError
            For another number of groups than vectors, and queries of another width.
        """
        rows, dim = source.shape
        labels = np.arange(rows)
        if groups is not None:
            if len(groups) != rows:
                raise InputError(
                    f"{source.name} has {rows} vectors, and there are {len(groups)} groups; give "
                    f"one for each vector."
                )
            labels = np.unique(groups, return_inverse=True)[1]
        asked = None
        if queries is not None:
            if queries.shape[1] != dim:
                raise InputError(f"{queries.name} has {queries.shape[1]} columns, not dim = {dim}.")
            asked = sample_rows(queries, count)
        return cls(sample_rows(source, count), labels[spaced(rows, count)], asked)

    @classmethod
    def ungrouped(cls, vectors: Any) -> Sample:
        """Return vectors that are each a group of its own."""
        return cls(vectors, np.arange(vectors.shape[0]))

    def clipped(self, low: float, high: float) -> Sample:
        """Return the sample, and the queries, with every attribute moved into a range."""
        queries = self.queries
        if queries is not None:
            queries = _clipped(queries, low, high)
        return Sample(_clipped(self.vectors, low, high), self.groups, queries)

    @property
    def is_grouped(self) -> bool:
        """True if some vectors have siblings."""
        return len(np.unique(self.groups)) < len(self.groups)


def _clipped(vectors: Any, low: float, high: float) -> Any:
    """Return an array, or a CSR matrix in whose range zero lies, clipped."""
    if not scipy.sparse.issparse(vectors):
        return np.clip(vectors, low, high)
    kept = vectors.copy()
    np.clip(kept.data, low, high, out=kept.data)
    return kept


def _normal(rows: int, columns: int, stream: PublicStream) -> Doubles:
    values = normal_integers(rows * columns, _NORMAL_BITS, stream)
    return values.reshape(rows, columns) / 2.0**_NORMAL_BITS


def checked_source(source: VectorSource, dim: int, n: int, skip_leak_check: bool) -> None:
    """Refuse a public sample that is too small, of other vectors, or looks private.

    Raises
    ------
    InputError
        With the remedy.
    """
    rows, columns = source.shape
    if columns != dim:
        raise InputError(f"{source.name} has {columns} columns, not dim = {dim}.")
    if rows < _MIN_ROWS:
        raise InputError(
            f"{source.name} has {rows} rows; a plan needs at least {_MIN_ROWS} public vectors, or "
            f"facts."
        )
    reason = None
    if not skip_leak_check:
        reason = _suspicion(source, n)
    if reason is not None:
        raise InputError(
            f"{source.name} looks like the private vectors themselves ({reason}), and parameters "
            f"that are chosen by looking at private data reveal something that no epsilon covers; "
            f"name a public sample or public facts instead, or skip "
            f"this check if it is public after all or you accept that.",
            field="skip_leak_check",
        )


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
    parts = []
    for first, chunk in source.chunks():
        places = chosen[chosen >= first] - first
        if places.size:
            kept = chunk[places[places < chunk.shape[0]]]
            parts.append(scipy.sparse.csr_matrix(kept, dtype=np.float32))
    sample = scipy.sparse.vstack(parts, format="csr")
    sample.eliminate_zeros()
    entries = sample.nnz // sample.shape[0]
    if sample.nnz > _MAX_ENTRIES * sample.shape[0]:
        raise InputError(
            f"{source.name} has {entries} entries a row; a plan takes at most {_MAX_ENTRIES}."
        )
    return sample


def in_groups(sample: Floats) -> bool:
    """Return whether most vectors of a sample have near duplicates in it.

    Among vectors without duplicates the distance to the j-th nearest grows as a power of j, and the
    exponent from the tenth to the fortieth predicts how near the nearest is. Sentences, pictures
    and tables are within a third of that prediction; five variants of each sentence, at a cosine of
    0.6 and more, make the nearest more than three times as near on a logarithmic scale.

    Parameters
    ----------
    sample : float array, shape (rows, dim)
        At least 41 vectors.

    >>> vectors = np.random.default_rng(0).normal(size=(600, 16))
    >>> in_groups(vectors), in_groups(np.concatenate([vectors, 1.01 * vectors + 0.01]))
    (False, True)
    """
    directions = unit(in_units_of_largest(sample))
    chosen = spaced(len(directions), _COMPARED)
    cosines = directions[chosen] @ directions.T
    cosines[np.arange(len(chosen)), chosen] = -np.inf
    nearest = -np.partition(-cosines, _FORTIETH, axis=1)[:, : _FORTIETH + 1]
    distances = np.maximum(1.0 - np.sort(nearest, axis=1)[:, ::-1], _TINY)
    first, tenth, fortieth = np.log(distances[:, [0, _TENTH, _FORTIETH]]).T
    exponent = np.median(fortieth - tenth) / math.log(4.0)
    return bool(np.median(tenth - first) > _GROUPED * max(exponent, _TINY) * math.log(10.0))


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
