"""The leak check of public parts: a codebook or design that is made of private vectors is refused.

Either is published, whole and without noise, so no epsilon covers private vectors in it. The check
is against accidents: a private file, or a part of one, that was named as the public one.

- *Shared rows.* Codewords that lie in the direction of a private vector, or points that a design
  keeps of public vectors and that a private vector has too, or vectors whose cosines a guide keeps,
  of which more than a few say which vector it was. A part with at least two of them that are more
  than 1 % of it is refused; a few coincide by chance wherever people say the same things.
- *Centroids.* Codewords of k-means are the means of the vectors that they were fitted to. The
  private vectors that are nearest to a public codeword are independent draws around it, and their
  mean lies from it at least as far as the mean of as many draws varies. A codebook is refused if
  the squared distances are less than half of that, and chance does it less than once in a million.
  Of more than 65536 vectors the evenly spaced ones are taken that ``dpindex codebook`` takes.
  Centroids of a small part of the vectors, or of many others besides, are not noticed. Nor is a
  design of vectors that were changed before: other bounds, another scale.

*What the refusal itself reveals.* Whether it comes depends on the private vectors. It is shown to
whoever holds them, and nothing is published by it; an index does not tell whether the check ran.
But an index that is published after a check tells that the check passed: that few public vectors
were private ones, and that codewords were not their means. One vector by itself is never refused,
so no device falls silent because of what its vector is. Do not drop the codewords that were found
and try again: which ones are missing then would tell which vectors there are. Take public vectors
of another origin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from dpindex.base.arrays import (
    Indices,
    Singles,
    issparse,
    row_blocks,
    spaced,
    unit,
)
from dpindex.base.errors import InputError
from dpindex.mechanism.codebooks import MAX_SIZE, Codebook, Guide
from dpindex.mechanism.public_parts import PublicPart
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.spec import Spec

_SHARE = 0.01
_FEWEST = 2
_COMPARED_ROWS = 1024
_SAME = 1.0 - 1e-6
"""Cosine of two vectors of one direction: 1 up to the rounding of float32."""

_TELLING_CELLS = 9
"""Codewords from which on the cosines of a vector with them tell it from others."""

_DRIFT = 0.5
"""Squared distance of means from codewords, over their variance, below which it is too small."""

_FALSE_ALARM = 1e-6
_DIRECTIONS = 32
"""Directions in which distances are measured; those of fewer attributes are measured in all."""

_SAME_OFFSET = 2.0**-14
"""Rounding of offsets under which two vectors of one codeword count once."""


@dataclass(frozen=True, eq=False)
class LeakEvidence:
    """Facts about private vectors by which a public part is judged; they stay with the holder.

    Attributes
    ----------
    shared : mapping of int to int
        Public vectors that are private ones too, each with the row of one: those of
        :attr:`PublicPart.known`, and after them the players of a guide.
    words : integer array, shape (n,)
        The nearest codeword of each vector that is compared with the means; none for a design.
    offsets : float32 array, shape (n, r)
        Where that vector lies from it, in some public directions.
    """

    shared: Mapping[int, int]
    words: Indices
    offsets: Singles

    @classmethod
    def joined(cls, several: Iterable[LeakEvidence]) -> LeakEvidence:
        """Return the evidence of several blocks or shards, at least one, as one."""
        parts = list(several)
        shared: dict[int, int] = {}
        for part in reversed(parts):  # the first row of each stays
            shared |= part.shared
        words = np.concatenate([part.words for part in parts])
        offsets = np.concatenate([part.offsets for part in parts])
        return cls(shared, words, offsets)


@dataclass(frozen=True)
class LeakCheck:
    """Compares private vectors with a public part, a shard at a time.

    Attributes
    ----------
    part : PublicPart
        As vectors are compared with it, after ranges.
    rows : int
        Private vectors in all.
    scale : float
        Divisor of their attributes.
    """

    part: PublicPart
    rows: int
    scale: float = 1.0

    @classmethod
    def of(cls, spec: Spec, rows: int) -> LeakCheck | None:
        """Return the check of a spec; None if it has no public part, or for one vector alone."""
        if rows < _FEWEST:
            return None
        part = spec.compared_part
        if part is None:
            return None
        return cls(part, rows, spec.scale)

    def evidence(self, first: int, vectors: Any) -> LeakEvidence:
        """Return the evidence of some vectors; memory is that of a block of them.

        Parameters
        ----------
        first : int
            Number of their first row.
        vectors : array or sparse matrix, shape (n, dim)
            Private vectors, after ranges.
        """
        blocks = row_blocks(vectors.shape[0], _COMPARED_ROWS)
        return LeakEvidence.joined(
            self._of_block(first + rows.start, vectors[rows]) for rows in blocks
        )

    def _of_block(self, first: int, block: Any) -> LeakEvidence:
        if issparse(block) and isinstance(self.part, Codebook):
            block = block.toarray()  # a design looks at its own attributes, of millions perhaps
        known = self.part.known
        directions = self.part.directions(block / self.scale)
        cosines = directions @ known.T
        rows, words = np.nonzero(cosines >= _SAME)
        rows += first
        shared: dict[int, int] = {}
        for word, row in zip(words.tolist(), rows.tolist(), strict=True):
            shared.setdefault(word, row)
        for player, row in self._players(cosines):
            shared.setdefault(len(known) + player, first + row)
        chosen = np.empty(0, np.intp)
        if isinstance(self.part, Codebook):
            sample = spaced(self.rows, MAX_SIZE)  # what a codebook of all vectors is made of
            stop = first + len(block)
            low, high = np.searchsorted(sample, (first, stop))
            chosen = sample[low:high] - first
            chosen = chosen[directions[chosen].any(axis=1)]
        nearest = cosines[chosen].argmax(axis=1)
        along = cosines[chosen, nearest]
        across = directions[chosen] - along[:, None] * known[nearest]
        offsets = across @ _axes(known.shape[1])
        return LeakEvidence(shared, nearest, offsets)

    def _players(self, cosines: Singles) -> Iterator[tuple[int, int]]:
        """Return players of the guide that are among vectors of these cosines, each with a row.

        That with the nearest codeword is left out: a guide keeps another in its place.
        """
        guide = _guide_of(self.part)
        if guide is None or cosines.shape[1] < _TELLING_CELLS:
            return
        some = np.arange(len(cosines))
        cell = cosines.argmax(axis=1)
        others = cosines.copy()
        others[some, cell] = 0.0
        least = self._least_products[cell]
        row, player = np.nonzero(unit(others) @ guide.players.T >= least)
        yield from zip(player.tolist(), row.tolist(), strict=True)

    @cached_property
    def _least_products(self) -> Singles:
        """What a player's product with the same vector is at least, without each codeword: (K, m).

        Of the guide alone: made once, and not for each block.
        """
        guide = _guide_of(self.part)
        assert guide is not None
        squares = np.square(guide.players.T, dtype=np.float64)
        rest = squares.sum(axis=0) - squares
        known = np.where(rest > 0, rest, np.inf)
        norms = np.sqrt(known).astype(np.float32)
        least: Singles = _SAME * norms
        return least


def _guide_of(part: PublicPart) -> Guide | None:
    if isinstance(part, Codebook):
        return part.guide
    return None


@cache
def _axes(dim: int) -> Singles:
    """Return the directions in which offsets are measured, as columns, shape (dim, r)."""
    if dim <= _DIRECTIONS:
        return np.eye(dim, dtype=np.float32)
    signs = PublicStream(0, "leak check of means").signs(dim * _DIRECTIONS)
    return signs.reshape(dim, _DIRECTIONS).astype(np.float32)


def refuse_leaks(part: PublicPart, evidence: LeakEvidence) -> None:
    """Refuse a public part that is made of private vectors.

    Raises
    ------
    InputError
        For a part of which more than 1 % are private vectors, with the first such vector and the
        row that it equals; for codewords that are means of private vectors, and for a guide that
        was made of some.

    >>> rows = np.random.default_rng(0).normal(size=(100, 8))
    >>> public = Codebook(rows[:50])
    >>> refuse_leaks(public, LeakCheck(public, 50).evidence(50, rows[50:]))
    >>> try:
    ...     refuse_leaks(public, LeakCheck(public, 100).evidence(0, 3 * rows))
    ... except InputError as error:
    ...     print(str(error)[:75])
    50 of the 50 codewords are private vectors too (codeword 0 is row 0), and a
    """
    size = len(part.known)
    shared = {one: row for one, row in evidence.shared.items() if one < size}
    played = [row for one, row in evidence.shared.items() if one >= size]
    guide = _guide_of(part)
    leak = ""
    if len(shared) >= _FEWEST and len(shared) > _SHARE * size:
        one, row = min(shared.items())
        leak = (
            f"{len(shared)} of the {size} {part.holds}s are private vectors too ({part.holds} "
            f"{one} is row {row})"
        )
    elif _are_means(evidence):
        leak = "the codewords are means of the private vectors, as of a codebook made of them"
    elif guide and len(played) >= _FEWEST and len(played) > _SHARE * len(guide.players):
        leak = (
            f"{len(played)} of the {len(guide.players)} vectors that the codebook's guide is made "
            f"of are private vectors too (one is row {min(played)})"
        )
    if leak:
        raise InputError(
            f"{leak}, and a {part.kind} is published as it is: no epsilon covers what is in it. "
            f"Take public vectors of another origin, or skip this check if these are public after "
            f"all.",
            field="skip_leak_check",
        )


def _are_means(evidence: LeakEvidence) -> bool:
    """Return whether means of private vectors lie nearer to the codewords than chance lets them.

    Given a public codebook, n vectors of one codeword are independent draws of a law of variance
    σ². Their mean offset has an expected square of at least σ²/n, so over all codewords the sum of
    n·(mean offset)² is at least that of σ², but for the luck of a χ² law (Satterthwaite 1946).
    """
    from scipy.special import gammaincinv  # here: few codes have a codebook

    if len(evidence.words) < 2:  # one vector, as is added often, has no variance
        return False
    rounded = np.rint(evidence.offsets / _SAME_OFFSET)
    keys = np.column_stack([evidence.words, rounded.astype(np.int32)])
    _, different = np.unique(keys, axis=0, return_index=True)
    names, words, counts = np.unique(
        evidence.words[different], return_inverse=True, return_counts=True
    )
    offsets = evidence.offsets[different].astype(np.float64)
    shape = (len(names), offsets.shape[1])
    sums = np.zeros(shape)
    np.add.at(sums, words, offsets)
    means = sums / counts[:, None]
    within = offsets - means[words]
    several = counts > 1
    spreads = np.square(within).sum(axis=1)
    squares = np.bincount(words, spreads, len(names))
    variances = squares[several] / (counts[several] - 1)
    if not variances.any():
        return False
    distances = np.square(means[several]).sum(axis=1)
    drifts = counts[several] * distances
    variance = variances.sum()
    drift = drifts.sum() / variance
    scatter = within.T @ within
    codewords = variance**2 / np.square(variances).sum()
    directions = np.trace(scatter) ** 2 / np.square(scatter).sum()
    freedom = codewords * directions
    luck = 2.0 * gammaincinv(freedom / 2.0, _FALSE_ALARM) / freedom
    return bool(drift < min(_DRIFT, luck))
