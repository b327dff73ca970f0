"""Verifiers of laws that hide whole records: a code is one draw, compared as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dpindex.audit import exact_arithmetic as exact
from dpindex.audit.decoding import Ints, Replay, Words
from dpindex.audit.law_verifiers.base import LawVerifier
from dpindex.audit.record_checks import (
    cap_codes,
    cap_faults,
    cap_size,
    symbol_faults,
    symbols,
)
from dpindex.audit.replay import ONE, Fixed
from dpindex.audit.verdict import Check
from dpindex.base.arrays import AnyArray


class _WholeCode(LawVerifier):
    """Laws of whole codes: two chances, whatever the record."""

    proves = "DP"
    composition = (
        "a code is one draw, and its chances under any two records are compared as a whole"
    )
    whole_code = True


class CapVerifier(_WholeCode):
    """Signs inside or outside the cap of a record."""

    # Inside and all signs kept, outside and none.
    words = (
        Fixed({8: 0, 2: 0xFFFF, 4: 0xFFFF_FFFF}),
        Fixed({8: ONE - 1, 2: 0xFFFF, 4: 0xFFFF_FFFF}),
    )
    start = 1

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return cap_codes(self.law.cap, x, words)

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        total = sum(len(read) for read in reads if read.dtype == np.uint16)
        if 0 < total <= x.size:
            return [total // x.shape[1]]
        return []

    def likeliest(self) -> tuple[float, float]:
        """The sign of the largest weight; how signs hang together is not bounded here."""
        cap = self.law.cap
        others = cap.weights[1:]
        half = 1 << len(cap.weights) - 1
        kept = cap_size(others, cap.threshold - cap.weights[0])
        chances = Fraction(cap.inside * kept, ONE * cap.size)
        chances += Fraction((ONE - cap.inside) * (half - kept), ONE * (2 * half - cap.size))
        return float(chances), 1.0

    def check(self) -> Check:
        cap = self.law.cap
        k = self.spec.code_length
        whole = 1 << k
        size = cap_size(cap.weights, cap.threshold)
        sound = len(cap.weights) == k and min(cap.weights) >= 0 and cap.threshold >= 0
        sound &= size == cap.size and 0 < size < whole and 0 < cap.inside < ONE
        chances = cap.inside * (whole - size), (ONE - cap.inside) * size
        return self._ratio(
            "law: ratio inside and outside the cap",
            exact.largest_ratio([chances]) if sound else exact.UNBOUNDED,
            self.apart.epsilon,
            "signs and ranks only permute {±1}^k, so the cap of every record has the same size N, "
            "counted here by another way; inside and outside a code is uniform",
        )

    def replay(self) -> Iterator[Any]:
        return cap_faults(self.law)


class CodebookVerifier(_WholeCode):
    """A codeword near a record, or another one."""

    words = (Fixed({8: 0}), Fixed({8: ONE - 1}))

    def outcomes(self, x: Ints, words: Replay) -> AnyArray:
        return symbols(self.law, x, words)

    def rows_drawn(self, x: Ints, reads: Sequence[Words]) -> list[int]:
        if 0 < len(reads[0]) <= len(x):
            return [len(reads[0])]
        return []

    def likeliest(self) -> tuple[float, float]:
        law = self.law
        chance = max(self._chances(law.size)) / ONE**2
        return chance, chance

    def check(self) -> Check:
        law = self.law
        size = len(law.codebook)
        subset = law.subset
        sound = size == law.size and 0 < subset < size and 0 < law.inside < ONE
        ratio = exact.UNBOUNDED
        if sound:
            chances = self._chances(size)
            ratio = exact.largest_ratio([(max(chances), min(chances))])
        return self._ratio(
            "law: ratio of a symbol's chances",
            ratio,
            self.apart.epsilon,
            "under every record a symbol has one of these chances, rounding of both uniform draws "
            "included: all pairs of records are covered",
        )

    def _chances(self, size: int) -> list[int]:
        """Return the least and the largest chance of a symbol inside and outside, times 2^128.

        Of 64-bit words w, ⌊2^64/limit⌋ or one more give an outcome ``⌊w·limit/2^64⌋``.
        """
        law = self.law
        sides = ((law.inside, law.subset), (ONE - law.inside, size - law.subset))
        return [
            chance * words for chance, limit in sides for words in (ONE // limit, -(-ONE // limit))
        ]

    def replay(self) -> Iterator[Any]:
        return symbol_faults(self.law)
