"""Queries, and the base classes of what compares codes with them.

Each kind of code has a module of its own, with a :class:`Decoder` that is listed in
:mod:`dpindex.decode`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Floats, Indices, Vectors, issparse, products
from dpindex.decode.calibration import SimilarityCalibration
from dpindex.decode.denoiser import Denoiser
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
        Exact projections in grid integers held in floats; of symbols, whole numbers that cosines
        with all codewords are made of; under a design, the coordinates in which they are compared:
        :meth:`Decoder.exact_queries`.
    spec : Spec
        The spec they were projected under.
    worth : float64 array, shape (nq, K), optional
        What symbols are worth to them, by which these are ranked then: see
        :func:`dpindex.decode.guided.worth_of`.
    """

    is_private: ClassVar[bool] = False

    projections: Floats
    spec: Spec
    worth: Doubles | None = None

    def __len__(self) -> int:
        return len(self.projections)

    def __getitem__(self, rows: slice | Indices) -> ExactQueries:
        worth = None if self.worth is None else self.worth[rows]
        return ExactQueries(self.projections[rows], self.spec, worth)

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
    worth : float64 array, shape (nq, K), optional
        As of exact queries.
    """

    is_private: ClassVar[bool] = True

    codes: Codes
    spec: Spec
    worth: Doubles | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | Indices) -> PrivateQueries:
        worth = None if self.worth is None else self.worth[rows]
        return PrivateQueries(self.codes.take(rows), self.spec, worth)

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


class Posterior(Estimator):
    """Posterior cosines of the codes of one collection.

    Parameters
    ----------
    spec : Spec
        The spec of the codes.
    calibration : SimilarityCalibration
        Learned from codes of that spec.
    """

    def __init__(self, spec: Spec, calibration: SimilarityCalibration) -> None:
        self.spec = spec
        self.calibration = calibration

    @classmethod
    def lacks(cls, spec: Spec) -> str:
        """Return what the spec would have to say for estimates; empty where it says enough."""
        return ""

    @classmethod
    @abstractmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        """Learn what :meth:`estimates` needs, where the spec lacks nothing.

        Parameters
        ----------
        spec : Spec
        codes : Codes
            Some hundred, and up to :data:`~dpindex.decode.calibration.SAMPLE_ROWS`, of the
            collection, in a random order.
        rows : int
            Codes in the collection.
        """


class Decoder(Estimator):
    """All that is done with one kind of code: it is ranked, compared, learned from and attacked.

    Its estimates are unbiased similarities of codes to queries, and their standard errors. They
    depend on the codes, the queries and public parameters alone, and not on how the codes were
    found. The standard error is that of a pair that was not selected.

    A subclass is a kind of code. By default its vectors are decoded codes, and its items vectors.

    Parameters
    ----------
    spec : Spec
        The spec of the codes.
    metric : "cosine", "ip" or "l2"
        What is estimated: cosines in [−1, 1], inner products, or squared distances.

    Attributes
    ----------
    width : int
        Coordinates of an item.
    ranked_by : "cosine", "ip" or "l2"
        What items are ranked by, to rank vectors by the metric.

    >>> from dpindex import Privatizer, Spec, attribute
    >>> privatizer = Privatizer(Spec("none-oporp", dim=4, k=4,
    ...     adjacency=attribute(1.0)), allow_unprotected=True)
    >>> codes = privatizer.privatize(np.eye(4))
    >>> from dpindex.decode import decoder_of
    >>> decoder = decoder_of(privatizer.spec, "ip")
    >>> queries = decoder.exact_queries(privatizer, np.eye(4)[:2])
    >>> decoder.estimates(codes, queries, 1)[0].round(3).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    """

    ranked_as: ClassVar[str] = "vectors"
    """What ranks its items: a row of ``BACKENDS``, where the index is."""

    by_symbol: ClassVar[bool] = False
    """True if codes are found by the symbol that they are, so that those of one symbol tie."""

    by_hamming: ClassVar[bool] = False
    """True if codes are signs, and private ones are compared by how many of them agree."""

    shrunken: bool = False
    """True if the norm of an item says how sure it is, so that it is not scaled to rank."""

    exact_only: ClassVar[bool] = False
    """True if items are searched as they are, so that an index type says nothing of them."""

    informed: ClassVar[bool] = False
    """True if it knows from public vectors how coordinates vary together, before it is denoised."""

    uses_processors: ClassVar[bool] = False
    """True if many items are made on all processors, which BLAS is to leave alone then."""

    posterior_type: type[Posterior] | None = None
    """Estimates cosines with what was learned of a collection; None if nothing does."""

    likelihoods: type[CodeLikelihoods]
    """How likely a code is for a known vector."""

    def __init__(self, spec: Spec, metric: Metric) -> None:
        self.spec = spec
        self.metric = metric
        self.width = spec.code_length
        self.ranked_by = metric

    @classmethod
    @abstractmethod
    def reads(cls, spec: Spec) -> bool:
        """Whether codes of that spec are of this kind; the first kind in the table counts."""

    def vectors(self, codes: Codes) -> AnyArray:
        """Codes as vectors that are ranked, shape (n, p): what any database takes."""
        return codes.to_float()

    def query_vectors(self, queries: Queries) -> AnyArray:
        """Queries as they are compared with :meth:`vectors`, shape (nq, p)."""
        return queries.to_float()

    def items(self, codes: Codes) -> AnyArray:
        """Codes as they are ranked here, as vectors are, shape (n, …)."""
        return self.vectors(codes)

    def query_items(self, queries: Queries) -> AnyArray:
        """What items are compared with: items of private queries, or exact vectors."""
        return self.query_vectors(queries)

    def with_denoiser(self, denoiser: Denoiser) -> Decoder | None:
        """Return what is done with such codes denoised; None if they are ranked as vectors then."""
        return None

    def exact_queries(self, projector: Projector, vectors: Vectors) -> ExactQueries:
        """Vectors that ask as they are, checked and projected under the spec of the codes."""
        return ExactQueries(projector.project(vectors), self.spec)

    @property
    def stated_by(self) -> type[Posterior] | None:
        """What can state similarities of such codes, once it has learned; None if nothing can."""
        if self.metric != "cosine":
            return None
        return self.posterior_type

    def posterior(self, calibration: SimilarityCalibration | None) -> Estimator | None:
        """Return what estimates cosines that selection does not bias; None if nothing does."""
        if calibration is None or self.stated_by is None:
            return None
        return self.stated_by(self.spec, calibration)

    def learned(self, sample: Codes, rows: int) -> SimilarityCalibration | None:
        """Return what :meth:`posterior` needs, learned from a sample of ``rows`` codes.

        None if nothing is to be learned. The sample is in a random order, and the spec lacks
        nothing.
        """
        if self.stated_by is None:
            return None
        return self.stated_by.fit(self.spec, sample, rows)


def inner_products(
    codes: Codes,
    queries: Queries,
    groups: int,
    dtype: type[np.floating[Any]],
) -> tuple[Doubles, Floats, Doubles]:
    """Return inner products of decoded codes x and queries y, with x and y.

    Parameters
    ----------
    codes, queries, groups
        As of :meth:`Estimator.estimates`.
    dtype : type
        The floats in which they are computed.

    Returns
    -------
    arrays of shape (nq, count), (groups, count, k) and (nq, k)
    """
    decoded = codes.to_float().astype(dtype, copy=False)
    x = decoded.reshape(groups, -1, codes.k)
    y = queries.to_float()
    return products(x, y.astype(dtype, copy=False)), x, y


@np.errstate(invalid="ignore", over="ignore")  # infinite vectors have none, which is NaN
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
    np.divide(products, norms, out=cosines, where=norms != 0)
    return np.clip(cosines, -1.0, 1.0)


def _products(rows: Doubles, others: Doubles) -> Doubles:
    """Return the inner product of each row with its other, or with the one other.

    One row at a time: the rounding of a product of matrices depends on the place of the row, and
    equal vectors are to have equal similarities.
    """
    single = np.matmul(rows[:, None, :], others[:, :, None])
    return np.asarray(single[:, 0, 0])
