"""Second moments of directions, read from the released sketch of a paired sign hash."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import LinearOperator, lsqr

from dpindex.base.arrays import Doubles
from dpindex.race.sketch import RaceSketch

__all__ = ["Moments", "SignPairs"]

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
        return math.sqrt(float(np.mean(self.residuals**2)) / len(self.residuals))

    @cached_property
    def diagonal_excess(self) -> tuple[Doubles, Doubles]:
        """The diagonal less the entry of the 1, and its standard errors, shape (dim,) each."""
        diagonal = np.diag(self.form)
        products = self.left * self.right
        products -= products[:, [-2]]
        products *= self.residuals[:, None]
        errors = np.sqrt(np.einsum("rd,rd->d", products, products)) / len(products)
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
        directions = sketch.spec.hasher.directions.reshape(sketch.spec.rows, 2, sketch.spec.dim)
        differences = (sketch.counts[:, 0] - sketch.counts[:, 1]) / max(1.0, sketch.size)
        left = np.ascontiguousarray(directions[:, 0])
        right = np.ascontiguousarray(directions[:, 1])
        return cls(left, right, differences)

    def __len__(self) -> int:
        return len(self.differences)

    def of_rows(self, rows: npt.NDArray[np.bool_]) -> SignPairs:
        """Return the pairs of some rows."""
        return SignPairs(self.left[rows], self.right[rows], self.differences[rows])

    def surrogate(self, query: Doubles) -> float:
        """Return the loss that the counts themselves show at a query, shape (dim,), in [−1, 1]."""
        agree = (self.left @ query >= 0) == (self.right @ query >= 0)
        return float(np.mean(np.where(agree, self.differences, -self.differences)))

    def losses(self, query: Doubles, form: Doubles) -> Doubles:
        """Return an estimate of ``qᵀMq`` from each row, shape (rows,).

        It is unbiased if ``form`` was not estimated from these rows; the closer that is to M, the
        less the estimates vary.
        """
        products = (self.left @ query) * (self.right @ query)
        corrections = self.differences / _HERMITE - _products(self.left, form, self.right)
        return np.asarray(query @ form @ query + corrections * products)

    @cached_property
    def moments(self) -> Moments:
        """M, by least squares or by the mean over rows, whichever errs less.

        A row holds ``D = (2/π) aᵀMb`` and a residual, and the mean of ``(π/2) D abᵀ`` is M. Least
        squares takes the spread of ``aᵀMb`` out of the error, but multiplies it by
        ``1/√(1 − unknowns/rows)``, and needs more rows than unknowns.
        """
        rows, dim = self.left.shape
        targets = self.differences / _HERMITE
        form = _symmetric(self.left.T @ (targets[:, None] * self.right)) / rows
        averaged = Moments(form, self.left, self.right, targets)
        unknowns = dim * (dim + 1) // 2
        if unknowns >= rows:
            return averaged
        form = self._least_squares(targets)
        residuals = targets - _products(self.left, form, self.right)
        residuals *= rows / (rows - unknowns)
        fitted = Moments(form, self.left, self.right, residuals)
        return min(averaged, fitted, key=lambda moments: moments.error)

    def _least_squares(self, targets: Doubles) -> Doubles:
        """Return the symmetric M for which ``aᵀMb`` is nearest to the targets.

        No matrix of rows × unknowns is made: it is 680 MB at 128 attributes and 10 000 rows.
        """
        rows, dim = self.left.shape

        def predicted(entries: Doubles) -> Doubles:
            return _products(self.left, _symmetric(entries.reshape(dim, dim)), self.right)

        def adjoint(weights: Doubles) -> Doubles:
            return _symmetric(self.left.T @ (weights.reshape(-1, 1) * self.right)).ravel()

        operator = LinearOperator((rows, dim * dim), matvec=predicted, rmatvec=adjoint)
        solution = lsqr(operator, targets, atol=_TOLERANCE, btol=_TOLERANCE, iter_lim=_MAX_STEPS)
        return _symmetric(solution[0].reshape(dim, dim))


def _products(left: Doubles, form: Doubles, right: Doubles) -> Doubles:
    """Return ``aᵀMb`` of each row."""
    return np.asarray(np.einsum("rd,rd->r", left @ form, right))


def _symmetric(matrix: Doubles) -> Doubles:
    return np.asarray((matrix + matrix.T) / 2)
