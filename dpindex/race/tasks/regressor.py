"""Linear regression from a sketch of paired signs."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from dpindex.arrays import Floats, Vectors
from dpindex.errors import InputError
from dpindex.privacy.adjacency import Neighbouring
from dpindex.race.checks import box
from dpindex.race.hashes import PairedSRP
from dpindex.race.sketch import RaceSketch
from dpindex.race.tasks.base import SketchEstimator

__all__ = ["RaceRegressor"]

Bounds: TypeAlias = tuple[Any, Any]

_PAIR = PairedSRP(2)
_MAX_EVALUATIONS = 2000


class RaceRegressor(RegressorMixin, SketchEstimator):  # type: ignore[misc]
    """Linear regression that minimises the paired SRP loss (Coleman & Shrivastava 2020, Sec. 4).

    Records become ``z = [x, 1, y]`` after public scaling to [−1, 1], and the sketch counts how
    many of the z and −z share two random signs with a query ``[θ, −1]``: with φ the angle between
    them a share of ``½ + (2/π²)(φ − π/2)²``, least where z is orthogonal to the query, that is
    where the residual is 0. Lengths do not enter, so a record weighs ``1/‖z‖²``.

    *Sensitivity.* Hashing z and −z adds two counts a row, 2R in L1. The two always lie in opposite
    columns, so :class:`PairedSRP` keeps one of them: R, and half the published noise.

    *Solvers.* The published one minimises the sketch's own answer without derivatives. That answer
    is a step function of θ, and an average of R steps misses the loss by about ``1/(2√R)`` of the
    records, which usually drowns the residual. ``"moments"`` first fits to the released counts the
    quadratic form whose loss it is: a row with directions a, b holds ``D = same − different``
    signs, and the part of it that is linear in ``a bᵀ`` is ``(2/π) aᵀMb`` with ``M = Σ zzᵀ/‖z‖²``.
    Least squares over rows gives M, and ridge regression θ, with the ridge set to M's own error.
    Both only read what has been released.

    Parameters
    ----------
    bounds_x, bounds_y : (low, high)
        *Public* ranges of the attributes (numbers, or one for each attribute) and of the target.
        They scale, they do not clip: privacy needs no bounds, precision does.
    solver : "moments" or "surrogate"
        See above.
    rows : int
        With delta = 0 about ``ε n / 5`` is best; with delta > 0 the more the better (10 000 rows
        are 20 000 counts).
    epsilon, delta, neighbouring, seed
        As in :class:`~dpindex.race.RaceSketch`.

    Attributes
    ----------
    sketch_ : RaceSketch
    coef_ : array, shape (dim,)
    intercept_ : float
        In the units of the data.

    >>> from dpindex.race import RaceRegressor
    >>> x = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    >>> model = RaceRegressor(rows=2000, epsilon=5.0, delta=1e-6).fit(x, 0.5 * x[:, 0])
    >>> bool(abs(model.coef_[0] - 0.5) < 0.2)
    True
    """

    def __init__(
        self,
        *,
        bounds_x: Bounds = (-1.0, 1.0),
        bounds_y: tuple[float, float] = (-1.0, 1.0),
        solver: Literal["moments", "surrogate"] = "moments",
        rows: int = 1000,
        epsilon: float = 1.0,
        delta: float = 0.0,
        neighbouring: Neighbouring = "add-remove",
        seed: int = 0,
    ) -> None:
        self.bounds_x = bounds_x
        self.bounds_y = bounds_y
        self.solver = solver
        self.rows = rows
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.seed = seed

    width = None  # two columns hold the folded codes of two signs
    _sparse = False  # scaling moves every attribute

    def fit(self, X: Vectors, y: Any) -> RaceRegressor:
        """Sketch records (n, dim) and targets (n,), release, and solve."""
        if self.solver not in _SOLVERS:
            raise InputError(f"solver must be 'moments' or 'surrogate', not {self.solver!r}.")
        x, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        middle, reach = _scaling(self.bounds_x, "bounds_x", self.n_features_in_)
        centre, spread = (float(part[0]) for part in _scaling(self.bounds_y, "bounds_y", 1))
        u = (x - middle) / reach
        v = (np.asarray(target, dtype=np.float64) - centre) / spread
        sketch = self._empty(self.n_features_in_ + 2, _PAIR)
        self.sketch_ = sketch.fit(np.column_stack([u, np.ones(len(u)), v])).release()
        theta = _SOLVERS[self.solver](self.sketch_)
        self.coef_: Floats = theta[:-1] * spread / reach
        self.intercept_ = float(centre + spread * theta[-1] - self.coef_ @ middle)
        return self

    def predict(self, X: Vectors) -> Floats:
        """The linear prediction of each row, shape (n,)."""
        predicted: Floats = self._records(X) @ self.coef_ + self.intercept_
        return predicted


def _scaling(bounds: Bounds, name: str, dim: int) -> tuple[Floats, Floats]:
    """Middle and half width of the bounds, shape (dim,) each."""
    low, high = box(bounds, name, dim)
    return (low + high) / 2, (high - low) / 2


def _moments(sketch: RaceSketch) -> npt.NDArray[np.float64]:
    """θ of the quadratic form that fits the released counts best."""
    dim, rows = sketch.spec.dim, sketch.spec.rows
    first, second = sketch.spec.hasher.directions.reshape(rows, 2, dim).transpose(1, 0, 2)
    differences = (sketch.counts[:, 0] - sketch.counts[:, 1]) / max(1.0, sketch.size)
    i, j = np.triu_indices(dim)
    terms = first[:, i] * second[:, j] + first[:, j] * second[:, i]
    terms *= np.where(i == j, 1.0, 2.0) / math.pi
    entries = np.linalg.lstsq(terms, differences, rcond=None)[0]
    left = differences - terms @ entries
    freedom = max(1, rows - len(entries))
    # An entry off the diagonal errs by s·π/√(8R); 2√dim times that is the spectral norm of such a
    # symmetric matrix (Wigner).
    ridge = math.sqrt(float(left @ left) / freedom * dim / (2 * rows)) * math.pi
    form = np.zeros((dim, dim))
    form[i, j] = form[j, i] = entries
    values, vectors = np.linalg.eigh(form)
    form = (vectors * np.maximum(values, 0.0)) @ vectors.T  # M is positive semidefinite
    penalty = np.diag([ridge] * (dim - 2) + [0.0])  # none on the intercept
    theta = np.linalg.lstsq(form[:-1, :-1] + penalty, form[:-1, -1], rcond=None)[0]
    return np.asarray(theta)


def _surrogate(sketch: RaceSketch) -> npt.NDArray[np.float64]:
    """θ that minimises the sketch's own answer, without derivatives (Powell's method)."""

    def loss(theta: npt.NDArray[np.float64]) -> float:
        return float(sketch.count(np.append(theta, -1.0))[0])

    start = np.zeros(sketch.spec.dim - 1)
    found = optimize.minimize(loss, start, method="Powell", options={"maxfev": _MAX_EVALUATIONS})
    return np.asarray(found.x)


_SOLVERS = {"moments": _moments, "surrogate": _surrogate}
