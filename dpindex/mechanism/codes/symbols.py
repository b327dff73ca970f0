"""Symbol codes: one small whole number a record, the index of a public codeword."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import AnyArray, Integers
from dpindex.base.errors import InputError
from dpindex.mechanism.codes.base import CodeFormat, Codes


class SymbolCodes(Codes):
    """Private symbol codes: uint16, shape (n, 1).

    >>> from dpindex import Codebook, Privatizer, Spec, record
    >>> terms = {"adjacency": record(), "codebook": Codebook(np.eye(4))}
    >>> spec = Spec("record-codebook", dim=4, epsilon=30.0, **terms)
    >>> Privatizer(spec).privatize(np.eye(4)).stored.ravel().tolist()
    [0, 1, 2, 3]
    """

    @property
    def symbols(self) -> npt.NDArray[np.uint16]:
        """The symbols, shape (n,)."""
        return self.stored[:, 0].astype(np.uint16, copy=False)


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
    codewords: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    name: ClassVar[str] = "symbols"
    metrics: ClassVar[tuple[str, ...]] = ("cosine",)
    denoisers: ClassVar[tuple[str, ...]] = ()
    coordinate_bits: ClassVar[tuple[int, ...]] = (16,)
    symbolic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 2 <= self.size <= 1 << 16 or self.code_length != 1:
            raise ValueError("a code is one of 2 to 65536 symbols")

    @property
    def contents(self) -> str:
        return f"one of {self.size} symbols"

    @property
    def decoded_width(self) -> int:
        return int(self._given.shape[1])

    @property
    def _given(self) -> npt.NDArray[np.float32]:
        if self.codewords is None:
            raise InputError("these codes are symbols of a codebook, which was not given.")
        return self.codewords

    @property
    def max_row_bytes(self) -> int:
        return 2

    def pack(self, outcomes: AnyArray) -> npt.NDArray[np.uint16]:
        return outcomes.astype(np.uint16).reshape(-1, 1)

    def decode(self, stored: Integers) -> npt.NDArray[np.float32]:
        """The codewords, shape (n, dim)."""
        return self._given[stored[:, 0]]

    def fault(self, stored: Integers) -> str | None:
        if stored.dtype != np.uint16 or stored.shape[1:] != (1,):
            return "are not symbols"
        if (stored >= self.size).any():
            return "hold a symbol beyond the codebook"
        return None

    def codes(self, stored: Integers) -> SymbolCodes:
        return SymbolCodes(self, stored.astype(np.uint16, copy=False))
