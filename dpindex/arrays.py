"""Names for the array types that appear in signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["AnyArray", "Bytes", "Floats", "Integers", "Vectors"]

AnyArray: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Vectors: TypeAlias = Any
"""What a user hands over: an ndarray of any real dtype, a memory map, or a scipy CSR/CSC matrix."""
