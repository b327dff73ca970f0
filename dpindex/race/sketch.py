"""The RACE sketch: a small table of noisy counts that answers kernel sums about a collection."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

from dpindex.accounting import add_up
from dpindex.base.arrays import AnyArray, Doubles, Floats, Integers, Longs, Vectors
from dpindex.base.checks import (
    checked_delta,
    checked_epsilon,
    checked_fields,
    finite_number,
    from_kind,
    whole_number,
)
from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath, Buffer, create_file, pack, parse_file, unpack
from dpindex.base.tables import real_matrix
from dpindex.base.threads import cores
from dpindex.data import Ranges
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.gaussian import CHANGES, count_noise
from dpindex.mechanism.public_random import BitSource
from dpindex.mechanism.secret_random import secret_stream
from dpindex.privacy import Guarantee, Neighbouring, Records
from dpindex.race.hashes import FAMILIES, Hash, Hasher

_DEFAULT_WIDTH = 1000
_MAX_CELLS = 1 << 27
_MAX_DIRECTIONS = 1 << 28


@dataclass(frozen=True)
class SketchSpec:
    """Everything public about a sketch before its release.

    Parameters
    ----------
    dim : int
        Attributes of a record, [1, 2^31).
    rows : int
        R, [1, 2^20]. More rows average more partitions, but with delta = 0 the noise of the mean
        grows as √R: see :func:`optimal_rows`.
    width : int or None
        W, columns a row, [2, 2^24]. Hash codes beyond W are hashed again to W columns, and the
        chance collisions that brings (1/W) are corrected on reading. None: all codes of a sign
        hash up to 1000, else 1000.
    hash : SRP, PairedSRP or PStable
        The kernel, and so the question.
    epsilon : float
        Budget of the one release, [0.001, 64].
    delta : float
        0 for pure epsilon (rounded Laplace noise), or in (0, 1) (rounded Gaussian noise, which pays
        √R where the pure law pays R).
    neighbouring : "add-remove" or "replace"
        How neighbouring collections differ; replace needs twice the noise.
    seed : int
        Public seed of the hash functions, [0, 2^63).
    ranges : Ranges, optional
        Public ranges of the columns of a table, each of which becomes 0 … 1 before records and
        queries are hashed: distances, and so the bandwidth, are those of scaled columns.

    Raises
    ------
    InputError
        One sentence for any parameter that has no guarantee.

    >>> from dpindex.race import PStable
    >>> spec = SketchSpec(dim=3, rows=100, width=500, hash=PStable(20.0), epsilon=1.0)
    >>> str(spec.guarantee)
    'epsilon = 1 (pure DP) under records(add-remove)'
    >>> SketchSpec.from_dict(spec.to_dict()) == spec
    True
    """

    dim: int
    rows: int
    width: int | None
    hash: Hash
    epsilon: float
    delta: float = 0.0
    neighbouring: Neighbouring = "add-remove"
    seed: int = 0
    ranges: Ranges | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.hash, Hash):
            raise InputError("hash must be SRP(…), PairedSRP(…) or PStable(…) of dpindex.race.")
        width = self.width
        if width is None:
            width = min(self.hash.codes or _DEFAULT_WIDTH, _DEFAULT_WIDTH)
        delta = 0.0
        if self.delta != 0:
            delta = checked_delta(self.delta, "Gaussian noise")
        checked = {
            "dim": whole_number(self.dim, "dim", 1, (1 << 31) - 1),
            "rows": whole_number(self.rows, "rows", 1, 1 << 20),
            "width": whole_number(width, "width", 2, 1 << 24),
            "epsilon": checked_epsilon(self.epsilon),
            "delta": delta,
            "seed": whole_number(self.seed, "seed", 0, (1 << 63) - 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        Records(self.neighbouring)
        if not isinstance(self.ranges, Ranges | None):
            raise InputError("ranges must be a dpindex.Ranges.")
        if self.ranges is not None:
            self.ranges.check_columns(self.dim, "the spec")
        if self.rows * self.columns > _MAX_CELLS:
            raise InputError(
                f"{self.rows} rows of {self.width} columns are more than 2^27 counts; take fewer."
            )
        if self.rows * self.hash.directions * self.dim > _MAX_DIRECTIONS:
            raise InputError(
                f"{self.rows} rows of {self.hash.directions} directions in {self.dim} dimensions "
                f"are more than 2^28 numbers; take fewer rows, bits or hashes, or project first."
            )

    @property
    def columns(self) -> int:
        """Counts a row: ``width``, resolved."""
        return self.width or 0

    @property
    def guarantee(self) -> Guarantee:
        """The promise of one release about each record of the collection."""
        return Guarantee(self.epsilon, self.delta, "DP", Records(self.neighbouring))

    @cached_property
    def hasher(self) -> Hasher:
        """The hash functions, made when first needed."""
        return Hasher(self.hash, self.dim, self.rows, self.columns, self.seed)

    @cached_property
    def law(self) -> AdditiveNoise:
        """The law of the noise that release adds to every count."""
        return count_noise(
            self.epsilon,
            self.delta,
            self.rows,
            self.columns,
            self.neighbouring,
        )

    def vectors(self, x: Vectors, name: str) -> Any:
        """Return records or queries ``x`` as they are hashed, shape (n, dim), values unchecked.

        ``name`` is what messages call them.
        """
        rows = real_matrix(x, self.dim, name, min_rows=0)
        if self.ranges is None or not rows.shape[0]:
            return rows
        return self.ranges.scale(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; ranges only where there are some."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["hash"] = self.hash.to_dict()
        ranges = data.pop("ranges")
        if ranges is not None:
            data["ranges"] = ranges.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Any) -> SketchSpec:
        """Return the inverse of ``to_dict``; InputError if ``data`` is anything else."""
        values = dict(checked_fields(data, cls, "the spec of a sketch"))
        values["hash"] = from_kind(values["hash"], FAMILIES, "hash")
        if values.get("ranges") is not None:
            values["ranges"] = Ranges.from_dict(values["ranges"])
        return cls(**values)

    def to_json(self) -> str:
        """Return canonical JSON: equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)


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
            columns += np.arange(0, n * width, width)[:, None]
            counted = np.bincount(columns.ravel(), minlength=n * width)
            fresh[rows] += counted.reshape(n, width)

        with ThreadPoolExecutor(cores()) as pool:
            for block in self._blocks(chunks, "records", clip=True):
                spec.hasher.each(block, count, pool)
        counts += fresh
        fresh.fill(0)
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
        self._counts = None
        noise = self.law.source.sample(counts.size, self.stream())
        counts += noise.reshape(counts.shape)
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


def optimal_rows(
    expected_count: float,
    epsilon: float,
    neighbouring: Neighbouring = "add-remove",
    delta: float = 0.0,
) -> int:
    """Return the rows that make the error bound least under pure epsilon: Corollary 1.

    ``R = ⌈f̃ ε/√2⌉`` with ``f̃ = Σ_x √k(x, q)`` at a typical query, which must be *publicly* known:
    choosing it from the data would spend budget that nobody counted. Under replace a record costs
    twice, so ε/2 takes the place of ε. With delta > 0 there is no such optimum, and InputError: the
    noise of the mean does not grow with R, and every further row helps.

    Parameters
    ----------
    expected_count : float
        f̃, (0, ∞).
    epsilon : float
        Budget of the release, (0, ∞).
    neighbouring : "add-remove" or "replace"
        What neighbouring collections differ in.
    delta : float
        0, the only one with an optimum.

    >>> optimal_rows(1000, 1.0)
    708
    """
    if delta:
        raise InputError(
            "with delta > 0 every further row helps and there is no best number; give rows."
        )
    count = finite_number(expected_count, "expected_count", above=0.0)
    best = count * checked_epsilon(epsilon) / CHANGES[Records(neighbouring).neighbouring]
    rows = finite_number(best / math.sqrt(2), "the best number of rows")
    return max(1, math.ceil(rows))


def mean_groups(rows: int, failure: float) -> int:
    """Return the groups of the median of means, ``⌈8 log(1/δ')⌉`` (Lemma 2).

    δ' is the failure probability.
    """
    if finite_number(failure, "failure", above=0.0) >= 1:
        raise InputError(f"failure must lie in (0, 1), not {failure!r}.")
    groups = math.ceil(8 * math.log(1 / failure))
    if groups > rows:
        raise InputError(
            f"a median of means that fails with probability {failure:g} needs {groups} rows; "
            f"this sketch has {rows}: use the mean, or allow failure more often."
        )
    return groups


def error_bound(
    root_kernel_sum: Floats, rows: int, noise_variance: float, failure: float
) -> Floats:
    """Return a bound on the error of the median of means.

    It holds with probability 1 − ``failure``.

    Theorem 4: one row has variance at most ``σ² = f̃² + noise``. The mean of the smallest group, of
    ``m = ⌊R/groups⌋`` rows, misses by more than ``2σ/√m`` with probability at most ¼ (Chebyshev),
    and the median of the groups with at most ``failure`` (Hoeffding). Where the groups divide R
    this is the paper's ``√(f̃²/R + 2R/ε²) √(32 log 1/δ')``.

    Parameters
    ----------
    root_kernel_sum : array, shape (nq,)
        ``f̃ = Σ_x √k(x, q)`` of each query.
    rows : int
        R, rows of the sketch.
    noise_variance : float
        Of the noise in one count.
    failure : float
        Probability that the bound is exceeded, (0, 1).

    >>> error_bound(np.array([1000.0]), rows=800, noise_variance=2 * 800.0**2, failure=0.05).round()
    array([526.])
    """
    smallest = rows // mean_groups(rows, failure)
    deviation = (root_kernel_sum**2 + noise_variance) ** 0.5
    return 2.0 * deviation / math.sqrt(smallest)
