"""The public parameters of a sketch, checked once, and what it promises."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dpindex.base.checks import (
    checked_delta,
    checked_epsilon,
    checked_fields,
    json_value,
    whole_number,
)
from dpindex.base.errors import InputError
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.counts import count_noise
from dpindex.privacy import Guarantee, Neighbouring, Records
from dpindex.race.hashes import Hash, Hasher, hash_from_dict

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
        0 for pure epsilon (two-sided geometric noise), or in (0, 1) (rounded Gaussian noise, which
        pays √R where the pure law pays R).
    neighbouring : "add-remove" or "replace"
        How neighbouring collections differ; replace needs twice the noise.
    seed : int
        Public seed of the hash functions, [0, 2^63).

    Raises
    ------
    InputError
        One sentence for any parameter that has no guarantee.

    >>> from dpindex.race import PStable
    >>> spec = SketchSpec(dim=3, rows=100, width=500, hash=PStable(20.0), epsilon=1.0)
    >>> str(spec.guarantee)
    'epsilon = 1 (pure DP) under records(add-remove)'
    >>> SketchSpec.from_json(spec.to_json()) == spec
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
        return count_noise(self.epsilon, self.delta, self.rows, self.columns, self.neighbouring)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {**asdict(self), "hash": self.hash.to_dict()}

    @classmethod
    def from_dict(cls, data: Any) -> SketchSpec:
        """Return the inverse of ``to_dict``; InputError if ``data`` is anything else."""
        values = dict(checked_fields(data, cls, "the spec of a sketch"))
        values["hash"] = hash_from_dict(values["hash"])
        return cls(**values)

    def to_json(self) -> str:
        """Return canonical JSON: equal specs give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> SketchSpec:
        """Return the inverse of ``to_json``; InputError if ``text`` is anything else."""
        return cls.from_dict(json_value(text, "the spec of a sketch"))
