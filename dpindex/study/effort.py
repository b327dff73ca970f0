"""How much a spec is tried while specs are compared, and which denoiser it is tried with."""

from __future__ import annotations

from typing import NamedTuple

from dpindex.decode import decoder_of
from dpindex.decode.fit import DenoiserKind
from dpindex.mechanism.spec import Spec
from dpindex.study.prediction import COUNTED_ROUNDS
from dpindex.study.sample import is_compared

# Queries of a self-test, and of what is promised of codes whose near ranks take long to denoise or
# to compare with public vectors; such codes are tried on half of the queries of others.
QUERIES = 300
# Queries of what is promised.
ALL_QUERIES = 600
# Codes that a denoiser is fitted to: for each coordinate, at least, and at most numbers in them.
# With 10 to 13 of each coordinate of a picture .11 too little was promised, with 38 .03 too much:
# they are codes of few vectors, which a denoiser comes to know.
_FITTED_PER_COORDINATE = 25
_FITTED_CODES = 10_000
_FITTED_NUMBERS = 1 << 24
# Codes of so few coordinates, as of tables, are denoised at once: all methods are, on all queries.
FEW = 64
# Codes that are denoised in little time.
_SHORT = 32
# A denoiser finds such a share of what is missed without it, or a quarter more, or it is left out:
# on tables, luck in its fit moves as much. That of a design, which has few coordinates, need only
# find a little more of many queries: fitted to a collection of digits it gains twice as much.
_WORTH_OF_MISSED = 0.06
_WORTH_OF_FOUND = 0.25
_WORTH_OF_DESIGN = 0.02


class Effort(NamedTuple):
    """How much a spec is tried.

    Attributes
    ----------
    queries : int
    rounds : int
        Codes of each vector.
    fitted : int
        Codes that a denoiser is fitted to, at most.
    """

    queries: int
    rounds: int
    fitted: int = _FITTED_NUMBERS

    def halved(self) -> Effort:
        """Return it with half of the queries, and half of the codes."""
        return self._replace(queries=self.queries // 2, rounds=self.rounds // 2)


# Specs are compared on few queries and codes first. Those within a few standard errors of the
# best, as if a query found all or nothing, are predicted from more, and again. Whole records vary
# much from query to query, and codes of them less: with 250 other queries each and 12 codes of each
# vector a plan took codebooks that find up to .05 less.
SCREENING = Effort(50, 2)
FIRST = Effort(150, 4, fitted=4000)
LAST = Effort(300, 6)
CONTRAST = Effort(QUERIES, COUNTED_ROUNDS)


def codes_to_fit(spec: Spec, kind: DenoiserKind | None, effort: Effort = LAST) -> int:
    """Return how many codes a denoiser is fitted to; 0 for those that are counted."""
    if kind != "auto":
        return 0
    length = spec.code_length
    codes = max(_FITTED_CODES, _FITTED_PER_COORDINATE * length)
    return min(codes, _FITTED_NUMBERS // length, effort.fitted)


def takes_long(spec: Spec, kind: DenoiserKind | None) -> bool:
    """Return whether each query takes long: near ranks are denoised or compared with vectors."""
    return (kind == "auto" and spec.code_length > _SHORT) or is_compared(spec)


def has_scores(spec: Spec) -> bool:
    """Return whether codes of a spec have a denoiser that reads each by the law of its noise."""
    return "score" in spec.format_type.denoisers


def is_informed(spec: Spec) -> bool:
    """Return whether codes find what public vectors have in common before they are denoised."""
    return decoder_of(spec).informed


def is_worth_denoising(plain: float, denoised: float, informed: bool = False) -> bool:
    """Return whether recall with a denoiser is so much better that it should be fitted.

    >>> is_worth_denoising(0.9, 0.901), is_worth_denoising(0.9, 0.95)
    (False, True)
    """
    of_found = _WORTH_OF_DESIGN if informed else _WORTH_OF_FOUND
    return denoised > plain + min(_WORTH_OF_MISSED * (1.0 - plain), of_found * plain)
