"""Second moments of directions, read from the released sketch of a paired sign hash."""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import Doubles
from dpindex.race.sketch import RaceSketch

__all__ = ["second_moments"]


def second_moments(sketch: RaceSketch) -> tuple[Doubles, float]:
    """Return the matrix ``M = mean of zzᵀ/‖z‖²``, (dim, dim), and its standard error.

    The error is that of the diagonal.

    A row with directions a, b holds ``D = same − different`` signs, and the part of it that is
    linear in ``a bᵀ`` is ``(2/π) aᵀMb``. Least squares over rows gives M; an entry off the diagonal
    errs by 1/√2 of the standard error.
    """
    dim = sketch.spec.dim
    rows = sketch.spec.rows
    first, second = sketch.spec.hasher.directions.reshape(rows, 2, dim).transpose(1, 0, 2)
    differences = (sketch.counts[:, 0] - sketch.counts[:, 1]) / max(1.0, sketch.size)
    i, j = np.triu_indices(dim)
    terms = first[:, i] * second[:, j] + first[:, j] * second[:, i]
    terms *= np.where(i == j, 1.0, 2.0) / math.pi
    entries = np.linalg.lstsq(terms, differences, rcond=None)[0]
    residuals = differences - terms @ entries
    freedom = max(1, rows - len(entries))
    form = np.zeros((dim, dim))
    form[i, j] = form[j, i] = entries
    error = math.sqrt(float(residuals @ residuals) / freedom / rows) * math.pi / 2
    return form, error
