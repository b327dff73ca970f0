"""Base classes of code formats and of codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Integers
from dpindex.base.errors import InputError
from dpindex.base.files import pack

_Codes = TypeVar("_Codes", bound="Codes")
_Format = TypeVar("_Format", bound="CodeFormat")
_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class CodeFormat(ABC):
    """The format of one spec's codes: how they are stored, read and compared.

    What a format does not state it has by default: codes are numbers, one a coordinate, that decode
    to the projected vector. Rooms above keep one table by format class for what needs more than a
    format knows: see :func:`for_format`.

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

    hamming: ClassVar[bool] = False
    """True if the Hamming distance of stored codes ranks private queries."""

    symbolic: ClassVar[bool] = False
    """True if a code is one symbol, which decodes to a vector and not to its projection."""

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
    def decode(self, stored: Integers) -> npt.NDArray[np.float32]:
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
        deviation = float(exact.std(axis=0).mean())
        return float((noisy - exact).std() / max(deviation, 1e-30))

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

    @abstractmethod
    def codes(self, stored: Integers) -> Codes:
        """Codes in stored form with their format."""

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        return {**data, "fingerprint": self.fingerprint.hex(), "format": self.name}

    @classmethod
    def from_dict(cls: type[_Format], data: Mapping[str, Any]) -> _Format:
        """The inverse of :meth:`to_dict`; ValueError, TypeError or KeyError for anything else."""
        facts = {name: value for name, value in data.items() if name != "format"}
        mark = bytes.fromhex(facts.pop("fingerprint"))
        format_ = cls(fingerprint=mark, **facts)
        k = format_.code_length
        if len(mark) != 16 or type(k) is not int or k < 1 or format_.to_dict() != data:
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
        The codes, bit for bit.
    """

    format: CodeFormat
    stored: Integers

    def __len__(self) -> int:
        return len(self.stored)

    def __repr__(self) -> str:
        form = self.format
        return f"<{type(self).__name__}: {len(self)} codes of {form.code_length} {form.name}>"

    @property
    def k(self) -> int:
        """Coordinates of a code."""
        return self.format.code_length

    @property
    def fingerprint(self) -> bytes:
        """Sixteen bytes that name the spec they were made under."""
        return self.format.fingerprint

    def to_float(self) -> npt.NDArray[np.float32]:
        """The codes as numbers to compare, float32, shape (n, format.decoded_width)."""
        return self.format.decode(self.stored)

    def to_signs(self) -> npt.NDArray[np.int8]:
        """Signs of :meth:`to_float`, ±1 (0 counts as +1), int8, of the same shape."""
        return np.where(self.to_float() >= 0, 1, -1).astype(np.int8)

    def take(self: _Codes, rows: slice | npt.NDArray[np.intp]) -> _Codes:
        """The codes of some rows."""
        return type(self)(self.format, self.stored[rows])

    def to_bytes(self) -> bytes:
        """A self-describing byte string: see :func:`dpindex.codes_from_bytes`."""
        return pack(
            "codes", self.format.to_dict(), {"stored": self.format.concatenate([self.stored])}
        )


def for_format(table: Mapping[type[object], _Entry], format_: type[CodeFormat]) -> _Entry:
    """Return a table's entry for a format class, or for the nearest class above it.

    The entry of :class:`CodeFormat`, if there is one, serves all formats without one of their own.

    Raises
    ------
    KeyError
        If there is no entry.

    >>> from dpindex.mechanism.codes import NumberFormat, SignFormat
    >>> table = {CodeFormat: "decoded vectors", SignFormat: "bits"}
    >>> for_format(table, SignFormat), for_format(table, NumberFormat)
    ('bits', 'decoded vectors')
    """
    for kind in format_.__mro__:
        if kind in table:
            return table[kind]
    raise KeyError(format_.name)


def check_format(codes: Codes, expected: CodeFormat) -> None:
    """Raise InputError unless codes are of the wanted kind and length.

    Called beside a comparison of fingerprints, which anyone can copy.
    """
    format_ = codes.format
    if format_.contents != expected.contents:
        raise InputError(
            f"these are codes of {format_.contents}; codes of {expected.contents} are expected."
        )
