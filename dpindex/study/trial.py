"""One private index that is built to be measured: searched with known answers, and attacked.

The evaluator builds it of the vectors of its user, the planner of public ones.

*Linkage* is how often a known vector picks out its own code among all. The attacker knows a vector,
others of its kind, and everything public. Every code gets a score: the log-odds that it is of the
vector and not of one of the others, by Bayes' rule from the public law of the noise. No other test
finds more at as many false alarms (Neyman & Pearson 1933) if the others stand for the crowd. A
search by cosines finds fewer, denoised or not: of 10 000 pictures at epsilon 1 for a pixel it finds
.50, and this test .90.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import faiss
import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Floats,
    Rows,
    Vectors,
    row_blocks,
    spaced,
    stacked,
)
from dpindex.base.threads import limited_threads, share_cores
from dpindex.data import as_source, dense_rows, taken_rows
from dpindex.decode import decoder_of
from dpindex.decode.base import Metric
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.fit import DenoiserKind, fit_if_possible
from dpindex.index.private_index import PrivateIndex
from dpindex.index.search import QueryMode
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Projector, Spec
from dpindex.study.reconstruction import (
    EXPOSURE,
    Reconstructor,
    can_be_reconstructed,
    highest_cosine,
    public_rows,
    reconstructor_of,
)

# Vectors whose codes are linked, and vectors that are reconstructed.
_KNOWN = 250
_RECONSTRUCTED = 500
# Numbers in the vectors that an attacker knows, at most.
_MAX_NUMBERS = 1 << 26
# Relative difference of log-odds that tie, and log-odds that are held at a time.
_TIE = 1e-5
MAX_SCORES = 1 << 22

LINKED = "linked"
"""The name of this measure: the share of known vectors whose own code fits best among all."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Trial:
    """A private index of vectors, with fresh noise, to be measured and discarded.

    Parameters
    ----------
    spec : Spec
        A baseline without privacy is built too: nothing is published.
    base : array, sparse matrix or VectorSource, shape (n, dim)
        Read in chunks.
    metric, index_type : str
        As of :class:`dpindex.PrivateIndex`.
    query_epsilon : float, optional
        Budget of private queries; default that of the index.
    denoise : "auto", "linear" or "score", or Denoiser, optional
        Fit a denoiser of this kind, where one can be ("linear" for sign codes), or use this one.

    Attributes
    ----------
    index : PrivateIndex
        Its ids are the rows of the base.
    denoiser : Denoiser or None
        What was fitted or given.
    build_seconds : float
        What privatizing, indexing and fitting took.
    bytes_per_vector : int
        Size of a published code.

    Raises
    ------
    InputError
        If the vectors violate the spec's bounds, or the index cannot have such a metric or type.

    >>> import numpy as np
    >>> from dpindex import attribute
    >>> trial = Trial(Spec("dp-oporp-staircase", 12, 12, 60.0,
    ...     adjacency=attribute(1.0)), np.eye(12))
    >>> trial.nearest(np.eye(12)[:2], 1, "exact").tolist(), trial.linkage().share
    ([[0], [1]], 1.0)
    """

    def __init__(
        self,
        spec: Spec,
        base: Any,
        *,
        metric: Metric = "cosine",
        index_type: str = "f32",
        query_epsilon: float | None = None,
        denoise: DenoiserKind | Denoiser | None = None,
    ) -> None:
        self._base = as_source(base, "base")
        self._privatizer = Privatizer(spec, allow_unprotected=True)  # discarded, never published
        budget = None if spec.epsilon is None else query_epsilon
        self.index = PrivateIndex(spec, metric=metric, index_type=index_type, query_epsilon=budget)
        self.bytes_per_vector = 0
        self.denoiser: Denoiser | None = None
        start = time.perf_counter()
        for first, chunk in self._base.chunks():
            codes = self._privatizer.privatize(chunk, first_row=first)
            self.index.add_codes(codes)
            self.bytes_per_vector = max(self.bytes_per_vector, codes.stored[0].nbytes)
        if isinstance(denoise, Denoiser):
            self.denoiser = denoise
        elif denoise is not None:
            self.denoiser = fit_if_possible(self.index.fit_denoiser, spec, denoise)
        self.build_seconds = time.perf_counter() - start

    def nearest(self, queries: Vectors, k: int, mode: QueryMode) -> AnyArray:
        """Return the rows of the k nearest codes of each query, best first, shape (nq, k)."""
        return self.index.search(queries, k, mode, allow_unprotected=True).ids

    @cached_property
    def known(self) -> Rows:
        """Rows of the vectors that an attacker looks for, evenly spaced, fewer of long ones."""
        most = max(1, _MAX_NUMBERS // self._width)
        return spaced(len(self.index), min(_KNOWN, most))

    @property
    def _width(self) -> int:
        """Numbers that are held for a vector of the base, or 1 if it is sparse."""
        return 1 if self._base.is_sparse else self.index.spec.dim

    def linkage(self) -> Linkage:
        """Return how many codes fit known vectors better than their own, by the law of the noise.

        The attacker knows some other vectors of the base too.
        """
        codes = self.index.codes
        return measure_linkage(
            self._privatizer,
            taken_rows(self._base, self.known),
            codes.take(self.known),
            codes,
            self._crowd(public_rows(len(self.index), self._width, self.known)),
        )

    def _crowd(self, others: Rows) -> Vectors:
        """Return as many of some vectors as an attack compares a known one with."""
        crowd_size = decoder_of(self.index.spec).likelihoods.crowd_size
        return taken_rows(self._base, others[spaced(len(others), crowd_size)])

    @cached_property
    def attacker(self) -> Reconstructor:
        """The strongest attacker: with all codes, and other rows of the base as public vectors."""
        public = dense_rows(self._base, self.others)
        return reconstructor_of(self.index.spec, public, self.index.codes, self.denoiser)

    @property
    def others(self) -> Rows:
        """Rows of the other vectors of the kind that the attacker learns from."""
        count = len(self.index)
        return public_rows(count, self.index.spec.dim, attacked_rows(count))

    def reconstruction(self) -> dict[str, float]:
        """Return how much of vectors comes back from their codes: :meth:`Reconstructor.exposure`.

        All figures are NaN for a projection that is too large to invert.
        """
        if not can_be_reconstructed(self.index.spec):
            return dict.fromkeys(EXPOSURE, math.nan)
        attacked = attacked_rows(len(self.index))
        originals = dense_rows(self._base, attacked)
        return self.attacker.exposure(originals, self.index.codes.take(attacked))

    def highest_cosine(self) -> float:
        """Return the mean cosine that no attacker exceeds, however many other vectors it has.

        See :func:`dpindex.study.reconstruction.highest_cosine`.
        """
        attacked = attacked_rows(len(self.index))
        return highest_cosine(
            self._privatizer,
            dense_rows(self._base, attacked),
            self.index.codes.take(attacked),
            self._crowd(self.others),
        )


def attacked_rows(n: int) -> Rows:
    """Return the rows of n vectors that an attacker reconstructs, evenly spaced."""
    return spaced(n, _RECONSTRUCTED)


@dataclass(frozen=True, eq=False)
class Linkage:
    """How many codes fit known vectors better than their own, and how many as well.

    Attributes
    ----------
    better, tied : int64 arrays, shape (m,)
        For each known vector; its own code is one of those that tie.
    """

    better: Rows
    tied: Rows

    @property
    def share(self) -> float:
        """Share of known vectors whose own code fits best; ties are broken at random."""
        return float(np.mean((self.better == 0) / np.maximum(self.tied, 1)))


def measure_linkage(
    projector: Projector, known: Vectors, own: Codes, codes: Codes, crowd: Vectors | None = None
) -> Linkage:
    """Return how well known vectors pick out their own codes.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    known : array or sparse matrix, shape (m, dim)
        Original vectors, of which the attacker looks for one, and knows the others.
    own : Codes
        Their codes, shape (m, k).
    codes : Codes
        All codes of the collection, those of the known vectors too.
    crowd : array or sparse matrix, shape (c, dim), optional
        Further vectors that the attacker knows; see ``crowd_size`` of
        :class:`dpindex.decode.base.CodeLikelihoods`.
    """
    count = known.shape[0]
    everyone = known if crowd is None else stacked([known, crowd])
    likelihoods = decoder_of(projector.spec).likelihoods(projector, everyone)
    own_odds = np.diagonal(log_odds(likelihoods.logs(own), count))[:, None]
    margin = _TIE * np.maximum(np.abs(own_odds), 1.0)
    better, tied = np.zeros((2, count), dtype=np.int64)
    for block in row_blocks(len(codes), MAX_SCORES // everyone.shape[0]):
        logs = likelihoods.logs(codes.take(block))
        lead = log_odds(logs, count, own_odds - margin) - own_odds
        better += (lead > margin).sum(axis=1)
        tied += (np.abs(lead) <= margin).sum(axis=1)
    return Linkage(better, tied)


def log_odds(logs: Floats, rows: int, least: Doubles | float = -np.inf) -> Doubles:
    """Return the log-odds of the first rows in each column, all rows alike beforehand.

    Parameters
    ----------
    logs : array, shape (m, n)
        Log-likelihoods of the columns under the rows, m > 1, each column up to a constant.
    rows : int
        Rows whose odds are returned, [1, m].
    least : array, shape (rows, 1), optional
        Odds below it need not be right, but stay below.

    >>> log_odds(np.log([[0.1, 0.3], [0.1, 0.1], [0.4, 0.1]]), 3).round(3)
    array([[-1.609,  0.405],
           [-1.609, -1.386],
           [ 0.693, -1.386]])
    """
    likeliest = logs.argmax(axis=0)
    columns = np.arange(logs.shape[1])
    first = logs[likeliest, columns].astype(np.float64)
    rest = logs.copy(order="K")  # columns stay together, which halves the time
    rest[likeliest, columns] = -np.inf
    second = rest.max(axis=0)
    rest -= second
    np.exp(rest, out=rest)
    others = second + np.log(rest.sum(axis=0, dtype=np.float64))
    odds: Doubles = logs[:rows] - np.logaddexp(first, others)
    # Of the likeliest row they are known to full precision: 1 − p would lose it.
    columns = np.flatnonzero(likeliest < rows)
    known = likeliest[columns], columns
    odds[known] = -np.inf
    # So far shares: of those below a third, odds are higher by less than a half.
    counts = odds >= np.minimum(least - 0.5, -1.1)
    shares = odds[counts]
    odds[counts] = shares - np.log1p(-np.exp(shares))
    odds[known] = (first - others)[columns]
    return odds


def in_threads(
    work: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int
) -> Generator[_Result, None, None]:
    """Yield what ``work`` returns for each task, in order; at most ``workers`` run at once.

    Several trials at once use the processors better than BLAS and OpenMP do, which get one each.
    """

    def begin() -> None:
        share_cores()
        faiss.omp_set_num_threads(1)  # of this thread alone

    with limited_threads(1), ThreadPoolExecutor(workers, initializer=begin) as pool:
        yield from pool.map(work, tasks)
