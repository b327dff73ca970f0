"""Exposure: how much of the vectors the best attack here gets back from their codes.

The denoiser is also the best attack: it learns from the other codes what vectors of the collection
look like, which an attacker who holds them all can do as well as a searcher.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.arrays import Integers
from dpindex.codes import Codes
from dpindex.errors import InputError
from dpindex.estimators.denoise import Denoiser, fit_denoiser
from dpindex.evaluate.inversion import cosines, invert
from dpindex.spec import Spec

__all__ = ["EXPOSURE", "Exposed"]

EXPOSURE = ("rebuilt_error", "rebuilt_cosine")
"""What :meth:`Exposed.measure` measures."""

_REBUILT = 500
_LEARNED_FROM = 8192
_MAX_DIMS = 2048
_MAX_NUMBERS = 1 << 22


class Exposed:
    """The first few vectors of a collection, and codes enough for an attacker to learn from."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._originals: npt.NDArray[Any] | None = None
        self._stored: list[Integers] = []

    def see(self, vectors: Any, codes: Codes) -> None:
        """The next vectors of the collection, and their codes."""
        if self._originals is None:
            some = vectors[:_REBUILT]
            self._originals = np.asarray(some.toarray() if hasattr(some, "toarray") else some)
        if sum(map(len, self._stored)) < _LEARNED_FROM:
            self._stored.append(codes.stored)

    def measure(self, denoiser: Denoiser | None) -> dict[str, float]:
        """Squared error of rebuilt vectors over that of the best guess from public facts; cosine.

        The guess is the middle of the bounds. Both are NaN where the projection is too large to
        write out. The index's denoiser serves the attacker too, if it is of the stronger kind.
        """
        spec, unknown = self._spec, dict.fromkeys(EXPOSURE, math.nan)
        if spec.code_length > _MAX_DIMS or spec.dim * spec.code_length > _MAX_NUMBERS:
            return unknown
        if self._originals is None:
            return unknown
        codes = spec.format.codes(np.concatenate(self._stored))
        denoiser = self._strongest(codes, denoiser)
        truth = self._originals.astype(np.float64)
        estimate = invert(codes.take(slice(len(truth))), spec, denoiser).astype(np.float64)
        guess = sum(spec.bounds) / 2 * spec.scale
        error = np.square(estimate - truth).mean() / np.square(truth - guess).mean()
        return {EXPOSURE[0]: float(error), EXPOSURE[1]: float(cosines(estimate, truth).mean())}

    def _strongest(self, codes: Codes, denoiser: Denoiser | None) -> Denoiser | None:
        row = self._spec.mechanism
        if row.codes == "signs" or not row.private:
            return None
        if denoiser is not None and denoiser.kind == "score":
            return denoiser
        try:
            return fit_denoiser(codes, self._spec)
        except InputError:  # too few, or all noise: the attack from public facts is left
            return denoiser
