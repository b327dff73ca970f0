"""Number codes: small integers, and the two public numbers that decode them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Integers
from dpindex.mechanism.codes.base import CodeFormat, Codes


def narrowest(values: Integers) -> Integers:
    """Return integers in the smallest of int8, int16 and int32 that holds them all."""
    if values.size:
        low = int(values.min())
        high = int(values.max())
        for dtype in (np.int8, np.int16):
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return values.astype(dtype, copy=False)
    return values.astype(np.int32, copy=False)


class FloatCodes(Codes):
    """Private number codes: the noisy grid integers, in int8, int16 or int32, shape (n, k).

    >>> from dpindex import attribute
    >>> from dpindex.mechanism.privatizer import Privatizer
    >>> from dpindex.mechanism.spec import Spec
    >>> codes = Privatizer(Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0,
    ...     adjacency=attribute(1.0))).privatize(np.eye(6))
    >>> type(codes).__name__, len(codes), codes.to_float().shape
    ('FloatCodes', 6, (6, 2))
    """

    @property
    def values(self) -> Integers:
        """The stored integers."""
        return self.stored


@dataclass(frozen=True)
class NumberFormat(CodeFormat):
    """Numbers: ``(stored + offset) · scale`` is unbiased for the projected vector.

    Attributes
    ----------
    scale, offset : float
        ``scale`` is in units of the scaled attributes.
    """

    scale: float
    offset: float

    name: ClassVar[str] = "numbers"
    metrics: ClassVar[tuple[str, ...]] = ("cosine", "ip", "l2")

    @property
    def max_row_bytes(self) -> int:
        return 4 * self.code_length

    def pack(self, outcomes: AnyArray) -> Integers:
        return narrowest(outcomes)

    def decode(self, stored: Integers) -> npt.NDArray[np.float32]:
        """Unbiased estimates of the projected vectors, float32."""
        decoded = stored.astype(np.float64)
        decoded += self.offset
        decoded *= self.scale
        return decoded.astype(np.float32)

    def fault(self, stored: Integers) -> str | None:
        fits = stored.dtype.kind == "i" and stored.dtype.itemsize <= 4
        if not fits or stored.shape[1:] != (self.width,):
            return "are not a table of integers"
        return None

    def concatenate(self, parts: Sequence[Integers]) -> Integers:
        return narrowest(super().concatenate(parts))

    def codes(self, stored: Integers) -> FloatCodes:
        return FloatCodes(self, stored)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0 and math.isfinite(self.offset)):
            raise ValueError("scale and offset must be finite, and scale above 0")
