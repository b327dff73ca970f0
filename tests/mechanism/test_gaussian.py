"""Gaussian noise: the hockey-stick divergence of the shipped integers, to the last bit."""

import mpmath
import pytest
from independent.rigorous import exp_below

from dpindex.mechanism.noise.gaussian import optimal_sigma, rounded_gaussian

EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_EXP_BITS = 400


def one_beta(epsilon, delta, code_length):
    """Optimal noise for an L2 sensitivity of one beta."""
    return rounded_gaussian(optimal_sigma(epsilon, delta), epsilon, delta, code_length)


def _divergence(table, shift, epsilon):
    """Σ_z max(0, P(z) − e^ε P(z − shift)), no less than the true one, from the masses alone."""
    bound = exp_below(epsilon, _EXP_BITS)
    masses = table.masses
    total = 0
    for z, mass in enumerate(masses):
        other = masses[z - shift] if 0 <= z - shift < len(masses) else 0
        total += max(0, (mass << _EXP_BITS) - bound * other)
    return mpmath.mpf(total) / (mpmath.mpf(2) ** (_EXP_BITS + table.bits))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_divergence_of_the_shipped_masses_is_at_most_delta(epsilon, delta):
    noise = one_beta(epsilon, delta, 1024)
    shift = 1 << (noise.grid_bits - noise.source.cell_bits)
    for signed in (shift, -shift):
        assert _divergence(noise.source, signed, epsilon) <= mpmath.mpf(delta)
    # ... and it is not wasteful: more than 99 % of delta is used where cells are fine.
    assert _divergence(noise.source, shift, epsilon) >= 0.9 * mpmath.mpf(delta)
