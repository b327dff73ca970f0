"""The public parameters of a sketch, and what they say of its errors."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dpindex.base.arrays import Floats, Vectors
from dpindex.base.checks import (
    checked_delta,
    checked_epsilon,
    checked_fields,
    finite_number,
    from_kind,
    real_matrix,
    whole_number,
)
from dpindex.base.errors import InputError
from dpindex.data import Ranges
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.gaussian import CHANGES, count_noise
from dpindex.privacy import Guarantee, Neighbouring, Records
from dpindex.race.hashes import FAMILIES, Hash, Hasher

_DEFAULT_WIDTH = 1000
_MAX_CELLS = 1 << 27
_MAX_DIRECTIONS = 1 << 28


@dataclass(frozen=True)
class SketchSpec:
    """Everything public about a sketch before its release.

    Parameters
    ----------
    dim : int
        Attributes of a record, [1, 2^31).
    rows : int
        R, [1, 2^20]. More rows average more partitions, but with delta = 0 the noise of the mean
        grows as √R: see :func:`optimal_rows`.
    width : int or None
        W, columns a row, [2, 2^24]. Hash codes beyond W are hashed again to W columns, and the
        chance collisions that brings (1/W) are corrected on reading. None: all codes of a sign
        hash up to 1000, else 1000.
    hash : SRP, PairedSRP or PStable
        The kernel, and so the question.
    epsilon : float
        Budget of the one release, [0.001, 64].
    delta : float
        0 for pure epsilon (rounded Laplace noise), or in (0, 1) (rounded Gaussian noise, which pays
        √R where the pure law pays R).
    neighbouring : "add-remove" or "replace"
        How neighbouring collections differ; replace needs twice the noise.
    seed : int
        Public seed of the hash functions, [0, 2^63).
    ranges : Ranges, optional
        Public ranges of the columns of a table, each of which becomes 0 … 1 before records and
        queries are hashed: distances, and so the bandwidth, are those of scaled columns.

    Raises
    ------
    InputError
        One sentence for any parameter that has no guarantee.

    >>> from dpindex.race import PStable
    >>> spec = SketchSpec(dim=3, rows=100, width=500, hash=PStable(20.0), epsilon=1.0)
    >>> str(spec.guarantee)
    'epsilon = 1 (pure DP) under records(add-remove)'
    >>> SketchSpec.from_dict(spec.to_dict()) == spec
    True
    """

    dim: int
    rows: int
    width: int | None
    hash: Hash
    epsilon: float
    delta: float = 0.0
    neighbouring: Neighbouring = "add-remove"
    seed: int = 0
    ranges: Ranges | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.hash, Hash):
            raise InputError("hash must be SRP(…), PairedSRP(…) or PStable(…) of dpindex.race.")
        width = self.width
        if width is None:
            width = min(self.hash.codes or _DEFAULT_WIDTH, _DEFAULT_WIDTH)
        delta = 0.0
        if self.delta != 0:
            delta = checked_delta(self.delta, "Gaussian noise")
        checked = {
            "dim": whole_number(self.dim, "dim", 1, (1 << 31) - 1),
            "rows": whole_number(self.rows, "rows", 1, 1 << 20),
            "width": whole_number(width, "width", 2, 1 << 24),
            "epsilon": checked_epsilon(self.epsilon),
            "delta": delta,
            "seed": whole_number(self.seed, "seed", 0, (1 << 63) - 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        Records(self.neighbouring)
        if not isinstance(self.ranges, Ranges | None):
            raise InputError("ranges must be a dpindex.Ranges.")
        if self.ranges is not None:
            self.ranges.check_columns(self.dim, "the spec")
        if self.rows * self.columns > _MAX_CELLS:
            raise InputError(
                f"{self.rows} rows of {self.width} columns are more than 2^27 counts; take fewer."
            )
        if self.rows * self.hash.directions * self.dim > _MAX_DIRECTIONS:
            raise InputError(
                f"{self.rows} rows of {self.hash.directions} directions in {self.dim} dimensions "
                f"are more than 2^28 numbers; take fewer rows, bits or hashes, or project first."
            )

    @property
    def columns(self) -> int:
        """Counts a row: ``width``, resolved."""
        return self.width or 0

    @property
    def guarantee(self) -> Guarantee:
        """The promise of one release about each record of the collection."""
        return Guarantee(self.epsilon, self.delta, "DP", Records(self.neighbouring))

    @cached_property
    def hasher(self) -> Hasher:
        """The hash functions, made when first needed."""
        return Hasher(self.hash, self.dim, self.rows, self.columns, self.seed)

    @cached_property
    def law(self) -> AdditiveNoise:
        """The law of the noise that release adds to every count."""
        return count_noise(
            self.epsilon,
            self.delta,
            self.rows,
            self.columns,
            self.neighbouring,
        )

    def vectors(self, x: Vectors, name: str) -> Any:
        """Return records or queries ``x`` as they are hashed, shape (n, dim), values unchecked.

        ``name`` is what messages call them.
        """
        rows = real_matrix(x, self.dim, name, min_rows=0)
        if self.ranges is None or not rows.shape[0]:
            return rows
        self.ranges.check_frame(x, name)
        return self.ranges.scale(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values; ranges only where there are some."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["hash"] = self.hash.to_dict()
        ranges = data.pop("ranges")
        if ranges is not None:
            data["ranges"] = ranges.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Any) -> SketchSpec:
        """Return the inverse of ``to_dict``; InputError if ``data`` is anything else."""
        values = dict(checked_fields(data, cls, "the spec of a sketch"))
        values["hash"] = from_kind(values["hash"], FAMILIES, "hash")
        if values.get("ranges") is not None:
            values["ranges"] = Ranges.from_dict(values["ranges"])
        return cls(**values)

    def to_json(self) -> str:
        """Return canonical JSON: equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)


def optimal_rows(
    expected_count: float,
    epsilon: float,
    neighbouring: Neighbouring = "add-remove",
    delta: float = 0.0,
) -> int:
    """Return the rows that make the error bound least under pure epsilon: Corollary 1.

    ``R = ⌈f̃ ε/√2⌉`` with ``f̃ = Σ_x √k(x, q)`` at a typical query, which must be *publicly* known:
    choosing it from the data would spend budget that nobody counted. Under replace a record costs
    twice, so ε/2 takes the place of ε. With delta > 0 there is no such optimum, and InputError: the
    noise of the mean does not grow with R, and every further row helps.

    Parameters
    ----------
    expected_count : float
        f̃, (0, ∞).
    epsilon : float
        Budget of the release, (0, ∞).
    neighbouring : "add-remove" or "replace"
        What neighbouring collections differ in.
    delta : float
        0, the only one with an optimum.

    >>> optimal_rows(1000, 1.0)
    708
    """
    if delta:
        raise InputError(
            "with delta > 0 every further row helps and there is no best number; give rows."
        )
    count = finite_number(expected_count, "expected_count", above=0.0)
    best = count * checked_epsilon(epsilon) / CHANGES[Records(neighbouring).neighbouring]
    rows = finite_number(best / math.sqrt(2), "the best number of rows")
    return max(1, math.ceil(rows))


def mean_groups(rows: int, failure: float) -> int:
    """Return the groups of the median of means, ``⌈8 log(1/δ')⌉`` (Lemma 2).

    δ' is the failure probability.
    """
    if finite_number(failure, "failure", above=0.0) >= 1:
        raise InputError(f"failure must lie in (0, 1), not {failure!r}.")
    groups = math.ceil(8 * math.log(1 / failure))
    if groups > rows:
        raise InputError(
            f"a median of means that fails with probability {failure:g} needs {groups} rows; "
            f"this sketch has {rows}: use the mean, or allow failure more often."
        )
    return groups


def error_bound(
    root_kernel_sum: Floats, rows: int, noise_variance: float, failure: float
) -> Floats:
    """Return a bound on the error of the median of means.

    It holds with probability 1 − ``failure``.

    Theorem 4: one row has variance at most ``σ² = f̃² + noise``. The mean of the smallest group, of
    ``m = ⌊R/groups⌋`` rows, misses by more than ``2σ/√m`` with probability at most ¼ (Chebyshev),
    and the median of the groups with at most ``failure`` (Hoeffding). Where the groups divide R
    this is the paper's ``√(f̃²/R + 2R/ε²) √(32 log 1/δ')``.

    Parameters
    ----------
    root_kernel_sum : array, shape (nq,)
        ``f̃ = Σ_x √k(x, q)`` of each query.
    rows : int
        R, rows of the sketch.
    noise_variance : float
        Of the noise in one count.
    failure : float
        Probability that the bound is exceeded, (0, 1).

    >>> import numpy as np
    >>> error_bound(np.array([1000.0]), rows=800, noise_variance=2 * 800.0**2, failure=0.05).round()
    array([526.])
    """
    smallest = rows // mean_groups(rows, failure)
    deviation = (root_kernel_sum**2 + noise_variance) ** 0.5
    return 2.0 * deviation / math.sqrt(smallest)
