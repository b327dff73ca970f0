"""An attack on the guarantee: a lower bound on epsilon from what is published.

Worst-case neighbours are privatized many times; the chance of an event under each gives a lower
bound on epsilon (Clopper & Pearson 1934). A fifth of the trials choose
the events and the rest are counted, so the confidence is honest; where several events are tested
the error is divided among them. An attack can only refute: what it cannot find,
:func:`dpindex.audit.verify` excludes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dpindex.audit import distinguishers as tests
from dpindex.audit.pairs import worst_pairs
from dpindex.checks import finite_number, whole_number
from dpindex.errors import InputError
from dpindex.privatizer import Privatizer
from dpindex.race import SketchSpec
from dpindex.spec import Spec

__all__ = ["AttackReport", "attack"]

_MIN_TRIALS, _MAX_TRIALS = 100, 1 << 40


@dataclass(frozen=True)
class AttackReport:
    """What an attack found.

    Attributes
    ----------
    spec : Spec
        What was attacked; ``spec.guarantee`` is what it claims.
    confidence : float
        Chance, at least, that no lower bound in ``findings`` is above the true epsilon.
    findings : tuple of Finding
        One per test, the strongest first.
    vectors : int
        Vectors privatized, all pairs and routes together.
    seconds : float
        How long it took.
    histogram : (values, counts, counts)
        What was seen of the first pair under either neighbour while training, for the picture.
    """

    spec: Spec
    confidence: float
    findings: tuple[tests.Finding, ...]
    vectors: int
    seconds: float
    histogram: tests.Histogram

    @property
    def lower_bound(self) -> float:
        """The true epsilon is at least this, at the stated confidence, [0, ∞)."""
        return self.findings[0].lower_bound

    @property
    def violated(self) -> bool:
        """Whether a claim of differential privacy is refuted at the stated confidence.

        Never true of iDP, which does not claim that neighbours' codes look alike: a lower bound
        above its epsilon shows what it does not promise.
        """
        return self._above and self.spec.guarantee.definition == "DP"

    @property
    def _above(self) -> bool:
        return self.lower_bound > self.spec.guarantee.epsilon

    def __str__(self) -> str:
        verdict = "the claim is VIOLATED" if self.violated else "the claim is not refuted"
        if self._above and not self.violated:
            verdict = "not DP, and iDP does not promise otherwise (see `dpindex info`)"
        bound = f"{self.lower_bound:.4f} at confidence {self.confidence:g}"
        return "\n".join(
            [
                f"{self.spec.method}, claimed {self.spec.guarantee}",
                f"epsilon is at least {bound}: {verdict}",
                f"{self.vectors} vectors privatized in {self.seconds:.1f} s; strongest test first:",
                *(f"  {finding}" for finding in self.findings),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        names = ("lower_bound", "confidence", "violated", "vectors", "seconds")
        return {
            "claimed": self.spec.guarantee.to_dict(),
            **{name: getattr(self, name) for name in names},
            "findings": [asdict(finding) for finding in self.findings],
        }


def attack(
    spec: Spec | SketchSpec,
    *,
    trials: int | None = None,
    seconds: float = 20.0,
    confidence: float = 0.999,
    through_files: bool = True,
    progress: Callable[[float], None] | None = None,
) -> AttackReport:
    """Privatize worst-case neighbours and bound epsilon from below.

    Parameters
    ----------
    trials : int, optional
        Vectors to privatize for each neighbour of each pair, [100, 2^40]; default: as many as
        ``seconds`` allow.
    seconds : float
        Time to spend on trials when ``trials`` is not given, (0, ∞).
    confidence : float
        Of the whole report, (0, 1).
    through_files : bool
        Also attack ``dpindex privatize`` → file → index → reopen, in a process of its own.
    progress : callable, optional
        Told the share that is done, [0, 1].

    Raises
    ------
    InputError
        For a method that promises nothing, a sketch or an adjacency without an attack, or a wrong
        number.

    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0)
    >>> attack(spec, trials=20000, through_files=False).violated
    False
    """
    if isinstance(spec, SketchSpec):
        raise InputError("there is no attack on a sketch; verify its guarantee with --exact.")
    if spec.guarantee.definition == "none":
        raise InputError(f"{spec.method} promises nothing: there is no claim to attack.")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence must lie between 0 and 1, not {confidence!r}.")
    if trials is not None:
        whole_number(trials, "trials", _MIN_TRIALS, _MAX_TRIALS)
    finite_number(seconds, "seconds", above=0.0)
    started = time.perf_counter()
    run = tests.Run(Privatizer(spec), trials, seconds, 1.0 - confidence)
    pairs = worst_pairs(spec)
    tallies = [tests.repeats(run, pairs[0])]
    if through_files:
        tallies.append(tests.command_line(run, pairs[0].single()))
    for done, pair in enumerate(pairs, 1):
        tallies += tests.attack_pair(run, pair, 1.0 if trials is not None else 1 / len(pairs))
        if progress is not None:
            progress(done / len(pairs))
    # A third of the error each: pooled events, coordinates by themselves, the normal deviation.
    kinds = [tally.pooled for tally in tallies]
    findings = [
        tally.finding(run.delta, run.alpha / 3 / kinds.count(tally.pooled)) for tally in tallies
    ]
    if run.delta > 0 and spec.mechanism.codes == "numbers":
        findings.append(tests.gaussian_finding(run.histograms[0], run.delta, run.alpha / 3))
    findings.sort(key=lambda finding: -finding.lower_bound)
    took = time.perf_counter() - started
    return AttackReport(spec, confidence, tuple(findings), run.vectors, took, run.histograms[0])
