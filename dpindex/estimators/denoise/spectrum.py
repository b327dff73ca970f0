"""Signal and noise told apart in a covariance: the optimal linear filter of METHODS 5a."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["covariance", "shrunk", "signal_directions", "spiked"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_MIN_SIGNAL = 0.02
"""Directions whose estimated signal is below this share of the noise are left out."""


def covariance(blocks: Iterable[Singles], k: int) -> tuple[Doubles, int]:
    """Second moment of rows that come in blocks, and how many rows there were."""
    total, count = np.zeros((k, k)), 0
    for rows in blocks:
        total += rows.T @ rows
        count += len(rows)
    return total / max(count, 1), count


def spiked(eigenvalues: Doubles, aspect: float) -> tuple[Doubles, Doubles]:
    """Signal variances behind sample eigenvalues under unit noise, and how far to trust them.

    A signal of variance t appears as ``(1 + t)(1 + aspect/t)`` along a direction that has squared
    cosine ``c² = (1 − aspect/t²)/(1 + aspect/t)`` with the true one, if t > √aspect, else not at
    all (Baik & Silverstein 2006; Paul 2007).

    Parameters
    ----------
    eigenvalues : array
    aspect : float
        Coordinates over rows.

    Returns
    -------
    t and c², both 0 below the edge.
    """
    excess = eigenvalues - 1.0 - aspect
    seen = excess > 2 * np.sqrt(aspect)
    root = np.sqrt(np.maximum(excess**2 - 4 * aspect, 0.0))
    signal = np.where(seen, np.maximum(excess + root, 1e-300) / 2, 1.0)
    trust = np.maximum((1 - aspect / signal**2) / (1 + aspect / signal), 0.0)
    return np.where(seen, signal, 0.0), np.where(seen, trust, 0.0)


def signal_directions(moment: Doubles, rows: int, most: int) -> tuple[Singles, Doubles]:
    """Leading eigenvectors of a whitened covariance, shape (k, R), and their signal ``t·c²``.

    ``t·c²`` is what a filter may count on along the *estimated* direction: the shrinkage that is
    optimal in mean square (Donoho, Gavish & Johnstone 2018). R is 0 if nothing stands out.
    """
    eigenvalues, vectors = np.linalg.eigh(moment)
    signal, trust = spiked(eigenvalues, len(moment) / rows)
    strength = (signal * trust)[::-1]
    kept = min(most, int(np.count_nonzero(strength > _MIN_SIGNAL)))
    return vectors[:, ::-1][:, :kept].astype(np.float32), strength[:kept]


def shrunk(moment: Doubles, rows: float) -> Doubles:
    """The signal's covariance behind a sample covariance of signal plus unit noise."""
    eigenvalues, vectors = np.linalg.eigh(moment)
    signal, trust = spiked(eigenvalues, min(1.0, len(moment) / max(rows, 1.0)))
    return np.asarray((vectors * (signal * trust)) @ vectors.T)
