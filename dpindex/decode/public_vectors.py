"""Codes of signs, read by public vectors of their kind.

A sign says little, and what many of them say together depends on which vectors there are. So a
vector is taken to be like one of some public ones. Its estimate is their mean, each as likely as
the public law of the signs says, and the linear estimate, in shares. Vectors differ from the public
ones in many coordinates at once, so a power of likelihoods below 1 is taken (Grünwald & van Ommen
2017). Power and shares are those of the least squared error among *other* public vectors, whose
codes are drawn by the same law from the public stream: all are functions of public parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Singles, row_blocks
from dpindex.base.errors import InputError
from dpindex.decode.signs import expected_signs, log_likelihood_of_signs
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec

_COMPARED = 4096
"""Vectors that a code is compared with, at least. With points between 2000 sentences .02 more is
found."""

_POWERS = np.geomspace(0.02, 1.0, 12)

_SCALED = 0.9
"""How far estimates are brought to norm 1 before they are ranked; 0 suits posterior means."""

_APART = 2.0
"""How often the linear estimate counts then: it alone tells like vectors apart.

Once and .75 find as many of the true 50 nearest of sentences, principal components of them, made-up
topics and pictures, and .02 less of the true ten: bench/windows.
"""

_BLOCK_NUMBERS = 1 << 22
_TINY = 1e-30


class PublicVectors:
    """The public vectors of a design of signs, with which its codes are compared.

    Parameters
    ----------
    spec : Spec
        Of the codes.
    linear : callable
        The linear estimate of vectors from decoded codes, in coordinates of the design's basis.

    Attributes
    ----------
    power : float
        Of the likelihoods.
    of_public, of_linear : float
        Shares of the mean of public vectors and of the linear estimate.
    """

    def __init__(self, spec: Spec, linear: Callable[[Singles], Singles]) -> None:
        design = spec.part(Design)
        tested = len(design.products)
        self._linear = linear
        self._inside, projected = _grown(design.inside[tested:], projections(design, spec)[tested:])
        self._energies = np.square(self._inside).sum(axis=1)
        signs = expected_signs(spec, projected * spec.step)
        weights, constant = log_likelihood_of_signs(signs)
        self._weights = weights.T
        self._constant = constant.astype(np.float32)
        y = drawn(spec, "tempered").to_float()
        logs = self._logs(y)
        by_codes = linear(y)
        missing = design.inside[:tested] - by_codes
        fits = []
        for power in _POWERS:
            likely = scipy.special.softmax(power * logs, axis=1) @ self._inside
            # What the linear estimate of least squares does not say is orthogonal to it.
            known = np.vdot(by_codes, likely) / max(np.vdot(by_codes, by_codes), _TINY)
            new = likely - known * by_codes
            share = np.vdot(new, missing) / max(np.vdot(new, new), _TINY)
            error = np.square(missing - share * new).sum()
            fits.append((error, power, share, 1 - known * share))
        _, *best = map(float, min(fits))
        self.power, self.of_public, self.of_linear = best

    def _logs(self, y: Singles) -> Singles:
        """Return the log-likelihoods of the public vectors, up to a constant each, shape (n, s)."""
        logs: Singles = y @ self._weights
        logs -= self._constant
        return logs

    def estimates(self, codes: Codes, scaled: bool = False) -> Singles:
        """Return estimates of the vectors behind codes, shape (n, k + 1).

        Inner products with ``scaled`` ones rank by cosine.
        """
        out = np.empty((len(codes), self._inside.shape[1]), dtype=np.float32)
        of_linear = self.of_linear * (_APART if scaled else 1.0)
        for rows in row_blocks(len(codes), _BLOCK_NUMBERS // len(self._inside)):
            y = codes.take(rows).to_float()
            likely = self._logs(y)
            likely -= likely.max(axis=1, keepdims=True)
            likely *= np.float32(self.power)
            np.exp(likely, out=likely)
            likely /= likely.sum(axis=1, keepdims=True)
            x = self.of_public * (likely @ self._inside) + of_linear * self._linear(y)
            if scaled:
                squares = np.einsum("ij,ij->i", x, x)
                norms = squares**_SCALED * (likely @ self._energies) ** (1 - _SCALED)
                x /= np.sqrt(np.maximum(norms, _TINY))[:, None]
            out[rows] = x
        return out


def _grown(inside: Singles, projected: Doubles) -> tuple[Singles, Doubles]:
    """Return public vectors and points half-way between near ones, as many as are compared."""
    _, first = np.unique(inside, axis=0, return_index=True)
    first = np.sort(first[inside[first].any(axis=1)])
    if len(first) < _COMPARED:
        with suppress(InputError):  # few different vectors
            # It loads a search library, which a device and `info` do without.
            from dpindex.mechanism.codebooks import grown_codebook

            book, ends = grown_codebook(inside[first], _COMPARED)
            return book.stated, projected[first[ends]].mean(axis=0)
    return inside, projected


def projections(design: Design, spec: Spec) -> Doubles:
    """Return the public vectors that a design holds as codes are made of them, in grid steps."""
    return np.asarray(np.rint(design.projected / spec.step) - spec.offset)


def drawn(spec: Spec, purpose: str) -> Codes:
    """Return codes of those public vectors of a design that tell what estimates are worth."""
    design = spec.part(Design)
    exact = projections(design, spec)[: len(design.products)]
    outcomes = spec.law.perturb(exact, PublicStream(0, f"design/{purpose}"))
    return spec.format.codes(spec.format.pack(outcomes))
