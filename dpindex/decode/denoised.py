"""Denoised codes: what they are ranked by, and posterior cosines."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, unit
from dpindex.base.errors import DamagedError
from dpindex.base.threads import limited_threads
from dpindex.decode.base import Decoder, Estimate, Estimator, PrivateQueries, Queries
from dpindex.decode.calibration import MOST_SHARED, PAIRED_ROWS, SimilarityCalibration
from dpindex.decode.denoiser import Denoiser
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec

_CLAIMED = 2.0
"""Actual over claimed errors of denoised codes, the largest that was measured: bench/coverage."""


class DenoisedPosterior(Estimator):
    """Posterior cosines of denoised number codes.

    A denoised code is the posterior mean of its vector, so inner products with it are posterior
    means too, which selection does not bias. It is shorter than the vector by what the codes hide,
    and cosines are lower by as much: ``cos(x̂, q)·√(‖x̂‖²/(‖x̂‖² + h))`` with h what is hidden of a
    vector on average, on both sides if both are denoised. So short vectors, of which codes show
    least, are not taken to be as near as long ones. The denoiser claims h, and the norms of codes
    and of denoised ones show it, too. The smaller counts, and by how much the cosine would differ
    with the larger is doubt, which all hits share. How much h lowers a cosine is an error as well,
    as h differs between vectors.

    Parameters
    ----------
    denoiser : Denoiser
    calibration : SimilarityCalibration
        Its ``energy`` and ``denoised_energy`` are above 0; DamagedError otherwise.
    """

    def __init__(self, denoiser: Denoiser, calibration: SimilarityCalibration) -> None:
        if calibration.energy == 0:
            raise DamagedError("the calibration of this index is of other codes; calibrate again.")
        self._denoiser = denoiser
        self._energy = calibration.energy
        energy = calibration.energy
        self._denoised = calibration.denoised_energy
        self._missing = max(energy - self._denoised, 1e-12 * energy)
        self._kept = math.sqrt(self._denoised / (self._denoised + self._missing))
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
        doubts = []
        for side_spec, own, other, own_squares in sides:
            hidden, root = self._error(side_spec)
            # Norms of the collection say nothing of codes under another spec.
            missing = self._missing if side_spec == spec else hidden
            least, most = (
                np.sqrt(own_squares / (own_squares + part))
                for part in sorted((hidden, missing), reverse=True)
            )
            value = value * most
            variance += _moved(own, other, root) / (own_squares + hidden)
            doubts.append(1 - least / most)
        of_projection = (1 - value**2) ** 2 * spec.projection.inner_product_factor
        variance += of_projection
        of_hidden = (score - value) ** 2
        doubt = [value * share for share in doubts]
        error = np.sqrt(_CLAIMED**2 * variance + of_hidden + np.square(doubt).sum(axis=0))
        # Halfway between both measures the mean of all hits would be off by half of their distance.
        hidden, _ = self._error(spec)
        apart = 1 - self._kept / math.sqrt(self._denoised / (self._denoised + hidden))
        if abs(apart) / 2 > MOST_SHARED:
            error[:] = np.inf
        return np.clip(value, -1.0, 1.0), error

    def _new_error(self, spec: Spec) -> tuple[float, Singles]:
        """What is hidden of a vector, squared, and the root of a code's error in the basis.

        Errors lie in the directions of the estimates.
        """
        root = self._denoiser.error_root(spec)
        in_basis = self._denoiser.along_basis(root.T).T
        error = float(np.sum(in_basis**2))
        return min(error, self._energy) + 1e-12 * self._energy, in_basis


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


class DenoisedDecoder(Decoder):
    """Codes that are ranked denoised, exact queries as they are, private ones denoised alike.

    Denoised vectors are shrunken towards what is usual, so their scores rank well and say little:
    unbiased similarities are those of the codes.

    Parameters
    ----------
    plain : Decoder
        Of the codes as they are.
    denoiser : Denoiser
        Learned from such codes.
    exact : bool
        Whether every item is compared. If so, they are kept along the directions in which they lie,
        where inner products rank.
    """

    shrunken = True
    uses_processors = True

    def __init__(self, plain: Decoder, denoiser: Denoiser, *, exact: bool) -> None:
        super().__init__(plain.spec, plain.metric)
        self.likelihoods = plain.likelihoods
        self.posterior_type = plain.posterior_type
        self._plain = plain
        self._denoiser = denoiser
        # The denoiser itself brings vectors to the norm under which inner products rank best.
        self._by_cosine = self.metric == "cosine"
        if self._by_cosine:
            self.ranked_by = "ip"
        self._is_short = False
        if exact and self.metric != "l2" and denoiser.basis is not None:
            self._is_short = True
            self.width = denoiser.basis.shape[1]

    @classmethod
    def reads(cls, spec: Spec) -> bool:
        return False  # it is made of another decoder and what was learned

    def vectors(self, codes: Codes) -> AnyArray:
        if self._is_short:
            return self._denoiser.coordinates(codes, to_rank=self._by_cosine)
        return self._denoiser.to_rank(codes) if self._by_cosine else self._denoiser(codes)

    def query_vectors(self, queries: Queries) -> AnyArray:
        if isinstance(queries, PrivateQueries):
            vectors: AnyArray = self._denoiser(queries.codes, queries.spec)
        else:
            vectors = queries.to_float()
        if self._by_cosine:
            vectors = unit(vectors)
        return self._denoiser.along_basis(vectors) if self._is_short else vectors

    def estimates(self, codes: Codes, queries: Queries, groups: int) -> Estimate:
        return self._plain.estimates(codes, queries, groups)

    def posterior(self, calibration: SimilarityCalibration | None) -> Estimator | None:
        """Posterior cosines by denoised codes; None of denoised signs, of which nothing is known.

        A denoiser ranks by more than the two codes of a pair.
        """
        if not self._by_cosine or calibration is None or calibration.denoised_energy == 0.0:
            return None
        return DenoisedPosterior(self._denoiser, calibration)

    @limited_threads(1)  # blocks of codes are denoised in threads of their own
    def learned(self, sample: Codes, rows: int) -> SimilarityCalibration | None:
        learned = self._plain.learned(sample, rows)
        if learned is None or learned.energy == 0.0:
            return learned
        denoised = self._denoiser(sample.take(slice(PAIRED_ROWS)))
        squares = np.square(denoised).sum(axis=1, dtype=np.float64)
        return replace(learned, denoised_energy=float(squares.mean()))
