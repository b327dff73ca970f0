"""One private index that is built to be measured: searched with known answers, and attacked.

The evaluator builds it of the vectors of its user, the planner of public ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import faiss

from dpindex.base.arrays import (
    AnyArray,
    Vectors,
    limited_threads,
    share_cores,
    spaced,
)
from dpindex.data import as_source, dense_rows
from dpindex.denoise import Denoiser, Kind, fit_if_possible
from dpindex.index.kinds import kind_of
from dpindex.index.private_index import PrivateIndex
from dpindex.index.search import QueryMode
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.similarity.similarity import Metric
from dpindex.storage.ids import Rows
from dpindex.study.linkage import Linkage, measure_linkage
from dpindex.study.reconstruction import (
    EXPOSURE,
    Reconstructor,
    can_be_reconstructed,
    public_rows,
    reconstructor_of,
)

# Vectors whose codes are linked, and vectors that are reconstructed.
_KNOWN = 250
_RECONSTRUCTED = 500
# Numbers in the vectors that an attacker knows, at most.
_MAX_NUMBERS = 1 << 26

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
    denoise : "auto", "linear" or "score", optional
        Fit a denoiser of this kind, where one can be ("linear" for sign codes).

    Attributes
    ----------
    index : PrivateIndex
        Its ids are the rows of the base.
    denoiser : Denoiser or None
        What was fitted.
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
        denoise: Kind | None = None,
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
        if denoise is not None:
            self.denoiser = fit_if_possible(self.index.fit_denoiser, spec, denoise)
        self.build_seconds = time.perf_counter() - start

    def nearest(self, queries: Vectors, k: int, mode: QueryMode) -> AnyArray:
        """Return the rows of the k nearest codes of each query, best first, shape (nq, k)."""
        return self.index.search(queries, k, mode, allow_unprotected=True).ids

    @cached_property
    def known(self) -> Rows:
        """Rows of the vectors that an attacker looks for, evenly spaced, fewer of long ones."""
        most = max(1, _MAX_NUMBERS // self.index.spec.dim)
        return spaced(len(self.index), min(_KNOWN, most))

    def linkage(self, known: Rows | None = None, crowd: Rows | None = None) -> Linkage:
        """Return how many codes fit known vectors better than their own, by the law of the noise.

        Parameters
        ----------
        known, crowd : int arrays, optional
            Ascending rows of the base: of the vectors that an attacker looks for (:attr:`known`),
            and of others that it knows too.
        """
        spec = self.index.spec
        if known is None:
            known = self.known
        if crowd is None:
            others = public_rows(len(self.index), spec.dim, known)
            crowd = others[spaced(len(others), kind_of(spec).likelihoods.crowd_size)]
        codes = self.index.codes
        return measure_linkage(
            self._privatizer,
            dense_rows(self._base, known),
            codes.take(known),
            codes,
            dense_rows(self._base, crowd),
        )

    def own_codes_found(self) -> float:
        """Return the share of known vectors whose own code an exact search finds first."""
        found = self.nearest(dense_rows(self._base, self.known), 1, "exact")
        return float((found[:, 0] == self.known).mean())

    @cached_property
    def attacker(self) -> Reconstructor:
        """The strongest attacker: with all codes, and other rows of the base as public vectors."""
        spec = self.index.spec
        public = dense_rows(
            self._base, public_rows(len(self.index), spec.dim, attacked_rows(len(self.index)))
        )
        return reconstructor_of(spec, public, self.index.codes, self.denoiser)

    def reconstruction(self) -> dict[str, float]:
        """Return how much of vectors comes back from their codes: :meth:`Reconstructor.exposure`.

        All figures are NaN for a projection that is too large to invert.
        """
        if not can_be_reconstructed(self.index.spec):
            return dict.fromkeys(EXPOSURE, math.nan)
        attacked = attacked_rows(len(self.index))
        originals = dense_rows(self._base, attacked)
        return self.attacker.exposure(originals, self.index.codes.take(attacked))


def attacked_rows(n: int) -> Rows:
    """Return the rows of n vectors that an attacker reconstructs, evenly spaced."""
    return spaced(n, _RECONSTRUCTED)


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
