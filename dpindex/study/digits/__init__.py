"""Handwritten digits, for the demonstration and the tutorial."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpindex.base.arrays import Bytes


def load_digits() -> tuple[Bytes, Bytes]:
    """Return 1797 pictures of 8 × 8 pixels, and the digit that each shows.

    From "Optical Recognition of Handwritten Digits", Alpaydin & Kaynak 1998, UCI Machine Learning
    Repository, CC BY 4.0.

    Returns
    -------
    pictures : uint8 array, shape (1797, 64)
        Row by row; 0 is paper and 16 ink.
    labels : uint8 array, shape (1797,)

    >>> pictures, labels = load_digits()
    >>> pictures.shape, int(pictures.max()), labels[:4].tolist()
    ((1797, 64), 16, [0, 1, 2, 3])
    """
    with np.load(Path(__file__).parent / "digits.npz") as arrays:
        return arrays["pictures"], arrays["labels"]
