"""Codebooks: public vectors that records report, what grows them, and where neighbours report.

Whole records are found through cells: a record reports its nearest codeword, or a random one. Some
queries have their neighbours in one cell, others in several. A guide, which is kept with a codebook
of few cells, says how a query's neighbours spread over them, so that candidates can go to the
queries that need them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Longs,
    Singles,
    issparse,
    nearest_items,
    of_norm_1,
    on_sphere_grid,
    row_blocks,
    row_norms,
    spaced,
    unit,
)
from dpindex.base.checks import finite_number, real_matrix, whole_number
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import AnyPath, checked_array, pack, unpack
from dpindex.data import Ranges, as_source, dense_rows, open_vectors
from dpindex.mechanism.public_parts import DIMS, PublicPart

MAX_CELLS = 512
"""Codewords of a codebook that has a guide, at most."""

_VECTORS = 4096
# Numbers in the cosines of players: what 512 of them take on average errs by a fiftieth.
_PLAYED = 1 << 18
_NEIGHBOURS = 5
_LEAST_PER_CELL = 4
_TEMPERATURES = np.geomspace(4.0, 128.0, 21)
_LEAST_CHANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Guide:
    """How neighbours spread over cells, learned from public vectors.

    Attributes
    ----------
    temperature : float
        ``softmax(temperature·cosines)`` of a query with all codewords is the chance that a
        neighbour's nearest codeword is each of them.
    moves : float32 array, shape (K, K)
        How many pairs of near neighbours have the first in one cell and the second in another.
    players : float32 array, shape (m, K)
        Cosines of some public vectors with all codewords; they play queries.
    """

    temperature: float
    moves: Singles
    players: Singles

    @classmethod
    def learned(cls, vectors: Singles, words: Singles) -> Guide | None:
        """Return the guide of public vectors and codewords, all of norm 1; None for too few.

        Parameters
        ----------
        vectors : float32 array, shape (n, dim)
        words : float32 array, shape (K, dim)
        """
        rows = spaced(len(vectors), _VECTORS)
        cells = len(words)
        if cells > MAX_CELLS or len(rows) < _LEAST_PER_CELL * cells:
            return None
        some = vectors[rows]
        cosines = some @ words.T
        cosines[np.arange(len(rows)), cosines.argmax(axis=1)] = _to_others(vectors, words)[rows]
        cell = cosines.argmax(axis=1)
        _, near = nearest_items(some, some, 1 + _NEIGHBOURS)
        others = near != np.arange(len(rows))[:, None]
        others[others.all(axis=1), -1] = False  # of many copies, one in the place of itself
        near = near[others].reshape(len(rows), _NEIGHBOURS)
        moves = np.zeros((cells, cells), dtype=np.float32)
        np.add.at(moves, (np.repeat(cell, _NEIGHBOURS), cell[near].ravel()), 1)

        def likelihood(temperature: float) -> float:
            chances = scipy.special.softmax(temperature * cosines, axis=1)
            own = np.take_along_axis(chances, cell[near], axis=1)
            return float(np.log(own + _LEAST_CHANCE).mean())

        best = max(_TEMPERATURES.tolist(), key=likelihood)
        return cls(best, moves, cosines[spaced(len(some), _PLAYED // cells)])

    @classmethod
    def read(cls, facts: Mapping[str, Any], arrays: dict[str, AnyArray], size: int) -> Guide:
        """Return the guide of a container for ``size`` codewords; raise for any other."""
        sizes = {"K": size}
        moves = checked_array(arrays["moves"], "f4", "KK", sizes)
        players = checked_array(arrays["players"], "f4", "mK", sizes)
        temperature = finite_number(facts["temperature"], "temperature", above=0.0)
        if set(arrays) != {"moves", "players"} or set(facts) != {"temperature"}:
            raise ValueError("names")
        if not len(players) or moves.min() < 0 or not moves.sum() > 0:
            raise ValueError("guide")
        return cls(temperature, moves, players)

    def of_cosines(self, cosines: Singles) -> Doubles:
        """Return chances of neighbours' cells, given cosines with all codewords: (nq, K)."""
        chances = scipy.special.softmax(self.temperature * cosines.astype(np.float64), axis=1)
        return np.asarray(chances)

    def of_reports(self, channel: Doubles) -> tuple[Doubles, Doubles]:
        """Return chances of neighbours' cells for each report of a query, and of the reports.

        Parameters
        ----------
        channel : array, shape (K, K)
            Chances of reports, a row for each cell.

        Returns
        -------
        arrays of shape (K, K) and (K,)
        """
        pairs = self.moves.astype(np.float64)
        # A few pairs as if cells had nothing to do with each other, for those never seen.
        total = pairs.sum()
        at_random = np.outer(pairs.sum(axis=1), pairs.sum(axis=0)) / total
        joint = channel.T @ (0.98 * pairs + 0.02 * at_random)
        reports = joint.sum(axis=1)
        return joint / np.maximum(reports[:, None], 1e-300), reports / total


def _to_others(vectors: Singles, words: Singles) -> Singles:
    """Return each vector's cosine with what its centroid is without it, shape (n,).

    A vector pulls its own centroid towards itself, which no query does: with centroids as they are,
    public vectors know their cells better than queries do, and these take too many candidates.
    """
    sums = np.zeros_like(words)
    blocks = [*row_blocks(len(vectors), _VECTORS)]
    cell = np.concatenate([(vectors[rows] @ words.T).argmax(axis=1) for rows in blocks])
    np.add.at(sums, cell, vectors)
    return np.asarray(np.einsum("ij,ij->i", unit(sums[cell] - vectors), vectors))


MIN_SIZE = 2
MAX_SIZE = 1 << 16


class Codebook(PublicPart):
    """Codewords c_1 … c_K, chosen without looking at the private vectors.

    Two codebooks are equal if their codewords as given are, bit for bit as float32.

    Parameters
    ----------
    vectors : array, shape (K, dim)
        K in [2, 65536]; directions count, lengths do not; no codeword may be zero.
    guide : Guide, optional
        How neighbours spread over cells, of :func:`dpindex.fit_codebook`: a search for a share of
        candidates uses it. It changes no code and is no part of the digest.

    Raises
    ------
    InputError
        For anything else, NaN or infinite values, and zero codewords.

    >>> book = Codebook(np.eye(4))
    >>> len(book), book.dim
    (4, 4)
    """

    kind = "codebook"
    holds = "codeword"
    suffix: ClassVar = ".codebook"
    shape: ClassVar = {"size": (MIN_SIZE, MAX_SIZE), "dim": DIMS}
    size: int

    def __init__(self, vectors: Any, guide: Guide | None = None) -> None:
        self.guide = guide
        table = vectors if issparse(vectors) else np.asanyarray(vectors)
        rows = real_matrix(table, table.shape[-1] if table.ndim else 0, "codewords")
        if issparse(rows):
            raise InputError("codewords must be a dense array.")
        if not MIN_SIZE <= len(rows) <= MAX_SIZE:
            raise InputError(f"a codebook has {MIN_SIZE} to {MAX_SIZE} codewords, not {len(rows)}.")
        with np.errstate(over="ignore"):
            # A copy, so that whoever gave them cannot change the codewords after their digest.
            given: Singles = np.array(rows, dtype=np.float32)
        finite = np.isfinite(given).all(axis=1)
        if not finite.all():
            row = int(finite.argmin())
            raise InputError(f"codeword {row} has a value that is not finite in 32 bits.")
        nonzero = given.any(axis=1)
        if not nonzero.all():
            row = int(nonzero.argmin())
            raise InputError(f"codeword {row} is zero and has no direction.")
        self._stated = given
        self.size, self.dim = given.shape
        shape = f"{self.size}x{self.dim}|".encode()
        values = given.astype("<f4").tobytes()
        self.digest = hashlib.sha256(shape + values).hexdigest()

    @classmethod
    def read(cls, path: AnyPath) -> Codebook:
        """Return the codebook of a file of ``dpindex codebook``, or of all vectors in another one.

        Parameters
        ----------
        path : str or path
            With the suffix .codebook, or .vectors as in an index, or of at most 65536 vectors.

        Raises
        ------
        InputError
            For another file.
        """
        if os.fspath(path).endswith((cls.suffix, ".vectors")):
            return super().read(path)
        with open_vectors(path) as source:
            if source.shape[0] > MAX_SIZE:
                raise InputError(
                    f"{os.fspath(path)} has {source.shape[0]} vectors; a codebook has at most "
                    f"{MAX_SIZE} codewords; make a smaller one of them (dpindex codebook)."
                )
            every = np.arange(source.shape[0])
            return cls(dense_rows(source, every))

    @classmethod
    def spaced(cls, vectors: Any, size: int) -> Codebook:
        """A codebook of ``size`` of the vectors, evenly spaced.

        Which ones depends on their number alone.

        Raises
        ------
        InputError
            For a size out of range, and for a row that is zero.
        """
        opened = isinstance(vectors, str | os.PathLike)
        whole_number(size, "the size of a codebook", MIN_SIZE, MAX_SIZE)
        with open_vectors(vectors) if opened else nullcontext(as_source(vectors)) as source:
            chosen = spaced(source.shape[0], size)
            rows = dense_rows(source, chosen)
            if (zero := chosen[~rows.any(axis=1)]).size:
                raise InputError(
                    f"{source.name}: row {zero[0]} is zero, and a codeword needs a direction; "
                    f"leave such rows out."
                )
            return cls(rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> Codebook:
        facts, arrays = unpack(data, "codebook")
        vectors = arrays.pop("vectors", None)
        if vectors is None or vectors.dtype != np.float32:
            raise InputError("this codebook has a header that no dpindex writes.")
        made = cls(vectors)
        try:
            if facts or arrays:
                made.guide = Guide.read(facts, arrays, len(made))
        except (ValueError, LookupError, TypeError):
            raise DamagedError("this codebook has a guide that no dpindex writes.") from None
        return made

    def to_bytes(self) -> bytes:
        arrays: dict[str, AnyArray] = {"vectors": self.stated}
        if self.guide is None:
            return pack("codebook", {}, arrays)
        arrays |= {"moves": self.guide.moves, "players": self.guide.players}
        return pack("codebook", {"temperature": self.guide.temperature}, arrays)

    def scaled(self, ranges: Ranges) -> Codebook:
        """The codebook of these codewords, brought to 0 … 1 by ``ranges``; itself if only named."""
        if self._only_named:
            return self
        return Codebook(ranges.scale(self._stated), self.guide)

    @property
    def contents(self) -> str:
        return f"{self.size} public codewords of {self.dim} attributes"

    def __len__(self) -> int:
        return self.size

    @property
    def stated(self) -> Singles:
        """The codewords as they were given, float32, shape (K, dim); InputError if not here."""
        self.require()
        return self._stated

    @cached_property
    def vectors(self) -> Singles:
        """The codewords at norm 1, float32, shape (K, dim)."""
        return self.directions(self.stated)

    @property
    def known(self) -> Singles:
        return self.vectors

    def directions(self, vectors: Floats) -> Singles:
        return of_norm_1(vectors)

    @cached_property
    def grid(self) -> Singles:
        """The codewords on the integer grid, transposed: shape (dim, K)."""
        return np.ascontiguousarray(on_sphere_grid(self.stated).T)


_ITERATIONS = 25
# The most further rounds, each of _ITERATIONS.
_ROUNDS = 4
_SAME_COSINE = 1.0 - 1e-5


def fit_codebook(public: Any, size: int) -> Codebook:
    """Return a codebook of ``size`` codewords made of public vectors.

    Fewer codewords than vectors are the centroids of spherical k-means (Dhillon & Modha 2001). More
    are the vectors and points half-way between near neighbours: first between each vector and its
    nearest, then its second nearest, and so on. Smaller codebooks are better at small epsilons and
    with private queries, larger ones at large epsilons and with exact queries: ``plan`` compares.

    Parameters
    ----------
    public : array, sparse matrix, path or VectorSource, shape (n, dim)
        Chosen without looking at the private vectors; of more than 65536, that many evenly spaced
        ones are used. Equal directions count once.
    size : int
        Codewords wanted, [2, 65536].

    Raises
    ------
    InputError
        For vectors that are no codebook themselves, and sizes that they cannot be grown to.

    >>> rng = np.random.default_rng(0)
    >>> public = rng.normal(size=(50, 8))
    >>> len(fit_codebook(public, 10)), len(fit_codebook(public, 80))
    (10, 80)
    """
    whole_number(size, "the size of a codebook", MIN_SIZE, MAX_SIZE)
    sample = Codebook.spaced(public, MAX_SIZE)
    _, first = np.unique(sample.vectors, axis=0, return_index=True)
    first.sort()
    if size == len(first):
        return Codebook(sample.stated[first])
    vectors = sample.vectors[first]
    if size < len(first):
        book = centroid_codebook(vectors, size)
        book.guide = Guide.learned(vectors, book.vectors)
        return book
    return grown_codebook(sample.stated[first], size)[0]


def centroid_codebook(vectors: Singles, size: int, rounds: int = _ROUNDS) -> Codebook:
    """Return the centroids of spherical k-means of vectors of norm 1.

    ``rounds`` of 25 more iterations at most follow the first, until little moves.
    """
    import faiss  # a device and `info`, which only read codebooks, do without it

    kmeans = faiss.Kmeans(
        vectors.shape[1],
        size,
        niter=_ITERATIONS,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=MAX_SIZE,
    )
    kmeans.train(vectors)
    for _ in range(rounds):
        # Until little moves: the leak check knows centroids by it, should these not be public.
        before = kmeans.centroids
        kmeans.train(vectors, init_centroids=before)
        if np.array_equal(before, kmeans.centroids):
            break
    return Codebook(kmeans.centroids)


def grown_codebook(vectors: Singles, size: int) -> tuple[Codebook, Longs]:
    """Return a codebook of vectors and of points half-way between near neighbours, and their ends.

    Parameters
    ----------
    vectors : float32 array, shape (n, dim)
        Of different directions. A point between two of them has their mean norm.
    size : int
        Codewords, more than n.

    Returns
    -------
    Codebook
        The vectors first, then ``size − n`` points between different pairs, the nearest first.
    int64 array, shape (2, size)
        The two vectors between which each codeword lies; a vector lies between itself and itself.
    """
    import faiss

    count = len(vectors)
    missing = size - count
    norms = row_norms(vectors).astype(np.float32)
    directions = vectors / norms[:, None]
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(directions)
    reach = 4 * -(-missing // count)
    while True:
        cosines, near = flat.search(directions, min(reach, count))
        # Column by column: the nearest of every vector come before the second nearest.
        left = np.tile(np.arange(count), near.shape[1])
        right = near.T.ravel()
        apart = (np.abs(cosines.T.ravel()) < _SAME_COSINE) & (left != right)
        low = np.minimum(left, right)[apart]
        high = np.maximum(left, right)[apart]
        _, first = np.unique(low * count + high, return_index=True)
        if len(first) >= missing:
            break
        if reach >= count:
            raise InputError(
                f"{count} public vectors have {len(first)} different pairs, so a codebook of at "
                f"most {count + len(first)} codewords can be grown from them, not {size}."
            )
        reach *= 2
    kept = np.sort(first)[:missing]
    pairs = np.stack([low[kept], high[kept]])
    between = unit(directions[pairs].sum(axis=0)) * norms[pairs].mean(axis=0)[:, None]
    every = np.arange(count)
    ends = np.hstack([np.stack([every, every]), pairs])
    return Codebook(np.concatenate([vectors, between])), ends
