r"""What all vectors of a collection have in common, and how near to it each of them lies.

Priors differ between queries: short texts have lower cosines with all others than long ones have.
Most of that lies along the mean direction of a collection. With ``a`` the cosine of a vector to it,
its *location*, the cosine of two vectors is ::

    ρ = a·a' + √(1 − a²)·√(1 − a'²)·ρ'

and ρ' is the cosine of what is left of them: it is near 0 for most pairs, whatever the query. So
the prior is one for ρ', and locations are estimated for each code by itself: by regression on what
codes of as much noise have, since that depends on norms, as locations do.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpindex.base.arrays import Doubles
from dpindex.base.errors import DamagedError
from dpindex.decode.calibration import Decoded, SimilarityCalibration

_CLEAR = 20.0
"""A mean is known if its square is this many times what noise makes of it."""

_GROUPS = 8
"""Codes of nearly as much noise, which have a mean location of their own."""

_DOUBTED = 2.0
"""Standard errors by which locations must differ more than their noise does."""

_LEAST = 1e-9
_MOST = 0.999


def with_common(known: SimilarityCalibration, codes: Decoded) -> SimilarityCalibration:
    """Return a calibration that knows what codes have in common, if anything.

    Parameters
    ----------
    known : SimilarityCalibration
    codes : Decoded
        Codes of the collection. The less noise they have, the more they weigh.
    """
    weight = 1 / np.maximum(codes.noise, _LEAST)
    mean = weight @ codes.vectors / weight.sum()
    if mean @ mean <= _CLEAR * len(mean) / weight.sum():
        return known
    seen, noise = _seen(codes, mean)
    groups = np.array_split(np.argsort(codes.noise, kind="stable"), _GROUPS)
    # Where noise hides how locations differ beside norms, they do as where there is less of it.
    found = [_apart(seen[rows], float(noise[rows].mean())) for rows in groups]
    spread = np.maximum.accumulate(np.maximum(found, _LEAST))
    levels = [
        (np.log(weight[rows]).mean(), seen[rows].mean(), apart)
        for rows, apart in zip(groups[::-1], spread[::-1], strict=True)
    ]
    return replace(known, mean=mean, locations=np.transpose(levels))


def _apart(seen: Doubles, noise: float) -> float:
    """Return by what variance locations differ at least, given noisy ones."""
    chance = 1 + _DOUBTED * math.sqrt(2 / len(seen))
    return float(seen.var()) - chance * noise


def without_common(side: Decoded, known: SimilarityCalibration) -> Decoded:
    """Return what is left of one side of a comparison, scaled to observe ρ', with its locations.

    DamagedError if the mean is of other codes.
    """
    if not len(known.mean):
        return side
    if len(known.mean) != side.vectors.shape[1]:
        raise DamagedError("the calibration of this index is of other codes; calibrate it again.")
    seen, noise = _seen(side, known.mean)
    level, usual, spread = known.locations
    at = -np.log(np.maximum(side.noise, _LEAST))
    expected = np.interp(at, level, usual)
    # That of the level with more noise: levels without any are all the same.
    apart = spread[np.maximum(np.searchsorted(level, at - _LEAST) - 1, 0)]
    share = apart / (apart + noise)
    location = np.clip(expected + share * (seen - expected), -_MOST, _MOST)
    left = np.sqrt(1 - location**2)
    direction = known.mean / np.linalg.norm(known.mean)
    rest = side.vectors - np.outer(side.vectors @ direction, direction)
    return Decoded(
        rest / left[:, None],
        side.noise / left**2,
        side.seen,
        side.norm_error,
        location,
        (1 - share) * apart,
    )


def _seen(side: Decoded, mean: Doubles) -> tuple[Doubles, Doubles]:
    """Return noisy locations, and the variance of their noise."""
    square = mean @ mean
    noise = side.noise + square * (side.norm_error - np.minimum(side.seen, side.noise))
    return side.vectors @ mean / math.sqrt(square), np.maximum(noise, 0.0)


def joined(
    rest: Doubles,
    error: Doubles,
    sides: tuple[Decoded, Decoded],
    factor: float,
) -> tuple[Doubles, Doubles]:
    """Return cosines ρ and their errors, given ρ' and its errors.

    Parameters
    ----------
    rest, error : float64 arrays of one shape
    sides : two Decoded
        Whose arrays broadcast with them.
    factor : float
        ``Projection.inner_product_factor``, of which locations have a share.
    """
    a, b = (side.location for side in sides)
    left_a, left_b = np.sqrt(1 - a**2), np.sqrt(1 - b**2)
    cosine = a * b + left_a * left_b * rest
    variance = np.square(left_a * left_b * error)
    for side, left, other, left_other in (
        (sides[0], left_a, b, left_b),
        (sides[1], left_b, a, left_a),
    ):
        slope = other - side.location / left * left_other * rest
        projected = np.where(side.location == 0, 0.0, factor * left**4)
        variance = variance + slope**2 * (side.unsure + projected)
    # The projection errs by the same in all that is common, which no prior averages out. Norms may
    # go with cosines: with what is common wholly, else by half of their errors.
    shared = np.clip(a * b / np.maximum(np.abs(cosine), _LEAST), 0.0, 1.0)
    across = 1 - np.square(np.clip(cosine, -1, 1))
    variance = variance + factor * np.square(shared * across)
    of_norms = np.log1p(sides[0].norm_error + sides[1].norm_error)
    variance = variance + np.square(np.maximum(shared, 0.5)) * of_norms
    return cosine, np.sqrt(variance)
