"""Names for the array types that appear in signatures, and the one rule for arrays of text."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError

__all__ = ["AnyArray", "Bytes", "Floats", "Integers", "Vectors", "check_padding"]

AnyArray: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Vectors: TypeAlias = Any
"""What a user hands over: an ndarray of any real dtype, a memory map, or a scipy CSR/CSC matrix."""

_LETTER_BYTES = 4
_ALWAYS_ALLOWED = 1 << 30
_MOST_PADDING = 16


def check_padding(count: int, longest: int, letters: int) -> None:
    """Refuse ids that an array would blow up: NumPy pads each to the ``longest`` of them.

    Up to 1 GB, or 16 times what the ``letters`` need, is allowed.
    """
    allowed = max(_ALWAYS_ALLOWED, _MOST_PADDING * _LETTER_BYTES * letters)
    if count * longest * _LETTER_BYTES > allowed:
        raise InputError(
            f"the longest id has {longest} characters, to which all {count} would be padded: that "
            f"takes too much memory; shorten the long ones."
        )
