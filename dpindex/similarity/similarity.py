"""Unbiased similarities of codes to queries, and their errors: one class for each code format."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from dpindex.base.arrays import (
    Doubles,
    Floats,
    Indices,
    Singles,
    issparse,
    matrix_product,
    products,
)
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.noise.symbols import CodewordMap
from dpindex.mechanism.spec import Spec
from dpindex.similarity.float_codes import (
    EXACT,
    METRICS,
    Estimate,
    NoisyVectorStats,
    agreement_curve,
    cosine_from_agreement,
    cosine_from_score,
    noise_moments,
)
from dpindex.similarity.symbol_codes import pair_curve

Metric = Literal["cosine", "ip", "l2"]


@dataclass(frozen=True)
class ExactQueries:
    """Queries that are compared as they are.

    Attributes
    ----------
    projections : array, shape (nq, k)
        Exact projections in grid integers held in floats, or whole numbers that cosines with all
        codewords are made of: :meth:`dpindex.mechanism.spec.Projector.asked`.
    spec : Spec
        The spec they were projected under.
    vectors : float64 array, shape (nq, k + 2), optional
        Under a design, the coordinates in which they are compared:
        :func:`dpindex.similarity.designed.exact_coordinates`.
    """

    projections: Floats
    spec: Spec
    vectors: Doubles | None = None

    def __len__(self) -> int:
        return len(self.projections)

    def __getitem__(self, rows: slice | Indices) -> ExactQueries:
        vectors = None if self.vectors is None else self.vectors[rows]
        return ExactQueries(self.projections[rows], self.spec, vectors)

    def to_float(self) -> Doubles:
        """In units of the scaled attributes, float64, shape (nq, k)."""
        return np.asarray(self.projections, dtype=np.float64) * self.spec.step


@dataclass(frozen=True)
class PrivateQueries:
    """Queries of which codes are compared.

    Attributes
    ----------
    codes : Codes
    spec : Spec
        The spec they were privatized under.
    """

    codes: Codes
    spec: Spec

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | Indices) -> PrivateQueries:
        return PrivateQueries(self.codes.take(rows), self.spec)

    def to_float(self) -> Doubles:
        """The decoded codes, float64, shape (nq, k); signs as ±1."""
        return np.asarray(self.codes.to_float(), dtype=np.float64)


Queries: TypeAlias = ExactQueries | PrivateQueries
"""The other side of a comparison."""


def codeword_similarities(queries: Queries) -> Singles:
    """Return cosines of all codewords to each query, or to its own symbol, shape (nq, K)."""
    if isinstance(queries, ExactQueries):
        return np.asarray(queries.projections.astype(np.float64) * CodewordMap.scale, np.float32)
    words = queries.spec.symbol_law.codebook.vectors
    return matrix_product(words[queries.codes.stored[:, 0]], words.T)


class Estimator(ABC):
    """Estimates the similarities of codes to queries, and their standard errors."""

    @abstractmethod
    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        """Return estimates and errors, float64 arrays of shape (nq, count).

        Parameters
        ----------
        codes : Codes
            In groups of equally many, ``count``, those of the first query first.
        queries : Queries
        groups : int
            As many as queries, or one, with which all of them are compared.
        """


class Similarity(Estimator):
    """Unbiased similarities and their standard errors, of codes of one spec to queries.

    Nothing but the codes, the queries and public parameters enters, whatever found the codes. The
    standard error is that of one pair looked at on its own.

    Parameters
    ----------
    spec : Spec
        The spec of the codes.
    metric : "cosine", "ip" or "l2"
        What is estimated: cosines in [−1, 1], inner products, or squared distances.

    >>> from dpindex import Privatizer, Spec, attribute
    >>> privatizer = Privatizer(Spec("none-oporp", dim=4, k=4,
    ...     adjacency=attribute(1.0)), allow_unprotected=True)
    >>> codes = privatizer.privatize(np.eye(4))
    >>> queries = ExactQueries(privatizer.project(np.eye(4)[:2]), privatizer.spec)
    >>> NumberSimilarity(privatizer.spec, "ip").estimates(codes, queries, 1)[0].round(3).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """

    def __init__(self, spec: Spec, metric: Metric) -> None:
        self.spec = spec
        self.metric = metric


class InnerProductSimilarity(Similarity):
    """Read off the inner products of decoded codes and queries."""

    dtype: ClassVar[type[np.floating[Any]]] = np.float64
    """Number type that inner products are computed in."""

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        decoded = codes.to_float().astype(self.dtype, copy=False)
        x = decoded.reshape(groups, -1, codes.k)
        y = queries.to_float()
        ip = products(x, y.astype(self.dtype, copy=False))
        return self._corrected(ip, x, y, queries)

    @abstractmethod
    def _corrected(self, ip: Doubles, x: Floats, y: Doubles, queries: Queries) -> Estimate:
        """From inner products, shape (nq, count), of decoded codes x and queries y.

        x has shape (nq or 1, count, k), y has shape (nq, k).
        """


class NumberSimilarity(InnerProductSimilarity):
    """Number codes: sums of the decoded vectors, corrected by the moments of the noise."""

    def _corrected(self, ip: Doubles, x: Floats, y: Doubles, queries: Queries) -> Estimate:
        norm = self.spec.norm
        query_noise = noise_moments(queries.spec) if isinstance(queries, PrivateQueries) else EXACT
        codes = NoisyVectorStats.of(x, noise_moments(self.spec), norm)
        other_side = NoisyVectorStats.of(y[:, None], query_noise, norm)
        return METRICS[self.metric](
            ip, codes, other_side, self.spec.projection.inner_product_factor
        )


class SignSimilarity(InnerProductSimilarity):
    """Sign codes: how many signs agree, or the score of an exact query, corrected for the flips.

    NaN where flips depend on norms that nobody declared.
    """

    dtype = np.float32  # exact for sums of ±1, and half the time

    def _corrected(self, ip: Doubles, x: Floats, y: Doubles, queries: Queries) -> Estimate:
        k = x.shape[2]
        law = self.spec.sign_law
        factor = self.spec.projection.inner_product_factor
        rms = sign_deviation(self.spec)
        query_rms = sign_deviation(queries.spec)
        if math.isnan(rms) or (isinstance(queries, PrivateQueries) and math.isnan(query_rms)):
            unknown = np.full(ip.shape, math.nan)
            return unknown, unknown.copy()
        if isinstance(queries, ExactQueries):
            norms = np.linalg.norm(y, axis=1)[:, None]
            return cosine_from_score(ip, norms, k, law, rms, factor)
        curve = agreement_curve(law, rms, queries.spec.sign_law, query_rms)
        return cosine_from_agreement(ip / k, k, curve, factor)


class SymbolSimilarity(Similarity):
    """Symbol codes: the curve of :mod:`dpindex.similarity.symbol_codes`."""

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        symbols = codes.stored[:, 0].astype(np.intp).reshape(groups, -1)
        by_symbol = codeword_similarities(queries).astype(np.float64)
        seen = np.take_along_axis(by_symbol, symbols, axis=1)
        curve = pair_curve(self.spec.symbol_law)
        if isinstance(queries, PrivateQueries):
            curve = curve.after(pair_curve(queries.spec.symbol_law))
        return curve(seen)


def sign_deviation(spec: Spec) -> float:
    """Deviation of a sign code's projected coordinate in betas; NaN if needed and unknown."""
    law = spec.sign_law
    if law.scale_free:
        return 1.0
    if spec.norm is not None:
        return spec.norm * spec.projection.rms / spec.change
    if law.depends_on_size:
        return math.nan
    return 1.0


def exact_similarities(query: Doubles, vectors: Any, metric: Metric) -> Doubles:
    """Return the similarity of a query with each of some vectors, float64, shape (n,).

    Parameters
    ----------
    query : float64 array, shape (dim,)
    vectors : real array or CSR matrix, shape (n, dim)
    metric : "cosine", "ip" or "l2"
        Cosines (0 with a vector of norm 0), inner products or squared distances.

    >>> exact_similarities(np.array([3.0, 4.0]), np.array([[0, 2], [0, 0]]), "cosine").tolist()
    [0.8, 0.0]
    >>> exact_similarities(np.array([3.0, 4.0]), np.array([[0, 2], [0, 0]]), "l2").tolist()
    [13.0, 25.0]
    """
    wide = vectors.astype(np.float64)
    if issparse(wide):
        products = np.asarray(wide @ query)
        squares = np.asarray(wide.multiply(wide).sum(axis=1)).ravel()
    elif metric == "l2":
        wide -= query
        return _products(wide, wide)
    else:
        products = _products(wide, query[None])
        squares = _products(wide, wide)
    if metric == "ip":
        return products
    if metric == "l2":
        return np.asarray(np.maximum(squares - 2 * products + query @ query, 0.0))
    norms = np.sqrt(squares) * np.linalg.norm(query)
    cosines = np.zeros(len(norms))
    with np.errstate(invalid="ignore"):  # of infinite vectors, which have none
        np.divide(products, norms, out=cosines, where=norms != 0)
    return np.clip(cosines, -1.0, 1.0)


def _products(rows: Doubles, others: Doubles) -> Doubles:
    """Return the inner product of each row with its other, or with the one other.

    One row at a time: the rounding of a product of matrices depends on the place of the row, and
    equal vectors are to have equal similarities.
    """
    return np.asarray(np.matmul(rows[:, None, :], others[:, :, None])[:, 0, 0])
