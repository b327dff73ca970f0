"""What attacks find in one build of an index: own codes found, and vectors rebuilt."""

from __future__ import annotations

import math

import numpy as np

from dpindex.base.arrays import AnyArray, spaced
from dpindex.data import VectorSource, dense_rows
from dpindex.denoise import Denoiser
from dpindex.index.kinds import kind_of
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.privatizer import Privatizer
from dpindex.study.evaluate.curve import candidate_levels, linked_within
from dpindex.study.linkage import LINKED, Linkage
from dpindex.study.reconstruction import (
    EXPOSURE,
    can_be_reconstructed,
    public_rows,
    reconstructor_of,
)

__all__ = ["measured_exposure"]

# Vectors that attacks rebuild and recognise, at most.
_ATTACKED = 500
_KNOWN = 250
# The most numbers of known vectors that are searched for at a time.
_MAX_NUMBERS = 1 << 26


def measured_exposure(
    index: PrivateIndex, base: VectorSource, denoiser: Denoiser | None
) -> dict[str, float]:
    """Return what attacks find in an index of ``base``, by measure.

    Own codes are found by the test of :class:`dpindex.study.linkage.Linkage` and by exact
    searches of the index; the higher share counts.
    """
    values = _rebuilt(index, base, denoiser)
    places = _places_of_own_codes(index, base)
    linkage = _linkage(index, base)
    for level in (1, *candidate_levels(len(index))):
        name = linked_within(level) if level > 1 else LINKED
        searched = float((places < level).mean())
        values[name] = max(searched, linkage.share_within(level))
    return values


def _linkage(index: PrivateIndex, base: VectorSource) -> Linkage:
    _, vectors = next(base.chunks())
    size = kind_of(index.spec).likelihoods.crowd_size
    privatizer = Privatizer(index.spec, allow_unprotected=True)
    crowd = vectors[_KNOWN : _KNOWN + size]
    linkage = Linkage(privatizer, vectors[:_KNOWN], index.codes, crowd)
    linkage.count(index.codes)
    return linkage


def _rebuilt(
    index: PrivateIndex, base: VectorSource, denoiser: Denoiser | None
) -> dict[str, float]:
    """Return what an attacker rebuilds who has other vectors of the collection; or NaN."""
    spec = index.spec
    if not can_be_reconstructed(spec):
        return dict.fromkeys(EXPOSURE, math.nan)
    attacked = spaced(len(index), _ATTACKED)
    public = dense_rows(base, public_rows(len(index), spec.dim, attacked))
    rebuild = reconstructor_of(spec, public, index.codes, denoiser)
    return rebuild.exposure(dense_rows(base, attacked), index.codes.take(attacked))


def _places_of_own_codes(index: PrivateIndex, base: VectorSource) -> AnyArray:
    """Return the place of known vectors' own codes in exact searches by the index, from 0.

    A code that is not among the most candidates has their number as its place. Known vectors are
    evenly spaced, so that an order of rows among ties favours none.
    """
    rows = spaced(len(index), _KNOWN)[: max(1, _MAX_NUMBERS // base.shape[1])]
    depth = candidate_levels(len(index))[-1]
    found = index.nearest(dense_rows(base, rows), k=depth, query="exact", allow_unprotected=True)
    own = found == rows[: len(found), None]
    return np.where(own.any(axis=1), own.argmax(axis=1), depth)
