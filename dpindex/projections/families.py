"""Families of projections: how one is made from parameters, its default length and its options."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dpindex.checks import whole_number
from dpindex.errors import InputError
from dpindex.parameters import Parameters
from dpindex.projections.base import Identity, Projection
from dpindex.projections.dense import Gaussian, Rademacher, Uniform
from dpindex.projections.entries import FINE_ENTRY_BITS
from dpindex.projections.hadamard import FastJL
from dpindex.projections.oporp import Oporp
from dpindex.projections.sparse_jl import SparseJL, VerySparse

__all__ = [
    "DENSE_NUMBERS", "DENSE_SIGNS", "FAST_JL", "FINE_DENSE_SIGNS", "GAUSSIAN", "IDENTITY", "OPORP",
    "RADEMACHER", "REPEATED_OPORP", "SIGN_RADEMACHER", "SPARSE_JL", "Family",
]  # fmt: skip

_NUMBERS, _SIGNS = 128, 512
"""Default lengths of dense projections."""

_MAX_BLOCKS = 1024
_MAX_INVERSE_DENSITY = 1 << 16
"""Very sparse entries: the law of the gaps between them is a table of four times that."""


@dataclass(frozen=True)
class Family:
    """How a projection is made, and which parameters it takes.

    Attributes
    ----------
    make : callable
        From parameters in which ``k``, ``entries`` and ``sparsity`` are resolved.
    default_length : callable
        Code length by dim and repetitions.
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
    """

    make: Callable[[Parameters], Projection]
    default_length: Callable[[int, int], int]
    entries: tuple[str, ...] = ()
    keeps_all: bool = False
    bins: bool = False
    repeats: bool = False
    blocks: bool = False

    def resolved(self, stated: Parameters) -> dict[str, Any]:
        """``k``, ``entries`` and ``sparsity``, checked, with defaults filled in."""
        if stated.repetitions > 1 and not self.repeats:
            raise InputError(
                f"{stated.method} takes no repetitions: they are for sign codes of OPORP."
            )
        k = stated.k or self.default_length(stated.dim, stated.repetitions)
        if self.keeps_all and k != stated.dim:
            raise InputError(
                f"{stated.method} keeps every coordinate: k must be dim = {stated.dim}."
            )
        if k % stated.repetitions:
            raise InputError(f"k = {k} is not a multiple of repetitions = {stated.repetitions}.")
        if self.bins and k // stated.repetitions > stated.dim:
            raise InputError(
                f"{stated.method} needs k / repetitions ≤ dim: {k // stated.repetitions} bins "
                f"cannot be filled by {stated.dim} attributes."
            )
        entries = self._entries(stated)
        return {"k": k, "entries": entries, "sparsity": self._sparsity(stated, k, entries)}

    def _entries(self, stated: Parameters) -> str | None:
        if not self.entries:
            if stated.entries is not None:
                raise InputError(f"{stated.method} has fixed entries; leave entries out.")
            return None
        entries = self.entries[0] if stated.entries is None else stated.entries
        if entries not in self.entries:
            known = ", ".join(self.entries)
            raise InputError(f"entries of {stated.method} must be one of {known}, not {entries!r}.")
        return entries

    def _sparsity(self, stated: Parameters, k: int, entries: str | None) -> int | None:
        given = stated.sparsity
        if entries == "very-sparse":
            wanted = max(1, math.isqrt(stated.dim)) if given is None else given
            return whole_number(wanted, "sparsity", 1, _MAX_INVERSE_DENSITY)
        if not self.blocks:
            if given is not None:
                raise InputError(
                    f"{stated.method} does not use sparsity here: it is for very-sparse entries "
                    f"and sparse Johnson-Lindenstrauss maps."
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


def _length(stated: Parameters) -> int:
    return stated.k or stated.dim


def _plain(kind: Any) -> Callable[[Parameters], Projection]:
    """A projection that is made from dim, length and seed."""
    return lambda stated: kind(stated.dim, _length(stated), stated.seed)


def _sparse(kind: Any) -> Callable[[Parameters], Projection]:
    """A projection that needs a sparsity too."""
    return lambda stated: kind(stated.dim, _length(stated), stated.seed, stated.sparsity)


_BY_ENTRIES: dict[str, Callable[[Parameters], Projection]] = {
    "gaussian": _plain(Gaussian),
    "rademacher": _plain(Rademacher),
    "uniform": _plain(Uniform),
    "very-sparse": _sparse(VerySparse),
}


def _dense(default_entries: str, length: int, *, fine: bool = False) -> Family:
    """A random projection whose entries may be chosen (Li & Li 2023, Sec. 3.4).

    Parameters
    ----------
    default_entries : str
        What the entries are if the spec does not say.
    length : int
        Default code length.
    fine : bool
        Round normal entries to multiples of 2^-12 instead of 2^-4.
    """
    names = sorted(_BY_ENTRIES, key=lambda name: name != default_entries)  # the default first
    choices = dict(_BY_ENTRIES)
    if fine:
        choices["gaussian"] = _plain(partial(Gaussian, bits=FINE_ENTRY_BITS))
    return Family(
        make=lambda stated: choices[stated.entries or default_entries](stated),
        default_length=lambda dim, repetitions: length,
        entries=tuple(names),
    )


def _oporp_length(dim: int, repetitions: int) -> int:
    """About six attributes a bin, a power of two: 784 → 128, 384 → 64 (for each repetition)."""
    return repetitions * max(1, 1 << (max(1, dim // 6)).bit_length() - 1)


def _oporp(stated: Parameters) -> Projection:
    return Oporp(stated.dim, _length(stated), stated.seed, stated.repetitions)


IDENTITY = Family(lambda stated: Identity(stated.dim), lambda dim, _: dim, keeps_all=True)
OPORP = Family(_oporp, _oporp_length, bins=True)
REPEATED_OPORP = Family(_oporp, _oporp_length, bins=True, repeats=True)
RADEMACHER = Family(_plain(Rademacher), lambda dim, _: _NUMBERS)
SIGN_RADEMACHER = Family(_plain(Rademacher), lambda dim, _: _SIGNS)
GAUSSIAN = Family(_plain(Gaussian), lambda dim, _: _NUMBERS)
SPARSE_JL = Family(_sparse(SparseJL), lambda dim, _: _NUMBERS, blocks=True)
FAST_JL = Family(_plain(FastJL), lambda dim, _: _NUMBERS)
DENSE_NUMBERS = _dense("gaussian", _NUMBERS)
DENSE_SIGNS = _dense("rademacher", _SIGNS)
FINE_DENSE_SIGNS = _dense("gaussian", _SIGNS, fine=True)
