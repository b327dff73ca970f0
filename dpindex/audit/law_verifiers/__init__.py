"""One verifier for each kind of law: its exact check, the replay of its sampler, what it proves.

``VERIFIERS`` is the one place where the audit tells laws apart: a new law is a class and an entry
here. A verifier computes everything from the integers that a law draws by (masses, thresholds); it
never asks the law for its moments or its likelihood.
"""

from __future__ import annotations

from typing import Any

from dpindex.audit.law_verifiers.additive import (
    TableVerifier,
    TwoDigitGaussianVerifier,
    TwoDigitLaplaceVerifier,
    TwoSidedGeometricVerifier,
)
from dpindex.audit.law_verifiers.base import LawVerifier
from dpindex.audit.law_verifiers.signs import (
    FlipsVerifier,
    IndividualFlipsVerifier,
    IndividualGaussianVerifier,
)
from dpindex.audit.law_verifiers.square_wave import SquareWaveVerifier
from dpindex.audit.law_verifiers.whole_codes import CapVerifier, CodebookVerifier
from dpindex.audit.verdict import Difference
from dpindex.mechanism.noise.cap import CapResponse
from dpindex.mechanism.noise.codebook_response import CodebookResponse
from dpindex.mechanism.noise.counts import TwoSidedGeometric
from dpindex.mechanism.noise.gaussian import TwoDigitGaussian
from dpindex.mechanism.noise.geometric import TwoDigitLaplace
from dpindex.mechanism.noise.individual import IndividualFlips, IndividualGaussian
from dpindex.mechanism.noise.randomized_response import FlipsByLevel
from dpindex.mechanism.noise.square_wave import SquareWave
from dpindex.mechanism.noise.tables import CellTable

__all__ = ["VERIFIERS", "LawVerifier", "law_verifier", "law_verifier_class"]

VERIFIERS: dict[type[Any], type[LawVerifier]] = {
    CellTable: TableVerifier,
    TwoDigitGaussian: TwoDigitGaussianVerifier,
    TwoDigitLaplace: TwoDigitLaplaceVerifier,
    TwoSidedGeometric: TwoSidedGeometricVerifier,
    FlipsByLevel: FlipsVerifier,
    SquareWave: SquareWaveVerifier,
    IndividualFlips: IndividualFlipsVerifier,
    IndividualGaussian: IndividualGaussianVerifier,
    CapResponse: CapVerifier,
    CodebookResponse: CodebookVerifier,
}
"""By the class of a law, or of the source that an additive law draws from."""


def law_verifier_class(spec: Any) -> type[LawVerifier]:
    """The class that verifies the law of ``spec``; the base class for a law without one."""
    drawn = spec.law.drawn_from
    verifiers = (verifier for kind, verifier in VERIFIERS.items() if isinstance(drawn, kind))
    return next(verifiers, LawVerifier)


def law_verifier(spec: Any, apart: Difference) -> LawVerifier:
    """The verifier of the law of ``spec``."""
    return law_verifier_class(spec)(spec, apart)
