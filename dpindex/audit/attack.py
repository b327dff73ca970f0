"""An attack on the guarantee, and its picture: a lower bound on epsilon from what is published.

Worst-case neighbours are privatized many times; the chance of an event under each gives a lower
bound on epsilon (Clopper & Pearson 1934). A fifth of the trials choose
the events and the rest are counted, so the confidence is honest; where several events are tested
the error is divided among them. An attack can only refute: what it cannot find,
:func:`dpindex.audit.verify` excludes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpindex.audit import distinguishers as tests
from dpindex.audit.foreign import Mechanism, function_pairs
from dpindex.audit.pairs import Pair, worst_pairs
from dpindex.base.charts import BLUE, DARK, ORANGE, new_figure, tidy, to_png
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.errors import InputError
from dpindex.mechanism.noise.law import NumberLaw
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.race import SketchSpec

_MIN_TRIALS = 100
_MAX_TRIALS = 1 << 40
_MIN_COUNT = 20
_MAX_BARS = 160
_FUNCTION_WIDTH = 1 << 14
"""Functions are slow: batches of 256 calls keep the time."""


@dataclass(frozen=True)
class AttackReport:
    """The report of an attack.

    Attributes
    ----------
    spec : Spec or Mechanism
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

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> report = attack(spec, trials=2000, through_files=False)
    >>> report.confidence, len(report.findings) > 0
    (0.999, True)
    """

    spec: Spec | Mechanism
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
    spec: Spec | SketchSpec | Mechanism,
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
    spec : Spec or Mechanism
        A method of dpindex, or any function with what is claimed of it.
    trials : int, optional
        Vectors to privatize for each neighbour of each pair, [100, 2^40]; default: as many as
        ``seconds`` allow.
    seconds : float
        Time to spend on trials when ``trials`` is not given, (0, ∞).
    confidence : float
        Of the whole report, (0, 1).
    through_files : bool
        Also attack ``dpindex privatize`` → file → index → reopen, in a process of its own; not of
        a Mechanism.
    progress : callable, optional
        Told the share that is done, [0, 1].

    Raises
    ------
    InputError
        For a method that promises nothing, a sketch or an adjacency without an attack, or a wrong
        number.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> attack(spec, trials=20000, confidence=1 - 1e-6, through_files=False).violated
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
    alpha = 1.0 - confidence
    if isinstance(spec, Mechanism):
        return _attack_function(spec, trials, seconds, alpha, progress)
    started = time.perf_counter()
    # The mechanism and its guarantee are the same for vectors of any norm: a declared one sharpens
    # similarities. So the worst neighbours need not have it.
    attacked = spec if spec.norm is None else replace(spec, norm=None)
    privatizer = Privatizer(attacked)
    releases = partial(tests.code_releases, privatizer)
    width = max(spec.dim, spec.projection.k)
    run = tests.Run(releases, width, spec.guarantee.delta, trials, seconds, alpha)
    pairs = worst_pairs(attacked)
    tallies = [tests.repeats(run, privatizer, pairs[0])]
    if through_files:
        tallies.append(tests.command_line(run, attacked, pairs[0].single()))
    findings = _findings(run, pairs, tallies, progress)
    if run.delta > 0 and isinstance(spec.law, NumberLaw):
        findings.append(tests.gaussian_finding(run.histograms[0], run.delta, alpha / 3))
    return _report(spec, run, findings, started)


def _attack_function(
    mechanism: Mechanism,
    trials: int | None,
    seconds: float,
    alpha: float,
    progress: Callable[[float], None] | None,
) -> AttackReport:
    started = time.perf_counter()
    run = tests.Run(mechanism.release, _FUNCTION_WIDTH, mechanism.delta, trials, seconds, alpha)
    findings = _findings(run, function_pairs(mechanism, run.release), [], progress)
    return _report(mechanism, run, findings, started)


def _findings(
    run: tests.Run,
    pairs: Sequence[Pair],
    tallies: list[tests.Tally],
    progress: Callable[[float], None] | None,
) -> list[tests.Finding]:
    """Return findings of the pairs and of ``tallies``, in two thirds of the error.

    A third each goes to pooled events, to coordinates by themselves and to the normal deviation.
    """
    part = 1.0
    if run.trials is None:
        part = 1 / len(pairs)
    for done, pair in enumerate(pairs, 1):
        tallies += tests.attack_pair(run, pair, part)
        if progress is not None:
            progress(done / len(pairs))
    kinds = [tally.pooled for tally in tallies]
    alpha = run.alpha / 3
    return [tally.finding(run.delta, alpha / kinds.count(tally.pooled)) for tally in tallies]


def _report(
    spec: Spec | Mechanism,
    run: tests.Run,
    findings: list[tests.Finding],
    started: float,
) -> AttackReport:
    findings.sort(key=lambda finding: -finding.lower_bound)
    seconds = time.perf_counter() - started
    return AttackReport(
        spec, 1.0 - run.alpha, tuple(findings), run.vectors, seconds, run.histograms[0]
    )


def attack_png(report: AttackReport) -> bytes:
    """A PNG of the released values, the log of their ratio, and every test's bound and the claim.

    Parameters
    ----------
    report : AttackReport
        What :func:`attack` returned.

    Raises
    ------
    InputError
        Without matplotlib.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> attack_png(attack(spec, trials=2000, through_files=False))[1:4]
    b'PNG'
    """
    figure = new_figure(12, 4.8)
    panels = figure.subplot_mosaic(
        [["values", "bounds"], ["ratios", "bounds"]], width_ratios=(1.2, 1), height_ratios=(1.2, 1)
    )
    _draw_values(panels["values"], panels["ratios"], report)
    _draw_bounds(panels["bounds"], report)
    for panel in panels.values():
        tidy(panel)
    return to_png(figure)


def _draw_values(values: Any, ratios: Any, report: AttackReport) -> None:
    places, *sides = report.histogram
    # As many neighbouring values together as make a readable number of steps; rare ends left out.
    seen = places[sides[0] + sides[1] >= _MIN_COUNT]
    width = max(1, -(-int(seen[-1] - seen[0] + 1) // _MAX_BARS))
    edges = np.arange(seen[0], seen[-1] + width + 1, width) - 0.5
    counts = [np.histogram(places, edges, weights=side)[0] for side in sides]
    looks = ((BLUE, "vector"), (ORANGE, "neighbour"))
    for count, side, (colour, name) in zip(counts, sides, looks, strict=True):
        values.stairs(count / side.sum(), edges, color=colour, fill=True, alpha=0.4, label=name)
    values.legend(frameon=False, fontsize=9)
    values.set_ylabel("share of releases")
    values.set_title("what a release shows of the attribute that changed", fontsize=10)
    values.tick_params(labelbottom=False)
    values.sharex(ratios)
    enough = np.minimum(*counts) >= _MIN_COUNT
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(enough, np.log(counts[0] / counts[1]), np.nan)
    ratios.stairs(ratio, edges, baseline=None, color=DARK, linewidth=1.2)
    for bound in (-report.spec.guarantee.epsilon, report.spec.guarantee.epsilon):
        ratios.axhline(bound, color=DARK, linestyle="--", linewidth=1)
    ratios.set_ylabel("log of their ratio")
    ratios.set_xlabel(_observed(report.spec))


def _observed(spec: Spec | Mechanism) -> str:
    """Return the name of what the histogram counts."""
    if isinstance(spec, Mechanism):
        return "linear score of a release, in steps"
    if isinstance(spec.law, NumberLaw):
        return "released value"
    return "sum of its signs"


def _draw_bounds(panel: Any, report: AttackReport) -> None:
    findings = report.findings[::-1]
    promise = report.spec.guarantee
    bounds = [finding.lower_bound for finding in findings]
    colours = [ORANGE if bound > promise.epsilon else BLUE for bound in bounds]
    panel.barh(range(len(bounds)), bounds, color=colours, height=0.32)
    panel.axvline(promise.epsilon, color=DARK, linestyle="--", linewidth=1.4)
    for place, finding in enumerate(findings):
        words = f"{finding.name}: {finding.lower_bound:.3f}"
        panel.text(0.004 * promise.epsilon, place + 0.22, words, fontsize=8.5, va="bottom")
    panel.set_yticks([])
    panel.set_ylim(-0.6, len(bounds) - 0.1)
    panel.set_xlim(0, 1.15 * max(promise.epsilon, *bounds))
    panel.set_xlabel(f"epsilon is at least … (confidence {report.confidence:g} for all together)")
    verdict = "VIOLATED" if report.violated else "not refuted"
    delta = ""
    if promise.delta:
        delta = f", δ = {promise.delta:g}"
    title = f"{report.spec.method}, claimed ε = {promise.epsilon:g}{delta} (dashed): {verdict}"
    panel.set_title(title, fontsize=10)
