"""What a verifier says: named checks, each with what was found, the bound and the theorem."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import mpmath

from dpindex.spec import Spec

__all__ = ["Check", "ExactReport", "above_root", "digits"]

_ROOT_BITS = 320


@dataclass(frozen=True)
class Check:
    """One link of the argument.

    Attributes
    ----------
    name : str
        What is checked.
    found, bound : str
        The quantity computed from the integers that run, and what it may not exceed.
    theorem : str
        Why this check, passed, gives its part of the guarantee.
    passed : bool
        Decided in exact arithmetic, never from the rounded numbers in ``found``.
    """

    name: str
    found: str
    bound: str
    theorem: str
    passed: bool

    def __str__(self) -> str:
        mark = "ok  " if self.passed else "FAIL"
        return f"{mark} {self.name}: {self.found}; bound {self.bound}\n       {self.theorem}"


@dataclass(frozen=True)
class ExactReport:
    """The verdict on one spec: every check, and how long it took (seconds).

    ``passed`` is true only if every link holds; one broken link is no guarantee.
    """

    spec: Spec
    checks: tuple[Check, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that did not hold."""
        return tuple(check.name for check in self.checks if not check.passed)

    def __str__(self) -> str:
        verdict = "holds" if self.passed else "DOES NOT HOLD: " + ", ".join(self.failed)
        head = f"{self.spec.method}: {self.spec.guarantee}: {verdict} ({self.seconds:.2f} s)"
        return "\n".join([head, *(f"  {check}" for check in self.checks)])

    def to_json(self) -> str:
        """The report for programs."""
        return json.dumps(
            {
                "spec": json.loads(self.spec.to_json()),
                "guarantee": self.spec.guarantee.to_dict(),
                "passed": self.passed,
                "seconds": self.seconds,
                "checks": [asdict(check) for check in self.checks],
            },
            ensure_ascii=False,
        )


def digits(x: Any) -> str:
    """22 digits of a rational or of an mpmath number, for reading only."""
    with mpmath.workprec(512):
        value = mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else x
        return str(mpmath.nstr(value, 22))


def above_root(x: Fraction) -> Fraction:
    """Square root of x ≥ 0, rounded up by at most 2^-319."""
    return Fraction(isqrt(int(x * (1 << 2 * _ROOT_BITS))) + 1, 1 << _ROOT_BITS)
