"""Locality-sensitive hashes whose collision probability is a known kernel.

The kernel of a hash *is* the question a sketch answers: it estimates ``Σ_x k(x, q)``. Choose
:class:`SRP` where direction matters and length does not (embeddings), :class:`L2` where distance
matters (measurements, pixels), :class:`PairedSRP` where x and −x mean the same (regression).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dpindex.errors import InputError
from dpindex.race.checks import number, whole

__all__ = ["L2", "SRP", "Hash", "PairedSRP", "hash_from_json", "kernel_sum"]

Doubles: TypeAlias = npt.NDArray[np.float64]

_MAX_BITS = 31
_MAX_HASHES = 16
_KERNEL_PAIRS = 1 << 22


@dataclass(frozen=True)
class SRP:
    """Signed random projections: ``bits`` signs of Gaussian projections, concatenated.

    ``k(x, q) = (1 − θ/π)^bits``, θ the angle between x and q (Charikar 2002). More bits make a
    narrower kernel. Lengths do not matter; a zero vector gets the code of all ones.
    """

    bits: int
    kind: ClassVar[str] = "srp"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", whole(self.bits, "bits", 1, _MAX_BITS))

    @property
    def directions(self) -> int:
        """Random directions that one hash value needs."""
        return self.bits

    @property
    def codes(self) -> int | None:
        """How many codes there are; None stands for without bound."""
        return 1 << self.bits

    def kernel(self, x: Any, q: Any) -> Doubles:
        """``k`` of every pair, shape (len(q), len(x)), in [0, 1]."""
        return np.asarray((1.0 - _angles(x, q) / math.pi) ** self.bits)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "bits": self.bits}


@dataclass(frozen=True)
class PairedSRP:
    """SRP of x and −x at once: two vectors collide when their codes are equal or opposite.

    ``k(x, q) = (1 − θ/π)^bits + (θ/π)^bits``, least where q is orthogonal to x: the surrogate of
    the squared inner product that Coleman & Shrivastava (2020, Sec. 4) get by hashing x and −x.
    Hashing both adds two counts a row for each record, a sensitivity of 2R. But the code of −x is
    the complement of the code of x, so the two counts always say the same: folding complementary
    codes into one column keeps the loss and halves the sensitivity, to one count a row.
    """

    bits: int
    kind: ClassVar[str] = "paired-srp"

    def __post_init__(self) -> None:
        # One bit would give the constant kernel 1.
        object.__setattr__(self, "bits", whole(self.bits, "bits", 2, _MAX_BITS))

    @property
    def directions(self) -> int:
        return self.bits

    @property
    def codes(self) -> int | None:
        return 1 << (self.bits - 1)

    def kernel(self, x: Any, q: Any) -> Doubles:
        """``k`` of every pair, shape (len(q), len(x)), in (0, 1]."""
        turns = _angles(x, q) / math.pi
        return np.asarray((1.0 - turns) ** self.bits + turns**self.bits)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "bits": self.bits}


@dataclass(frozen=True)
class L2:
    """The p-stable hash of Euclidean distance: ``⌊(a·x + b)/bandwidth⌋``, ``hashes`` concatenated.

    With c = ‖x − q‖ and w the bandwidth, in the units of the data,
    ``k = (1 − 2Φ(−w/c) − 2c/(√(2π) w) · (1 − e^{−w²/2c²}))^hashes`` (Datar et al. 2004). More
    hashes make lighter tails; at a distance of one bandwidth one hash still collides with 0.37.
    """

    bandwidth: float
    hashes: int = 1
    kind: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", number(self.bandwidth, "bandwidth", above=0.0))
        object.__setattr__(self, "hashes", whole(self.hashes, "hashes", 1, _MAX_HASHES))

    @property
    def directions(self) -> int:
        return self.hashes

    @property
    def codes(self) -> int | None:
        return None

    def kernel(self, x: Any, q: Any) -> Doubles:
        """``k`` of every pair, shape (len(q), len(x)), in [0, 1]."""
        ratio = _distances(x, q) / self.bandwidth
        return np.asarray(_stable_collision(ratio) ** self.hashes)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "bandwidth": self.bandwidth, "hashes": self.hashes}


Hash: TypeAlias = SRP | PairedSRP | L2

_KINDS: dict[str, tuple[type[SRP] | type[PairedSRP] | type[L2], set[str]]] = {
    SRP.kind: (SRP, {"bits"}),
    PairedSRP.kind: (PairedSRP, {"bits"}),
    L2.kind: (L2, {"bandwidth", "hashes"}),
}


def hash_from_json(data: Any) -> Hash:
    """The inverse of ``to_json``; raises InputError on anything else."""
    if isinstance(data, dict) and isinstance(data.get("kind"), str) and data["kind"] in _KINDS:
        cls, names = _KINDS[data["kind"]]
        if set(data) == {"kind", *names}:
            return cls(**{name: data[name] for name in names})
    raise InputError("the hash must be one of srp, paired-srp and l2 with its parameters.")


def kernel_sum(hash: Hash, x: Any, q: Any) -> Doubles:
    """``Σ_x k(x, q)`` for every query, computed exactly from all records: *not private*.

    What a sketch estimates, for tests and for tuning on public data. Shapes (n, dim) and (nq, dim)
    to (nq,); memory is bounded, time is n · nq · dim.

    >>> kernel_sum(SRP(2), np.eye(2), np.array([[1.0, 0.0]])).tolist()
    [1.25]
    """
    x, q = np.atleast_2d(np.asarray(x)), np.atleast_2d(np.asarray(q))
    total = np.zeros(len(q))
    step = max(1, _KERNEL_PAIRS // max(1, len(q)))
    for start in range(0, len(x), step):
        total += hash.kernel(x[start : start + step], q).sum(axis=1)
    return total


def _angles(x: Any, q: Any) -> Doubles:
    x, q = np.asarray(x, dtype=np.float64), np.asarray(q, dtype=np.float64)
    norms = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(x, axis=1)
    cosines = np.divide(q @ x.T, norms, out=np.zeros(norms.shape), where=norms > 0)
    return np.asarray(np.arccos(np.clip(cosines, -1.0, 1.0)))


def _distances(x: Any, q: Any) -> Doubles:
    x, q = np.asarray(x, dtype=np.float64), np.asarray(q, dtype=np.float64)
    # Centred first: |x|² + |q|² − 2x·q cancels less.
    middle = q.mean(axis=0)
    x, q = x - middle, q - middle
    squares = (q**2).sum(axis=1)[:, None] + (x**2).sum(axis=1) - 2.0 * (q @ x.T)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def _stable_collision(ratio: Doubles) -> Doubles:
    """Collision probability of one p-stable hash at distance ``ratio`` bandwidths."""
    c = np.maximum(ratio, 1e-12)
    edge = -np.expm1(-0.5 / c**2)
    return np.asarray(1.0 - 2.0 * ndtr(-1.0 / c) - math.sqrt(2.0 / math.pi) * c * edge)
