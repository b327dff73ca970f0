"""The noise of Kenthapadi et al. keeps what it promises; that it is theirs says the oracle."""

import mpmath
from helpers.specs import folded
from independent.rigorous import gaussian_delta

from dpindex.mechanism.noise.gaussian import optimal_sigma
from dpindex.mechanism.papers.gaussian import (
    kenthapadi_sigma,
)


@folded("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0, 64.0])
@folded("delta", [1e-12, 1e-6, 1e-3, 0.1, 0.3, 0.49])
def test_kenthapadi_is_sound_and_wasteful(epsilon, delta):
    """It holds for every δ < ½, as claimed; and the optimal sigma is never larger."""
    sigma = kenthapadi_sigma(epsilon, delta)
    with mpmath.workdps(80):
        assert gaussian_delta(sigma, epsilon) <= delta
    assert optimal_sigma(epsilon, delta) <= sigma
