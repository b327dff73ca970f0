"""A few public facts instead of a public sample, and vectors that fit them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpindex.checks import finite_number
from dpindex.errors import InputError
from dpindex.projections.entries import normal_integers
from dpindex.randomness import PublicStream

__all__ = ["Facts"]

_ROWS = 2000
_NORMAL_BITS = 8


@dataclass(frozen=True)
class Facts:
    """What is publicly known of a collection when there is no public sample of its kind.

    A rough substitute: vectors of this shape are made up, without the many small regularities
    that real ones have and that a denoiser lives on. Prefer a sample, however small.

    Parameters
    ----------
    norm : float
        Typical norm of a vector after scaling, (0, ∞).
    neighbour_cosine : float
        Cosine between a vector and its tenth nearest in the whole collection, (−1, 1).
    typical_cosine : float
        Mean cosine of two vectors taken at random, [0, 1).
    decay : float
        The j-th largest variance falls as ``j^−decay``, [0, 4]; 1 to 2 for images and embeddings.

    Raises
    ------
    InputError
        For a fact out of its range, or neighbours no nearer than strangers.
    """

    norm: float
    neighbour_cosine: float
    typical_cosine: float = 0.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        finite_number(self.norm, "the typical norm", above=0.0)
        for name, low, high in (
            ("typical_cosine", 0.0, 1.0),
            ("neighbour_cosine", -1.0, 1.0),
            ("decay", 0.0, 4.0),
        ):
            words = name.replace("_", " ")
            value = finite_number(getattr(self, name), f"the {words}")
            if not low <= value <= high or (name != "decay" and value == 1.0):
                raise InputError(f"the {words} must lie in [{low:g}, {high:g}), not {value:g}.")
        if self.neighbour_cosine <= self.typical_cosine:
            raise InputError(
                f"neighbours must be nearer than strangers: the neighbour cosine is "
                f"{self.neighbour_cosine:g}, the typical one {self.typical_cosine:g}."
            )

    def sample(self, dim: int) -> npt.NDArray[np.float32]:
        """Made-up vectors that fit the facts, in scaled units, float32, shape (2000, dim).

        ``√t·mean + √(1 − t)·z``, z a Gaussian over directions of falling variance, turned so that
        no coordinate is special.
        """
        stream = PublicStream(0, "plan facts")
        spread = np.arange(1, dim + 1) ** (-self.decay / 2)
        z = _normal(_ROWS, dim, stream) * spread
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        # Turned at random.
        turn = np.linalg.qr(_normal(dim, dim, stream))[0]
        mean = np.sign(_normal(1, dim, stream)[0]) / math.sqrt(dim)
        vectors = math.sqrt(self.typical_cosine) * mean
        vectors = vectors + math.sqrt(1 - self.typical_cosine) * (z @ turn)
        vectors *= self.norm / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors, dtype=np.float32)


def _normal(rows: int, columns: int, stream: PublicStream) -> npt.NDArray[np.float64]:
    values = normal_integers(rows * columns, _NORMAL_BITS, stream)
    return values.reshape(rows, columns) / 2.0**_NORMAL_BITS
