"""A public codebook: vectors of a public sample that private records are compared with."""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Floats, unit
from dpindex.checks import real_matrix
from dpindex.errors import InputError

__all__ = ["RADIUS", "Codebook", "on_sphere_grid"]

Singles = npt.NDArray[np.float32]

_MIN_SIZE, _MAX_SIZE = 2, 1 << 16
RADIUS = 4095.0
"""Norm of a vector on the integer grid: inner products stay below 2^24 and are exact in float32."""

_MAX_BYTES = 1 << 31


def on_sphere_grid(vectors: Floats) -> Singles:
    """Directions of vectors as integers of norm about 4095, float32; a zero vector stays zero.

    ``Σ|u_i c_i| ≤ ‖u‖‖c‖ ≤ 2^24`` for two such vectors, so their inner product is exact in float32
    in any order: which codeword is nearest does not depend on the machine or the batch.
    """
    wide = vectors.astype(np.float64)
    # Divided by the largest magnitude first, so that no square over- or underflows.
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    np.divide(wide, largest, out=wide, where=largest > 0)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    np.divide(wide * RADIUS, norms, out=wide, where=norms > 0)
    # Towards zero: rounding must not make a vector longer.
    return np.trunc(wide).astype(np.float32)


class Codebook:
    """Codewords c_1 … c_K, chosen without looking at the private vectors.

    Two codebooks are equal if their codewords are, bit for bit as float32.

    Parameters
    ----------
    vectors : array, shape (K, dim), or path of a .npy file
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
            vectors = _loaded(Path(vectors))
        table = np.asarray(vectors)
        rows = real_matrix(table, table.shape[-1] if table.ndim else 0, "codewords")
        if not _MIN_SIZE <= len(rows) <= _MAX_SIZE:
            raise InputError(
                f"a codebook has {_MIN_SIZE} to {_MAX_SIZE} codewords, not {len(rows)}."
            )
        if not np.isfinite(rows).all():
            row = int(np.argwhere(~np.isfinite(rows))[0, 0])
            raise InputError(f"codeword {row} has a value that is not finite.")
        self.vectors: Singles = unit(rows.astype(np.float32))
        if (zero := np.flatnonzero(~self.vectors.any(axis=1))).size:
            raise InputError(f"codeword {int(zero[0])} is zero and has no direction.")

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """Attributes of a codeword."""
        return int(self.vectors.shape[1])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the codewords as little-endian float32, in hexadecimal."""
        shape = f"{len(self)}x{self.dim}|".encode()
        return hashlib.sha256(shape + self.vectors.astype("<f4").tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codebook) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Codebook: {len(self)} codewords of {self.dim} attributes, {self.digest[:12]}>"

    @cached_property
    def grid(self) -> Singles:
        """The codewords on the integer grid, transposed: shape (dim, K)."""
        return np.ascontiguousarray(on_sphere_grid(self.vectors).T)


def _loaded(path: Path) -> npt.NDArray[Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} is larger than a codebook may be (2 GB).")
        loaded: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError:
        raise InputError(f"{path} is not a .npy file of numbers.") from None
    return loaded
