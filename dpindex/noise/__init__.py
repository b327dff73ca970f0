"""Secret laws: calibration and exact integer samplers."""

from dpindex.noise.base import (
    GRID_BITS,
    AdditiveNoise,
    Decoder,
    FloatLaw,
    NoFlips,
    NoNoise,
    SignLaw,
    TwoDigitNoise,
)
from dpindex.noise.choice import sjlt_noise
from dpindex.noise.gaussian import gaussian_noise, optimal_sigma
from dpindex.noise.laplace import laplace_noise
from dpindex.noise.randomized_response import (
    IndividualFlips,
    IndividualGaussian,
    geometric_flips,
    randomized_response,
    smooth_flips,
)
from dpindex.noise.square_wave import square_wave
from dpindex.noise.staircase import staircase_noise

__all__ = [
    "GRID_BITS",
    "AdditiveNoise",
    "Decoder",
    "FloatLaw",
    "IndividualFlips",
    "IndividualGaussian",
    "NoFlips",
    "NoNoise",
    "SignLaw",
    "TwoDigitNoise",
    "gaussian_noise",
    "geometric_flips",
    "laplace_noise",
    "optimal_sigma",
    "randomized_response",
    "sjlt_noise",
    "smooth_flips",
    "square_wave",
    "staircase_noise",
]
