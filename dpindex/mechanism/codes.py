"""Base classes of code formats and of codes."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Bools, Bytes, Indices, Integers, Singles
from dpindex.base.display import counted
from dpindex.base.errors import DamagedError, InputError
from dpindex.base.files import MAGIC, AnyPath, pack, parse_file, unpack

_Codes = TypeVar("_Codes", bound="Codes")
_Format = TypeVar("_Format", bound="CodeFormat")


@dataclass(frozen=True)
class CodeFormat(ABC):
    """The format of one spec's codes: how they are stored, read and compared.

    What a format does not state it has by default: codes are numbers, one a coordinate, that decode
    to the projected vector.

    Attributes
    ----------
    code_length : int
        Coordinates of a code.
    fingerprint : bytes
        Sixteen bytes that name the spec the codes were made under.
    """

    code_length: int
    fingerprint: bytes

    name: ClassVar[str]
    """The name of the coordinates, in the plural: "signs", "numbers"."""

    metrics: ClassVar[tuple[str, ...]]
    """The similarities that can be estimated from such codes."""

    denoisers: ClassVar[tuple[str, ...]] = ("linear", "score")
    """The kinds of denoiser that can be fitted to such codes."""

    coordinate_bits: ClassVar[tuple[int, ...]] = (8, 16)
    """Bits that a stored coordinate usually takes, for plans of codes of a given size."""

    are_signs: ClassVar[bool] = False
    """True if a coordinate is a sign, of one bit."""

    @property
    def contents(self) -> str:
        """The contents of a code, in words."""
        return f"{self.code_length} {self.name}"

    @property
    def width(self) -> int:
        """Columns of the stored form: one a coordinate, if a subclass packs no more."""
        return self.code_length

    @property
    def decoded_width(self) -> int:
        """Columns of the decoded form."""
        return self.code_length

    @property
    def max_row_bytes(self) -> int:
        """The most bytes that one code takes: one a column, if a subclass needs no more."""
        return self.width

    @abstractmethod
    def pack(self, outcomes: AnyArray) -> Integers:
        """The stored form, shape (n, width), of what the law drew, shape (n, code_length)."""

    @abstractmethod
    def decode(self, stored: Integers) -> Singles:
        """Numbers to compare and to learn from, shape (n, decoded_width), of the stored form."""

    @abstractmethod
    def fault(self, stored: Integers) -> str | None:
        """Return what is wrong with foreign bytes in stored form, or None."""

    def coordinates(self, stored: Integers) -> Integers:
        """Return what the stored form holds, one integer a coordinate, shape (n, code_length)."""
        return stored

    def noise_share(self, noisy: AnyArray, exact: AnyArray) -> float:
        """Return how much of decoded codes is noise, given their exact projections, both (n, k).

        The deviation of the noise over that of a coordinate, [0, ∞), unless a subclass has a
        measure of its own.
        """
        noise = noisy - exact
        deviation = float(exact.std(axis=0).mean())
        return float(noise.std() / max(deviation, 1e-30))

    def signal_to_noise(self, noise: float) -> float:
        """Return the signal-to-noise ratio of a code, summed over coordinates of that noise share.

        Ratios of variances, [0, ∞).
        """
        return self.code_length / max(noise, 1e-9) ** 2

    def concatenate(self, parts: Sequence[Integers]) -> Integers:
        """One stored array of several."""
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts)

    def codes(self, stored: Integers) -> Codes:
        """Codes in stored form with their format."""
        return Codes(self, stored)

    def to_arrow(self, stored: Integers) -> Any:
        """Return stored codes as a ``pyarrow.Array`` of their bytes, little-endian."""
        import pyarrow as pa

        # Another machine may have other byte order; stored codes are little-endian on all.
        little = stored.astype(stored.dtype.newbyteorder("<"))
        rows = np.ascontiguousarray(little)
        kind = pa.binary(rows.itemsize * rows.shape[1])
        return pa.FixedSizeBinaryArray.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)])

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        data["fingerprint"] = self.fingerprint.hex()
        data["format"] = self.name
        return data

    @classmethod
    def from_dict(cls: type[_Format], data: Mapping[str, Any]) -> _Format:
        """The inverse of :meth:`to_dict`; ValueError, TypeError or KeyError for anything else."""
        facts = dict(data)
        facts.pop("format")
        fingerprint = bytes.fromhex(facts.pop("fingerprint"))
        format_ = cls(fingerprint=fingerprint, **facts)
        k = format_.code_length
        has_length = type(k) is int and k >= 1
        # Written again they must be the same: so no fact is read in two ways, as True for 1.
        if len(fingerprint) != 16 or not has_length or format_.to_dict() != data:
            raise ValueError("these facts are not what to_dict writes")
        return format_


@dataclass(frozen=True, eq=False)
class Codes:
    """Private codes: what is published.

    Attributes
    ----------
    format : CodeFormat
        How they are stored.
    stored : integer array, shape (n, format.width)
        The codes, bit for bit: noisy whole numbers as int8, int16 or int32, signs packed in uint8
        (:class:`BitCodes`), or symbols as uint16.

    >>> from dpindex import Privatizer, Spec, attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> codes = Privatizer(spec).privatize(np.eye(6))
    >>> codes, codes.to_float().shape
    (<Codes: 6 codes of 2 numbers>, (6, 2))
    """

    format: CodeFormat
    stored: Integers

    def __len__(self) -> int:
        return len(self.stored)

    def __repr__(self) -> str:
        form = self.format
        codes = counted(len(self), "code")
        return f"<{type(self).__name__}: {codes} of {form.code_length} {form.name}>"

    @property
    def k(self) -> int:
        """Coordinates of a code."""
        return self.format.code_length

    @property
    def fingerprint(self) -> bytes:
        """Sixteen bytes that name the spec they were made under."""
        return self.format.fingerprint

    def to_float(self) -> Singles:
        """The codes as numbers to compare, float32, shape (n, format.decoded_width)."""
        return self.format.decode(self.stored)

    def to_signs(self) -> npt.NDArray[np.int8]:
        """Signs of :meth:`to_float`, ±1 (0 counts as +1), int8, of the same shape."""
        signs = np.where(self.to_float() >= 0, 1, -1)
        return signs.astype(np.int8)

    def take(self: _Codes, rows: slice | Indices) -> _Codes:
        """The codes of some rows."""
        return type(self)(self.format, self.stored[rows])

    def to_bytes(self) -> bytes:
        """A self-describing byte string: see :func:`dpindex.codes_from_bytes`."""
        stored = self.format.concatenate([self.stored])
        return pack("codes", self.format.to_dict(), {"stored": stored})


def check_format(codes: Codes, expected: CodeFormat) -> None:
    """Raise InputError unless codes are of the wanted kind and length.

    Called beside a comparison of fingerprints, which anyone can copy.
    """
    format_ = codes.format
    if format_.contents != expected.contents:
        raise InputError(
            f"these are codes of {format_.contents}; codes of {expected.contents} are expected."
        )


def narrowest(values: Integers) -> Integers:
    """Return integers in the smallest of int8, int16 and int32 that holds them all."""
    if values.size:
        low = int(values.min())
        high = int(values.max())
        for dtype, beyond in ((np.int8, 1 << 7), (np.int16, 1 << 15)):
            if -beyond <= low and high < beyond:
                return values.astype(dtype, copy=False)
    return values.astype(np.int32, copy=False)


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

    def decode(self, stored: Integers) -> Singles:
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

    def __post_init__(self) -> None:
        finite = math.isfinite(self.scale) and math.isfinite(self.offset)
        if not finite or self.scale <= 0:
            raise ValueError("scale and offset must be finite, and scale above 0")


class BitCodes(Codes):
    """Private sign codes: k bits a vector, packed eight to a byte, first bit lowest.

    Bit 1 stands for +1; unused bits of the last byte are 0. ``codes[i]`` is one code as k
    truth values.

    >>> codes = BitCodes.from_signs(np.array([[True, False, True]]), bytes(16))
    >>> codes, codes.to_signs().tolist()
    (<BitCodes: 1 code of 3 signs>, [[1, -1, 1]])
    >>> codes[0].tolist(), int(codes[0].sum())
    ([True, False, True], 2)
    """

    def __getitem__(self, row: int) -> Bools:
        """One code, shape (k,), True for +1; IndexError beyond the last."""
        bits = np.unpackbits(self.stored[row], count=self.k, bitorder="little")
        return bits.astype(np.bool_)

    @classmethod
    def from_signs(cls, positive: Bools, fingerprint: bytes) -> BitCodes:
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
    are_signs: ClassVar[bool] = True

    @property
    def width(self) -> int:
        return -(-self.code_length // 8)

    def pack(self, outcomes: AnyArray) -> Bytes:
        return np.packbits(outcomes, axis=1, bitorder="little")

    def decode(self, stored: Integers) -> Singles:
        """±1, float32."""
        bits = np.unpackbits(
            stored.astype(np.uint8, copy=False),
            axis=1,
            count=self.code_length,
            bitorder="little",
        )
        return bits * np.float32(2) - np.float32(1)

    def coordinates(self, stored: Integers) -> npt.NDArray[np.int8]:
        """Return ±1, int8."""
        return self.decode(stored).astype(np.int8)

    def noise_share(self, noisy: AnyArray, exact: AnyArray) -> float:
        """Return the share of signs that are flipped, [0, 1]."""
        flipped = (noisy > 0) != (exact > 0)
        return float(np.mean(flipped))

    def signal_to_noise(self, noise: float) -> float:
        """Return that of a vote of all signs."""
        return self.code_length * (1 - 2 * noise) ** 2

    def fault(self, stored: Integers) -> str | None:
        if stored.dtype != np.uint8 or stored.shape[1:] != (self.width,):
            return "are not packed signs"
        # Else codes that say the same could differ in bytes, and their senders be told apart.
        used = self.code_length % 8
        if used and (stored[:, -1:] >> used).any():
            return "have stray bits beyond their length"
        return None

    def codes(self, stored: Integers) -> BitCodes:
        return BitCodes(self, stored)


@dataclass(frozen=True)
class SymbolFormat(CodeFormat):
    """Symbols 0 … size − 1, each of which stands for a codeword.

    Attributes
    ----------
    size : int
        Number of symbols, [2, 65536].
    codewords : float32 array, shape (size, dim), optional
        What the symbols stand for; bytes of codes do not hold it.
    """

    size: int
    codewords: Singles | None = field(default=None, compare=False, repr=False)

    name: ClassVar[str] = "symbols"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
    denoisers: ClassVar[tuple[str, ...]] = ()
    coordinate_bits: ClassVar[tuple[int, ...]] = (16,)

    def __post_init__(self) -> None:
        fits = type(self.size) is int and 2 <= self.size <= 1 << 16
        if not fits or self.code_length != 1:
            raise ValueError("a code is one of 2 to 65536 symbols")

    @property
    def contents(self) -> str:
        return f"one of {self.size} symbols"

    @property
    def decoded_width(self) -> int:
        return int(self._given.shape[1])

    @property
    def _given(self) -> Singles:
        if self.codewords is None:
            raise InputError("these codes are symbols of a codebook, which was not given.")
        return self.codewords

    @property
    def max_row_bytes(self) -> int:
        return 2

    def pack(self, outcomes: AnyArray) -> npt.NDArray[np.uint16]:
        return outcomes.astype(np.uint16).reshape(-1, 1)

    def decode(self, stored: Integers) -> Singles:
        """The codewords, shape (n, dim)."""
        return self._given[stored[:, 0]]

    def to_arrow(self, stored: Integers) -> Any:
        """Return the symbols as a ``pyarrow.Array`` of numbers."""
        import pyarrow as pa

        return pa.array(stored[:, 0])

    def fault(self, stored: Integers) -> str | None:
        if stored.dtype != np.uint16 or stored.shape[1:] != (1,):
            return "are not symbols"
        if (stored >= self.size).any():
            return "hold a symbol beyond the codebook"
        return None


_MAX_FILE_BYTES = 1 << 33

FORMATS: dict[str, type[CodeFormat]] = {
    kind.name: kind for kind in (SignFormat, NumberFormat, SymbolFormat)
}
"""Every code format by its name."""


def codes_from_bytes(data: bytes | bytearray | memoryview, *, verified: bool = False) -> Codes:
    """Read codes written by ``to_bytes``. The bytes may come from anyone, so nothing is trusted.

    Length and digest are checked before anything is interpreted.

    Parameters
    ----------
    data : bytes
        What ``to_bytes`` of codes gave, and a device sent.
    verified : bool
        Whether all bytes were compared with a trusted digest, so that their own is not computed.

    Raises
    ------
    InputError
        If the bytes are cut off, changed, of another version, or not codes at all.

    >>> import numpy as np
    >>> codes = BitCodes.from_signs(np.array([[True, False, True]]), bytes(16))
    >>> codes_from_bytes(codes.to_bytes()).to_signs().tolist()
    [[1, -1, 1]]
    """
    facts, arrays = unpack(data, "codes", verified=verified)
    try:
        format_ = FORMATS[facts["format"]].from_dict(facts)
        stored = arrays["stored"]
        if len(arrays) != 1:
            raise ValueError("arrays")
    except (KeyError, TypeError, ValueError, OverflowError):
        raise DamagedError("these codes have a header that no dpindex writes.") from None
    if fault := format_.fault(stored):
        raise DamagedError(f"these codes {fault}.")
    return format_.codes(stored)


def read_codes(path: AnyPath) -> Codes | None:
    """The codes in a file, or None if it is no file that dpindex wrote: perhaps vectors.

    Raises
    ------
    InputError
        As :func:`codes_from_bytes`, with the path.
    """
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
    return parse_file(path, _MAX_FILE_BYTES, codes_from_bytes)
