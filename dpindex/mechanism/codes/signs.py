"""Sign codes: one bit a coordinate, packed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Bytes, Integers
from dpindex.mechanism.codes.base import CodeFormat, Codes


class BitCodes(Codes):
    """Private sign codes: k bits a vector, packed eight to a byte, first bit lowest.

    Bit 1 stands for +1; unused bits of the last byte are 0.

    >>> codes = BitCodes.from_signs(np.array([[True, False, True]]), bytes(16))
    >>> codes, codes.to_signs().tolist()
    (<BitCodes: 1 codes of 3 signs>, [[1, -1, 1]])
    """

    @property
    def packed(self) -> Bytes:
        """The stored form, uint8, shape (n, ⌈k/8⌉)."""
        return self.stored.astype(np.uint8, copy=False)

    @classmethod
    def from_signs(cls, positive: npt.NDArray[np.bool_], fingerprint: bytes) -> BitCodes:
        """Codes of signs: ``positive`` is True for +1, shape (n, k).

        ``fingerprint``, 16 bytes, is that of the spec.
        """
        format_ = SignFormat(positive.shape[1], fingerprint)
        return format_.codes(format_.pack(positive))


class SignFormat(CodeFormat):
    """Signs: ``⌈k/8⌉`` bytes a code; they tell angles, so cosines only."""

    name: ClassVar[str] = "signs"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
    denoisers: ClassVar[tuple[str, ...]] = ("linear",)
    coordinate_bits: ClassVar[tuple[int, ...]] = (1,)
    hamming: ClassVar[bool] = True

    @property
    def width(self) -> int:
        return -(-self.code_length // 8)

    def pack(self, outcomes: AnyArray) -> Bytes:
        return np.packbits(outcomes, axis=1, bitorder="little")

    def decode(self, stored: Integers) -> npt.NDArray[np.float32]:
        """±1, float32."""
        packed = stored.astype(np.uint8, copy=False)
        bits = np.unpackbits(packed, axis=1, count=self.code_length, bitorder="little")
        return bits * np.float32(2) - np.float32(1)

    def coordinates(self, stored: Integers) -> npt.NDArray[np.int8]:
        """Return ±1, int8."""
        return self.decode(stored).astype(np.int8)

    def noise_share(self, noisy: AnyArray, exact: AnyArray) -> float:
        """Return the share of signs that are flipped, [0, 1]."""
        return float(np.mean((noisy > 0) != (exact > 0)))

    def signal_to_noise(self, noise: float) -> float:
        """Return that of a vote of all signs."""
        return self.code_length * (1 - 2 * noise) ** 2

    def fault(self, stored: Integers) -> str | None:
        if stored.dtype != np.uint8 or stored.shape[1:] != (self.width,):
            return "are not packed signs"
        used = self.code_length % 8
        if used and len(stored) and (stored[:, -1] >> used).any():
            return "have stray bits beyond their length"
        return None

    def codes(self, stored: Integers) -> BitCodes:
        return BitCodes(self, stored.astype(np.uint8, copy=False))
