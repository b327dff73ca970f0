"""Queries, and the base classes of what compares codes with them.

Each kind of code has a module of its own that fills these in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from dpindex.base.arrays import Doubles, Floats, Indices, Vectors, issparse, products
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Projector, Spec

Metric = Literal["cosine", "ip", "l2"]

Estimate: TypeAlias = tuple[Doubles, Doubles]
"""Values and their standard errors, of one shape."""


@dataclass(frozen=True)
class ExactQueries:
    """Queries that are compared as they are.

    Attributes
    ----------
    projections : array, shape (nq, k)
        Exact projections in grid integers held in floats, or whole numbers that cosines with all
        codewords are made of: :meth:`dpindex.mechanism.spec.Projector.project_queries`.
    spec : Spec
        The spec they were projected under.
    vectors : float64 array, shape (nq, k + 2), optional
        Under a design, the coordinates in which they are compared:
        :func:`dpindex.decode.designed.exact_coordinates`.
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
        steps = np.asarray(self.projections, dtype=np.float64)
        return steps * self.spec.step


@dataclass(frozen=True)
class PrivateQueries:
    """Queries that were privatized: their codes are compared.

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

    They depend on the codes, the queries and public parameters alone, and not on how the codes were
    found. The standard error is that of a pair that was not selected.

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
    >>> from dpindex.decode.numbers import NumberSimilarity
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
        narrow = y.astype(self.dtype, copy=False)
        ip = products(x, narrow)
        return self._corrected(ip, x, y, queries)

    @abstractmethod
    def _corrected(
        self,
        ip: Doubles,
        x: Floats,
        y: Doubles,
        queries: Queries,
    ) -> Estimate:
        """From inner products, shape (nq, count), of decoded codes x and queries y.

        x has shape (nq or 1, count, k), y has shape (nq, k).
        """


class CodeLikelihoods(ABC):
    """Log-likelihoods of codes for known vectors.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    known : array or CSR matrix, shape (m, dim)

    Attributes
    ----------
    crowd_size : int
        How many other vectors an attack compares a known one with.
    """

    crowd_size: ClassVar[int] = 1000

    @abstractmethod
    def __init__(self, projector: Projector, known: Vectors) -> None: ...

    @abstractmethod
    def logs(self, codes: Codes) -> Floats:
        """Return ``log P(code | vector)``, up to a constant for each code, shape (m + 1, n).

        The last row is of a vector whose coordinates are each one of a known vector's.
        """


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
        squared = wide.multiply(wide)
        squares = np.asarray(squared.sum(axis=1)).ravel()
    elif metric == "l2":
        wide -= query
        return _products(wide, wide)
    else:
        products = _products(wide, query[None])
        squares = _products(wide, wide)
    if metric == "ip":
        return products
    if metric == "l2":
        distances = squares - 2 * products + query @ query
        return np.asarray(np.maximum(distances, 0.0))
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
    single = np.matmul(rows[:, None, :], others[:, :, None])
    return np.asarray(single[:, 0, 0])
