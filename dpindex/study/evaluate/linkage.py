"""Linkage: how often a known vector picks out its own code among all, measured.

The attacker knows a vector and everything public, and gives every code a score: for signs the
logarithm of how much likelier the code is for the vector than for any other, which is the strongest
test if coordinates are independent; for numbers and symbols the cosine of what is decoded, both
centred at the mean code. Attackers who model the noise law or the collection can do better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from dpindex.base.arrays import Doubles, Singles, Vectors, row_by_row, unit
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.projector import Projector

__all__ = ["LINKED", "Linkage"]

LINKED = "linked"
"""The name of this measure: the share of known vectors whose own code fits best among all."""

Flags = npt.NDArray[np.bool_]

_MOST = 1.0 - 1e-6
_TIE = 1e-5


class Linkage:
    """Counts, chunk by chunk, how many codes fit known vectors at least as well as their own.

    Parameters
    ----------
    projector : Projector
        Of the spec of the codes.
    known : array or sparse matrix, shape (m, dim)
        Original vectors.
    codes : Codes
        Those of the known vectors first, and after them others, shape (n, k), n ≥ m.
    """

    def __init__(self, projector: Projector, known: Vectors, codes: Codes) -> None:
        spec = projector.spec
        decoded = codes.to_float()
        exact = np.asarray(projector.project(known), dtype=np.float64) * spec.step
        if spec.format.name == "symbols":  # decoded, they are codewords
            dense = known.toarray() if scipy.sparse.issparse(known) else known
            exact = unit(dense).astype(np.float64)
        self._centre = decoded.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._signs = spec.format.name == "signs"
        if self._signs:
            self._known = _log_odds(spec, exact, self._centre)
        else:
            self._known = unit(exact - self._centre)
        self._own = np.diagonal(self._scores(codes.take(slice(len(exact))))).copy()
        self._above = np.zeros(len(exact), dtype=np.int64)
        self._tied = np.zeros(len(exact), dtype=np.int64)

    def _scores(self, codes: Codes, own: bool = False) -> Singles:
        decoded = codes.to_float()
        if not self._signs:
            decoded = unit(decoded - self._centre)
        if own:
            return row_by_row(decoded, self._known)
        return np.asarray(self._known @ decoded.T, dtype=np.float32)

    def count(self, codes: Codes) -> None:
        """Compare with further codes; every code of the collection is counted once."""
        above, tied = self.compare(codes)
        self._above += above.sum(axis=1)
        self._tied += tied.sum(axis=1)

    def compare(self, codes: Codes, own: bool = False) -> tuple[Flags, Flags]:
        """Which codes fit each known vector better than its own, and as well, (m, n) each.

        With ``own`` the first n/m codes are compared with the first known vector, and so on:
        (m, n/m) each.
        """
        scores = self._scores(codes, own)
        margin = _TIE * np.maximum(np.abs(self._own), 1e-30)
        above = scores > (self._own + margin)[:, None]
        return above, (scores >= (self._own - margin)[:, None]) & ~above

    @property
    def share(self) -> float:
        """Share of known vectors whose own code fits best; ties are broken at random."""
        return float(np.where(self._above == 0, 1.0 / np.maximum(self._tied, 1), 0.0).mean())


def _log_odds(spec: Any, exact: Doubles, mean: Singles) -> Singles:
    """Weights w of the score ``Σ w_j s_j``: half the log-likelihood ratio of a sign."""
    beta = spec.projection.scale * spec.adjacency.size
    sizes = np.abs(exact) / beta
    rms = np.maximum(np.sqrt(np.square(sizes).mean(axis=1)), 1e-30)
    flips = np.stack(
        [spec.law.flip_probability(row, size) for row, size in zip(sizes, rms, strict=True)]
    )
    expected = np.where(exact >= 0, 1.0, -1.0) * (1.0 - 2.0 * flips)
    ratio = np.arctanh(np.clip(expected, -_MOST, _MOST)) - np.arctanh(np.clip(mean, -_MOST, _MOST))
    return np.asarray(ratio, dtype=np.float32)
