"""What a released sketch answers: the reading half of :class:`~dpindex.race.RaceSketch`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats, Vectors, cores
from dpindex.errors import InputError
from dpindex.race.checks import matrix
from dpindex.race.files import Release
from dpindex.race.spec import SketchSpec
from dpindex.race.theory import error_bound, mean_groups

__all__ = ["Answers", "Estimator"]

Estimator: TypeAlias = Literal["mean", "median-of-means"]

_FAILURE = 0.05


class Answers(ABC):
    """Questions to a sketch that has been released. All of them are free: post-processing."""

    spec: SketchSpec

    @abstractmethod
    def _open(self) -> Release:
        """The released counts; raises InputError before the release."""

    @property
    def counts(self) -> npt.NDArray[Any]:
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
        total = release.counts[:, : self._used].sum(dtype=np.int64)
        return float(total / self.spec.rows + release.offset * self._used)

    @property
    def size_stderr(self) -> float:
        """Standard deviation of ``size``, all of it noise and so public: ``√(2RW)/ε`` if pure."""
        return math.sqrt(self._used * self.noise_variance / self.spec.rows)

    @property
    def _used(self) -> int:
        """Columns of a row that a record can fall into."""
        return min(self.spec.columns, self.spec.hash.codes or self.spec.columns)

    def count(self, q: Vectors, estimator: Estimator = "mean", failure: float = _FAILURE) -> Floats:
        """Unbiased estimates of the kernel sum ``Σ_x k(x, q)``: how many records lie near q.

        Parameters
        ----------
        q : array or sparse matrix, shape (nq, dim)
            Queries in the units of the records; (dim,) is one query.
        estimator : "mean" or "median-of-means"
            The mean over rows (unbiased, least variance), or the median over ``⌈8 log(1/failure)⌉``
            group means, for which ``error_bound`` holds.
        failure : float
            For the median of means, in (0, 1).

        Returns
        -------
        float64 array, shape (nq,). May be negative: that is the noise.
        """
        release = self._open()
        groups = self._groups(estimator, failure)
        edges = np.linspace(0, self.spec.rows, groups + 1).astype(np.intp)

        def means(found: Floats) -> Floats:
            parts = np.add.reduceat(found, edges[:-1], axis=0) / np.diff(edges)[:, None]
            middle: Floats = np.median(parts, axis=0)
            return middle

        counts = self._each_query(q, means) + release.offset
        return self._without_chance(counts)

    def density(
        self, q: Vectors, estimator: Estimator = "mean", failure: float = _FAILURE
    ) -> Floats:
        """Kernel density ``count(q) / size``: the mean kernel over records (Algorithm 2), (nq,)."""
        return self.count(q, estimator, failure) / max(1.0, self.size)

    def stderr(self, q: Vectors) -> Floats:
        """Standard error of ``count(q)`` from the spread over rows, noise included, shape (nq,)."""
        if self.spec.rows < 2:
            raise InputError("one row has no spread; a standard error needs at least two.")
        spread = self._each_query(q, lambda found: found.std(axis=0, ddof=1))
        return np.asarray(spread * (self._stretch / math.sqrt(self.spec.rows)))

    def error_bound(self, q: Vectors, failure: float = _FAILURE) -> Floats:
        """Theorem 4's bound on the error of the median of means, shape (nq,).

        The unknown ``f̃ = Σ√k`` is replaced by its bound ``√(N·Σk)`` (Cauchy–Schwarz), read from the
        sketch itself; the paper's constants make the result generous.
        """
        collisions = self._each_query(q, lambda found: found.mean(axis=0)) + self._open().offset
        size = max(1.0, self.size)
        root_sum = np.sqrt(size * np.clip(collisions, 0.0, size))
        bound = error_bound(root_sum, self.spec.rows, self.noise_variance, failure)
        return bound * self._stretch

    def mean_density(self) -> float:
        """Mean over the *records* of their own density, from squared counts: what is typical.

        ``Σ_x f(x)/N² = mean_r Σ_w S²/N²``, less the squared noise and the chance collisions.
        """
        release, size = self._open(), max(1.0, self.size)
        exact = release.counts + release.offset
        squares = float((exact**2).sum(axis=1).mean()) - self.spec.columns * release.variance
        collisions = float(self._without_chance(np.array([squares / size]))[0])
        return min(1.0, max(0.0, collisions / size))

    def _groups(self, estimator: str, failure: float) -> int:
        if estimator == "mean":
            return 1
        if estimator == "median-of-means":
            return mean_groups(self.spec.rows, failure)
        raise InputError(f"estimator must be 'mean' or 'median-of-means', not {estimator!r}.")

    @property
    def _stretch(self) -> float:
        width = self.spec.columns
        return width / (width - 1) if self.spec.hasher.rehashed else 1.0

    def _without_chance(self, counts: Floats) -> Floats:
        """Rehashing makes the collision probability ``k + (1 − k)/W``: solve for Σk."""
        if not self.spec.hasher.rehashed:
            return counts
        return (counts - self.size / self.spec.columns) * self._stretch

    def _each_query(self, q: Vectors, reduce: Callable[[Floats], Floats]) -> Floats:
        """``reduce`` over the counts that queries fall into, (rows, n) to (n,), block by block."""
        release, hasher = self._open(), self.spec.hasher
        queries = matrix(q, self.spec.dim, "queries")
        out = np.empty(queries.shape[0])
        with ThreadPoolExecutor(cores()) as pool:
            for start, block in hasher.blocks(queries):
                found = np.empty((self.spec.rows, block.shape[0]))

                def look_up(
                    rows: slice, columns: npt.NDArray[np.int64], found: Floats = found
                ) -> None:
                    found[rows] = np.take_along_axis(release.counts[rows], columns, axis=1)

                hasher.each(block, look_up, pool)
                out[start : start + block.shape[0]] = reduce(found)
        return out
