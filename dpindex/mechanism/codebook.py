"""A public codebook: vectors of a public sample that private records are compared with."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Floats,
    Singles,
    in_units_of_largest,
    issparse,
    spaced,
    unit,
)
from dpindex.base.checks import real_matrix, whole_number
from dpindex.base.errors import InputError
from dpindex.base.files import pack, unpack
from dpindex.vectors import as_source, dense_rows, open_vectors

__all__ = ["RADIUS", "Codebook", "on_sphere_grid"]

MIN_SIZE = 2
MAX_SIZE = 1 << 16
RADIUS = 4095.0
"""Norm of a vector on the integer grid: inner products stay below 2^24 and are exact in float32."""

_STEPS = float(1 << 20)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def on_sphere_grid(vectors: Floats) -> Singles:
    """Directions of vectors as integers of norm about 4095, float32; a zero vector stays zero.

    ``Σ|u_i c_i| ≤ ‖u‖‖c‖ ≤ 2^24`` for two such vectors, so their inner product is exact in float32
    in any order: which codeword is nearest does not depend on the machine or the batch.
    """
    # Whole numbers first: their squares add exactly for up to 8192 attributes, and square root and
    # division are correctly rounded, so the grid is the same on every machine.
    wide = np.rint(in_units_of_largest(vectors) * _STEPS)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    np.divide(wide * RADIUS, norms, out=wide, where=norms > 0)
    # Towards zero: rounding must not make a vector longer.
    return np.trunc(wide).astype(np.float32)


class Codebook:
    """Codewords c_1 … c_K, chosen without looking at the private vectors.

    Two codebooks are equal if their codewords as given are, bit for bit as float32. A spec read
    from JSON names its codebook by size and digest only (:meth:`named`) until it is given.

    Parameters
    ----------
    vectors : array, shape (K, dim), or path of a file of vectors
        K in [2, 65536]; directions count, lengths do not; no codeword may be zero.

    Raises
    ------
    InputError
        For anything else, NaN or infinite values, and zero codewords.

    >>> book = Codebook(np.eye(4))
    >>> len(book), book.dim
    (4, 4)
    """

    def __init__(self, vectors: Any) -> None:
        if isinstance(vectors, str | os.PathLike):
            vectors = _loaded(vectors)
        table = vectors if issparse(vectors) else np.asanyarray(vectors)
        rows = real_matrix(table, table.shape[-1] if table.ndim else 0, "codewords")
        if issparse(rows):
            raise InputError("codewords must be a dense array.")
        if not MIN_SIZE <= len(rows) <= MAX_SIZE:
            raise InputError(f"a codebook has {MIN_SIZE} to {MAX_SIZE} codewords, not {len(rows)}.")
        with np.errstate(over="ignore"):
            given = np.array(rows, dtype=np.float32)
        if not np.isfinite(given).all():
            row = int(np.argwhere(~np.isfinite(given))[0, 0])
            raise InputError(f"codeword {row} has a value that is not finite in 32 bits.")
        self._stated: Singles | None = given
        if (zero := np.flatnonzero(~given.any(axis=1))).size:
            raise InputError(f"codeword {int(zero[0])} is zero and has no direction.")
        self.size, self.dim = given.shape
        shape = f"{self.size}x{self.dim}|".encode()
        self.digest = hashlib.sha256(shape + given.astype("<f4").tobytes()).hexdigest()

    @classmethod
    def spaced(cls, vectors: Any, size: int) -> Codebook:
        """The codebook of ``size`` of the vectors, evenly spaced; all of them if there are so many.

        Which ones depends on their number alone.
        """
        opened = isinstance(vectors, str | os.PathLike)
        with open_vectors(vectors) if opened else nullcontext(as_source(vectors)) as source:
            return cls(dense_rows(source, spaced(source.shape[0], size)))

    @classmethod
    def named(cls, data: Any) -> Codebook:
        """The codebook that ``data`` of :meth:`to_dict` described, without its codewords.

        Raises InputError for anything else.
        """
        book = cls.__new__(cls)
        facts = {}
        if isinstance(data, dict):
            facts = data
        digest = facts.get("sha256")
        if set(facts) != {"sha256", "size", "dim"} or not _DIGEST.fullmatch(str(digest)):
            raise InputError("codebook must be {sha256: …, size: …, dim: …}.")
        book._stated = None
        book.digest = str(digest)
        book.size = whole_number(facts["size"], "the size of a codebook", MIN_SIZE, MAX_SIZE)
        book.dim = whole_number(facts["dim"], "dim of a codebook", 1, (1 << 31) - 1)
        return book

    def to_dict(self) -> dict[str, Any]:
        """Size and digest, for JSON."""
        return {"sha256": self.digest, "size": self.size, "dim": self.dim}

    @property
    def stated(self) -> Singles:
        """The codewords as they were given, float32, shape (K, dim); InputError if not here."""
        if self._stated is None:
            raise InputError(
                f"the codebook {self.digest[:12]}… of {self.size} codewords is not here: give the "
                f"file it was made from (in Python also Spec.with_codebook).",
                field="codebook",
            )
        return self._stated

    @cached_property
    def vectors(self) -> Singles:
        """The codewords at norm 1, float32, shape (K, dim)."""
        return unit(in_units_of_largest(self.stated))

    def to_bytes(self) -> bytes:
        """The codewords in the common container: see :meth:`from_bytes`."""
        return pack("codebook", {}, {"vectors": self.stated})

    @classmethod
    def from_bytes(cls, data: bytes) -> Codebook:
        """The inverse of :meth:`to_bytes`; InputError if ``data`` is anything else."""
        _, arrays = unpack(data, "codebook")
        if set(arrays) != {"vectors"} or arrays["vectors"].dtype != np.float32:
            raise InputError("this codebook has a header that no dpindex writes.")
        return cls(arrays["vectors"])

    def __reduce__(self) -> Any:
        # What is made of the codewords is made again where it is needed.
        if self._stated is None:
            return Codebook.named, (self.to_dict(),)
        return Codebook, (self._stated,)

    def __len__(self) -> int:
        return int(self.size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Codebook: {self.size} codewords of {self.dim} attributes, {self.digest[:12]}>"

    @cached_property
    def grid(self) -> Singles:
        """The codewords on the integer grid, transposed: shape (dim, K)."""
        return np.ascontiguousarray(on_sphere_grid(self.stated).T)


def _loaded(path: str | os.PathLike[str]) -> AnyArray:
    with open_vectors(path) as source:
        if source.shape[0] > MAX_SIZE:
            raise InputError(
                f"{os.fspath(path)} has {source.shape[0]} vectors; a codebook has at most "
                f"{MAX_SIZE} codewords; make a smaller one of them (dpindex codebook)."
            )
        return dense_rows(source, np.arange(source.shape[0]))
