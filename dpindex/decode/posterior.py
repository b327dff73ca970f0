"""Posterior cosines: one decoder for each kind of code, and one for denoised codes.

Each is made with a :class:`~dpindex.decode.calibration.SimilarityCalibration`, which its
``fit`` learns from codes. Nothing is learned when cosines are estimated.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import Doubles, Singles, unit
from dpindex.decode.base import Estimate, Estimator, PrivateQueries, Queries
from dpindex.decode.calibration import (
    GRID,
    PAIRED_ROWS,
    Decoded,
    ObservationLaw,
    PosteriorTable,
    SimilarityCalibration,
    calibrated,
    energies_given,
    fitted_energies,
    log_energies,
    own_variance,
)
from dpindex.decode.denoiser import Denoiser
from dpindex.decode.numbers import NoisyVectorStats
from dpindex.decode.signs import (
    agreement_curve,
    agreement_variance,
    kept_spread,
    score_variance,
    self_score,
    sign_deviation,
    signal_kept,
)
from dpindex.decode.symbols import SymbolSimilarity, codeword_similarities, crowding
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

_UNMIXED = 0.6
"""Standard error of a cosine where every sign is that of one attribute that is never negative.

Such signs say nothing: 1.96 of it on either side cover all cosines from 0 to 1.
"""

_CLAIMED = 1.6
"""Actual over claimed errors of denoised codes, the largest that was measured: bench/coverage."""

_CLAIMED_SYMBOLS = 1.4
"""The same for symbols, whose errors are measured on the codebook: centroids are less spread."""

_TINY = 1e-300


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
            Up to :data:`~dpindex.decode.calibration.SAMPLE_ROWS` of the collection, in a random
            order.
        rows : int
            Codes in the collection.
        """


class TablePosterior(Posterior):
    """Cosines by table: see :mod:`dpindex.decode.calibration`."""

    def __init__(self, spec: Spec, calibration: SimilarityCalibration) -> None:
        super().__init__(spec, calibration)
        self._table = lru_cache(maxsize=4)(
            lambda query_spec: PosteriorTable(calibration, self.law(query_spec))
        )

    @abstractmethod
    def law(self, query_spec: Spec | None) -> ObservationLaw:
        """The law for private queries under a spec, or for exact ones (None)."""

    @abstractmethod
    def decode(self, codes: Codes) -> Decoded:
        """The codes, as one side of a comparison."""

    @abstractmethod
    def decode_queries(self, queries: Queries) -> Decoded:
        """The other side."""

    @abstractmethod
    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        """Deviation of cosines that the law leaves out, as pairs of codes do not show it."""

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        query_spec = queries.spec if isinstance(queries, PrivateQueries) else None
        x = self.decode(codes)
        y = self.decode_queries(queries)
        k = x.vectors.shape[1]
        vectors = x.vectors.reshape(groups, -1, k)
        columns = y.vectors[:, :, None]
        products = np.matmul(vectors, columns)[..., 0]
        z = products.astype(np.float64)
        noise = x.noise.reshape(groups, -1)
        norm_error = x.norm_error.reshape(groups, -1)
        squares = own_variance(noise, y.noise[:, None], k)
        table = self._table(query_spec)
        cosine, error = table(z, np.broadcast_to(squares, z.shape))
        of_norms = cosine**2 * (norm_error + y.norm_error[:, None])
        hidden = self.hidden_error(cosine, queries)
        variance = error**2 + of_norms + hidden**2
        return cosine, np.sqrt(variance)

    def _with_prior(self, codes: Codes) -> SimilarityCalibration:
        codes = codes.take(slice(PAIRED_ROWS))
        as_queries = PrivateQueries(codes, self.spec)
        sides = (self.decode(codes), self.decode_queries(as_queries))
        return calibrated(sides, self.law(self.spec), self.calibration)


class NumberPosterior(TablePosterior):
    """Number codes: inner products over norms, as the codes of the collection show them.

    Below m is the energy (squared norm) of a vector, σ² the noise variance of a coordinate and f
    the projection's factor of inner products.
    """

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        stats = NoisyVectorStats.of(codes.to_float(), spec.noise_moments)
        least = max(1e-9 * float(stats.squares.mean()), 1e-150)
        energy = max(float(stats.energy.mean()), least)
        total = float(stats.total.mean()) / math.sqrt(energy)
        known = SimilarityCalibration(rows, energy, total)
        variance = cls(spec, known)._energy_variance(spec)
        energies = fitted_energies(stats.energy[:PAIRED_ROWS], energy, variance)
        known = replace(known, energies=energies)
        return cls(spec, known)._with_prior(codes)

    def _energy_variance(self, spec: Spec) -> Doubles:
        """Variance of an estimate of m at each value of the grid, for typical codes."""
        grid = log_energies(self.calibration.energy)
        norm = np.sqrt(grid)
        total = self.calibration.total * norm
        typical = NoisyVectorStats(
            total,
            grid,
            spec.code_length,
            spec.noise_moments,
            norm,
        )
        least = 1e-4 * grid**2
        return typical.energy_variance + least

    def law(self, query_spec: Spec | None) -> ObservationLaw:
        # What the noise does is in s².
        of_projection = self.spec.projection.inner_product_factor * (1 - GRID**2) ** 2
        return ObservationLaw(GRID, of_projection)

    def decode(self, codes: Codes) -> Decoded:
        return self._decoded(codes.to_float().astype(np.float64), self.spec)

    def decode_queries(self, queries: Queries) -> Decoded:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            return self._decoded(y, queries.spec)
        norms = np.linalg.norm(y, axis=1, keepdims=True)
        return Decoded.plain(y / np.maximum(norms, _TINY))

    def _decoded(self, x: Doubles, spec: Spec) -> Decoded:
        stats = NoisyVectorStats.of(x, spec.noise_moments)
        variance = self._energy_variance(spec)
        known = self.calibration
        energy, spread = energies_given(
            stats.energy,
            known.energy,
            variance,
            known.energies,
        )
        norms = np.sqrt(energy)
        with_norms = replace(stats, norm=norms)
        noise = np.maximum(with_norms.noise_energy, 0.0) / stats.k / energy
        return Decoded(x / norms[:, None], noise, spread)

    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        """The error that all cosines share, and that of the projection of one query.

        A query is projected once, so errors of all its cosines are correlated, and its best hits
        are those whose cosines the projection exaggerates most.
        """
        deviation = math.sqrt(2 * self.spec.projection.inner_product_factor)
        shared = self.calibration.mean_cosine * (1 - cosine)
        return deviation * np.hypot(shared, 1 - cosine**2)


class SignPosterior(TablePosterior):
    """Sign codes: their agreement, or the score of an exact query.

    What all vectors have in common is projected once, so all cosines share an error: that of one
    pair of k signs without flips, to which two signs that agree and two that do not are added
    (Agresti & Coull 1998), as else it would vanish where all signs agree.

    The laws hold for normal coordinates, and sums of few attributes are not normal. An attribute
    that is never negative has the same sign whatever its value, and a fair coin where it is 0, so
    the cosine may be anything from 0 to 1. That error counts by the share of the projection's error
    that sums of few attributes avoid: wholly under bounds of one sign, else by the mean cosine of
    the collection. For an exact query, its own score tells how far it is from normal coordinates.
    """

    @classmethod
    def lacks(cls, spec: Spec) -> str:
        if not math.isnan(sign_deviation(spec)):
            return ""
        return (
            f"it needs a declared norm, as signs of {spec.method} flip more often for short "
            f"vectors; build with norm (`--norm 1` for embeddings of length 1), or read the ranking"
        )

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        return cls(spec, SimilarityCalibration(rows))._with_prior(codes)

    def law(self, query_spec: Spec | None) -> ObservationLaw:
        factor = self.spec.projection.inner_product_factor
        k = self.spec.code_length
        law = self.spec.sign_law
        rms = sign_deviation(self.spec)
        if query_spec is None:
            variance = score_variance(GRID, k, law, rms, factor)
            return ObservationLaw(GRID, variance)
        query_rms = sign_deviation(query_spec)
        curve = agreement_curve(law, rms, query_spec.sign_law, query_rms)
        expected = np.interp(np.arcsin(GRID), curve.angles, curve.agreement)
        return ObservationLaw(expected, agreement_variance(GRID, k, curve, factor))

    def decode(self, codes: Codes) -> Decoded:
        return Decoded.plain(codes.to_float())

    def decode_queries(self, queries: Queries) -> Decoded:
        y = queries.to_float()
        if isinstance(queries, PrivateQueries):
            per_sign = y / self.spec.code_length
            return Decoded.plain(per_sign.astype(np.float32))
        # Over what a vector equal to the query scores: so its cosine is 1 whatever the law of the
        # coordinates.
        full = self_score(y, self.spec.sign_law, sign_deviation(self.spec))
        scaled = y / full[:, None]
        return Decoded.plain(scaled.astype(np.float32))

    def hidden_error(self, cosine: Doubles, queries: Queries) -> Doubles:
        k = self.spec.code_length
        law = self.spec.sign_law
        rms = sign_deviation(self.spec)
        # Of one pair without flips: the share of signs that agree, and its error as an angle.
        angle = np.arcsin(np.clip(cosine, -1.0, 1.0))
        share = angle * (2 / math.pi) * k / (k + 4)
        spread = kept_spread(law, rms) * share**2
        variance = (1 - share**2 + spread) / k
        angle_error = math.pi / 2 * np.sqrt(variance)
        shared = angle_error * np.cos(share * math.pi / 2)
        # Of sums of few attributes: the share of the projection's error that they avoid.
        avoided = 1 - k * self.spec.projection.inner_product_factor
        unmixed = math.sqrt(max(avoided, 0.0))
        alike = self.calibration.mean_cosine
        low, high = self.spec.bounds
        of_one_sign = alike if low < 0 < high else 1.0
        common = np.hypot(alike * shared, _UNMIXED * unmixed * of_one_sign)
        if isinstance(queries, PrivateQueries):
            return common
        # Of an exact query: how far its own score is from that of normal coordinates.
        y = queries.to_float()
        norms = np.linalg.norm(y, axis=1)
        normal = math.sqrt(k) * norms * signal_kept(law, rms)
        ratio = self_score(y, law, rms) / np.maximum(normal, _TINY)
        model = 1 - ratio[:, None]
        return np.asarray(np.hypot(common, model * cosine))


class SymbolPosterior(Posterior):
    """Symbol codes, with errors that say how badly a codebook covers a collection.

    Estimates are calibrated on the codebook. A vector that no codeword resembles may be no nearer
    to the codeword of its report than a vector at random. The chance of that is learned from the
    codes of the collection; the cosine of such a vector is taken to be that of one at random, or to
    be off by half of the distance to 1. For a private query that chance is unknown and taken as 1.
    """

    @classmethod
    def fit(cls, spec: Spec, codes: Codes, rows: int) -> SimilarityCalibration:
        uncovered = 0.0
        if len(codes) >= 2:
            crowded = max(crowding(codes, spec.symbol_law), 1.0)
            uncovered = 1.0 - 1.0 / crowded
        return SimilarityCalibration(rows, uncovered=uncovered)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        unbiased = SymbolSimilarity(self.spec, "cosine")
        estimate, error = unbiased.estimates(codes, queries, groups)
        by_symbol = codeword_similarities(queries)
        at_random = by_symbol.mean(axis=1, keepdims=True)
        uncovered = self.calibration.uncovered
        if isinstance(queries, PrivateQueries):
            uncovered = 1.0
        half_way = (1 - estimate) / 2
        elsewhere = np.maximum(np.abs(estimate - at_random), half_way)
        of_uncovered = math.sqrt(uncovered) * elsewhere
        return estimate, np.hypot(_CLAIMED_SYMBOLS * error, of_uncovered)


class DenoisedPosterior(Estimator):
    """Posterior cosines of denoised number codes.

    A denoised code is the posterior mean of its vector, so inner products with it are posterior
    means too, which selection does not bias. It is shorter than the vector by what the codes hide,
    and cosines are lower by as much: ``cos(x̂, q)·√(E‖x̂‖²/E‖x‖²)``, on both sides if both are
    denoised. The denoiser claims that factor; by the norms of denoised codes it may be less, and
    the error reaches there.

    Parameters
    ----------
    denoiser : Denoiser
    calibration : SimilarityCalibration
        Its ``energy`` and ``denoised_energy`` are above 0.
    """

    def __init__(self, denoiser: Denoiser, calibration: SimilarityCalibration) -> None:
        self._denoiser = denoiser
        self._energy = calibration.energy
        self._measured = math.sqrt(calibration.denoised_energy / calibration.energy)
        self._error = lru_cache(maxsize=4)(self._new_error)

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        spec = self._denoiser.spec
        x = self._denoiser.coordinates(codes)
        u = unit(x).reshape(groups, -1, x.shape[1])
        squares = np.einsum("ij,ij->i", x, x, dtype=np.float64)
        squares = squares.reshape(groups, -1)
        if isinstance(queries, PrivateQueries):
            y = self._denoiser(queries.codes, queries.spec).astype(np.float64)
        else:
            y = queries.to_float()
        v = self._denoiser.along_basis(unit(y))[:, None]
        score = _pairwise(u, v).astype(np.float64)
        # Each denoised side: the spec of its codes, its directions, the others', squared norms.
        sides = [(spec, u, v, squares)]
        if isinstance(queries, PrivateQueries):
            query_squares = np.sum(y**2, axis=1)[:, None]
            sides.append((queries.spec, v, u, query_squares))
        value = score
        variance = np.zeros_like(score)
        for side_spec, own, other, own_squares in sides:
            kept, root = self._error(side_spec)
            value = value * kept
            hidden = (1 - kept**2 + 1e-12) * self._energy
            variance += _moved(own, other, root) / (own_squares + hidden)
            unsure = score * (1 - min(kept, self._measured))
            variance += unsure**2
        of_projection = (1 - value**2) ** 2 * spec.projection.inner_product_factor
        variance += of_projection
        return np.clip(value, -1.0, 1.0), _CLAIMED * np.sqrt(variance)

    def _new_error(self, spec: Spec) -> tuple[float, Singles]:
        """The length of a denoised code over its vector's, and the root of its error in the basis.

        Errors lie in the directions of the estimates.
        """
        root = self._denoiser.error_root(spec)
        in_basis = self._denoiser.along_basis(root.T).T
        error = float(np.sum(in_basis**2))
        hidden = min(error / self._energy, 1.0)
        return math.sqrt(1 - hidden), in_basis


def _moved(own: Singles, other: Singles, root: Singles) -> Doubles:
    """Return the variance of a cosine by the error of one side, times its squared norm.

    The cosine ρ changes with x by ``(other − ρ·own)/‖x‖``.

    Parameters
    ----------
    own, other : float32 arrays, shapes (groups, count, k) that broadcast
        Directions of the side x, and of the other one.
    root : float32 array, shape (k, R)
        Root of the covariance of its errors.

    Returns
    -------
    Array of shape (nq, count).
    """
    along_other = other @ root
    along_own = own @ root
    rho = _pairwise(other, own)
    mixed = _pairwise(along_other, along_own)
    along = np.sum(along_other**2, axis=2)
    across = np.sum(along_own**2, axis=2)
    moved = along - 2 * rho * mixed + rho**2 * across
    return np.asarray(np.maximum(moved, 0.0), dtype=np.float64)


def _pairwise(p: Singles, q: Singles) -> Singles:
    """Return inner products of the rows of two stacks, shape (nq, count)."""
    products = np.matmul(p, q.swapaxes(1, 2))
    queries = max(len(p), len(q))
    return np.asarray(products.reshape(queries, -1))
