"""The RACE sketch: a small table of noisy counts that answers kernel sums about a collection."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.accounting import add_up
from dpindex.base.arrays import AnyArray, Doubles, Floats, Integers, Longs, Vectors
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath, Buffer, create_file, pack, parse_file, unpack
from dpindex.base.threads import cores
from dpindex.mechanism.public_random import BitSource
from dpindex.mechanism.secret_random import secret_stream
from dpindex.privacy import Guarantee
from dpindex.race.spec import SketchSpec, error_bound, mean_groups

MAX_BYTES = 1 << 30
"""No sketch is longer: 2^27 counts of seven bytes, and the header."""

_SURE = 2.0
"""Standard errors by which a good sign must be above chance."""

_CERTAIN = 3.0
"""Standard errors by which a bad sign must be above chance to be called certain."""

_MORE = "a larger epsilon, more records, fewer rows or columns (width), a delta"
_NUMBERS = ("epsilon", "delta", "offset", "variance")


@dataclass(frozen=True, eq=False)
class Release:
    """The public part of a sketch: its counts with noise.

    Attributes
    ----------
    counts : integers, shape (rows, width)
        The noisy counts.
    guarantee : Guarantee
        The spec's, or that of several releases together after a merge.
    offset, variance : float
        Added to a count on reading; variance of its noise.
    """

    counts: Integers
    guarantee: Guarantee
    offset: float
    variance: float


class RaceSketch:
    """A table of ``rows × width`` counts: filled once, released once, then queried without limit.

    It holds R histograms over R random partitions of space. Each record adds 1 to one bin of each,
    and the mean count of the bins that a query falls into estimates how many records lie near it.
    One global (epsilon, delta) covers every query (Coleman & Shrivastava 2020,
    Thm 3). The data needs no bounds: a record moves one count a row by one, whatever finite numbers
    it holds. One that lies more than 2^21 bandwidths from the origin counts as if it lay at the
    nearest point of a box around the origin, and a collection may be empty.

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
        self.law = spec.law  # made now: what cannot be released must not be filled
        shape = (spec.rows, spec.columns)
        self._counts: Longs | None = np.zeros(shape, np.int64)
        self.released: Release | None = None
        # The seam through which tests, and tests alone, put a stream of their own.
        self.stream: Callable[[], BitSource] = secret_stream

    def __repr__(self) -> str:
        state = "spent"
        if self.released is not None:
            state = "released"
        elif self._counts is not None:
            state = "secret"
        return f"<RaceSketch {self.spec.rows} × {self.spec.columns}, {self.spec.hash}, {state}>"

    # Filling: nothing can be read out.

    def fit(self, x: Vectors) -> RaceSketch:
        """Add all records, and return this sketch.

        Parameters
        ----------
        x : array or sparse matrix, shape (n, dim)
            Of any real dtype.

        Raises
        ------
        InputError
            For a wrong shape, NaN or infinities (nothing is added then), and for a sketch that
            holds records already or has been released.
        """
        if self._secret().any():
            raise InputError("this sketch already holds records; partial_fit adds more.")
        return self.partial_fit([x])

    def partial_fit(self, chunks: Vectors | Iterable[Vectors]) -> RaceSketch:
        """Add records, all or none, and return this sketch. Add every record only once.

        Parameters
        ----------
        chunks : array, sparse matrix, or iterable of them
            Read once.

        Raises
        ------
        InputError
            For a wrong shape, NaN or infinities, and for a sketch that has been released.
        """
        counts = self._secret()
        spec = self.spec
        width = spec.columns
        fresh = np.zeros_like(counts)
        if isinstance(chunks, np.ndarray) or sparse.issparse(chunks):
            chunks = [chunks]

        def count(rows: slice, columns: Longs) -> None:
            n = rows.stop - rows.start
            # Every row gets columns of its own, so that one count serves all of a tile. No two
            # tiles share a row: threads write to different counts.
            columns += np.arange(0, n * width, width)[:, None]
            counted = np.bincount(columns.ravel(), minlength=n * width)
            fresh[rows] += counted.reshape(n, width)

        with ThreadPoolExecutor(cores()) as pool:
            for block in self._blocks(chunks, "records", clip=True):
                spec.hasher.each(block, count, pool)
        counts += fresh  # all or none: a bad chunk has raised by now
        fresh.fill(0)  # lest exact counts stay in memory that is let go
        return self

    def _blocks(
        self,
        chunks: Iterable[Vectors],
        name: str,
        *,
        clip: bool,
    ) -> Iterator[Any]:
        """Yield what the hasher takes, for records or queries that come in chunks."""
        done = 0
        for chunk in chunks:
            rows = self.spec.vectors(chunk, name)
            yield from self.spec.hasher.blocks(rows, done, clip=clip)
            done += rows.shape[0]

    def release(self) -> RaceSketch:
        """Add the noise, once and for ever, to the exact counts, and return this sketch."""
        counts = self._secret()
        # Given up before any noise is drawn: if drawing fails, the sketch is spent, and never drawn
        # for twice.
        self._counts = None
        noise = self.law.source.sample(counts.size, self.stream())
        counts += noise.reshape(counts.shape)  # in place, over the exact ones
        noise.fill(0)
        self.released = Release(
            _smallest(counts),
            self.spec.guarantee,
            self.law.offset,
            self.law.moments.variance[0],
        )
        return self

    def merge(self, other: RaceSketch, *, disjoint: bool = False) -> RaceSketch:
        """Add another sketch with the same hashes into this one, and return this one.

        *Before release* (both with equal parameters) the other sketch is emptied and cannot be
        used again; no record may have been added to both. *After release* counts and noise add up,
        and so do the epsilons and deltas (sequential composition), unless you state that the two
        collections are ``disjoint``: then a record is in one of them only, and the larger epsilon
        and the larger delta hold (parallel composition).

        Raises
        ------
        InputError
            For a sketch of other hashes or parameters, one that was emptied or is this one, and for
            a released one with one that is not.
        """
        if not isinstance(other, RaceSketch) or other is self:
            raise InputError("merge takes another RaceSketch.")
        mine = self.spec
        if replace(other.spec, epsilon=mine.epsilon, delta=mine.delta) != mine:
            raise InputError(
                "merged sketches may differ in epsilon and delta alone: neither in dim, rows, "
                "width, hash, seed and ranges, nor in neighbouring."
            )
        if self.released is None and other.released is None:
            self._merge_secret(other)
        else:
            self.released = merged_releases(self._open(), other._open(), disjoint)
        return self

    def _merge_secret(self, other: RaceSketch) -> None:
        if self.spec != other.spec:
            raise InputError("before release, merged sketches must have equal parameters.")
        mine = self._secret()
        theirs = other._secret()
        mine += theirs
        theirs.fill(0)
        other._counts = None

    @property
    def guarantee(self) -> Guarantee:
        """The promise of the release; after merges, that of all releases together."""
        if self.released is None:
            return self.spec.guarantee
        return self.released.guarantee

    # Answers: post-processing of what has been released, and so free.

    @property
    def counts(self) -> AnyArray:
        """The released noisy counts, shape (rows, width), read-only."""
        view = self._open().counts.view()
        view.flags.writeable = False
        return view

    @property
    def noise_variance(self) -> float:
        """Variance of the noise in one count, public."""
        return self._open().variance

    @property
    def size(self) -> float:
        """Unbiased private estimate N̂ of how many records there are (Algorithm 2)."""
        release = self._open()
        counts = release.counts[:, : self._used]
        records = counts.sum(dtype=np.int64) / self.spec.rows
        return float(records + release.offset * self._used)

    @property
    def divisor(self) -> float:
        """``size``, but at least 1: what shares of the collection are shares of."""
        return max(1.0, self.size)

    @property
    def size_stderr(self) -> float:
        """Standard deviation of ``size``, all of it noise and so public: ``√(2RW)/ε`` if pure."""
        return math.sqrt(self._used * self.noise_variance / self.spec.rows)

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise in ``count(q)``, public: ``√(2R)/ε`` records if pure."""
        return self._stretch * math.sqrt(self.noise_variance / self.spec.rows)

    @property
    def _used(self) -> int:
        """Columns of a row that a record can fall into."""
        columns = self.spec.columns
        return min(columns, self.spec.hash.codes or columns)

    def count(self, q: Vectors | Iterator[Vectors]) -> Floats:
        """Return unbiased estimates of the kernel sum ``Σ_x k(x, q)``: how many records lie near q.

        Parameters
        ----------
        q : array or sparse matrix, shape (nq, dim), or iterator of them
            Queries in the units of the records; (dim,) is one query.

        Returns
        -------
        float64 array, shape (nq,). May be negative: that is the noise.
        """
        return self.summary(q)["count"]

    def density(self, q: Vectors | Iterator[Vectors]) -> Floats:
        """Return the kernel density ``count(q) / size``, shape (nq,).

        It is the mean kernel over records (Algorithm 2). ``q`` is that of :meth:`count`.
        """
        return self.summary(q)["density"]

    def summary(
        self,
        q: Vectors | Iterator[Vectors],
        failure: float | None = None,
    ) -> dict[str, Floats]:
        """Return what a sketch says of queries, by name, from one hashing.

        Parameters
        ----------
        q : array, sparse matrix or iterator of them
            As for :meth:`count`.
        failure : float, optional
            In (0, 1): counts are medians over the means of ``⌈8 log(1/failure)⌉`` groups of rows,
            and come with a bound. By default they are means over all rows (unbiased, of least
            variance).

        Returns
        -------
        float64 arrays of shape (nq,): ``count`` and ``density``; ``stderr``, the standard error of
        the mean count from the spread over rows, noise included (NaN for a sketch of one row); and
        with ``failure`` ``bound``, Theorem 4's bound on the error of the count, exceeded with
        probability at most ``failure``. There the unknown ``f̃ = Σ√k`` is replaced by its own bound
        ``√(N·Σk)`` (Cauchy–Schwarz), read from the sketch; the paper's constants make the result
        generous.

        Raises
        ------
        InputError
            For queries of another dimension, and a sketch that is not released or has too few rows
            for the groups.
        """
        release = self._open()
        rows = self.spec.rows
        groups = 1
        if failure is not None:
            groups = mean_groups(rows, failure)
        edges = np.linspace(0, rows, groups + 1).astype(np.intp)
        sizes = np.diff(edges)
        parts = [[np.empty(0)] * 3]
        for hits in self._hits(q):
            sums = np.add.reduceat(hits, edges[:-1], axis=0)
            group_means = sums / sizes[:, None]
            middle = np.median(group_means, axis=0)
            error = np.full(hits.shape[1], np.nan)
            if rows > 1:
                spread = hits.std(axis=0, ddof=1)
                error = spread / math.sqrt(rows)
            parts.append([middle, hits.mean(axis=0), error])
        centre, means, errors = np.concatenate(parts, axis=1)
        # Rehashing makes the collision probability k + (1 − k)/W, which is taken back.
        chance = self.size * (1.0 - 1.0 / self._stretch)
        count = (centre + release.offset - chance) * self._stretch
        answers = {
            "count": count,
            "stderr": errors * self._stretch,
            "density": count / self.divisor,
        }
        if failure is not None:
            size = self.divisor
            sums = np.clip(means + release.offset, 0.0, size)
            root_sum = np.sqrt(size * sums)  # an upper bound of f̃
            bound = error_bound(root_sum, rows, release.variance, failure)
            answers["bound"] = np.asarray(bound * self._stretch)
        return answers

    def _hits(self, q: Vectors | Iterator[Vectors]) -> Iterator[Doubles]:
        """Yield the released counts that blocks of queries fall into, shape (rows, n)."""
        counts = self._open().counts
        chunks = q if isinstance(q, Iterator) else [q]

        def look_up(hits: Doubles, rows: slice, columns: Longs) -> None:
            hits[rows] = np.take_along_axis(counts[rows], columns, axis=1)

        with ThreadPoolExecutor(cores()) as pool:
            for block in self._blocks(chunks, "queries", clip=False):
                hits = np.empty((self.spec.rows, block.shape[0]))
                self.spec.hasher.each(block, partial(look_up, hits), pool)
                yield hits

    def neighbours(self) -> tuple[float, float]:
        """Return how many others an average record has near it, and the standard error."""
        rows = self.pairs(self) / self.divisor - 1.0
        error = math.inf
        if len(rows) > 1:
            deviation = float(rows.std(ddof=1))
            error = deviation / math.sqrt(len(rows))
        return float(rows.mean()), error

    def warnings(self) -> list[str]:
        """Return sentences about answers that noise drowns, and about a delta that is too large.

        They read the release alone, and so may be passed on.

        >>> from dpindex.race import PStable
        >>> x = np.random.default_rng(0).normal(size=(2000, 2))
        >>> for bandwidth in (2.0, 0.001):
        ...     spec = SketchSpec(2, 100, 20, PStable(bandwidth), epsilon=2.0)
        ...     print(len(RaceSketch(spec).fit(x).release().warnings()))
        0
        1
        """
        sentences = []
        delta = self.guarantee.delta
        share = 1.0 / self.divisor
        if delta > share:
            sentences.append(
                f"delta = {delta:g} is more than one over the number of records, about "
                f"{share:.2g}: publishing a record as it is would meet such a delta; take 1e-6, or "
                f"less."
            )
        if self.size < _CERTAIN * self.size_stderr:
            sentences.append(
                f"Noise hides how many records there are, about {max(self.size, 0.0):.0f} ± "
                f"{self.size_stderr:.0f}, and every density is divided by that; take {_MORE}."
            )
            return sentences
        # An average record should surely have more others near it than the noise of an answer.
        near, error = self.neighbours()
        enough = max(_SURE * self.count_noise, 1.0)
        if near - _SURE * error < enough:
            verb = "may drown"
            if near + _SURE * error < enough:
                verb = "drowns"
            sentences.append(
                f"Noise {verb} the answers: an average record has about {max(near, 0.0):.3g} ± "
                f"{error:.3g} others near it, and an answer has noise of ± {self.count_noise:.3g}; "
                f"take {_MORE}, or a wider kernel (a larger bandwidth, fewer bits) if the records "
                f"lie farther apart than that."
            )
        return sentences

    def mean_density(self) -> float:
        """Return the mean over the *records* of the density at each, from squared counts.

        ``Σ_x f(x)/N² = mean_r Σ_w S²/N²``, less the squared noise and the chance collisions.
        """
        pairs = float(self.pairs(self).mean())
        density = pairs / self.divisor**2
        return min(1.0, max(0.0, density))

    def pairs(self, other: RaceSketch) -> Doubles:
        """Return unbiased estimates of ``Σ_x Σ_y k(x, y)``, x of this collection, y of another.

        One for each row, shape (rows,): their mean is the estimate, their spread its error.

        Parameters
        ----------
        other : RaceSketch
            Released, with the same hashes and no record of this one; or this one.
        """
        mine = self._unbiased_counts()
        theirs = other._unbiased_counts()
        used = self._used
        products = (mine * theirs).sum(axis=1)
        if self.spec.hasher.rehashed:  # chance collisions, by what each row holds itself
            sums = mine.sum(axis=1) * theirs.sum(axis=1)
            products -= sums / used
            used -= 1
        if other is self:  # squared noise
            products -= used * self.noise_variance
        return np.asarray(products * self._stretch)

    def _unbiased_counts(self) -> Doubles:
        """Return unbiased estimates of the columns that a record can fall into, (rows, used)."""
        release = self._open()
        return np.asarray(release.counts[:, : self._used] + release.offset)

    @property
    def _stretch(self) -> float:
        if self.spec.hasher.rehashed:
            return 1.0 / (1.0 - 1.0 / self.spec.columns)
        return 1.0

    # Keeping.

    def describe(self) -> dict[str, Any]:
        """Return contents and promise of the released sketch as plain JSON values."""
        return {
            "records": round(self.size),
            "records_stderr": self.size_stderr,
            "spec": self.spec.to_dict(),
            **self.guarantee.statement(self.spec.dim),
        }

    def to_bytes(self) -> bytes:
        """Return the released sketch as bytes: counts less their least, in the fewest bytes."""
        release = self._open()
        least = int(release.counts.min())
        above = release.counts.astype(np.int64) - least
        bits = int(above.max()).bit_length()
        size = max(1, math.ceil(bits / 8))
        column = above.astype("<u8").reshape(-1, 1)
        stored = column.view(np.uint8)
        facts = {
            "epsilon": release.guarantee.epsilon,
            "delta": release.guarantee.delta,
            "offset": release.offset,
            "variance": release.variance,
            "spec": self.spec.to_dict(),
            "least": least,
        }
        return pack("sketch", facts, {"counts": stored[:, :size]})

    @classmethod
    def from_bytes(cls, data: Buffer) -> RaceSketch:
        """Return the inverse of ``to_bytes``; InputError if ``data`` is anything else."""
        facts, arrays = unpack(data, "sketch")
        sketch = cls.__new__(cls)
        sketch._counts = None
        sketch.spec, sketch.released = _unpacked(facts, arrays)
        return sketch

    def save(self, path: AnyPath) -> None:
        """Write the released sketch to a new file, ``path``; one that exists is not overwritten."""
        create_file(path, self.to_bytes())

    @classmethod
    def open(cls, path: AnyPath) -> RaceSketch:
        """Read a file written by ``save``; raises InputError, which begins with the path."""
        return parse_file(path, MAX_BYTES, cls.from_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return RaceSketch.from_bytes, (self.to_bytes(),)

    def _secret(self) -> Longs:
        if self.released is not None:
            raise InputError(
                "this sketch has been released: its noise was added once and nothing can follow."
            )
        if self._counts is None:
            raise InputError("this sketch was merged into another one and holds nothing any more.")
        return self._counts

    def _open(self) -> Release:
        if self.released is None:
            self._secret()
            raise InputError("this sketch has not been released: nothing can be read out before.")
        return self.released


def merged_releases(a: Release, b: Release, disjoint: bool) -> Release:
    """Return two releases as one."""
    if np.array_equal(a.counts, b.counts):
        raise InputError("these are two copies of one release; it would be counted twice.")
    guarantee = add_up(a.guarantee, b.guarantee)
    if disjoint:
        epsilon = max(a.guarantee.epsilon, b.guarantee.epsilon)
        delta = max(a.guarantee.delta, b.guarantee.delta)
        guarantee = replace(guarantee, epsilon=epsilon, delta=delta)
    counts = _smallest(a.counts.astype(np.int64) + b.counts)
    return Release(counts, guarantee, a.offset + b.offset, a.variance + b.variance)


def _unpacked(facts: dict[str, Any], arrays: Mapping[str, AnyArray]) -> tuple[SketchSpec, Release]:
    """Return spec and release from the file of a sketch, in which nothing is trusted."""
    least = facts.get("least")
    numbers: list[Any] = [facts.get(name) for name in _NUMBERS]
    if (
        set(facts) != {"spec", "least", *_NUMBERS}
        or set(arrays) != {"counts"}
        or type(least) is not int
        or abs(least) >= 1 << 56
        or not all(type(number) in (int, float) and 0 <= number <= 1e300 for number in numbers)
    ):
        raise InputError("this sketch has a header that no dpindex writes.")
    spec = SketchSpec.from_dict(facts["spec"])
    stored = arrays["counts"]
    cells = spec.rows * spec.columns
    shapes = [(cells, size) for size in range(1, 8)]
    if stored.dtype != np.uint8 or stored.shape not in shapes:
        raise InputError(
            f"this sketch declares {spec.rows} × {spec.columns} counts and holds an array of shape "
            f"{stored.shape}."
        )
    wide = np.zeros((cells, 8), dtype=np.uint8)
    wide[:, : stored.shape[1]] = stored
    counts = wide.view("<u8").astype(np.int64)
    counts += least
    epsilon, delta, offset, variance = map(float, numbers)
    guarantee = replace(spec.guarantee, epsilon=epsilon, delta=delta)
    if epsilon < spec.guarantee.epsilon or delta < spec.guarantee.delta:
        raise InputError(
            f"this sketch states {guarantee}, less than its spec, {spec.guarantee}; it was changed."
        )
    table = counts.reshape(spec.rows, spec.columns)
    return spec, Release(_smallest(table), guarantee, offset, variance)


def _smallest(counts: Integers) -> Integers:
    """Return the integers as int32 where they fit."""
    if np.abs(counts).max() < 1 << 31:
        return counts.astype(np.int32)
    return counts
