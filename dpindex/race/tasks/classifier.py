"""Classification by kernel densities: one sketch a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from dpindex.arrays import AnyArray, Floats, Vectors
from dpindex.errors import InputError
from dpindex.privacy.adjacency import Neighbouring
from dpindex.race.hashes import Hash
from dpindex.race.sketch import RaceSketch
from dpindex.race.tasks.base import KernelEstimator, floored

__all__ = ["RaceClassifier"]


class RaceClassifier(ClassifierMixin, KernelEstimator):  # type: ignore[misc]
    """The class whose records are densest around the query (Coleman & Shrivastava 2020, Sec. 4).

    Each class has a sketch of its own with the *whole* epsilon. A record has one class, so adding
    or removing it changes one sketch (parallel composition); replacing it may take R counts from
    one sketch and give R to another, together the 2R that replace is calibrated for. All sketches
    share their hash functions, so that errors of the partition cancel between classes.

    One warning: the set of labels is published. State it in ``classes`` if a label's mere presence
    could say something about one person.

    Parameters
    ----------
    rule : "ml" or "map"
        Maximum likelihood compares densities; maximum a posteriori counts, which weighs classes by
        their size and so errs least often. The densities need the private size of each class, whose
        noise has a standard deviation of ``√(2·rows·width)/epsilon`` records (delta = 0): with
        "ml" keep that well below the smallest class, above all by a small ``width``; a size below
        it is read as equal to it.
    classes : sequence, optional
        The public set of labels; default the labels in ``y``.
    hash, rows, width, epsilon, delta, neighbouring, seed
        As in :class:`RaceDensity`, with fewer rows and columns: a class has fewer records.

    Attributes
    ----------
    classes_ : array, shape (m,)
        Sorted labels.
    sketches_ : list of RaceSketch
        One released sketch for each of ``classes_``.

    >>> from dpindex.race import L2, RaceClassifier
    >>> x = np.random.default_rng(0).normal(size=(4000, 2))
    >>> model = RaceClassifier(L2(2.0), rows=100, epsilon=5.0).fit(x, x[:, 0] > 0)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    [True, False]
    """

    _fitted = "sketches_"

    def __init__(
        self,
        hash: Hash | None = None,
        *,
        rule: Literal["ml", "map"] = "ml",
        classes: Sequence[Any] | None = None,
        rows: int = 100,
        width: int | None = 200,
        epsilon: float = 1.0,
        delta: float = 0.0,
        neighbouring: Neighbouring = "add-remove",
        seed: int = 0,
    ) -> None:
        super().__init__(
            hash,
            rows=rows,
            width=width,
            epsilon=epsilon,
            delta=delta,
            neighbouring=neighbouring,
            seed=seed,
        )
        self.rule = rule
        self.classes = classes

    def fit(self, X: Vectors, y: Any) -> RaceClassifier:
        """Sketch every class, records (n, dim) and labels (n,), and release."""
        if self.rule not in ("ml", "map"):
            raise InputError(f"rule must be 'ml' or 'map', not {self.rule!r}.")
        records, labels = validate_data(self, X, y, accept_sparse="csr")
        check_classification_targets(labels)
        self.classes_: AnyArray = np.unique(labels if self.classes is None else self.classes)
        if not np.isin(labels, self.classes_).all():
            raise InputError("y holds a label that is not in classes.")
        self.sketches_ = [self._kernel_sketch() for _ in self.classes_]
        for label, sketch in zip(self.classes_, self.sketches_, strict=True):
            members = labels == label
            if members.any():  # a public class without records still gets a noisy sketch
                sketch.fit(records[members])
            sketch.release()
        return self

    def predict_proba(self, X: Vectors) -> Floats:
        """Share of each class in the sum of the densities (ml) or counts (map), shape (n, m)."""
        records = self._records(X)
        scores = np.stack([floored(sketch.count(records)) for sketch in self.sketches_], axis=1)
        if self.rule == "ml":
            # A class smaller than the noise of its size would win everywhere by dividing by little.
            scores /= [max(sketch.size, sketch.size_stderr, 1.0) for sketch in self.sketches_]
        shares: Floats = scores / scores.sum(axis=1, keepdims=True)
        return shares

    def predict_log_proba(self, X: Vectors) -> Floats:
        """Logarithm of ``predict_proba``."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Vectors) -> AnyArray:
        """The likeliest class of each row, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        winners: AnyArray = self.classes_[best]
        return winners

    def _any_sketch(self) -> RaceSketch:
        first: RaceSketch = self.sketches_[0]
        return first
