"""Modes of a sketched collection, and samples that favour what is rare in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from dpindex.base.arrays import Doubles, Floats, Longs, Vectors
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import InputError
from dpindex.base.tables import real_matrix
from dpindex.mechanism.public_random import PublicStream
from dpindex.race.hashes import uniform
from dpindex.race.sketch import RaceSketch

_CLIMBS_PER_MODE = 4
_STEPS = 200


@dataclass(frozen=True, eq=False)
class Modes:
    """Places where a collection is locally densest, best first.

    Attributes
    ----------
    points : float64 array, shape (m, dim)
    density : float64 array, shape (m,)
        Private estimates of the density there.

    >>> Modes(np.zeros((1, 2)), np.array([0.5])).points.shape
    (1, 2)
    """

    points: Floats
    density: Floats


def find_modes(
    sketch: RaceSketch,
    bounds: tuple[Any, Any],
    modes: int = 1,
    *,
    separation: float | None = None,
    starts: int = 1000,
    seed: int = 0,
) -> Modes:
    """Return modes of the density, by derivative-free ascent (Coleman & Shrivastava, Sec. 4).

    Uniform public points in the box are rated in one batch; from the best of those that are
    ``separation`` apart, Nelder & Mead's simplex climbs. In many dimensions uniform points all lie
    far from the data: start there from points of your own, by narrowing the box around them.

    Parameters
    ----------
    sketch : RaceSketch
        Released.
    bounds : (low, high)
        Public box, numbers or one for each attribute.
    modes : int
        How many to look for, [1, 1000]; fewer are returned where fewer are found.
    separation : float, optional
        Least Euclidean distance between two modes; default a tenth of the box's diagonal.
    starts : int
        Points rated first, [1, 10^6].
    seed : int
        Public seed of those points.

    >>> from dpindex.race import PStable, SketchSpec
    >>> x = np.random.default_rng(0).normal(3.0, 0.5, size=(5000, 2))
    >>> spec = SketchSpec(dim=2, rows=200, width=500, hash=PStable(2.0), epsilon=5.0)
    >>> sketch = RaceSketch(spec).fit(x).release()
    >>> bool(np.abs(find_modes(sketch, (0, 10)).points - 3.0).max() < 1)
    True
    """
    dim = sketch.spec.dim
    modes = whole_number(modes, "modes", 1, 1000)
    starts = whole_number(starts, "starts", 1, 10**6)
    low, high = box(bounds, "bounds", dim)
    if separation is None:
        separation = float(np.linalg.norm(high - low)) / 10
    else:
        separation = finite_number(separation, "separation", above=0.0)
    shares = uniform(_stream(seed, "modes"), starts * dim)
    points = low + (high - low) * shares.reshape(starts, dim)
    order = np.argsort(-sketch.density(points), kind="stable")
    tops = _separated(points[order], separation, modes * _CLIMBS_PER_MODE)
    ends = [_climbed(sketch, top, (low, high), separation) for top in tops]
    climbed = np.array(ends)
    order = np.argsort(-sketch.density(climbed), kind="stable")
    summits = _separated(climbed[order], separation, modes)
    return Modes(summits, sketch.density(summits))


def _climbed(
    sketch: RaceSketch,
    top: Floats,
    bounds: tuple[Floats, Floats],
    separation: float,
) -> Floats:
    """Return where Nelder & Mead's simplex climbs to from a point of the box."""
    low, high = bounds

    def depth(point: Doubles) -> float:
        return -float(sketch.density(point)[0])

    # A first simplex as wide as the separation: narrower ones may lie on one step of the density.
    # Each corner steps towards the middle of the box, so that none leaves it.
    middle = (low + high) / 2
    towards_middle = np.where(top > middle, -1.0, 1.0)
    steps = np.minimum(separation, (high - low) / 2) * towards_middle
    moves = [np.zeros(len(top)), np.diag(steps)]
    corners = top + np.vstack(moves)
    optimum = optimize.minimize(
        depth,
        top,
        method="Nelder-Mead",
        bounds=optimize.Bounds(low, high),
        options={"maxiter": _STEPS, "initial_simplex": corners},
    )
    return np.asarray(optimum.x)


def diversity_sample(
    sketch: RaceSketch,
    candidates: Vectors,
    size: int,
    *,
    seed: int = 0,
) -> Longs:
    """Return row numbers of candidates, sampled with probability inverse to their density.

    Rare kinds are sampled as often as frequent ones, which evens out a skewed pool (Coleman et al.
    2019, after whom densities below the noise count as one standard error). Sampling is without
    replacement, by Efraimidis & Spirakis' exponential keys from a public seed.

    The sketch is private; *the candidates are not made so*: give public ones, or keep the result.

    Parameters
    ----------
    sketch : RaceSketch
        Released.
    candidates : array or sparse matrix, shape (n, dim)
    size : int
        [1, n].
    seed : int
        Public seed.

    Returns
    -------
    int64 array, shape (size,), in the order sampled.

    >>> from dpindex.race import PStable, SketchSpec
    >>> x = np.zeros((1000, 1))
    >>> spec = SketchSpec(dim=1, rows=100, width=100, hash=PStable(1.0), epsilon=5.0)
    >>> sketch = RaceSketch(spec).fit(x).release()
    >>> diversity_sample(sketch, [[0.0], [9.0], [0.0]], 2).shape
    (2,)
    """
    rows = real_matrix(candidates, sketch.spec.dim, "candidates")
    size = whole_number(size, "size", 1, rows.shape[0])
    answers = sketch.summary(rows)
    noise = np.maximum(1.0, answers["stderr"])
    counts = np.maximum(answers["count"], noise)
    shares = uniform(_stream(seed, "diversity"), rows.shape[0])
    waits = -np.log(shares) * counts
    first = np.argsort(waits, kind="stable")
    return first[:size].astype(np.int64)


def box(
    bounds: Any,
    name: str,
    dim: int,
) -> tuple[Floats, Floats]:
    """Return ``(low, high)``, numbers or one for each column, as arrays of shape (dim,).

    Raises
    ------
    InputError
        For anything else, which the message calls ``name``.
    """
    try:
        ends = [np.asarray(end, dtype=np.float64) for end in bounds]
        low, high = [np.broadcast_to(end, (dim,)) for end in ends]
    except (TypeError, ValueError):
        raise InputError(f"{name} must be (low, high), numbers or one for each column.") from None
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise InputError(f"{name} must be finite, each low below its high.")
    return low, high


def _stream(seed: int, purpose: str) -> PublicStream:
    seed = whole_number(seed, "seed", 0, (1 << 63) - 1)
    return PublicStream(seed, f"race/{purpose}")


def _separated(points: Floats, distance: float, count: int) -> Floats:
    """Return the first points, ``count`` at most, at a distance from all points before them."""
    kept: list[Floats] = []
    for point in points:
        distances = [np.linalg.norm(point - other) for other in kept]
        if min(distances, default=np.inf) >= distance:
            kept.append(point)
        if len(kept) == count:
            break
    return np.array(kept)
