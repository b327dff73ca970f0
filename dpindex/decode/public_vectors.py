"""Codes of signs, read by public vectors of their kind.

A sign says little, and what many of them say together depends on which vectors there are. So a
vector is taken to be like one of some public ones. Its estimate is their mean, each as likely as
the public law of the signs says, and the linear estimate, in shares. Vectors differ from the public
ones in many coordinates at once, so a power of likelihoods below 1 is taken (Grünwald & van Ommen
2017). Power and shares are those of the least squared error among *other* public vectors, whose
codes are drawn by the same law from the public stream: all are functions of public parameters.

To rank, the linear estimate counts more, as it alone tells like vectors apart: how much more is
what ranks the nearest of those other vectors best, in items and in private queries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy

from dpindex.base.arrays import Doubles, Singles, row_blocks, unit
from dpindex.base.errors import InputError
from dpindex.decode.signs import expected_signs, log_likelihood_of_signs
from dpindex.mechanism.codebooks import grown_codebook
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec

_COMPARED = 4096
"""Vectors that a code is compared with, at most twice as many as there are, if there are not more.

With points between 2000 sentences .02 more is found."""

_POWERS = np.geomspace(0.02, 1.0, 12)

_APART = (2.0, 4.0)
"""How often the linear estimate of an item may count."""

_ASKED_APART = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""How often that of a private query may: of digits at epsilon 3 eight times, of sentences once."""

_SURE = (0.1, 0.0)
"""Powers of what the norm of an item may be: its estimate's, over that of likely public vectors.

It is small where these differ. With 0 all items are of norm 1."""

_NEAREST = 2
"""Nearest vectors of each that are ranked. They lie farther than those of a collection."""

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
    apart, asked_apart : float
        How often the linear estimate counts in items, and in private queries, that are ranked.
    sure : float
        See :meth:`items`.
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
            likely = scipy.special.softmax(np.float32(power) * logs, axis=1) @ self._inside
            # What the linear estimate of least squares does not say is orthogonal to it.
            known = np.vdot(by_codes, likely) / max(np.vdot(by_codes, by_codes), _TINY)
            new = likely - known * by_codes
            share = np.vdot(new, missing) / max(np.vdot(new, new), _TINY)
            error = np.square(missing - share * new).sum()
            fits.append((error, power, share, 1 - known * share))
        _, *best = map(float, min(fits))
        self.power, self.of_public, self.of_linear = best
        self._fit_ranks(spec, y)

    def _fit_ranks(self, spec: Spec, y: Singles) -> None:
        """Choose what ranks the nearest of tested vectors best, of whose codes ``y`` are."""
        design = spec.part(Design)
        count = len(y)
        lengths = np.sqrt(np.maximum(np.diag(design.products), _TINY))
        cosines = design.products / np.outer(lengths, lengths)
        np.fill_diagonal(cosines, -np.inf)
        nearest = np.argsort(-cosines, axis=1)[:, : min(_NEAREST, count - 1)]
        # Two codes of each vector ask and are found, but not by those of their own vector.
        wanted = np.tile(np.hstack([nearest, nearest + count]), (2, 1))
        parts = self._parts(np.concatenate([y, drawn(spec, "asked").to_float()]))
        exact = np.tile(unit(design.inside[:count]), (2, 1))

        def lost(queries: Singles, items: Singles) -> float:
            """Return the mean logarithm of the rank of what is wanted."""
            scores = queries @ items.T
            for twin in (-count, 0, count):
                np.fill_diagonal(scores[max(-twin, 0) :, max(twin, 0) :], -np.inf)
            right = np.take_along_axis(scores, wanted, axis=1)
            before = [(scores > column[:, None]).sum(axis=1) for column in right.T]
            return float(np.log1p(before).mean())

        asked = [(self._sum(parts, times), times) for times in _ASKED_APART]
        fits = []
        for apart, sure in product(_APART, _SURE):
            items = self._item(parts, apart, sure)
            by_private, asked_apart = min((lost(queries, items), times) for queries, times in asked)
            fits.append((lost(exact, items) + by_private, apart, sure, asked_apart))
        _, self.apart, self.sure, self.asked_apart = min(fits)

    def _logs(self, y: Singles) -> Singles:
        """Return the log-likelihoods of the public vectors, up to a constant each, shape (n, s)."""
        logs: Singles = y @ self._weights
        logs -= self._constant
        return logs

    def estimates(self, codes: Codes) -> Singles:
        """Return estimates of the vectors behind codes, shape (n, k + 1)."""
        return self._each(codes, lambda parts: self._sum(parts, 1.0))

    def items(self, codes: Codes) -> Singles:
        """Return what ranks codes by inner products, shape (n, k + 1).

        Its norm is a power ``sure`` of that of the estimate over that of likely public vectors.
        """
        return self._each(codes, lambda parts: self._item(parts, self.apart, self.sure))

    def queries(self, codes: Codes) -> Singles:
        """Return what codes of private queries rank items by, shape (n, k + 1)."""
        return self._each(codes, lambda parts: self._sum(parts, self.asked_apart))

    def _each(self, codes: Codes, made: Callable[[_Parts], Singles]) -> Singles:
        out = np.empty((len(codes), self._inside.shape[1]), dtype=np.float32)
        for rows in row_blocks(len(codes), _BLOCK_NUMBERS // len(self._inside)):
            out[rows] = made(self._parts(codes.take(rows).to_float()))
        return out

    def _parts(self, y: Singles) -> _Parts:
        likely = self._logs(y)
        likely -= likely.max(axis=1, keepdims=True)
        likely *= np.float32(self.power)
        np.exp(likely, out=likely)
        likely /= likely.sum(axis=1, keepdims=True)
        return _Parts(likely @ self._inside, self._linear(y), likely @ self._energies)

    def _sum(self, parts: _Parts, apart: float) -> Singles:
        return self.of_public * parts.mean + apart * self.of_linear * parts.linear

    def _item(self, parts: _Parts, apart: float, sure: float) -> Singles:
        x = self._sum(parts, apart)
        squares = np.einsum("ij,ij->i", x, x)
        norms = squares ** (1 - sure) * parts.energies**sure
        x /= np.sqrt(np.maximum(norms, _TINY))[:, None]
        return x


class _Parts(NamedTuple):
    """What estimates are made of: the mean of public vectors, and that of their squared norms."""

    mean: Singles
    linear: Singles
    energies: Singles


def _grown(inside: Singles, projected: Doubles) -> tuple[Singles, Doubles]:
    """Return public vectors and points half-way between near ones, as many as are compared."""
    _, first = np.unique(inside, axis=0, return_index=True)
    first = np.sort(first[inside[first].any(axis=1)])
    if len(first) < _COMPARED:
        with suppress(InputError):  # few different vectors
            book, ends = grown_codebook(inside[first], min(_COMPARED, 2 * len(first)))
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
