"""The public description of a sketch, checked once, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpindex.errors import InputError
from dpindex.privacy import Guarantee
from dpindex.privacy.adjacency import Neighbouring, Records
from dpindex.race.checks import number, whole
from dpindex.race.hasher import Hasher
from dpindex.race.hashes import L2, SRP, Hash, PairedSRP, hash_from_json
from dpindex.race.noise import CountNoise, count_noise

__all__ = ["SketchGuarantee", "SketchSpec"]

_DEFAULT_WIDTH = 1000
_MAX_CELLS = 1 << 27
_MAX_DIRECTIONS = 1 << 28
_MIN_EPSILON, _MAX_EPSILON = 1e-3, 64.0
_MIN_DELTA = 1e-30


class SketchGuarantee(Guarantee):
    """What a released sketch promises about each record of its collection, to everyone.

    >>> str(SketchGuarantee(1.0, 0.0, "DP", Records("add-remove")))
    'epsilon = 1 (pure DP) under records(add-remove)'
    """

    adjacency: Records  # type: ignore[assignment]

    def protects(self) -> str:
        """One paragraph a lawyer could quote: what is promised, and to what extent."""
        slack = (
            f", except with a probability governed by delta = {self.delta:g}" if self.delta else ""
        )
        return (
            f"For {self.adjacency.describe()}: whoever holds the released sketch, its hash "
            f"functions and all parameters can learn about that change at most a factor of "
            f"exp(epsilon) = exp({self.epsilon:g}) in odds{slack}, however many queries are asked. "
            f"The guarantee is central: it holds against everyone who sees the sketch, not against "
            f"whoever built it."
        )

    def does_not_protect(self, dim: int) -> list[str]:
        """What stays visible or costs more than one epsilon, one clear line each."""
        growth = "" if self.delta == 0 else "; delta grows to m·exp((m−1)·epsilon)·delta"
        lines = [
            "the collection against whoever builds the sketch: that party sees the records",
            f"one person's several records: m of them cost m × {self.epsilon:g} (group "
            f"privacy{growth})",
            "a second sketch of the same records: epsilons and deltas add up",
            "facts that can be learnt from other people's records",
            "parameters chosen by looking at the records (bandwidth, scaling, class labels)",
            "queries: whoever answers them sees them",
        ]
        if self.adjacency.neighbouring == "replace":
            lines.append("how many records there are")
        return lines


@dataclass(frozen=True)
class SketchSpec:
    """Everything public about a sketch before its release; see :class:`~dpindex.race.RaceSketch`.

    >>> spec = SketchSpec(3, 100, 500, L2(20.0), 1.0)
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
    as_published: bool = False

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if not isinstance(self.hash, SRP | PairedSRP | L2):
            raise InputError("hash must be one of SRP(…), PairedSRP(…) and L2(…) of dpindex.race.")
        if self.width is None:
            codes = self.hash.codes
            set_(self, "width", min(codes, _DEFAULT_WIDTH) if codes else _DEFAULT_WIDTH)
        for name, least, most in (
            ("dim", 1, (1 << 31) - 1),
            ("rows", 1, 1 << 20),
            ("width", 2, 1 << 24),
            ("seed", 0, (1 << 63) - 1),
        ):
            set_(self, name, whole(getattr(self, name), name, least, most))
        if self.rows * self.columns > _MAX_CELLS:
            raise InputError(
                f"{self.rows} rows of {self.width} columns are more than 2^27 counts; take fewer."
            )
        if self.rows * self.hash.directions * self.dim > _MAX_DIRECTIONS:
            raise InputError(
                f"{self.rows} rows of {self.hash.directions} directions in {self.dim} dimensions "
                f"are more than 2^28 numbers; take fewer rows, bits or hashes, or project first."
            )
        set_(self, "epsilon", number(self.epsilon, "epsilon"))
        set_(self, "delta", number(self.delta, "delta"))
        if not _MIN_EPSILON <= self.epsilon <= _MAX_EPSILON:
            raise InputError(
                f"epsilon must lie in [{_MIN_EPSILON:g}, {_MAX_EPSILON:g}], not {self.epsilon:g}."
            )
        if self.delta != 0 and not _MIN_DELTA <= self.delta < 1:
            raise InputError(f"delta must be 0 or lie in [1e-30, 1), not {self.delta:g}.")
        Records(self.neighbouring)
        if not isinstance(self.as_published, bool):
            raise InputError(f"as_published must be true or false, not {self.as_published!r}.")
        if self.as_published and self.delta:
            raise InputError(
                "the published law is Laplace's, which has delta = 0; leave delta out."
            )

    @property
    def columns(self) -> int:
        """Counts a row."""
        return self.width or 0

    @property
    def guarantee(self) -> SketchGuarantee:
        return SketchGuarantee(self.epsilon, self.delta, "DP", Records(self.neighbouring))  # type: ignore[arg-type]

    @cached_property
    def hasher(self) -> Hasher:
        """The hash functions, made when first needed."""
        return Hasher(self.hash, self.dim, self.rows, self.columns, self.seed)

    @property
    def noise(self) -> CountNoise:
        """The law of the noise that release adds to every count."""
        return count_noise(
            self.epsilon, self.delta, self.rows, self.columns, self.neighbouring, self.as_published
        )

    def same_hashes(self, other: SketchSpec) -> bool:
        """Whether records fall into the same places of both sketches."""
        ours = (self.dim, self.rows, self.width, self.hash, self.seed)
        return ours == (other.dim, other.rows, other.width, other.hash, other.seed)

    def to_json(self) -> dict[str, Any]:
        return {
            "dim": self.dim,
            "rows": self.rows,
            "width": self.width,
            "hash": self.hash.to_json(),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbouring": self.neighbouring,
            "seed": self.seed,
            "as_published": self.as_published,
        }

    @classmethod
    def from_json(cls, data: Any) -> SketchSpec:
        """The inverse of ``to_json``; raises InputError on anything else."""
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise InputError("the description of a sketch has missing or unknown fields.")
        return cls(**{**data, "hash": hash_from_json(data["hash"])})
