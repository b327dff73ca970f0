"""Individual differential privacy for sign codes: noise only where a neighbour could change a sign.

The perturbed set ``A`` is computed on the actual vector, so this is iDP (Li & Li 2023, Def. 2.6)
and not DP: on a neighbour ``A`` may differ.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import scipy

from dpindex.base.arrays import Floats
from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codes import SignFormat
from dpindex.mechanism.noise.gaussian import gaussian_table, optimal_sigma
from dpindex.mechanism.noise.law import GRID_BITS, Calibration, SignLaw, check_deviation
from dpindex.mechanism.noise.randomized_response import draw_flips, response_threshold
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import Projection
from dpindex.randomness import BitSource

_COIN = 1 << 63
_MAX_LEVELS = 1 << 16
_STEPS = 1 << GRID_BITS


def _perturbed_set(x: Floats) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.intp]]:
    """``A = {j : |x_j| ≤ β}`` of Li & Li Alg. 10, and its size in each row."""
    near = np.abs(x) <= _STEPS
    return near, np.count_nonzero(near, axis=1)


def _expected_size(code_length: int, rms: float) -> float:
    """Mean of ``|A|`` when coordinates are normal with deviation ``rms`` (in betas)."""
    return max(1.0, code_length * math.erf(1.0 / (rms * math.sqrt(2))))


class IndividualFlips(SignLaw):
    """iDP-SignRP-RR (Li & Li 2023, Alg. 11, Thm 6.2): only signs a neighbour could change flip.

    ``A`` is computed on the actual vector, so this is iDP and not DP: on a neighbour ``A`` may
    differ, and a bit outside it is never flipped.

    Parameters
    ----------
    epsilon : float
        Budget of all signs together.
    code_length : int
        Signs.
    changes : int, optional
        The most coordinates that one attribute moves; all by default. OPORP: one, so that the
        signs of A need not share the budget.
    """

    depends_on_size = True

    def __init__(self, epsilon: float, code_length: int, changes: int | None = None) -> None:
        self.epsilon = epsilon
        self.code_length = code_length
        self.changes = changes or code_length
        if self.changes > _MAX_LEVELS:
            raise NoGuaranteeError(f"a budget is shared by at most {_MAX_LEVELS} signs; lower k.")
        shared = [response_threshold(epsilon, size) for size in range(1, self.changes + 1)]
        by_size = shared + [shared[-1]] * (code_length - self.changes)
        # 0: an exact zero (a coin); 1: outside A (never); 1 + N: one of N in A.
        self.table = np.array([_COIN, 0, *by_size], dtype=np.uint64)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        near, size = _perturbed_set(x)
        index = np.where(near, 1 + size[:, None], 1)
        index[x == 0] = 0
        return (x > 0) ^ draw_flips(self.table, index, stream)

    def flip_probability(self, x: Floats, rms: float) -> npt.NDArray[np.float64]:
        signs = min(self.changes, _expected_size(self.code_length, rms))
        inside = 1.0 / (1.0 + math.exp(self.epsilon / signs))
        return np.where(x <= 1.0, inside, 0.0)


class IndividualGaussian(SignLaw):
    """iDP-SignRP-G (Li & Li 2023, Alg. 9, Thm 6.1): Gaussian noise before the sign, inside A only.

    The noise needed is ``σ·β·√N_A`` with σ optimal at sensitivity 1 and N_A different for every
    vector (at most ``changes``, as for :class:`IndividualFlips`). One table at a fixed deviation S
    serves all: coordinates are multiplied by the integer ``m = ⌊S / (σ√N_A)⌋`` and divided by a
    beta with a uniform dither, so that a neighbour moves each by at most m, all of A by at most
    ``m√N_A ≤ S/σ``.
    """

    depends_on_size = True

    def __init__(
        self, epsilon: float, delta: float, code_length: int, changes: int | None = None
    ) -> None:
        self.code_length = code_length
        self.changes = changes or code_length
        self.sigma = optimal_sigma(epsilon, delta)
        self.deviation = max(1024.0, self.sigma * math.sqrt(self.changes))
        check_deviation(self.deviation, _MAX_LEVELS)
        self.table = gaussian_table(self.deviation, epsilon, delta, code_length, 0)
        sizes = np.clip(np.arange(code_length + 1), 1, self.changes)
        self.multipliers = np.floor(self.deviation / (self.sigma * np.sqrt(sizes))).astype(np.int64)

    def perturb(self, x: Floats, stream: BitSource) -> npt.NDArray[np.bool_]:
        near, size = _perturbed_set(x)
        rows, _ = np.nonzero(near)
        inside = x[near].astype(np.int64) * self.multipliers[size[rows]]
        dither = stream.words(inside.size, np.uint16) & np.uint16(_STEPS - 1)
        noisy = ((inside + dither) >> GRID_BITS) + self.table.sample(inside.size, stream)
        coins = (stream.words(inside.size, np.uint8) & np.uint8(1)).astype(np.bool_)
        signs = x > 0
        signs[near] = np.where(noisy == 0, coins, noisy > 0)
        return signs

    def flip_probability(self, x: Floats, rms: float) -> npt.NDArray[np.float64]:
        deviation = self.sigma * math.sqrt(min(self.changes, _expected_size(self.code_length, rms)))
        return np.where(
            x <= 1.0, scipy.special.ndtr(-np.asarray(x, dtype=np.float64) / deviation), 0.0
        )


def _individual(parameters: Parameters, projection: Projection) -> SignLaw:
    """Gaussian noise for a spec with a delta, flips for one without."""
    budget = parameters.budget
    size = (projection.k, projection.sensitivity.count)
    if parameters.delta > 0:
        return IndividualGaussian(budget, parameters.delta, *size)
    return IndividualFlips(budget, *size)


INDIVIDUAL_FLIPS = Calibration(_individual, SignFormat, "iDP")
INDIVIDUAL_GAUSSIAN = Calibration(_individual, SignFormat, "iDP", delta="required")
