"""A scikit-learn transformer from vectors to private codes."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpindex.base.arrays import Vectors
from dpindex.base.errors import InputError, QualityWarning
from dpindex.data import Ranges
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec, doubts
from dpindex.privacy import attribute

__all__ = ["PrivateProjection"]


_DEFAULTS = {"epsilon": 1.0, "adjacency": None, "clip": None}
"""Where a transformer's defaults are not those of a spec."""


def _constructor() -> Signature:
    """Return the constructor's signature: the fields of a spec but ``dim``, which data give."""
    self_ = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    method = self_.replace(name="method", default="dp-oporp-staircase")
    keywords = [
        Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(field.name, field.default)
        )
        for field in fields(Spec)
        if field.name not in ("method", "dim")
    ]
    allow = Parameter("allow_unprotected", Parameter.KEYWORD_ONLY, default=False)
    ranges = Parameter("ranges", Parameter.KEYWORD_ONLY, default=None)
    return Signature([self_, method, *keywords, ranges, allow])


class PrivateProjection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transform rows to differentially private codes, for example to train a classifier on them.

    Every call of ``transform`` or ``fit_transform`` draws fresh secret noise and *spends the budget
    of every row again*: transform once and keep the result. ``GridSearchCV`` over c candidates in f
    folds spends (c·f + 1)·epsilon of every row; a warning says so once. The noise is not
    reproducible, so there is no ``random_state``; ``seed`` is that of the public projection.

    Parameters
    ----------
    method : str
        A name from :func:`dpindex.methods`.
    k : int, optional
        Length of a code; default the method's, which for ``dp-oporp-*`` keeps every column of a
        table of up to 128.
    epsilon, delta : float
        Budget of one transformation of one row.
    adjacency : Attribute, L2 or Record, optional
        What neighbouring rows may differ in; default one attribute by at most 1.
    clip : bool, optional
        Clip rows to ``bounds`` without a word, or refuse rows outside them; default clip, where a
        method has bounds. Bring the columns of a table inside first, as by ``ranges``.
    ranges : dpindex.data.Ranges or path, optional
        Public ranges of the columns, which are brought to 0 … 1 first: take ``bounds=(0, 1)``.
    allow_unprotected : bool
        Allow a ``none-*`` baseline, whose codes are exact projections.
    repetitions, scale, bounds, min_norm, norm, seed, entries, sparsity, codebook, subset
        As in :class:`dpindex.Spec`.

    Attributes
    ----------
    spec_ : Spec
        The spec with these parameters for the width of the input. Nothing else is learned.
    ranges_ : Ranges or None
        The ranges that were given.
    n_features_in_ : int
        Columns of the input of ``fit``.

    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> X = np.repeat([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], 200, axis=0)
    >>> y = np.repeat([0, 1], 200)
    >>> model = make_pipeline(PrivateProjection(k=4, epsilon=8.0), RidgeClassifier())
    >>> bool(model.fit(X, y).score(X, y) > 0.8)
    True
    """

    expected_failed_checks: ClassVar[dict[str, str]] = {
        "check_estimators_pickle": "compares two transformations, which differ: the noise is fresh",
        "check_fit_idempotent": "compares two transformations, which differ: the noise is fresh",
    }
    """Checks of scikit-learn's ``check_estimator`` that fail, and why."""

    _clones = 0
    """Clones that were made of this transformer."""
    _number = 0
    """Which clone of another transformer this is, from 1."""

    def __init__(self, method: str = "dp-oporp-staircase", **parameters: Any) -> None:
        bound = signature(type(self)).bind(method, **parameters)
        bound.apply_defaults()
        # scikit-learn looks up every parameter under its own name.
        self.__dict__.update(bound.arguments)

    __init__.__signature__ = _constructor()  # type: ignore[attr-defined]

    def fit(self, X: Vectors, y: Any = None) -> PrivateProjection:
        """Make the spec for the width of ``X``. Values are checked; nothing is learned from them.

        ``y`` is there for pipelines only.

        Raises
        ------
        ValueError
            For bad input; InputError (a ValueError) for parameters that have no guarantee.

        Warns
        -----
        QualityWarning
            For a beta that is a small part of the bounds, and a delta above one over the rows.
        """
        rows = validate_data(self, X, accept_sparse=("csr", "csc"))
        parameters = self.get_params(deep=False)
        del parameters["allow_unprotected"]
        self.ranges_ = _read_ranges(parameters.pop("ranges"))
        if self.ranges_ is not None:
            self.ranges_.scale(rows[:1])  # refuses another number of columns
        if parameters["adjacency"] is None:
            parameters["adjacency"] = attribute(1.0)
        if parameters["clip"] is None:
            parameters["clip"] = find_method(self.method).calibration.rounded
        self.spec_ = Spec(dim=rows.shape[1], **parameters)
        for sentence in doubts(self.spec_, rows.shape[0]):
            warnings.warn(f"{sentence}.", QualityWarning, stacklevel=2)
        return self

    def transform(self, X: Vectors) -> npt.NDArray[np.float32]:
        """Return private codes of ``X`` as float32, shape (n, k).

        They are unbiased projections, ±1 for sign methods, or codewords, shape (n, dim), for
        methods with a codebook.

        Spends the budget of every row. Raises the errors of ``fit``, and NotFittedError before it.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, accept_sparse=("csr", "csc"), reset=False)
        if self.ranges_ is not None:
            rows = self.ranges_.scale(rows)
        privatizer = Privatizer(self.spec_, allow_unprotected=self.allow_unprotected)
        if self._number == 2 and privatizer.spec.method_row.private:
            self._number = 0
            _warn_of_search(self.spec_.budget)
        return privatizer.privatize(rows).to_float()

    def __sklearn_clone__(self) -> PrivateProjection:
        """Return a clone that knows how many there are: searches and folds fit one each."""
        clone: PrivateProjection = super().__sklearn_clone__()
        self._clones += 1
        clone._number = self._clones
        return clone

    @property
    def _n_features_out(self) -> int:
        return self.spec_.format.decoded_width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _read_ranges(ranges: Any) -> Ranges | None:
    """Return the ranges that were given, or those in the file of that name."""
    if isinstance(ranges, str | os.PathLike):
        return Ranges.read(ranges)
    if not isinstance(ranges, Ranges | None):
        raise InputError(
            f"ranges must be a dpindex.data.Ranges or the path of a .csv file, not {ranges!r}."
        )
    return ranges


def _warn_of_search(epsilon: float) -> None:
    warnings.warn(
        f"every fit of a clone privatizes the rows anew: cross-validation in f folds spends "
        f"f·epsilon of each row, and a search over c candidates (c·f + 1)·epsilon, which is "
        f"{16 * epsilon:g} for three candidates at epsilon = {epsilon:g} in five folds; transform "
        f"once with epsilon = {epsilon:g}, and search over what learns from the codes.",
        UserWarning,
        stacklevel=3,
    )
