"""What a released sketch answers, and what its answers are worth (Coleman & Shrivastava 2020)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats, Integers, Vectors, cores
from dpindex.checks import checked_epsilon, finite_number, real_matrix
from dpindex.errors import InputError
from dpindex.noise.counts import CHANGES
from dpindex.privacy import Guarantee, Neighbouring, Records
from dpindex.race.hashes import Doubles
from dpindex.race.spec import SketchSpec

__all__ = ["Answers", "Estimator", "Release", "error_bound", "mean_groups", "optimal_rows"]

Estimator: TypeAlias = Literal["mean", "median-of-means"]

_FAILURE = 0.05


@dataclass(frozen=True, eq=False)
class Release:
    """What is public once the noise has been added.

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
        (centres,) = self._over_rows(q, self._centre(estimator, failure))
        return self._without_chance(centres)

    def density(
        self, q: Vectors, estimator: Estimator = "mean", failure: float = _FAILURE
    ) -> Floats:
        """Kernel density ``count(q) / size``: the mean kernel over records (Algorithm 2), (nq,)."""
        return self.count(q, estimator, failure) / max(1.0, self.size)

    def stderr(self, q: Vectors) -> Floats:
        """Standard error of ``count(q)`` from the spread over rows, noise included, shape (nq,)."""
        (deviations,) = self._over_rows(q, self._deviation())
        return self._of_mean(deviations)

    def error_bound(self, q: Vectors, failure: float = _FAILURE) -> Floats:
        """Theorem 4's bound on the error of the median of means, shape (nq,).

        The unknown ``f̃ = Σ√k`` is replaced by its bound ``√(N·Σk)`` (Cauchy–Schwarz), read from the
        sketch itself; the paper's constants make the result generous.
        """
        (means,) = self._over_rows(q, self._centre("mean", failure))
        return self._bound(means, failure)

    def summary(
        self, q: Vectors, estimator: Estimator = "mean", failure: float = _FAILURE
    ) -> dict[str, Floats]:
        """``count``, ``stderr`` and ``density`` by name, each of shape (nq,), hashing queries once.

        With the median of means also ``bound``: its ``error_bound``.
        """
        centres, means, deviations = self._over_rows(
            q, self._centre(estimator, failure), self._centre("mean", failure), self._deviation()
        )
        count = self._without_chance(centres)
        stderr = self._of_mean(deviations)
        bound = {"bound": self._bound(means, failure)} if estimator != "mean" else {}
        return {"count": count, "stderr": stderr, **bound, "density": count / max(1.0, self.size)}

    def mean_density(self) -> float:
        """Mean over the *records* of their own density, from squared counts: what is typical.

        ``Σ_x f(x)/N² = mean_r Σ_w S²/N²``, less the squared noise and the chance collisions.
        """
        release, size = self._open(), max(1.0, self.size)
        exact = release.counts + release.offset
        squares = float((exact**2).sum(axis=1).mean()) - self.spec.columns * release.variance
        collisions = float(self._without_chance(np.array([squares / size]))[0])
        return min(1.0, max(0.0, collisions / size))

    def _centre(self, estimator: str, failure: float) -> Callable[[Doubles], Doubles]:
        """The estimator over rows, of exact counts with their offset: (rows, n) to (n,)."""
        if estimator not in ("mean", "median-of-means"):
            raise InputError(f"estimator must be 'mean' or 'median-of-means', not {estimator!r}.")
        offset = self._open().offset
        groups = 1 if estimator == "mean" else mean_groups(self.spec.rows, failure)
        edges = np.linspace(0, self.spec.rows, groups + 1).astype(np.intp)

        def centre(found: Doubles) -> Doubles:
            means = np.add.reduceat(found, edges[:-1], axis=0) / np.diff(edges)[:, None]
            return np.asarray(np.median(means, axis=0) + offset)

        return centre

    def _deviation(self) -> Callable[[Doubles], Doubles]:
        """The standard deviation over rows, (rows, n) to (n,)."""
        if self.spec.rows < 2:
            raise InputError("one row has no spread; a standard error needs at least two.")
        return lambda found: np.asarray(found.std(axis=0, ddof=1))

    def _of_mean(self, deviations: Doubles) -> Doubles:
        return np.asarray(deviations * (self._stretch / math.sqrt(self.spec.rows)))

    def _bound(self, means: Doubles, failure: float) -> Floats:
        size = max(1.0, self.size)
        root_sum = np.sqrt(size * np.clip(means, 0.0, size))
        return error_bound(root_sum, self.spec.rows, self.noise_variance, failure) * self._stretch

    @property
    def _stretch(self) -> float:
        return 1.0 / (1.0 - 1.0 / self.spec.columns) if self.spec.hasher.rehashed else 1.0

    def _without_chance(self, counts: Floats) -> Floats:
        """Rehashing makes the collision probability ``k + (1 − k)/W``: solve for Σk."""
        if not self.spec.hasher.rehashed:
            return counts
        return (counts - self.size / self.spec.columns) * self._stretch

    def _over_rows(self, q: Vectors, *reduce: Callable[[Doubles], Doubles]) -> Doubles:
        """Each of ``reduce``, (rows, n) to (n,), of the counts that queries fall into."""
        release, hasher = self._open(), self.spec.hasher
        queries = real_matrix(q, self.spec.dim, "queries", min_rows=0)
        out = np.empty((len(reduce), queries.shape[0]))
        with ThreadPoolExecutor(cores()) as pool:
            for start, block in hasher.blocks(queries):
                found = np.empty((self.spec.rows, block.shape[0]))

                def look_up(
                    rows: slice, columns: npt.NDArray[np.int64], found: Doubles = found
                ) -> None:
                    found[rows] = np.take_along_axis(release.counts[rows], columns, axis=1)

                hasher.each(block, look_up, pool)
                out[:, start : start + block.shape[0]] = [part(found) for part in reduce]
        return out


def optimal_rows(
    expected_count: float,
    epsilon: float,
    neighbouring: Neighbouring = "add-remove",
    delta: float = 0.0,
) -> int:
    """Rows that make the error bound least under pure epsilon: Corollary 1.

    ``R = ⌈f̃ ε/√2⌉`` with ``f̃ = Σ_x √k(x, q)`` at a typical query, which must be *publicly* known:
    choosing it from the data would spend budget that nobody counted. Under replace a record costs
    twice, so ε/2 takes the place of ε. With delta > 0 there is no such optimum, and InputError: the
    noise of the mean does not grow with R, and every further row helps.

    >>> optimal_rows(1000, 1.0)
    708
    """
    if delta:
        raise InputError(
            "with delta > 0 every further row helps and there is no best number; give rows."
        )
    count = finite_number(expected_count, "expected_count", above=0.0)
    best = count * checked_epsilon(epsilon) / CHANGES[Records(neighbouring).neighbouring]
    return max(1, math.ceil(finite_number(best / math.sqrt(2), "the best number of rows")))


def mean_groups(rows: int, failure: float) -> int:
    """Groups of the median of means, ``⌈8 log(1/δ')⌉`` for a failure probability δ' (Lemma 2)."""
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
    """Bound on the error of the median of means that holds with probability 1 − ``failure``.

    Theorem 4: one row has variance at most ``σ² = f̃² + noise``. The mean of the smallest group, of
    ``m = ⌊R/groups⌋`` rows, misses by more than ``2σ/√m`` with probability at most ¼ (Chebyshev),
    and the median of the groups with at most ``failure`` (Hoeffding). Where the groups divide R
    this is the paper's ``√(f̃²/R + 2R/ε²) √(32 log 1/δ')``.

    >>> error_bound(np.array([1000.0]), rows=800, noise_variance=2 * 800.0**2, failure=0.05).round()
    array([526.])
    """
    smallest = rows // mean_groups(rows, failure)
    return np.asarray(2.0 * (root_kernel_sum**2 + noise_variance) ** 0.5 / math.sqrt(smallest))
