r"""Posterior cosines by table, from a prior that was learned once from the codes of a collection.

The best of many candidates are those with the luckiest noise, so an unbiased estimate of a
*selected* cosine is too high. A posterior mean is right on average, whatever was selected (Efron
2011, "Tweedie's formula and selection bias"). It needs the distribution of true cosines, which
:meth:`TablePosterior.with_prior` learns from the codes of a collection and from nothing else.

*Decode, then compare.* A decoder scales codes and queries so that their inner product z observes
the cosine ρ, normal about ``expected(ρ)`` with the variance ``variance(ρ) + s²``: an
:class:`ObservationLaw`, and an s² that is known for each pair. Pairs of stored codes are such
observations. The histogram n of a sample has the expectation ``Σ_ρ π(ρ) p(bin | ρ)``, and the prior
``π ∝ exp Σ θ_b B_b`` with cubic B-splines maximises ::

    Σ_bin n_bin log Σ_ρ π(ρ) p(bin | ρ)  −  (θ − θ₀)ᵀ P (θ − θ₀) / 2

(Eilers 2007, penalised composite link model; Efron 2016, "Empirical Bayes deconvolution
estimates"). P penalises third differences, which a normal density does not have, and weakly any
departure from a normal density of deviation 0.125. Pairs weigh by the share of their variance that
cosines of that deviation would have: where noise hides the shape of the prior it becomes normal,
and where noise hides its width, too, it becomes that default. Then it is widened by the standard
error of its mean.

*Noise is seen in norms.* The noise of a code along its own vector changes its squared norm, too. By
regression on that, the part ρ of it that a cosine of ρ observes is known, and only the rest is
error: of additive noise s², at most ``s²(1 − ρ²)``. What the codes leave open of a norm is averaged
over: a large observation speaks for a larger norm as well as for a larger cosine.

*What the error contains.* The deviation of the posterior; what is not known of both locations, the
projection's error in what is common, and a share of the variance by norms, since norms may depend
on cosines (:mod:`dpindex.decode.calibration`); and what the prior itself may be. That is the
covariance ``H⁻¹(J + P)H⁻¹`` of θ, with H the penalised information and J the variance of the
gradient over vectors, each of which is in many pairs (dyadic-robust variance, Fafchamps & Gubert
2007), and what
θ would change if pairs weighed less. To that is added a share of the distance to the unbiased
estimate, for what laws leave out: a small one, or all of it for few coordinates, whose sums are not
normal. Where codes say too little, all this is large, and nothing is stated.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Indices, row_blocks
from dpindex.decode.base import Estimate, Posterior, PrivateQueries, Queries
from dpindex.decode.calibration import (
    CELLS,
    GRID,
    PAIRED_ROWS,
    SPLINES,
    Decoded,
    ObservationLaw,
    Observations,
    SimilarityCalibration,
    joined,
)
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

_PAIRS_OF = 512
"""Codes all of whose pairs are taken together."""

_DEFAULT_DEVIATION = 0.125
_SCALE_GROUPS = 16
_BINS = 96
_LEAST = 1e-30
_AT_ONCE = 256
"""Pairs whose chances are in memory together."""


class TablePosterior(Posterior):
    """Cosines that are read from tables; estimates change nothing that was learned."""

    @abstractmethod
    def law(self, query_spec: Spec | None) -> ObservationLaw:
        """The law for private queries under a spec, or for exact ones (None)."""

    @abstractmethod
    def decode(self, codes: Codes) -> Decoded:
        """The codes, as one side of a comparison."""

    @abstractmethod
    def decode_queries(self, queries: Queries) -> Decoded:
        """The other side."""

    @property
    @abstractmethod
    def hedge(self) -> float:
        """The share of the distance to unbiased estimates that counts as error."""

    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        """Deviation that the law leaves out and hits share, as pairs of codes do not show it.

        Infinite for a query of which nothing should be stated, whatever its cosines.
        """
        return np.zeros_like(cosine)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        query_spec = queries.spec if isinstance(queries, PrivateQueries) else None
        x = self.decode(codes)
        y = self.decode_queries(queries)
        k = x.vectors.shape[1]
        vectors = x.vectors.reshape(groups, -1, k)
        columns = y.vectors[:, :, None]
        products = np.matmul(vectors, columns)[..., 0]
        z = products.astype(np.float64)
        one = Decoded(vectors, *(part.reshape(groups, -1) for part in x[1:]))
        other = Decoded(columns, *(part[:, None] for part in y[1:]))
        seen = Observations.of(z, one, other, k)
        rest, error = posterior_cosines(seen, self.law(query_spec), self.calibration, self.hedge)
        factor = self.spec.projection.inner_product_factor
        cosine, error = joined(rest, error, (one, other), factor)
        return cosine, np.hypot(error, self.hidden_error(cosine, queries))

    def with_prior(self, codes: Codes) -> SimilarityCalibration:
        """Return the calibration with the prior that pairs of codes show.

        The codes are in a random order; some thousand of them are compared.
        """
        codes = codes.take(slice(PAIRED_ROWS))
        as_queries = PrivateQueries(codes, self.spec)
        sides = (self.decode(codes), self.decode_queries(as_queries))
        rows, k = sides[0].vectors.shape
        parts = []
        owners = []
        for block in row_blocks(rows, _PAIRS_OF):
            one, other = (side.rows(block) for side in sides)
            z = (other.vectors @ one.vectors.T).astype(np.float64)
            column = Decoded(other.vectors, *(part[:, None] for part in other[1:]))
            parts.append([_different(part) for part in Observations.of(z, one, column, k)])
            owners.append(np.repeat(np.arange(rows)[block], len(z) - 1))
        pairs = Observations(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        law = self.law(self.spec)
        known = self.calibration
        density, doubt = fitted_prior(pairs, law, known.rows, np.concatenate(owners))
        return replace(known, density=density, doubt=doubt)


def _different(square: Doubles) -> Doubles:
    """Return what is not on the diagonal, row by row: in rows of one more it is the last column."""
    size = len(square)
    return square.ravel()[1:].reshape(size - 1, size + 1)[:, :-1].ravel()


def fitted_prior(
    pairs: Observations, law: ObservationLaw, rows: int, owners: Indices
) -> tuple[Doubles, Doubles]:
    """Return the chances of the cells of cosines that explain observations best, and their doubt.

    See :class:`SimilarityCalibration`. One vector in ``rows`` may have any cosine.

    Parameters
    ----------
    pairs : Observations
        Arrays of shape (n,), n > 0.
    law : ObservationLaw
    rows : int
    owners : int array, shape (n,)
        The vector, from 0, that each pair has in common with others; in order.
    """
    z = pairs.z
    count, chance, places = _histograms(pairs, law)
    start = _start(float(law.inverse(z.mean())))
    slope = (law.expected[-1] - law.expected[0]) / 2
    noise = (pairs.noise.mean() + law.variance.mean()) / slope**2
    # The error of the mean of all observations, of which every two are of the same two codes.
    mean_error = math.sqrt(noise * 2 / len(z))
    # The more pairs weigh, the more of the shape of the noise is fitted, which is not quite normal:
    # what differs between two weights rests on that, and counts as an error of the prior.
    share = 1 / (1 + noise / _DEFAULT_DEVIATION**2)
    more, less = (_explaining(count * share**power, chance, start) for power in (1, 2))
    density = _density(more)
    # A root of the sandwich H⁻¹(J + P)H⁻¹.
    bread = np.linalg.inv(_PENALTY + _information(density, chance, share * count))
    varying = share**2 * _varying(density, chance, places, owners)
    doubt = bread @ np.linalg.cholesky(_PENALTY + varying)
    doubt = np.column_stack([doubt, more - less])
    prior = _with_outliers(_smeared(density, mean_error), rows)
    return prior, np.asarray(doubt, np.float64)


def _histograms(pairs: Observations, law: ObservationLaw) -> tuple[Doubles, Doubles, Indices]:
    """Return histograms of observations of nearly one scale each, side by side.

    Returns
    -------
    Counts of all bins; the chances of bins for each cosine, shape (128, bins); and the bin of every
    observation.
    """
    z = pairs.z
    shares = np.arange(1, _SCALE_GROUPS) / _SCALE_GROUPS
    # One table of chances serves all observations of nearly one noise: sixteen integrals, not n.
    levels = np.unique(np.quantile(pairs.noise, shares))
    group = np.searchsorted(levels, pairs.noise).astype(np.int8)
    counts: list[Doubles] = []
    chances: list[Doubles] = []
    places = np.empty(len(z), np.intp)
    low = law.expected[0]
    high = law.expected[-1]
    for number in range(_SCALE_GROUPS):
        members = np.flatnonzero(group == number)
        if not len(members):
            continue
        mine = pairs.at(members)
        typical = Observations(*(np.array([part.mean()]) for part in mine))
        deviation = np.sqrt(law.variance.max() + typical.noise[0])
        reach = 5 * max(deviation, 1e-3)
        edges = np.linspace(low - reach, high + reach, _BINS + 1)
        place = np.clip(np.searchsorted(edges, mine.z) - 1, 0, _BINS - 1)
        places[members] = place + _BINS * len(counts)
        counts.append(np.bincount(place, minlength=_BINS).astype(np.float64))
        chance = _chances_of_bins(edges, typical, law)
        chances.append(chance * len(mine.z) / len(z) + _LEAST)
    return np.concatenate(counts), np.concatenate(chances, axis=1), places


def _chances_of_bins(edges: Doubles, typical: Observations, law: ObservationLaw) -> Doubles:
    """Return the chances of bins for each cosine, (128, bins), of observations like a given one."""
    chance = np.zeros((CELLS, len(edges) - 1))
    for weight, factor, part in typical.scaled():
        variance = law.variance + part.noise - part.seen * GRID**2
        deviation = np.sqrt(np.maximum(variance, 1e-6))[:, None]
        below = scipy.special.ndtr((edges / factor - law.expected[:, None]) / deviation)
        below[:, 0] = 0.0  # the outermost bins have no end
        below[:, -1] = 1.0
        chance += weight * np.diff(below, axis=1)
    return chance


def _explaining(count: Doubles, chance: Doubles, start: Doubles) -> Doubles:
    """Return coefficients of the density that explains counts best, less the penalty."""

    def objective(coefficients: Doubles) -> tuple[float, Doubles]:
        """The negative penalised log-likelihood, and its gradient."""
        density = _density(coefficients)
        expected = density @ chance
        departure = coefficients - start
        penalty = departure @ _PENALTY @ departure / 2
        value = penalty - count @ np.log(expected)
        pull = chance @ (count / expected) - count.sum()
        slope = (density * pull) @ _BASIS
        return float(value), _PENALTY @ departure - slope

    found = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
    )
    return np.asarray(found.x, np.float64)


def _slopes(density: Doubles, chance: Doubles) -> Doubles:
    """Return how the logarithms of expected counts change with coefficients, (bins, splines)."""
    change = density[:, None] * (_BASIS - density @ _BASIS)
    return chance.T @ change / (density @ chance)[:, None]


def _information(density: Doubles, chance: Doubles, count: Doubles) -> Doubles:
    slopes = _slopes(density, chance)
    return (slopes.T * count) @ slopes


def _varying(density: Doubles, chance: Doubles, places: Indices, owners: Indices) -> Doubles:
    """Return J, shape (splines, splines), of pairs in these places of the counts."""
    slopes = _slopes(density, chance)
    numbers = np.bincount(places, minlength=len(slopes))
    slopes -= numbers @ slopes / len(places)
    # A row for each owner, of ones at its pairs: all splines are added up at once, and in the
    # order of the pairs.
    starts = np.searchsorted(owners, np.arange(owners[-1] + 2))
    pairs_of = scipy.sparse.csr_matrix(
        (np.ones(len(places)), places, starts), (len(starts) - 1, len(slopes))
    )
    sums = np.ascontiguousarray((pairs_of @ slopes).T)
    return np.asarray(4.0 * sums @ sums.T, np.float64)


def _basis() -> Doubles:
    """Return cubic B-splines on a uniform grid of 1/8, shape (128, splines)."""
    centres = np.linspace(-1.125, 1.125, SPLINES)
    distance = np.abs(GRID[:, None] - centres) * 8
    inner = 2 / 3 - distance**2 + distance**3 / 2
    outer = np.maximum(2 - distance, 0) ** 3 / 6
    return np.where(distance < 1, inner, outer)


def _penalty() -> Doubles:
    """Return P: third differences, and weakly any departure, in units of the default density's."""
    unit = np.eye(SPLINES)
    third = np.diff(unit, 3, axis=0)
    second = np.diff(unit, 2, axis=0)
    second *= (8 * _DEFAULT_DEVIATION) ** 2
    return third.T @ third + second.T @ second + 1e-4 * unit


_BASIS = _basis()
_PENALTY = _penalty()


def _start(mean: float) -> Doubles:
    """Return the coefficients of the default density about a mean."""
    log = -0.5 * ((GRID - mean) / _DEFAULT_DEVIATION) ** 2
    coefficients, *_ = np.linalg.lstsq(_BASIS, log, rcond=None)
    return np.asarray(coefficients, np.float64)


def _density(coefficients: Doubles) -> Doubles:
    log = _BASIS @ coefficients
    density = np.exp(log - log.max())
    return np.asarray(density / density.sum())


def _smeared(density: Doubles, deviation: float) -> Doubles:
    """Return the density of a cosine of that density with a normal error, between −1 and 1."""
    apart = (GRID[:, None] - GRID) / max(deviation, 1e-6)
    kernel = np.exp(-(apart**2) / 2)
    kernel /= kernel.sum(axis=0)
    return kernel @ density


def _with_outliers(density: Doubles, rows: int) -> Doubles:
    return (density * rows + 1 / CELLS) / (rows + 1)


def posterior_cosines(
    seen: Observations, law: ObservationLaw, known: SimilarityCalibration, hedge: float = 0.0
) -> tuple[Doubles, Doubles]:
    """Return means and errors of the cosines behind observations, of their shape.

    ``hedge`` is the share of the distance to the unbiased estimate that counts as error, for what
    laws leave out.
    """
    mean, error = np.empty((2, seen.z.size))
    flat = Observations(*(part.ravel() for part in seen))
    for block in row_blocks(seen.z.size, _AT_ONCE):
        mean[block], error[block] = _posterior(flat.at(block), law, known)
    # Beyond what any cosine could be observed as, the unbiased estimate goes on in a line.
    low, high = law.ends
    beyond = flat.z - np.clip(flat.z, low, high)
    plain = law.inverse(flat.z) + beyond * 2 / (high - low)
    error = np.hypot(error, hedge * (mean - plain))
    return mean.reshape(seen.z.shape), error.reshape(seen.z.shape)


def _posterior(
    seen: Observations, law: ObservationLaw, known: SimilarityCalibration
) -> tuple[Doubles, Doubles]:
    # A law finer than the grid is widened to it, and what that added is taken off again.
    finest = (0.75 * np.gradient(law.expected)) ** 2
    logs = []
    shares = []
    for weight, factor, part in seen.scaled():
        variance = law.variance + part.noise[:, None] - part.seen[:, None] * GRID**2
        wide = np.maximum(variance, finest)
        log = (part.z[:, None] - law.expected) ** 2 / (-2 * wide) - np.log(wide) / 2
        # The density of the observation is that of the quotient over the factor.
        logs.append(log + np.log(weight * known.density) - np.log(factor)[:, None])
        shares.append(np.minimum(variance / wide, 1.0))
    log = np.array(logs)
    chance = np.exp(log - log.max(axis=(0, 2))[:, None])
    chance /= chance.sum(axis=(0, 2))[:, None]
    kept = np.sum(chance * shares, axis=(0, 2))
    chance = chance.sum(axis=0)
    mean = chance @ GRID
    variance = np.maximum(chance @ GRID**2 - mean**2, 0.0)
    plain = law.inverse(seen.z)
    # The mean changes with coefficients by the covariance of the cosine and their splines.
    slopes = (chance * GRID) @ _BASIS - mean[:, None] * (chance @ _BASIS)
    doubt = np.sum((slopes @ known.doubt) ** 2, axis=1)
    return plain + (mean - plain) * kept, np.sqrt((variance + doubt) * kept)
