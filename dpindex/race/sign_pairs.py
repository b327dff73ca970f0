"""What the rows of a sketch of paired signs say of its records: their second moments.

A row of :class:`~dpindex.race.hashes.PairedSRP` of two bits counts the records z by whether the
signs of ``a·z`` and ``b·z`` agree, for two random directions a and b. As far as it is linear in
``abᵀ``, the mean of ``sign(a·z) sign(b·z)`` is ``(2/π) aᵀMb`` with ``M = mean of zzᵀ/‖z‖²``. So M
is found by least squares, and a regression of one attribute on the others by M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize
from scipy.sparse.linalg import LinearOperator, lsqr

from dpindex.base.arrays import Doubles
from dpindex.race.sketch import RaceSketch

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
