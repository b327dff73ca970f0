"""Moments of noise, as polynomials, against the laws themselves.

Each moment is compared at 5 standard errors plus what the grid rounds away: false alarms below 1e-6
a comparison, 5e-5 in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dpindex.noise.gaussian import optimal_sigma, rounded_gaussian
from dpindex.noise.laplace import laplace_noise
from dpindex.noise.law import GRID_BITS, NumberLaw
from dpindex.noise.square_wave import square_wave
from dpindex.noise.staircase import staircase_noise
from dpindex.randomness.secret import secret_stream

Array = npt.NDArray[Any]
UNIT = 1.0 / 2**GRID_BITS
LAWS: dict[str, NumberLaw] = {
    "gaussian": rounded_gaussian(optimal_sigma(1.0, 1e-6), 1.0, 1e-6, 1),
    "laplace": laplace_noise(1.0),
    "staircase": staircase_noise(3.0),
    "square wave, 1": square_wave(1.0, 0, 4096),
    "square wave, 3": square_wave(3.0, -2048, 2048),
    "square wave, 6": square_wave(6.0, 1024, 5120),
}
DRAWS = 200_000


def _at(polynomial: tuple[float, ...], z: float) -> float:
    return float(sum(factor * z**power for power, factor in enumerate(polynomial)))


def _close(sample: Array, expected: float, rounding: float) -> None:
    allowed = 5 * sample.std() / np.sqrt(len(sample)) + rounding
    assert abs(sample.mean() - expected) < allowed


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("place", [0.0, 0.31, 1.0])
def test_moments_are_those_of_the_law(name: str, place: float) -> None:
    law = LAWS[name]
    low = getattr(law, "low", 0)
    x = np.full(DRAWS, np.rint(low + place * 4096), dtype=np.float32)
    code = law.perturb(x, secret_stream())
    estimate = (code + law.offset) * law.scale * UNIT
    moments = law.moments.in_units(UNIT)
    true = float(x[0]) * UNIT
    z, true_z = estimate - moments.centre, true - moments.centre
    square = moments.weight * (z**2 - moments.variance[0])
    square += 2 * moments.centre * z + moments.centre**2
    # Rounding to cells is averaged over places in a cell: a quarter of a cell squared is allowed.
    cell2 = (law.scale * UNIT) ** 2 * (1 + 2 * abs(true))
    _close(estimate, true, 1e-9)
    _close((estimate - true) ** 2, _at(moments.variance, true_z), cell2 / 4)
    _close(square, true**2, cell2 / 4)
    size = _at(moments.squared, true_z)
    _close((estimate - true) * (square - true**2), _at(moments.mixed, true_z), 0.01 * size**0.75)
    _close((square - true**2) ** 2, size, 0.02 * size + cell2 / 4)
