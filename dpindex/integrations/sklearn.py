"""A scikit-learn transformer from vectors to private codes."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dpindex.base.arrays import Singles, Vectors
from dpindex.base.errors import QualityWarning
from dpindex.data import Ranges
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.promises import quality_warnings
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.spec import Spec
from dpindex.mechanism.variants import Variant
from dpindex.privacy import VectorAdjacency
from dpindex.storage.history import release_in_memory

__all__ = ["PrivateProjection"]


@dataclass(eq=False, repr=False)
class PrivateProjection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transform rows to differentially private codes, for example to train a classifier on them.

    Every call of ``transform`` or ``fit_transform`` draws fresh secret noise and *spends the budget
    of every row again*: transform once, and search over what learns from the codes. Inside a
    pipeline, cross-validation in f folds spends f·epsilon of every row, and ``GridSearchCV`` over c
    candidates (c·f + 1)·epsilon: 16·epsilon for three candidates in five folds. The noise is not
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
    adjacency : Attribute, L2 or Record
        What neighbouring rows may differ in; ``fit`` refuses None, as there is no harmless default.
    clip : bool, optional
        Clip rows to ``bounds`` without a word, or refuse rows outside them; default clip, where a
        method has bounds. Bring the columns of a table inside first, as by ``ranges``.
    allow_unprotected : bool
        Allow a ``none-*`` baseline, whose codes are exact projections.
    skip_leak_check : bool
        Accept a public part that is made of the rows: see :mod:`dpindex.storage.leak_check`.
    scale, ranges, bounds, norm, seed, variant, codebook, subset, design, record_epsilon, window
        As in :class:`dpindex.Spec`.

    Attributes
    ----------
    spec_ : Spec
        The spec with these parameters for the width of the input. Nothing else is learned.
    n_features_in_ : int
        Columns of the input of ``fit``.

    >>> import dpindex as dpi
    >>> from sklearn.linear_model import RidgeClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> import numpy as np
    >>> X = np.repeat([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], 200, axis=0)
    >>> y = np.repeat([0, 1], 200)
    >>> terms = {"epsilon": 8.0, "adjacency": dpi.attribute(beta=1.0)}
    >>> model = make_pipeline(PrivateProjection(k=4, **terms), RidgeClassifier())
    >>> bool(model.fit(X, y).score(X, y) > 0.8)
    True
    """

    expected_failed_checks: ClassVar[dict[str, str]] = {
        "check_estimators_pickle": "compares two transformations, which differ: the noise is fresh",
        "check_fit_idempotent": "compares two transformations, which differ: the noise is fresh",
    }
    """Checks of scikit-learn's ``check_estimator`` that fail, and why."""

    method: str = "dp-oporp-staircase"
    _: KW_ONLY
    k: int | None = None
    epsilon: float | None = 1.0
    delta: float = 0.0
    adjacency: VectorAdjacency | None = None
    scale: float = 1.0
    bounds: tuple[float, float] = (-1.0, 1.0)
    clip: bool | None = None
    norm: float | None = None
    seed: int = 0
    variant: Variant | None = None
    codebook: Codebook | None = None
    subset: int | None = None
    design: Design | None = None
    record_epsilon: float | None = None
    window: float | None = None
    ranges: Ranges | None = None
    allow_unprotected: bool = False
    skip_leak_check: bool = False

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
        del parameters["allow_unprotected"], parameters["skip_leak_check"]
        if parameters["clip"] is None:
            parameters["clip"] = find_method(self.method).calibration.rounded
        if self.variant is None:  # scikit-learn wants defaults of plain types
            del parameters["variant"]
        self.spec_ = Spec(dim=rows.shape[1], **parameters)
        if self.ranges is not None:
            self.ranges.check_frame(X, "X")
        for sentence in quality_warnings(self.spec_, rows.shape[0]):
            warnings.warn(f"{sentence}.", QualityWarning, stacklevel=2)
        return self

    def transform(self, X: Vectors) -> Singles:
        """Return private codes of ``X`` as float32, shape (n, k).

        They are unbiased projections, ±1 for sign methods, or codewords, shape (n, dim), for
        methods with a codebook.

        Spends the budget of every row. Raises the errors of ``fit``, NotFittedError before it, and
        InputError for a codebook that is made of the rows.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, accept_sparse=("csr", "csc"), reset=False)
        privatizer = Privatizer(self.spec_, allow_unprotected=self.allow_unprotected)
        skip = self.skip_leak_check
        codes, _ = release_in_memory(rows, privatizer, skip_leak_check=skip)
        return codes.to_float()

    @property
    def _n_features_out(self) -> int:
        return self.spec_.format.decoded_width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = []
        return tags
