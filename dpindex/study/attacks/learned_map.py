"""A map from codes to vectors or labels that is learned from pairs: ridge regression."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpindex.base.arrays import Doubles, Floats

__all__ = ["learned_map"]

_PENALTIES = 10.0 ** np.arange(-6, 5)


def learned_map(readings: Floats, values: Floats) -> Callable[[Floats], Doubles]:
    """Return the linear map with an intercept that predicts values it has not seen best.

    Of eleven penalties the one with the least squared error counts, each pair left out in turn
    (Golub, Heath & Wahba 1979).

    Parameters
    ----------
    readings : array, shape (pairs, k)
        Decoded codes.
    values : array, shape (pairs, p)
        What they stand for: vectors, or labels as 0 and 1.

    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> learned_map(x, 2 * x + 1)(np.array([[5.0]])).round(2).tolist()
    [[11.0]]
    """
    centre = readings.mean(axis=0, dtype=np.float64)
    mean = values.mean(axis=0, dtype=np.float64)
    left, sizes, right = np.linalg.svd(readings - centre, full_matrices=False)
    projected = left.T @ (values - mean)
    scale = float(np.square(sizes).mean()) or 1.0

    def shrinkage(penalty: float) -> Doubles:
        return np.asarray(np.square(sizes) / (np.square(sizes) + penalty * scale))

    def left_out_error(penalty: float) -> float:
        kept = shrinkage(penalty)
        leverage = np.square(left) @ kept + 1.0 / len(left)
        residual = values - mean - left @ (kept[:, None] * projected)
        return float(np.square(residual / np.maximum(1.0 - leverage, 1e-9)[:, None]).sum())

    best = shrinkage(min(_PENALTIES, key=left_out_error))
    inverse = np.divide(best, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    weights = right.T @ (inverse[:, None] * projected)
    return lambda new: np.asarray(mean + (new - centre) @ weights)
