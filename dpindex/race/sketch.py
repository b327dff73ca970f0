"""The RACE sketch: a small table of noisy counts that answers kernel sums about a collection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dpindex.arrays import AnyArray, Integers, Vectors, cores
from dpindex.checks import real_matrix
from dpindex.errors import InputError
from dpindex.files import create_file, pack, parse_file, unpack
from dpindex.format1 import sketch_from_bytes_1
from dpindex.privacy import Guarantee, compose
from dpindex.race.answers import Answers, Release
from dpindex.race.spec import SketchSpec
from dpindex.randomness import BitSource
from dpindex.randomness.secret import secret_stream

__all__ = ["MAX_BYTES", "RaceSketch"]

MAX_BYTES = 1 << 30
"""No sketch is longer: 2^27 counts of seven bytes, and the header."""

_NUMBERS = ("epsilon", "delta", "offset", "variance")


class RaceSketch(Answers):
    """A table of ``rows × width`` counts: filled once, released once, then asked without limit.

    It holds R histograms over R random partitions of space. Each record adds 1 to one bin of each,
    and the mean count of the bins that a query falls into estimates how many records lie near it.
    One global (epsilon, delta) covers every question ever asked (Coleman & Shrivastava 2020,
    Thm 3). The data needs no bounds: a record moves one count a row by one, whatever it holds.

    One warning: a record may be added *once*. Added twice, or to two sketches, it costs twice.

    Parameters
    ----------
    spec : SketchSpec
        The public parameters.

    Raises
    ------
    InputError
        If no law of noise gives what the spec promises.

    >>> from dpindex.race import PStable
    >>> x = np.random.default_rng(0).normal(size=(5000, 2))
    >>> spec = SketchSpec(dim=2, rows=100, width=500, hash=PStable(2.0), epsilon=5.0)
    >>> sketch = RaceSketch(spec).fit(x).release()
    >>> near, far = sketch.count([[0, 0], [9, 9]])
    >>> bool(near > 1000 > far)
    True
    >>> str(sketch.guarantee)
    'epsilon = 5 (pure DP) under records(add-remove)'
    """

    def __init__(self, spec: SketchSpec) -> None:
        self.spec = spec
        self._law = spec.law  # made now: what cannot be released must not be filled
        self._counts: npt.NDArray[np.int64] | None = np.zeros((spec.rows, spec.columns), np.int64)
        self._released: Release | None = None
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
                records = real_matrix(chunk, spec.dim, "records", min_rows=0)
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
        law = self._law
        noise = law.source.sample(counts.size, self._stream())
        counts += noise.reshape(counts.shape)
        noise.fill(0)
        variance = law.moments.variance[0]
        self._released = Release(_smallest(counts), self.spec.guarantee, law.offset, variance)
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
        guarantee = compose(a.guarantee, b.guarantee)
        if disjoint:
            epsilon = max(a.guarantee.epsilon, b.guarantee.epsilon)
            delta = max(a.guarantee.delta, b.guarantee.delta)
            guarantee = replace(guarantee, epsilon=epsilon, delta=delta)
        counts = _smallest(a.counts.astype(np.int64) + b.counts)
        self._released = Release(counts, guarantee, a.offset + b.offset, a.variance + b.variance)
        return self

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises; after merges, what they cost together."""
        return self.spec.guarantee if self._released is None else self._released.guarantee

    # Keeping.

    def describe(self) -> dict[str, Any]:
        """What the sketch holds and promises, as plain JSON values; once it is released."""
        return {
            "records": round(self.size),
            "records_stderr": self.size_stderr,
            "spec": self.spec.to_dict(),
            **self.guarantee.statement(self.spec.dim),
        }

    def to_bytes(self) -> bytes:
        """The released sketch as bytes: counts less their least, in the fewest whole bytes."""
        release = self._open()
        least = int(release.counts.min())
        shifted = (release.counts.astype(np.int64) - least).astype("<u8").reshape(-1, 1)
        size = max(1, -(-int(shifted.max()).bit_length() // 8))
        budget = release.guarantee.epsilon, release.guarantee.delta
        numbers = dict(zip(_NUMBERS, (*budget, release.offset, release.variance), strict=True))
        facts = {"spec": self.spec.to_dict(), "least": least, **numbers}
        return pack("sketch", facts, {"counts": shifted.view(np.uint8)[:, :size]})

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RaceSketch:
        """Read what ``to_bytes`` wrote; raises InputError for anything else."""
        facts, arrays = sketch_from_bytes_1(data) or unpack(data, "sketch")
        sketch = cls.__new__(cls)
        sketch._counts = None
        sketch.spec, sketch._released = _unpacked(facts, arrays)
        return sketch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the released sketch to a new file; an existing one is never overwritten."""
        create_file(path, self.to_bytes())

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RaceSketch:
        """Read a file written by ``save``; raises InputError, which begins with the path."""
        return parse_file(path, MAX_BYTES, cls.from_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return RaceSketch.from_bytes, (self.to_bytes(),)

    def _secret(self) -> npt.NDArray[np.int64]:
        if self._released is not None:
            raise InputError(
                "this sketch has been released: its noise was added once and nothing can follow."
            )
        if self._counts is None:
            raise InputError("this sketch was merged into another one and holds nothing any more.")
        return self._counts

    def _open(self) -> Release:
        if self._released is None:
            self._secret()
            raise InputError("this sketch has not been released: nothing can be read out before.")
        return self._released


def _unpacked(facts: dict[str, Any], arrays: Mapping[str, AnyArray]) -> tuple[SketchSpec, Release]:
    """Spec and release of a sketch's file, in which nothing is trusted."""
    if (
        set(facts) != {"spec", "least", *_NUMBERS}
        or set(arrays) != {"counts"}
        or type(facts["least"]) is not int
        or abs(facts["least"]) >= 1 << 56
        or any(type(facts[name]) not in (int, float) for name in _NUMBERS)
        or not all(0 <= facts[name] <= 1e300 for name in _NUMBERS)
    ):
        raise InputError("this sketch has a header that no dpindex writes.")
    spec, stored = SketchSpec.from_dict(facts["spec"]), arrays["counts"]
    cells = spec.rows * spec.columns
    if stored.dtype != np.uint8 or stored.shape not in [(cells, size) for size in range(1, 8)]:
        raise InputError(
            f"this sketch declares {spec.rows} × {spec.columns} counts and holds an array of shape "
            f"{stored.shape}."
        )
    wide = np.zeros((cells, 8), dtype=np.uint8)
    wide[:, : stored.shape[1]] = stored
    counts = wide.view("<u8").astype(np.int64).reshape(spec.rows, spec.columns) + facts["least"]
    epsilon, delta, offset, variance = (float(facts[name]) for name in _NUMBERS)
    guarantee = replace(spec.guarantee, epsilon=epsilon, delta=delta)
    return spec, Release(_smallest(counts), guarantee, offset, variance)


def _smallest(counts: Integers) -> Integers:
    """The same integers as int32 where they fit."""
    return counts.astype(np.int32) if np.abs(counts).max() < 1 << 31 else counts
