"""What a sketch says of its records: modes of the collection, samples of what is rare, moments.

A row of :class:`~dpindex.race.hashes.PairedSRP` of two bits counts the records z by whether the
signs of ``a·z`` and ``b·z`` agree, for two random directions a and b. As far as it is linear in
``abᵀ``, the mean of ``sign(a·z) sign(b·z)`` is ``(2/π) aᵀMb`` with ``M = mean of zzᵀ/‖z‖²``. So M
is found by least squares, and a regression of one attribute on the others by M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import optimize
from scipy.sparse.linalg import LinearOperator, lsqr

from dpindex.base.arrays import Doubles, Floats, Longs, Vectors
from dpindex.base.checks import finite_number, real_matrix, whole_number
from dpindex.base.errors import InputError
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


_MAX_EVALUATIONS = 2000

_HERMITE = 2.0 / math.pi
"""Share of ``sign(a·z) sign(b·z)`` that is linear in ``a bᵀ``."""

_TOLERANCE = 1e-6
"""Far below the noise."""

_MAX_STEPS = 200


@dataclass(frozen=True, eq=False)
class Moments:
    """The matrix ``M = mean of zzᵀ/‖z‖²`` as rows of a sketch show it, with its errors.

    Attributes
    ----------
    form : array, shape (dim, dim)
        Unbiased estimate of M.
    left, right : array, shape (rows, dim)
        The two directions a, b of each row.
    residuals : array, shape (rows,)
        What each row adds to the error of ``form``, in units of M.
    """

    form: Doubles
    left: Doubles
    right: Doubles
    residuals: Doubles

    @property
    def error(self) -> float:
        """Standard error of the diagonal; an entry off it errs by 1/√2 of that."""
        variance = float(np.mean(self.residuals**2))
        return math.sqrt(variance / len(self.residuals))

    @cached_property
    def diagonal_excess(self) -> tuple[Doubles, Doubles]:
        """The diagonal less the entry of the 1, and its standard errors, shape (dim,) each."""
        diagonal = np.diag(self.form)
        products = self.left * self.right
        products -= products[:, [-2]]
        products *= self.residuals[:, None]
        squares = np.einsum("rd,rd->d", products, products)
        errors = np.sqrt(squares) / len(products)
        return diagonal - diagonal[-2], errors


@dataclass(frozen=True, eq=False)
class SignPairs:
    """What each row of a released sketch of ``PairedSRP(2)`` says about two directions a and b.

    Attributes
    ----------
    left, right : array, shape (rows, dim)
        The directions a and b.
    differences : array, shape (rows,)
        Unbiased estimates of the mean over records of ``sign(a·z) sign(b·z)``.
    """

    left: Doubles
    right: Doubles
    differences: Doubles

    @classmethod
    def of_sketch(cls, sketch: RaceSketch) -> SignPairs:
        """Return the pairs of all rows of a sketch."""
        spec = sketch.spec
        directions = spec.hasher.directions.reshape(spec.rows, 2, spec.dim)
        left, right = directions.transpose(1, 0, 2).copy()
        alike, unlike = sketch.counts.T
        return cls(left, right, (alike - unlike) / sketch.divisor)

    def surrogate(self, query: Doubles) -> float:
        """Return the loss that the counts themselves show at a query, shape (dim,), in [−1, 1]."""
        left_sign = self.left @ query >= 0
        right_sign = self.right @ query >= 0
        agree = left_sign == right_sign
        losses = np.where(agree, self.differences, -self.differences)
        return float(np.mean(losses))

    @cached_property
    def moments(self) -> Moments:
        """M, by least squares or by the mean over rows, whichever errs less.

        A row holds ``D = (2/π) aᵀMb`` and a residual, and the mean of ``(π/2) D abᵀ`` is M. Least
        squares takes the spread of ``aᵀMb`` out of the error, but multiplies it by
        ``1/√(1 − unknowns/rows)``, and needs more rows than unknowns.
        """
        rows, dim = self.left.shape
        targets = self.differences / _HERMITE
        form = self._adjoint(targets) / rows
        averaged = Moments(form, self.left, self.right, targets)
        unknowns = dim * (dim + 1) // 2
        if unknowns >= rows:
            return averaged
        form = self._least_squares(targets)
        residuals = targets - _products(self.left, form, self.right)
        residuals *= rows / (rows - unknowns)
        fitted = Moments(form, self.left, self.right, residuals)
        return min(averaged, fitted, key=lambda moments: moments.error)

    def _adjoint(self, weights: Doubles) -> Doubles:
        """Return the symmetric part of the weighted sum of ``abᵀ``."""
        weighted = weights.reshape(-1, 1) * self.right
        return _symmetric(self.left.T @ weighted)

    def _least_squares(self, targets: Doubles) -> Doubles:
        """Return the symmetric M for which ``aᵀMb`` is nearest to the targets.

        No matrix of rows × unknowns is made: it is 680 MB at 128 attributes and 10 000 rows.
        """
        rows, dim = self.left.shape

        def predicted(entries: Doubles) -> Doubles:
            form = _symmetric(entries.reshape(dim, dim))
            return _products(self.left, form, self.right)

        def adjoint(weights: Doubles) -> Doubles:
            return self._adjoint(weights).ravel()

        operator = LinearOperator((rows, dim * dim), matvec=predicted, rmatvec=adjoint)
        entries, *_ = lsqr(
            operator,
            targets,
            atol=_TOLERANCE,
            btol=_TOLERANCE,
            iter_lim=_MAX_STEPS,
        )
        return _symmetric(entries.reshape(dim, dim))


def _products(left: Doubles, form: Doubles, right: Doubles) -> Doubles:
    """Return ``aᵀMb`` of each row."""
    return np.asarray(np.einsum("rd,rd->r", left @ form, right))


def _symmetric(matrix: Doubles) -> Doubles:
    return (matrix + matrix.T) / 2


def by_moments(signs: SignPairs) -> Doubles:
    """Return θ of the quadratic form that fits the released counts best."""
    moments = signs.moments
    dim = len(moments.form)
    # 2√dim times the error off the diagonal is the spectral norm of such a symmetric matrix
    # (Wigner).
    ridge = math.sqrt(2 * dim) * moments.error
    values, vectors = np.linalg.eigh(moments.form)
    form = (vectors * np.maximum(values, 0.0)) @ vectors.T  # M is positive semidefinite
    penalties = np.full(dim - 1, ridge)
    penalties[-1] = 0.0  # none on the intercept
    known = form[:-1, :-1] + np.diag(penalties)
    wanted = form[:-1, -1]
    theta, *_ = np.linalg.lstsq(known, wanted, rcond=None)
    return np.asarray(theta)


def by_surrogate(signs: SignPairs) -> Doubles:
    """Return θ that minimises the sketch's own answer, without derivatives (Powell's method)."""

    def loss(theta: Doubles) -> float:
        return signs.surrogate(np.append(theta, -1.0))

    start = np.zeros(signs.left.shape[1] - 1)
    options = {"maxfev": _MAX_EVALUATIONS}
    optimum = optimize.minimize(loss, start, method="Powell", options=options)
    return np.asarray(optimum.x)


SOLVERS = {"moments": by_moments, "surrogate": by_surrogate}
"""Functions that return the coefficients of a regression, by the names of the method."""
