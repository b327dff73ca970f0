"""Families of projections: how each is made, its default code length and what it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from dpindex.base.errors import NoGuaranteeError
from dpindex.mechanism.codebooks import Codebook
from dpindex.mechanism.method import Family, Length
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections import CodewordMap, Encoder, Identity, Rotation
from dpindex.mechanism.projections.dense import Designed, Oporp, codeword_scores
from dpindex.mechanism.public_parts import Design
from dpindex.mechanism.public_random import PublicStream
from dpindex.mechanism.variants import Repeated
from dpindex.privacy import Attribute

_EXAMPLE_ROWS = 100

_MIN_BINS = 128

_MAX_BINS = 1024

_MIN_SIGN_BINS = 8

_MAX_SIGN_BINS = 4096
"""Bins of OPORP by default: more make codes of sparse text long and help little."""

_in_use: WeakValueDictionary[tuple[Any, ...], Encoder] = WeakValueDictionary()


def shared_map(kind: Callable[..., Encoder], parameters: Parameters, *more: int) -> Encoder:
    """A map of that kind, made from dim, length and seed, and a sparsity if it needs one.

    Specs that have it in common share it: for millions of attributes it takes seconds.
    """
    stated = parameters.variant.sparsity
    sparsity = () if stated is None else (stated,)
    key = (kind, parameters.dim, parameters.k, parameters.seed, *sparsity, *more)
    made = _in_use.get(key)
    if made is None:
        made = _in_use[key] = kind(*key[1:])
    return made


def _oporp(parameters: Parameters) -> Encoder:
    return shared_map(Oporp, parameters, parameters.variant.repetitions)


def _oporp_length(parameters: Parameters) -> int:
    """Return a bin for each attribute, up to 128, and up to 1024 where the noise allows it.

    Fewer bins blur what tells neighbours apart. More than ``norm² / 4σ²`` bins add noise that
    outweighs what they keep, where σ² is the least variance of pure noise at this epsilon and
    beta. Without a stated norm it is that of attributes spread over the bounds. Under l2 adjacency
    more bins never add noise.

    >>> from dpindex.privacy import attribute
    >>> known = {"adjacency": attribute(1.0), "bounds": (0, 1)}
    >>> [_oporp_length(Parameters("dp-oporp-staircase", dim, epsilon=3.0, **known))
    ...  for dim in (8, 100, 784)]
    [8, 100, 128]
    >>> _oporp_length(Parameters("dp-oporp-staircase", 784, epsilon=8.0, **known))
    784
    """
    max_bins = min(parameters.dim, _MAX_BINS)
    if not isinstance(parameters.adjacency, Attribute):
        return max_bins
    width = parameters.bounds[1] - parameters.bounds[0]
    quarter = width / 4
    square = parameters.dim * quarter * quarter  # infinite where ** would raise
    if parameters.norm is not None:
        square = parameters.norm * parameters.norm
    variance = parameters.change**2 * _least_variance(parameters.budget)
    if square >= 4 * variance * max_bins:
        return max_bins
    kept = int(square / (4 * variance))
    return min(max_bins, max(_MIN_BINS, kept))


def _least_variance(epsilon: float) -> float:
    """Return the variance of staircase noise for a sensitivity of 1 (Geng & Viswanath 2014)."""
    b = math.exp(-epsilon)
    power = math.pow(b * (1 + b) / 2, 2 / 3)
    return (power + b) / (1 - b) ** 2


def _sign_length(parameters: Parameters) -> int:
    """A bin for each attribute, up to 4096; where none is negative, one for four, up to 1024.

    The sign of a single attribute says much where attributes have either sign: 384 bins of a
    sentence embedding find twice what 64 find. It says nothing where none is negative, as in
    pictures. ``dpindex plan`` chooses the same lengths.
    """
    both = parameters.bounds[0] < 0 < parameters.bounds[1]
    bins = min(parameters.dim // 4, _MAX_BINS)
    if both:
        bins = min(parameters.dim, _MAX_SIGN_BINS)
    bins = max(bins, min(parameters.dim, _MIN_SIGN_BINS))
    return parameters.variant.repetitions * bins


@cache
def _example_codebook(dim: int, delta: float) -> Codebook:
    """Return fifty codewords."""
    words = PublicStream(0, "audit/self-test").words(50 * dim, np.uint16)
    return Codebook(words.reshape(50, dim) - 2.0**15)


@cache
def _example_design(dim: int, delta: float) -> Design:
    """Return a small design for public vectors of a few common causes."""
    from dpindex.mechanism.optimiser import design  # which needs more than a table of methods does

    parts = PublicStream(0, "audit/design").uniform(_EXAMPLE_ROWS, dim + 4) - 0.5
    causes = parts[:, dim:].sum(axis=1, keepdims=True)
    public = parts[:, :dim] / 4 + causes
    return design(public, epsilon=1.0, code_length=min(-(-dim // 2), 24), delta=delta)


def always(length: int) -> Length:
    return lambda parameters: length


def _scores(parameters: Parameters) -> Encoder:
    signs = isinstance(parameters.adjacency, Attribute)
    if parameters.window is None:
        return codeword_scores(parameters.codewords, signs)
    if not signs:
        raise NoGuaranteeError(
            "windows are for one attribute: clipped to windows of different widths, a ball is none "
            "any more; leave window out."
        )
    windows = (parameters.window, parameters.change)
    return codeword_scores(parameters.codewords, signs, windows, parameters.scale)


IDENTITY = Family(
    lambda made: Identity(made.dim),
    lambda parameters: parameters.dim,
    keeps_all=True,
    moves="one",
)

OPORP = Family(_oporp, _oporp_length, bins=True, moves="one")

SIGN_OPORP = replace(OPORP, default_length=_sign_length)

REPEATED_OPORP = replace(SIGN_OPORP, variant=Repeated(), moves="units")

DESIGNED = Family(
    lambda parameters: Designed(parameters.part(Design)),
    lambda parameters: parameters.part(Design).code_length,
    public=Design,
    example=_example_design,
)

ROTATION = Family(partial(shared_map, Rotation), always(128), lengths=range(64, 1025, 8))

CODEWORDS = Family(
    lambda parameters: CodewordMap(parameters.codewords),
    always(1),
    lengths=range(1, 2),
    public=Codebook,
    example=_example_codebook,
    subset=True,
)

SCORES = replace(CODEWORDS, make=_scores, subset=False, windows=True)
