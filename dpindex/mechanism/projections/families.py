"""Families of projections: how one is made from parameters, its default length and its options."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from dpindex.base.checks import whole_number
from dpindex.base.errors import InputError
from dpindex.mechanism.parameters import Parameters
from dpindex.mechanism.projections.base import Identity, Projection
from dpindex.mechanism.projections.codeword_map import CodewordMap
from dpindex.mechanism.projections.dense import FINE_ENTRY_BITS, Gaussian, Rademacher, Uniform
from dpindex.mechanism.projections.oporp import Oporp
from dpindex.mechanism.projections.rotation import Rotation
from dpindex.mechanism.projections.sparse_jl import FastJL, SparseJL, VerySparse
from dpindex.privacy import Attribute

_Length = Callable[[Parameters], int]
_MAX_BLOCKS = 1024
_MIN_BINS = 128
_MAX_BINS = 1024
_MIN_SIGN_BINS = 8
_MAX_SIGN_BINS = 4096
"""Bins of OPORP by default: more make codes of sparse text long and help little."""
_MAX_INVERSE_DENSITY = 1 << 16
"""Very sparse entries: the law of the gaps between them is a table of four times that."""


@dataclass(frozen=True)
class Family:
    """A family of projections: how one is made, and which parameters it takes.

    Attributes
    ----------
    make : callable
        From parameters in which ``k``, ``entries`` and ``sparsity`` are resolved.
    default_length : callable
        Code length where none is given.
    entries : tuple of str
        The entries that the projection may have, the default first; empty if they are fixed.
    keeps_all : bool
        The code length is dim.
    bins : bool
        Every coordinate of a repetition needs an attribute of its own: k / repetitions ≤ dim.
    repeats : bool
        Takes ``repetitions``.
    blocks : bool
        ``sparsity`` is a number of blocks, a divisor of k.
    lengths : range, optional
        The code lengths that it takes; by default any.
    codebook : bool
        Takes ``codebook`` and ``subset``.
    """

    make: Callable[[Parameters], Projection]
    default_length: _Length
    entries: tuple[str, ...] = ()
    keeps_all: bool = False
    bins: bool = False
    repeats: bool = False
    blocks: bool = False
    lengths: range | None = None
    codebook: bool = False

    def resolved(self, parameters: Parameters) -> dict[str, Any]:
        """``k``, ``entries`` and ``sparsity``, checked, with defaults filled in."""
        if parameters.repetitions > 1 and not self.repeats:
            raise InputError(
                f"{parameters.method} takes no repetitions: they are for sign codes of OPORP."
            )
        k = parameters.k or self.default_length(parameters)
        if self.keeps_all and k != parameters.dim:
            raise InputError(
                f"{parameters.method} keeps every coordinate: k must be dim = {parameters.dim}."
            )
        if k % parameters.repetitions:
            raise InputError(
                f"k = {k} is not a multiple of repetitions = {parameters.repetitions}."
            )
        if self.bins and k // parameters.repetitions > parameters.dim:
            bins = k // parameters.repetitions
            raise InputError(
                f"{parameters.method} needs k / repetitions ≤ dim: {bins} bins cannot be "
                f"filled by {parameters.dim} attributes."
            )
        if self.lengths is not None and k not in self.lengths:
            lengths = self.lengths
            if len(lengths) == 1:
                raise InputError(f"{parameters.method} has codes of one length; leave k out.")
            raise InputError(
                f"k of {parameters.method} must be a multiple of {lengths.step} from {lengths[0]} "
                f"to {lengths[-1]}, not {k}."
            )
        entries = self._entries(parameters)
        sparsity = self._sparsity(parameters, k, entries)
        return {
            "k": k,
            "entries": entries,
            "sparsity": sparsity,
            "subset": self._subset(parameters),
        }

    def _subset(self, parameters: Parameters) -> int | None:
        book = parameters.codebook
        given = parameters.subset
        if not self.codebook:
            if book is not None or given is not None:
                raise InputError(
                    f"{parameters.method} takes no codebook and no subset; leave them out."
                )
            return None
        if book is None:
            raise InputError(
                f"{parameters.method} needs a codebook: a file of public vectors of the same kind.",
                field="codebook",
            )
        if book.dim != parameters.dim:
            raise InputError(f"the codebook has dim = {book.dim}, the spec dim = {parameters.dim}.")
        return whole_number(
            given or _informative_subset(book.size, parameters.budget), "subset", 1, book.size - 1
        )

    def _entries(self, parameters: Parameters) -> str | None:
        if not self.entries:
            if parameters.entries is not None:
                raise InputError(f"{parameters.method} has fixed entries; leave entries out.")
            return None
        entries = self.entries[0] if parameters.entries is None else parameters.entries
        if entries not in self.entries:
            names = ", ".join(self.entries)
            raise InputError(
                f"entries of {parameters.method} must be one of {names}, not {entries!r}."
            )
        return entries

    def _sparsity(self, parameters: Parameters, k: int, entries: str | None) -> int | None:
        given = parameters.sparsity
        if entries == "very-sparse":
            value = max(1, math.isqrt(parameters.dim)) if given is None else given
            return whole_number(value, "sparsity", 1, _MAX_INVERSE_DENSITY)
        if not self.blocks:
            if given is not None:
                raise InputError(
                    f"{parameters.method} does not use sparsity here: it is for very-sparse "
                    f"entries and sparse Johnson-Lindenstrauss maps."
                )
            return None
        if given is None:
            return next(s for s in (4, 3, 2, 1) if k % s == 0)
        sparsity = whole_number(given, "sparsity", 1, _MAX_BLOCKS)
        if k % sparsity:
            raise InputError(
                f"k = {k} is not a multiple of sparsity = {sparsity}: every attribute moves one "
                f"coordinate in each of {sparsity} equal blocks."
            )
        return sparsity


_in_use: WeakValueDictionary[tuple[Any, ...], Projection] = WeakValueDictionary()


def _made(kind: Callable[..., Projection], parameters: Parameters, *more: int) -> Projection:
    """A projection of that kind, made from dim, length and seed, and a sparsity if it needs one.

    Specs that have it in common share it: for millions of attributes it takes seconds.
    """
    sparsity = () if parameters.sparsity is None else (parameters.sparsity,)
    key = (kind, parameters.dim, parameters.k, parameters.seed, *sparsity, *more)
    made = _in_use.get(key)
    if made is None:
        made = _in_use[key] = kind(*key[1:])
    return made


_BY_ENTRIES = {
    "gaussian": partial(_made, Gaussian),
    "rademacher": partial(_made, Rademacher),
    "uniform": partial(_made, Uniform),
    "very-sparse": partial(_made, VerySparse),
}


def _dense(default: str, length: _Length, **changed: Callable[[Parameters], Projection]) -> Family:
    """A random projection whose entries may be chosen (Li & Li 2023, Sec. 3.4), with a default."""
    makers = _BY_ENTRIES | changed
    return Family(
        make=lambda parameters: makers[parameters.entries or default](parameters),
        default_length=length,
        entries=tuple(sorted(makers, key=lambda name: name != default)),  # the default first
    )


def _oporp(parameters: Parameters) -> Projection:
    return _made(Oporp, parameters, parameters.repetitions)


def _oporp_length(parameters: Parameters) -> int:
    """Return a bin for each attribute, up to 128, and up to 1024 where the noise allows it.

    Fewer bins blur what tells neighbours apart. More than ``norm² / 4σ²`` bins add noise that
    outweighs what they keep, where σ² is the least variance of pure noise at this epsilon and
    beta. Without a stated norm it is that of attributes spread over the bounds. Under l2 adjacency
    more bins never add noise.

    >>> [_oporp_length(Parameters("dp-oporp-staircase", dim, epsilon=3.0, bounds=(0, 1)))
    ...  for dim in (8, 100, 784)]
    [8, 100, 128]
    >>> _oporp_length(Parameters("dp-oporp-staircase", 784, epsilon=8.0, bounds=(0, 1)))
    784
    """
    max_bins = min(parameters.dim, _MAX_BINS)
    if not isinstance(parameters.adjacency, Attribute):
        return max_bins
    width = parameters.bounds[1] - parameters.bounds[0]
    square = parameters.dim * (width / 4) ** 2
    if parameters.norm is not None:
        square = parameters.norm**2
    variance = parameters.adjacency.size**2 * _least_variance(parameters.budget)
    if square >= 4 * variance * max_bins:
        return max_bins
    return min(max_bins, max(_MIN_BINS, int(square / (4 * variance))))


def _least_variance(epsilon: float) -> float:
    """Return the variance of staircase noise for a sensitivity of 1 (Geng & Viswanath 2014)."""
    b = math.exp(-epsilon)
    return (math.pow(b * (1 + b) / 2, 2 / 3) + b) / (1 - b) ** 2


def _sign_length(parameters: Parameters) -> int:
    """A bin for each attribute, up to 4096; for four, up to 1024, where none is negative.

    Signs of single attributes say much about vectors of either sign (384 of a sentence embedding
    find twice what 64 find) and nothing about pictures; ``dpindex plan`` chooses the same.
    """
    both = parameters.bounds[0] < 0 < parameters.bounds[1]
    bins = min(parameters.dim // 4, _MAX_BINS)
    if both:
        bins = min(parameters.dim, _MAX_SIGN_BINS)
    bins = max(bins, min(parameters.dim, _MIN_SIGN_BINS))
    return parameters.repetitions * bins


def _always(length: int) -> _Length:
    return lambda parameters: length


def _codewords(parameters: Parameters) -> Projection:
    if parameters.codebook is None:
        raise InputError(f"{parameters.method} needs a codebook.")
    return CodewordMap(parameters.codebook)


_numbers = _always(128)
_signs = _always(512)

IDENTITY = Family(
    lambda made: Identity(made.dim), lambda parameters: parameters.dim, keeps_all=True
)
OPORP = Family(_oporp, _oporp_length, bins=True)
SIGN_OPORP = replace(OPORP, default_length=_sign_length)
REPEATED_OPORP = replace(SIGN_OPORP, repeats=True)
RADEMACHER = Family(partial(_made, Rademacher), _numbers)
SIGN_RADEMACHER = Family(partial(_made, Rademacher), _signs)
GAUSSIAN = Family(partial(_made, Gaussian), _numbers)
SPARSE_JL = Family(partial(_made, SparseJL), _numbers, blocks=True)
FAST_JL = Family(partial(_made, FastJL), _numbers)
ROTATION = Family(partial(_made, Rotation), _numbers, lengths=range(64, 1025, 8))
CODEWORDS = Family(_codewords, _always(1), lengths=range(1, 2), codebook=True)
DENSE_NUMBERS = _dense("gaussian", _numbers)
DENSE_SIGNS = _dense("rademacher", _signs)
_fine = partial(_made, partial(Gaussian, bits=FINE_ENTRY_BITS))
FINE_DENSE_SIGNS = _dense("gaussian", _signs, gaussian=_fine)
"""Normal entries rounded to multiples of 2^-12 instead of 2^-4."""


def _informative_subset(size: int, epsilon: float) -> int:
    """Return how many nearest codewords make a report carry the most information.

    The information about a record's cell is largest near ``w·e^ε/K = ε − 1``, from an epsilon of
    about 3 on; below it, sets of ``2K/e^ε`` keep two of three reports inside.
    """
    finite = min(epsilon, 700.0)
    subset = size * math.exp(-finite) * max(2.0, finite - 1.0)
    return max(1, min(size // 2, math.ceil(subset)))
