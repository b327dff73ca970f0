"""Codes of designed projections, decoded to estimates of the original vectors.

The decoder is public: it knows the mean μ and, where codes can tell anything, the covariances of
public vectors. Under Laplace or Gaussian noise a code is ``y = W(f(x) − f(c)) + noise``, where f
clips to windows; signs are ``S W(f(x) − f(c)) + noise``, as well as a linear law can say it
(Bussgang 1952). The estimate ``x̂ = μ + Gᵀ(y − E y)`` is one of the vector before it was clipped. It
lies in a space of k + 1 dimensions, that of μ and of ``W D``, D the covariance of f and x, whose
orthonormal rows B the design holds: codes become the k + 1 numbers ``B x̂``, and an exact query q
becomes ``B q`` and the length of the rest of it. Signs are compared with public vectors as well:
:mod:`dpindex.decode.public_vectors`.

What an estimate says of a similarity is learned from some public vectors that the design holds:
they get codes too, and the mean and deviation of their true similarities, among pairs with similar
estimates, are what is stated. So near neighbours are known to be alike in coordinates that no code
shows, too, which a linear estimate cannot say. A mean over all pairs with similar estimates is not
biased by selection of the best hits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Indices,
    Singles,
    Vectors,
    row_norms,
    spaced,
    unit,
)
from dpindex.decode.base import (
    Decoder,
    Estimate,
    ExactQueries,
    Metric,
    PrivateQueries,
    Queries,
)
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.numbers import NumberLikelihoods
from dpindex.decode.public_vectors import PublicVectors, drawn
from dpindex.decode.signs import SignLikelihoods
from dpindex.decode.symbols import PairCurve, curve_of_bins
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.spec import Projector, Spec

_LEFT = 0.003
"""Variance of the noise that is assumed in denoised codes, over that in codes.

They are posterior means, of which the best linear estimate is that of projections without noise. A
little is left for directions that hardly vary.
"""

_CLAIMED = 1.25
"""Actual over claimed errors of the best hits, the largest that was measured."""

_NEAR = 16
"""Pairs of each public vector that a curve is learned from: the nearest, and as many others."""

_BINS = 48
_SMALLEST_BIN = 32
"""Bins of pairs in a curve, and pairs in the bin of the most similar ones."""

_TINY = 1e-300


class LinearEstimate(NamedTuple):
    """The linear estimate of vectors from codes of one spec.

    Attributes
    ----------
    weights : float32 array, shape (k, k + 1)
    constant : float32 array, shape (k + 1,)
        ``y @ weights + constant`` is the estimate, in coordinates of B.
    """

    weights: Singles
    constant: Singles

    def of(self, y: Singles) -> Singles:
        """Return the estimates from decoded codes, float32, shape (n, k + 1)."""
        x = y @ self.weights
        x += self.constant
        return x

    # What :class:`PublicVectors` gives, too.

    def estimates(self, codes: Codes) -> Singles:
        """Return estimates of the vectors behind codes, shape (n, k + 1)."""
        return self.of(codes.to_float())

    def items(self, codes: Codes) -> Singles:
        """Return what ranks codes by inner products, shape (n, k + 1)."""
        return unit(self.estimates(codes))

    def queries(self, codes: Codes) -> Doubles:
        """Return what codes of private queries rank items by, up to a factor, shape (n, k + 1)."""
        return self.estimates(codes).astype(np.float64)


@lru_cache(maxsize=16)
def linear_estimate(spec: Spec, denoised: bool = False) -> LinearEstimate:
    """Return the estimate from codes, or from denoised number codes."""
    design = spec.part(Design)
    basis = design.basis.astype(np.float64)
    within = (design.within + design.within.T) / 2
    variance = np.maximum(np.diag(within), 0.0)
    channel = spec.linear_channel(np.zeros(len(within)), variance)
    if denoised:
        channel = channel._replace(noise=_LEFT * channel.noise)
    covariance = channel.covariance(within)
    cross = channel.slope[:, None] * design.cross
    gain = np.linalg.solve(covariance, cross)
    constant = basis @ design.mean - channel.mean @ gain
    return LinearEstimate(
        weights=gain.astype(np.float32),
        constant=constant.astype(np.float32),
    )


@lru_cache(maxsize=4)
def reader_of(spec: Spec) -> LinearEstimate | PublicVectors:
    """Return what reads codes: the public vectors that a design holds for that, or a line."""
    design = spec.part(Design)
    linear = linear_estimate(spec)
    if len(design.projected) == len(design.products):
        return linear
    return PublicVectors(spec, linear.of)


def decoded(codes: Codes, spec: Spec, denoiser: Denoiser | None = None) -> Singles:
    """Return estimates of the vectors behind codes, float32, shape (n, k + 1)."""
    if denoiser is None:
        return reader_of(spec).estimates(codes)
    return linear_estimate(spec, denoised=True).of(denoiser(codes, spec))


def exact_coordinates(vectors: Vectors, spec: Spec) -> Doubles:
    """Return exact vectors in coordinates of B, and the norm of what lies outside of it.

    float64, shape (n, k + 2).
    """
    design = spec.part(Design)
    rows: Any = vectors.astype(np.float64) / spec.scale
    used = rows[:, design.attributes]
    basis = design.basis.astype(np.float64)
    inside = np.asarray(used @ basis.T)
    beyond = row_norms(rows) ** 2 - _energies(inside)
    outside = np.sqrt(np.maximum(beyond, 0.0))
    return np.column_stack([inside, outside])


def decoded_queries(queries: Queries, denoiser: Denoiser | None = None) -> Doubles:
    """Return queries in coordinates of B and one more, float64, shape (nq, k + 2)."""
    if isinstance(queries, PrivateQueries):
        y = decoded(queries.codes, queries.spec, denoiser).astype(np.float64)
        nothing = np.zeros((len(y), 1))
        return np.hstack([y, nothing])
    return queries.projections.astype(np.float64, copy=False)


class Side(NamedTuple):
    """What is known of the vectors on one side of a comparison, in coordinates of B.

    Attributes
    ----------
    vectors : float64 array, shape (…, k + 1)
    energy : float64 array, shape (…)
        Squared norms: of estimates those of the estimates, of exact vectors those of all of them.
    hidden : float
        Mean squared norm that estimates lack.
    """

    vectors: Doubles
    energy: Doubles
    hidden: float = 0.0


@lru_cache(maxsize=8)
def _public_side(spec: Spec, purpose: str) -> Side:
    """Estimates of public vectors that a design holds, from codes of theirs."""
    design = spec.part(Design)
    x = decoded(drawn(spec, purpose), spec).astype(np.float64)
    energy = _energies(x)
    lacking = float(np.trace(design.products) - energy.sum())
    return Side(x, energy, max(lacking / len(x), 0.0))


@lru_cache(maxsize=8)
def _curve(
    spec: Spec,
    query_spec: Spec | None,
    metric: Metric,
) -> PairCurve:
    """What an estimate says of the similarity of a vector and a query, exact without a spec."""
    design = spec.part(Design)
    products = design.products.astype(np.float64)
    energy = np.diag(products)
    x = _public_side(spec, "vectors")
    y = Side(design.inside[: len(energy)].astype(np.float64), energy)
    if query_spec is not None:
        y = _public_side(query_spec, "queries")
    seen = _seen(y.vectors @ x.vectors.T, x, y, metric)
    truth = _similarity(products, energy, energy[:, None], metric)
    pairs = _near_and_far(seen if metric == "l2" else -seen)
    seen = seen[pairs].ravel()
    truth = truth[pairs].ravel()
    bins = _bins_of(seen, metric)
    return curve_of_bins(bins, seen, truth, weight=np.ones(len(seen)))


def _near_and_far(far: Doubles) -> tuple[Indices, Indices]:
    """Return rows and columns of the pairs in a curve, given how far they look, shape (n, n).

    For each row those that look nearest, and as many from there on; never itself.
    """
    order = np.argsort(far, axis=1)
    rows = np.arange(len(order))[:, None]
    others = order[order != rows].reshape(len(order), -1)
    count = others.shape[1]
    nearest = range(min(_NEAR, count))
    places = [*nearest, *spaced(count, _NEAR)]
    return rows, others[:, places]


def _bins_of(seen: Doubles, metric: Metric) -> list[Indices]:
    """Return bins of pairs: of few where they look most alike, which is what a search finds."""
    smallest = min(_SMALLEST_BIN, len(seen))
    ends = np.geomspace(smallest, len(seen), _BINS).astype(int)
    if metric != "l2":
        ends = len(seen) - ends
    parts = np.split(np.argsort(seen), np.unique(ends))
    return [part for part in parts if len(part)]


def _seen(ip: Doubles, x: Side, y: Side, metric: Metric) -> Doubles:
    """The similarity of two estimates: the mean of it with and without what they lack.

    Without it, short estimates would look as sure as long ones; with it alone, pairs of short ones
    could not be ranked.
    """
    energy = y.energy[:, None]
    plain = _similarity(ip, x.energy, energy, metric)
    whole = _similarity(ip, x.energy + x.hidden, energy + y.hidden, metric)
    return (plain + whole) / 2


def _similarity(
    ip: Doubles,
    x_energy: Doubles,
    y_energy: Doubles,
    metric: Metric,
) -> Doubles:
    if metric == "ip":
        return ip
    if metric == "l2":
        return x_energy + y_energy - 2 * ip
    both = np.maximum(x_energy * y_energy, _TINY)
    return ip / np.sqrt(both)


def _energies(x: Doubles) -> Doubles:
    """Squared norms of the rows, or of the rows of rows."""
    return np.asarray((x**2).sum(axis=-1))


class DesignedDecoder(Decoder):
    """Estimates of the original vectors behind codes of a design, denoised first if they can be.

    Similarities are what estimates said of those of public vectors, and errors the deviation from
    it. The norms of estimates say little under noise, so cosines to them rank. Of denoised ones the
    errors count in the norms.
    """

    informed = True
    uses_processors = True

    def __init__(
        self,
        spec: Spec,
        metric: Metric,
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__(spec, metric)
        self.width = spec.code_length + 1
        self.likelihoods = NumberLikelihoods
        self._are_signs = spec.format_type.are_signs
        if self._are_signs:  # the law is not known before the design is read
            self.likelihoods = SignLikelihoods
        # Signs are read by public vectors, which know more than what could be learned of them.
        self._denoiser = None if self._are_signs else denoiser
        # What makes estimates brings them to the norm under which inner products rank best.
        self.shrunken = metric == "cosine" and (self._are_signs or denoiser is not None)
        if self.shrunken:
            self.ranked_by = "ip"

    @classmethod
    def reads(cls, spec: Spec) -> bool:
        return spec.design is not None

    def with_denoiser(self, denoiser: Denoiser) -> DesignedDecoder:
        return DesignedDecoder(self.spec, self.metric, denoiser)

    def vectors(self, codes: Codes) -> AnyArray:
        if not self.shrunken:
            return decoded(codes, self.spec, self._denoiser)
        if self._denoiser is not None:
            linear = linear_estimate(self.spec, denoised=True)
            return self._denoiser.mapped_to_rank(codes, *linear)
        return reader_of(self.spec).items(codes)

    def query_vectors(self, queries: Queries) -> AnyArray:
        of_signs = self.shrunken and self._are_signs
        if of_signs and isinstance(queries, PrivateQueries):
            return unit(reader_of(queries.spec).queries(queries.codes))
        inside = decoded_queries(queries, self._denoiser)[:, :-1]
        return unit(inside) if self.shrunken else inside

    def exact_queries(self, projector: Projector, vectors: Vectors) -> ExactQueries:
        projector.check(vectors)
        return ExactQueries(exact_coordinates(projector.scaled(vectors), self.spec), self.spec)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        estimates = decoded(codes, self.spec).astype(np.float64)
        x = estimates.reshape(groups, -1, estimates.shape[1])
        y = decoded_queries(queries)
        hidden = _public_side(self.spec, "vectors").hidden
        query_spec = None
        query_hidden = 0.0
        if isinstance(queries, PrivateQueries):
            query_spec = queries.spec
            query_hidden = _public_side(query_spec, "queries").hidden
        # The last coordinate of a query is the length of what lies outside of B.
        inside = y[:, :-1]
        ip = np.matmul(x, inside[..., None])[..., 0]
        seen = _seen(
            ip,
            Side(x, _energies(x), hidden),
            Side(inside, _energies(y), query_hidden),
            self.metric,
        )
        curve = _curve(self.spec, query_spec, self.metric)
        value, error = curve(seen)
        return value, _CLAIMED * error
