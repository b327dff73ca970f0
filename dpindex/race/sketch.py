"""The RACE sketch: a small table of noisy counts that answers kernel sums about a collection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import Vectors, cores
from dpindex.errors import InputError
from dpindex.files import read_file
from dpindex.privacy.adjacency import Neighbouring
from dpindex.race.answers import Answers
from dpindex.race.checks import matrix
from dpindex.race.files import MAX_BYTES, Release, pack, smallest, unpack
from dpindex.race.hashes import Hash
from dpindex.race.spec import SketchGuarantee, SketchSpec
from dpindex.race.theory import optimal_rows
from dpindex.randomness import BitSource
from dpindex.randomness.secret import secret_stream

__all__ = ["RaceSketch"]


class RaceSketch(Answers):
    """A table of ``rows × width`` counts: filled once, released once, then asked for ever.

    Think of it as R histograms over R random partitions of space: each record adds 1 to one bin of
    each, and the mean count of the bins that a query falls into estimates how many records lie near
    it. One global (epsilon, delta) covers every question ever asked (Coleman & Shrivastava 2020,
    Thm 3). The data needs no bounds: a record moves one count a row by one, whatever it holds.

    One warning: a record may be added *once*. Added twice, or to two sketches, it costs twice.

    Parameters
    ----------
    dim : int
        Attributes of a record, [1, 2^31).
    rows : int or None
        R, [1, 2^20]; None chooses by Corollary 1 from ``expected_count``. More rows average more
        partitions, but with delta = 0 the noise of the mean grows as √R.
    width : int or None
        W, columns a row, [2, 2^24]. Hash codes beyond W are hashed again to W columns, and the
        chance collisions that brings (1/W) are corrected on reading. None: all codes of a sign
        hash up to 1000, else 1000.
    hash : SRP, PairedSRP or L2
        The kernel, and so the question.
    epsilon : float
        Budget of the one release, [0.001, 64].
    delta : float
        0 for pure epsilon (two-sided geometric noise), or in (0, 1) (rounded Gaussian noise, which
        pays √R where the pure law pays R).
    neighbouring : "add-remove" or "replace"
        How neighbouring collections differ; replace needs twice the noise.
    expected_count : float, optional
        With ``rows=None``: Σ√k at a typical query, publicly known; see :func:`optimal_rows`.
    seed : int
        Public seed of the hash functions, [0, 2^63).
    as_published : bool
        Floor of Laplace noise, as in the paper, instead of two-sided geometric noise.

    Raises
    ------
    InputError
        One sentence for any parameter that has no guarantee.

    >>> from dpindex.race import L2
    >>> x = np.random.default_rng(0).normal(size=(5000, 2))
    >>> sketch = RaceSketch(2, rows=100, width=500, hash=L2(2.0), epsilon=5.0)
    >>> near, far = sketch.fit(x).release().count([[0, 0], [9, 9]])
    >>> bool(near > 1000 > far)
    True
    >>> str(sketch.guarantee)
    'epsilon = 5 (pure DP) under records(add-remove)'
    """

    def __init__(
        self,
        dim: int,
        rows: int | None,
        width: int | None,
        hash: Hash,
        epsilon: float,
        delta: float = 0.0,
        neighbouring: Neighbouring = "add-remove",
        *,
        expected_count: float | None = None,
        seed: int = 0,
        as_published: bool = False,
    ) -> None:
        if (rows is None) == (expected_count is None):
            raise InputError("give rows, or expected_count to have them chosen, and not both.")
        if rows is None:
            if delta:
                raise InputError(
                    "with delta > 0 every further row helps and there is no best number; give rows."
                )
            rows = optimal_rows(expected_count or 0.0, epsilon, neighbouring)
        spec = SketchSpec(dim, rows, width, hash, epsilon, delta, neighbouring, seed, as_published)
        self._start(spec)
        self._noise = spec.noise  # made now: what cannot be released must not be filled
        self._counts: npt.NDArray[np.int64] | None = np.zeros((spec.rows, spec.columns), np.int64)

    def _start(self, spec: SketchSpec) -> None:
        self.spec = spec
        self._released: Release | None = None
        self._counts = None
        # The seam through which tests, and tests alone, put a stream of their own.
        self._stream: Callable[[], BitSource] = secret_stream

    def __repr__(self) -> str:
        state = "released" if self._released else "secret" if self._counts is not None else "spent"
        return f"<RaceSketch {self.spec.rows} × {self.spec.columns}, {self.spec.hash}, {state}>"

    # Filling: nothing can be read out.

    def fit(self, x: Vectors) -> RaceSketch:
        """Add all records, shape (n, dim), of any real dtype, dense or sparse; returns self.

        Raises InputError for a wrong shape, no rows, NaN or infinities (and then adds nothing), for
        a sketch that already holds records (``partial_fit`` adds more) or has been released.
        """
        if self._secret().any():
            raise InputError("this sketch already holds records; partial_fit adds more.")
        return self._add([x])

    def partial_fit(self, chunks: Vectors | Iterable[Vectors]) -> RaceSketch:
        """Add records: an array or sparse matrix, or an iterable of them that is read once.

        All of it is added, or none if anything raises. Every record must be added only once.
        """
        single = isinstance(chunks, np.ndarray) or sparse.issparse(chunks)
        return self._add([chunks] if single else chunks)

    def _add(self, chunks: Iterable[Vectors]) -> RaceSketch:
        counts = self._secret()
        spec, width = self.spec, self.spec.columns
        fresh = np.zeros_like(counts)
        done = 0

        def count(rows: slice, columns: npt.NDArray[np.int64]) -> None:
            n = rows.stop - rows.start
            columns += np.arange(0, n * width, width)[:, None]
            fresh[rows] += np.bincount(columns.ravel(), minlength=n * width).reshape(n, width)

        with ThreadPoolExecutor(cores()) as pool:
            for chunk in chunks:
                records = matrix(chunk, spec.dim, "records")
                for _, block in spec.hasher.blocks(records, done):
                    spec.hasher.each(block, count, pool)
                done += records.shape[0]
        if done == 0:
            raise InputError("there are no records: the input has no rows.")
        counts += fresh
        fresh.fill(0)
        return self

    def release(self) -> RaceSketch:
        """Add the noise, once and for ever, overwriting the exact counts; returns self."""
        counts = self._secret()
        self._counts = None
        noise = self._noise.sample(counts.size, self._stream())
        counts += noise.reshape(counts.shape)
        noise.fill(0)
        law, spec = self._noise, self.spec
        self._released = Release(
            smallest(counts), spec.epsilon, spec.delta, law.offset, law.variance
        )
        return self

    def merge(self, other: RaceSketch, *, disjoint: bool = False) -> RaceSketch:
        """Add another sketch with the same hashes into this one; returns self.

        *Before release* (both with equal parameters) the other sketch is emptied and cannot be
        used again; no record may have been added to both. *After release* counts and noise add up,
        and so do the epsilons and deltas (sequential composition), unless you state that the two
        collections are ``disjoint``: then a record is in one of them only, and the larger epsilon
        and the larger delta hold (parallel composition).
        """
        if not isinstance(other, RaceSketch) or other is self:
            raise InputError("merge takes another RaceSketch.")
        if not self.spec.same_hashes(other.spec):
            raise InputError(
                "only sketches with the same dim, rows, width, hash and seed can be merged."
            )
        if self.spec.neighbouring != other.spec.neighbouring:
            raise InputError("sketches with different neighbouring make no common promise.")
        if self._released is None and other._released is None:
            if self.spec != other.spec:
                raise InputError("before release, merged sketches must have equal parameters.")
            mine, theirs = self._secret(), other._secret()
            mine += theirs
            theirs.fill(0)
            other._counts = None
            return self
        a, b = self._open(), other._open()
        if np.array_equal(a.counts, b.counts):
            raise InputError("these are two copies of one release; it would be counted twice.")
        counts = a.counts.astype(np.int64) + b.counts
        combine = max if disjoint else sum
        self._released = Release(
            smallest(counts),
            combine((a.epsilon, b.epsilon)),
            min(1.0, combine((a.delta, b.delta))),
            a.offset + b.offset,
            a.variance + b.variance,
        )
        return self

    @property
    def guarantee(self) -> SketchGuarantee:
        """What the release promises; after merges, what they cost together."""
        promise = self.spec.guarantee
        if self._released is None:
            return promise
        return replace(promise, epsilon=self._released.epsilon, delta=self._released.delta)

    # Keeping.

    def to_bytes(self) -> bytes:
        """The released sketch as bytes, in the fewest whole bytes a count."""
        return pack(self.spec, self._open())

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RaceSketch:
        """Read what ``to_bytes`` wrote; raises InputError for anything else."""
        sketch = cls.__new__(cls)
        spec, release = unpack(data)
        sketch._start(spec)
        sketch._released = release
        return sketch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the released sketch to a new file; an existing one is never overwritten."""
        data = self.to_bytes()
        with open(path, "xb") as file:
            file.write(data)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RaceSketch:
        """Read a file written by ``save``."""
        data = read_file(path, MAX_BYTES)
        try:
            return cls.from_bytes(data)
        except InputError as error:
            raise InputError(f"{os.fspath(path)}: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return RaceSketch.from_bytes, (self.to_bytes(),)

    def _secret(self) -> npt.NDArray[np.int64]:
        if self._released is not None:
            raise InputError(
                "this sketch has been released: its noise was added once and nothing can follow."
            )
        if self._counts is None:
            _spent()
        return self._counts

    def _open(self) -> Release:
        if self._released is None:
            if self._counts is None:
                _spent()
            raise InputError("this sketch has not been released: nothing can be read out before.")
        return self._released


def _spent() -> NoReturn:
    raise InputError("this sketch was merged into another one and holds nothing any more.")
