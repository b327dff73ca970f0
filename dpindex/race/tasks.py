"""Estimators over released sketches, in the conventions of scikit-learn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import chdtrc, ndtri

from dpindex.base.arrays import AnyArray, Floats, Longs, Vectors
from dpindex.base.checks import finite_number
from dpindex.base.errors import InputError, QualityWarning
from dpindex.privacy import Guarantee, Neighbouring
from dpindex.race.explore import SOLVERS, Moments, SignPairs, box
from dpindex.race.hashes import Hash, PairedSRP, PStable
from dpindex.race.sketch import RaceSketch
from dpindex.race.spec import SketchSpec

try:
    from sklearn import base
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "the estimators of dpindex.race need scikit-learn; run pip install scikit-learn."
    ) from error

_CERTAIN = 3.0
"""Standard errors by which the weight of the records must be above the noise."""

_CHANCE = 0.01
"""Probability with which noise alone may look like a slope."""

_BLAME = 1e-6
"""Probability with which a bound that holds may be blamed, if errors were normal; their tails are
heavier, which takes it to less than 0.01."""

_MOST_ROWS = 10_000
_ROWS_PER_EPSILON = 1000
"""Of a regression without a delta: the best number for 5000 records."""

_parameters = dataclass(eq=False, repr=False, kw_only=True)
"""Makes an estimator's ``__init__`` from its fields, as scikit-learn wants it: it only stores."""


@_parameters
class _SketchEstimator(base.BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator that reads its data once, into released sketches.

    ``fit`` spends the whole budget; what comes after is free. Each ``fit`` spends it again, so a
    cross-validation with m fits costs m times epsilon. ``fit`` warns (:class:`~dpindex.base.errors.
    QualityWarning`) where the result is unlikely to be of use; it reads that from what has been
    released, so a warning may be passed on. By scikit-learn's convention ``fit`` refuses
    a table without rows, so it is public that there is a record; a :class:`RaceSketch` takes none.
    """

    rows: int | None = None
    epsilon: float = 1.0
    delta: float = 0.0
    neighbouring: Neighbouring = "add-remove"
    seed: int = 0

    _sparse: ClassVar[tuple[str, ...] | bool] = ("csr", "csc")

    @property
    def guarantee_(self) -> Guarantee:
        """The promise of the fitted estimator about every training record."""
        check_is_fitted(self)
        guarantee: Guarantee = self.sketch_.guarantee
        return guarantee

    def _records(self, X: Vectors) -> Any:
        """Return checked queries, of as many attributes as were fitted; ValueError otherwise."""
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse=self._sparse, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._sparse)
        tags.non_deterministic = True  # two fits differ: the noise is fresh
        return tags

    def _spec(
        self,
        dim: int,
        width: int | None,
        hash: Hash,
    ) -> SketchSpec:
        rows = self.rows
        if rows is None:
            rows = _MOST_ROWS
            if self.delta == 0:
                rows = math.ceil(min(rows, _ROWS_PER_EPSILON * self.epsilon))
        return SketchSpec(
            dim,
            rows,
            width,
            hash,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbouring=self.neighbouring,
            seed=self.seed,
        )

    def new_sketch(self, spec: SketchSpec) -> RaceSketch:
        """The seam through which experiments take the noise away."""
        return RaceSketch(spec)


@_parameters
class _KernelEstimator(_SketchEstimator):
    """An estimator that asks for kernel sums."""

    hash: Hash | None = field(default=None, kw_only=False)
    rows: int | None = 300
    width: int | None = 200

    def _sketched(self, X: Vectors) -> RaceSketch:
        """Return the released sketch of checked records."""
        records = validate_data(self, X, accept_sparse=self._sparse)
        sketch = self.new_sketch(self._kernel_spec())
        return sketch.fit(records).release()

    def _kernel_spec(self) -> SketchSpec:
        hash = self.hash
        if hash is None:
            hash = PStable(1.0, hashes=2)
        return self._spec(self.n_features_in_, self.width, hash)


def _warn(sentences: Sequence[str]) -> None:
    """Warn the caller of ``fit``."""
    for sentence in sentences:
        warnings.warn(sentence, QualityWarning, stacklevel=3)


def _floored(counts: Floats) -> Floats:
    """Return counts for logarithms and ratios: below half a record is half a record."""
    return np.maximum(counts, 0.5)


class RaceDensity(base.DensityMixin, _KernelEstimator):  # type: ignore[misc]
    """Private kernel density estimation (Coleman & Shrivastava 2020, Sec. 4).

    "Density" is the mean kernel over the records, in (0, 1]: a share of the collection, not a
    probability per volume; the two differ by a constant for a given hash and dimension.

    Parameters
    ----------
    hash : SRP or PStable, optional
        The kernel; default ``PStable(1.0, hashes=2)``, for data scaled to about unit spread.
    rows, width, epsilon, delta, neighbouring, seed
        As in :class:`~dpindex.race.SketchSpec`. With delta = 0 the noise of a count is
        ``√(2·rows)/epsilon`` records, and that of the size ``√(2·rows·width)/epsilon``.

    Attributes
    ----------
    sketch_ : RaceSketch
        The released sketch.

    >>> from dpindex.race import PStable, RaceDensity
    >>> x = np.random.default_rng(0).normal(size=(2000, 2))
    >>> model = RaceDensity(PStable(2.0), rows=100, epsilon=5.0).fit(x)
    >>> near, far = model.score_samples([[0.0, 0.0], [9.0, 9.0]])
    >>> bool(near > far)
    True
    """

    def fit(self, X: Vectors, y: Any = None) -> RaceDensity:
        """Sketch the records ``X``, shape (n, dim), and release; ``y`` is for pipelines only."""
        self.sketch_ = self._sketched(X)
        _warn(self.sketch_.warnings())
        return self

    def score_samples(self, X: Vectors) -> Floats:
        """Return the log density at each row of ``X``, shape (n,), at least half a record's."""
        records = self._records(X)
        counts = _floored(self.sketch_.count(records))
        shares = counts / self.sketch_.divisor
        return np.asarray(np.log(shares))

    def score(self, X: Vectors, y: Any = None) -> float:
        """Return the sum of the log densities at ``X``; ``y`` is for pipelines only."""
        return float(self.score_samples(X).sum())


@_parameters
class RaceOutliers(base.OutlierMixin, _KernelEstimator):  # type: ignore[misc]
    """Outlier detection: places where few records lie (Coleman & Shrivastava 2020, Sec. 4).

    The threshold is ``fraction`` of the records' own mean density. That mean is read from the
    released sketch, so it costs nothing; a quantile of training scores would cost extra budget.

    Parameters
    ----------
    fraction : float
        (0, ∞); 0.1 calls a point an outlier where the density is a tenth of what a record has on
        average.
    hash, rows, width, epsilon, delta, neighbouring, seed
        As in :class:`RaceDensity`.

    Attributes
    ----------
    sketch_ : RaceSketch
    offset_ : float
        The threshold.

    >>> import numpy as np
    >>> from dpindex.race.hashes import PStable
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> model = RaceOutliers(PStable(4.0, hashes=4), rows=50, epsilon=5.0).fit(X)
    >>> model.predict([[0.0, 0.0], [40.0, 40.0]]).tolist()
    [1, -1]
    """

    fraction: float = 0.1

    def fit(self, X: Vectors, y: Any = None) -> RaceOutliers:
        """Sketch the records ``X``, shape (n, dim), and release; ``y`` is for pipelines only."""
        share = finite_number(self.fraction, "fraction", above=0.0)
        self.sketch_ = self._sketched(X)
        self.offset_ = share * self.sketch_.mean_density()
        _warn(self.sketch_.warnings())
        return self

    def score_samples(self, X: Vectors) -> Floats:
        """Return the density at each row of ``X``, shape (n,): the lower, the more abnormal."""
        records = self._records(X)
        return self.sketch_.density(records)

    def decision_function(self, X: Vectors) -> Floats:
        """Return ``score_samples(X) − offset_``: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Vectors) -> Longs:
        """Return −1 for the outliers among the rows of ``X``, +1 for the others, shape (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)


@_parameters
class RaceClassifier(base.ClassifierMixin, _KernelEstimator):  # type: ignore[misc]
    """Classification by the densest class around a query (Coleman & Shrivastava 2020, Sec. 4).

    Each class has a sketch of its own with the *whole* epsilon. A record has one class, so adding
    or removing it changes one sketch (parallel composition); replacing it may take R counts from
    one sketch and give R to another, together the 2R that replace is calibrated for. All sketches
    share their hash functions, so that errors of the partition cancel between classes.

    One warning: the set of labels is published in ``classes_``. A label that one record brought in
    would give that record away, so the set must be stated, and be public.

    Parameters
    ----------
    rule : "ml" or "map"
        Maximum likelihood compares densities; maximum a posteriori counts, which weighs classes by
        their size and so errs least often. The densities need the private size of each class, whose
        noise has a standard deviation of ``√(2·rows·width)/epsilon`` records (delta = 0): with
        "ml" keep that well below the smallest class, above all by a small ``width``; a size below
        it is read as equal to it.
    classes : sequence
        The public set of labels, stated without looking at the data. Records must have one of them.
    hash, rows, width, epsilon, delta, neighbouring, seed
        As in :class:`RaceDensity`, with fewer rows: a class has fewer records.

    Attributes
    ----------
    classes_ : array, shape (m,)
        Sorted labels.
    sketches_ : list of RaceSketch
        One released sketch for each of ``classes_``.

    >>> from dpindex.race import PStable, RaceClassifier
    >>> x = np.random.default_rng(0).normal(size=(4000, 2))
    >>> model = RaceClassifier(PStable(2.0), classes=[False, True], rows=100, epsilon=5.0)
    >>> model = model.fit(x, x[:, 0] > 0)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    [True, False]
    """

    rule: Literal["ml", "map"] = "ml"
    classes: Sequence[Any] | None = None
    rows: int | None = 100

    def fit(self, X: Vectors, y: Any) -> RaceClassifier:
        """Sketch every class and release: records ``X``, (n, dim), and labels ``y``, (n,).

        Raises
        ------
        InputError
            For labels that do not fit the records or the stated classes.
        """
        if self.rule not in ("ml", "map"):
            raise InputError(f"rule must be 'ml' or 'map', not {self.rule!r}.")
        records, labels = validate_data(self, X, y, accept_sparse="csr")
        check_classification_targets(labels)
        self.classes_: AnyArray = np.unique(self._public_classes(labels))
        if not np.isin(labels, self.classes_).all():
            raise InputError("y holds a label that is not in classes.")
        spec = self._kernel_spec()  # one object, whose hash functions are made once
        self.sketches_ = [self.new_sketch(spec) for _ in self.classes_]
        for label, sketch in zip(self.classes_, self.sketches_, strict=True):
            if label in labels:  # a public class without records still gets a noisy sketch
                sketch.fit(records[labels == label])
            sketch.release()
            _warn([f"class {label}: {sentence}" for sentence in sketch.warnings()])
        return self

    @property
    def guarantee_(self) -> Guarantee:
        """The promise of all sketches together about every training record."""
        check_is_fitted(self)
        return self.sketches_[0].guarantee

    def _public_classes(self, labels: AnyArray) -> Any:
        """The seam through which scikit-learn's own checks, which state none, get classes."""
        if self.classes is None:
            raise InputError(
                "RaceClassifier needs classes: the labels, which are published, stated without "
                "looking at the data; labels read from the data have no guarantee."
            )
        return self.classes

    def predict_proba(self, X: Vectors) -> Floats:
        """Return the share of each class in the densities (ml) or counts (map) at ``X``, (n, m)."""
        records = self._records(X)
        counts = [_floored(sketch.count(records)) for sketch in self.sketches_]
        scores = np.stack(counts, axis=1)
        if self.rule == "ml":
            # A class smaller than the noise of its size would win everywhere by dividing by little.
            scores /= [max(sketch.size, sketch.size_stderr, 1.0) for sketch in self.sketches_]
        total = scores.sum(axis=1, keepdims=True)
        return np.asarray(scores / total)

    def predict_log_proba(self, X: Vectors) -> Floats:
        """Return the logarithm of ``predict_proba(X)``."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Vectors) -> AnyArray:
        """Return the likeliest class of each row of ``X``, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])


@_parameters
class RaceRegressor(base.RegressorMixin, _SketchEstimator):  # type: ignore[misc]
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
    quadratic form whose loss it is, ``M = Σ zzᵀ/‖z‖²`` (:mod:`dpindex.race.explore`), and then
    takes θ by ridge regression, with the ridge set to M's own error. Both only read what has been
    released.

    Parameters
    ----------
    bounds_x, bounds_y : (low, high)
        *Public* ranges of the attributes (numbers, or one for each attribute) and of the target.
        They scale, they do not clip: privacy needs no bounds, precision does. ``fit`` warns if the
        released sketch shows that the data leave them, or shows no slope.
    solver : "moments" or "surrogate"
        See above.
    rows : int, optional
        By default 1000 ε, at most 10 000, and 10 000 with a delta. With delta = 0 about ``ε n / 5``
        of n records is best; with delta > 0 the more the better (10 000 rows are 20 000 counts).
    epsilon, delta, neighbouring, seed
        As in :class:`~dpindex.race.SketchSpec`.

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

    bounds_x: tuple[Any, Any] = (-1.0, 1.0)
    bounds_y: tuple[float, float] = (-1.0, 1.0)
    solver: Literal["moments", "surrogate"] = "moments"

    _sparse = False  # scaling moves every attribute

    def fit(self, X: Vectors, y: Any) -> RaceRegressor:
        """Sketch records ``X``, shape (n, dim), and targets ``y``, shape (n,), release, and solve.

        Raises
        ------
        InputError
            For targets that do not fit the records or the stated bounds.
        """
        if self.solver not in SOLVERS:
            raise InputError(f"solver must be 'moments' or 'surrogate', not {self.solver!r}.")
        x, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        dim = self.n_features_in_
        x_middle, x_reach = _scaling(self.bounds_x, "bounds_x", dim)
        (y_middle,), (y_reach,) = _scaling(self.bounds_y, "bounds_y", 1)
        u = (x - x_middle) / x_reach
        v = (target - y_middle) / y_reach
        z = np.column_stack([u, np.ones(len(u)), v])
        # Two columns hold the folded codes of two signs.
        spec = self._spec(dim + 2, 2, PairedSRP(2))
        self.sketch_ = self.new_sketch(spec).fit(z).release()
        signs = SignPairs.of_sketch(self.sketch_)
        _warn(_regression_warnings(signs.moments))
        theta = SOLVERS[self.solver](signs)
        self.coef_: Floats = theta[:-1] * y_reach / x_reach
        at_middle = y_middle + y_reach * theta[-1]
        self.intercept_ = float(at_middle - self.coef_ @ x_middle)
        return self

    def predict(self, X: Vectors) -> Floats:
        """Return the linear prediction of each row of ``X``, shape (n,)."""
        records = self._records(X)
        return np.asarray(records @ self.coef_ + self.intercept_)


def _scaling(
    bounds: tuple[Any, Any],
    name: str,
    dim: int,
) -> tuple[Floats, Floats]:
    """Return middle and half width of the bounds, shape (dim,) each."""
    low, high = box(bounds, name, dim)
    return (low + high) / 2, (high - low) / 2


def _regression_warnings(moments: Moments) -> list[str]:
    """Return a sentence if the data leave their bounds, or if no slope is above the noise.

    The moments are those of ``z = [x, 1, y]``, scaled to [−1, 1]. Inside the bounds no attribute is
    larger than the 1, so no entry on the diagonal of M is larger than that of the 1.
    """
    excess, errors = moments.diagonal_excess
    dim = len(excess) - 2
    outside = excess > ndtri(1.0 - _BLAME / (dim + 1)) * errors
    faults = [f"attribute {number} leaves bounds_x" for number in np.flatnonzero(outside[:dim])]
    if outside[-1]:
        faults.append("the target leaves bounds_y")
    if faults:
        return [
            f"Predictions will be far off, because the data are not inside the bounds: "
            f"{', '.join(faults)}; state the public range of each attribute (bounds_x) and of the "
            f"target (bounds_y)."
        ]
    form = moments.form
    unit = form[-2, -2]
    above_noise = False
    if unit > _CERTAIN * moments.error:
        # Without slopes this is chi-squared; an entry off the diagonal errs by 1/√2 of the error.
        mean = form[-2, -1] / unit
        of_targets = form[:-2, -1]
        of_ones = form[:-2, -2]
        slopes = of_targets - mean * of_ones
        statistic = 2.0 * float(slopes @ slopes) / moments.error**2
        above_noise = bool(chdtrc(dim, statistic) < _CHANCE)
    if above_noise:
        return []
    return [
        "The model may predict little more than the mean, or worse than it, because no slope "
        "is above the noise; take a larger epsilon, more records, fewer attributes, a delta with "
        "more rows (10 000), or tighter public bounds."
    ]
