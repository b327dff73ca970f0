"""An attack on the guarantee: a lower bound on epsilon from what is published.

Worst-case neighbours are privatized many times; the chance of an event under each gives a lower
bound on epsilon (Clopper & Pearson 1934). A fifth of the trials choose the events and the rest are
counted, so the confidence is honest; where several events are tested the error is divided among
them. An attack can only refute: what it cannot find, :func:`dpindex.audit.verify` excludes.

A row of a pair holds many independent trials (:mod:`dpindex.audit.pairs`). Two tests do without
that premise: each coordinate is also tested by itself, and one pair differs in one attribute.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize, special

from dpindex.audit.pairs import Pair, worst_pairs
from dpindex.audit.verdict import Counts
from dpindex.base.arrays import Floats
from dpindex.base.checks import finite_number, whole_number
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.race import SketchSpec

_MIN_TRIALS = 100
_MAX_TRIALS = 1 << 40
_TRAINING = 0.2
_BATCH_NUMBERS = 1 << 22
_MAX_BATCH = 1 << 18
_SMALL_BATCH = 256
"""Of releases that somebody else's code makes, one by one: batches of that many keep the time."""

_ALONE = 20_000
"""Trials of a pair that differs in one attribute."""

_REPEAT_ROWS = 8192
_MAX_CANDIDATES = 1024
_REACH = 1 << 16

Histogram = tuple[Counts, Counts, Counts]
"""Values observed, and how often under the first neighbour and under the second."""


@dataclass(frozen=True)
class AttackReport:
    """The report of an attack.

    Attributes
    ----------
    subject : str
        What was attacked.
    guarantee : Guarantee
        What it claims.
    confidence : float
        Chance, at least, that no lower bound in ``findings`` is above the true epsilon.
    findings : tuple of Finding
        One per test, the strongest first.
    vectors : int
        Vectors privatized, all pairs and routes together.
    seconds : float
        How long it took.

    >>> from dpindex import attribute
    >>> spec = Spec("dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> report = attack(spec, trials=2000)
    >>> report.confidence, len(report.findings) > 0
    (0.999, True)
    """

    subject: str
    guarantee: Guarantee
    confidence: float
    findings: tuple[Finding, ...]
    vectors: int
    seconds: float

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
        return self.lower_bound > self.guarantee.epsilon and self.guarantee.definition == "DP"

    @property
    def passed(self) -> bool:
        """Whether the claim is not refuted."""
        return not self.violated

    def __str__(self) -> str:
        verdict = "the claim is not refuted"
        if self.violated:
            verdict = "the claim is VIOLATED"
        elif self.lower_bound > self.guarantee.epsilon:
            verdict = "not DP, and iDP does not promise otherwise (see `dpindex info`)"
        bound = f"{self.lower_bound:.4f} at confidence {self.confidence:g}"
        return "\n".join(
            [
                f"{self.subject}, claimed {self.guarantee}",
                f"epsilon is at least {bound}: {verdict}",
                f"{self.vectors} vectors privatized in {self.seconds:.1f} s; strongest test first:",
                *(f"  {finding}" for finding in self.findings),
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        names = ("lower_bound", "confidence", "violated", "vectors", "seconds")
        return {
            "claimed": self.guarantee.to_dict(),
            **{name: getattr(self, name) for name in names},
            "findings": [asdict(finding) for finding in self.findings],
        }


def attack(
    spec: Spec | SketchSpec,
    *,
    trials: int | None = None,
    seconds: float = 20.0,
    confidence: float = 0.999,
    progress: Progress = no_progress,
) -> AttackReport:
    """Privatize worst-case neighbours and bound epsilon from below.

    Parameters
    ----------
    spec : Spec
        The method; there is no attack on a sketch.
    trials : int, optional
        Vectors to privatize for each neighbour of each pair, [100, 2^40]; default: as many as
        ``seconds`` allow.
    seconds : float
        Time to spend on trials when ``trials`` is not given, (0, ∞).
    confidence : float
        Of the whole report, (0, 1).
    progress : callable, optional
        Called with the pairs that are done, all pairs, and the name of the last one.

    Raises
    ------
    InputError
        For a method that promises nothing, a sketch or an adjacency without an attack, or a wrong
        number.

    >>> from dpindex import attribute
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> attack(spec, trials=20000, confidence=1 - 1e-6).violated
    False
    """
    if isinstance(spec, SketchSpec):
        raise InputError("there is no attack on a sketch; verify its guarantee with --exact.")
    if spec.guarantee.definition == "none":
        raise InputError(f"{spec.method} promises nothing: there is no claim to attack.")
    # The mechanism and its guarantee are the same for vectors of any norm: a declared one sharpens
    # similarities. So the worst neighbours need not have it.
    spec = spec.without_ranges()
    attacked = spec
    if spec.norm is not None:
        attacked = replace(spec, norm=None)
    privatizer = Privatizer(attacked)

    def release(row: Floats, count: int) -> Codes:
        rows = np.broadcast_to(row, (count, len(row)))
        return privatizer.privatize(rows)

    width = max(spec.dim, spec.projection.k)
    batch = min(_MAX_BATCH, max(64, _BATCH_NUMBERS // width))
    run = _Run(release, spec.guarantee, batch, trials, seconds, confidence)
    pairs = worst_pairs(attacked)
    tallies = [_repeats(run, privatizer, pairs[0])]
    if pairs[0].single is not None:
        tallies.append(_alone(run, pairs[0].single))
    tallies += run.attack(pairs, progress)
    normal = spec.guarantee.delta > 0 and spec.law.adds_noise
    return run.report(spec.method, tallies, normal)


def attack_releases(
    release: Callable[[Floats, int], Any],
    pairs: Sequence[Pair],
    guarantee: Guarantee,
    *,
    trials: int | None = None,
    seconds: float = 20.0,
    confidence: float = 0.999,
    progress: Progress = no_progress,
) -> AttackReport:
    """Attack a claim about any code that adds noise, on neighbours and scores of your own.

    ``examples/foreign_noise.py`` learns the scores from a few releases.

    Parameters
    ----------
    release : callable
        Makes a number of releases of one vector, in any form that the pairs observe.
    pairs : sequence of Pair
        Neighbours under the claim, and what is observed of a release. The confidence holds
        whatever the scores are, as long as no release that chose them is counted.
    guarantee : Guarantee
        The claim.
    trials, seconds, confidence, progress
        As for :func:`attack`.

    >>> from dpindex.audit import Pair
    >>> from dpindex.privacy import record
    >>> noise = np.random.default_rng(0)
    >>> def release(row, count):
    ...     return row[0] + noise.laplace(scale=1.0, size=(count, 1))
    >>> def steps(released):
    ...     return np.rint(100 * released).astype(np.int64)
    >>> rows = np.array([-1.0]), np.array([1.0])
    >>> pair = Pair("opposite numbers", rows, steps, np.zeros(1, int), {"the number": [0]})
    >>> claim = Guarantee(1.0, 0.0, "DP", record(), exact=False)
    >>> attack_releases(release, [pair], claim, trials=5000).violated
    True
    """
    run = _Run(release, guarantee, _SMALL_BATCH, trials, seconds, confidence)
    return run.report("these releases", run.attack(pairs, progress), False)


@dataclass(frozen=True)
class Finding:
    """One test.

    Attributes
    ----------
    name : str
        What was tested.
    lower_bound : float
        Every claim of a smaller epsilon is refuted, [0, ∞).
    evidence : str
        The counts behind it: under the neighbour that favours the event, then under the other.
    trials : int
        Independent observations of each neighbour.

    >>> Finding("sign of the first number", 0.9, "800 against 300 of 1000", trials=1000).lower_bound
    0.9
    """

    name: str
    lower_bound: float
    evidence: str
    trials: int

    def __str__(self) -> str:
        return f"{self.lower_bound:8.4f}  {self.name}: {self.evidence} in {self.trials} trials"


@dataclass(frozen=True)
class Tally:
    """Hits of several events under two neighbours, shape (events, 2), of ``trials`` each.

    ``pooled`` is false where every event belongs to one coordinate.
    """

    name: str
    hits: Counts
    trials: int
    pooled: bool = True

    def finding(self, delta: float, alpha: float) -> Finding:
        """The strongest event; alpha is divided among all of them (Bonferroni)."""
        trials = (self.trials, self.trials)
        share = alpha / len(self.hits)
        bounds = epsilon_lower_bound(self.hits.T, trials, delta, share)
        best = int(np.argmax(bounds))
        first, second = self.hits[best].tolist()
        evidence = f"{first} against {second}"
        return Finding(self.name, float(bounds[best]), evidence, self.trials)


@dataclass
class _Run:
    """One attack: its limits of trials and time, and what was released so far."""

    release: Callable[[Floats, int], Any]
    guarantee: Guarantee
    batch: int
    trials: int | None
    seconds: float
    confidence: float

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise InputError(f"confidence must lie between 0 and 1, not {self.confidence!r}.")
        if self.trials is not None:
            whole_number(self.trials, "trials", _MIN_TRIALS, _MAX_TRIALS)
        finite_number(self.seconds, "seconds", above=0.0)
        self.alpha = 1.0 - self.confidence
        self.started = time.perf_counter()
        self.vectors = 0
        self.histograms: list[Histogram] = []

    def attack(
        self,
        pairs: Sequence[Pair],
        progress: Progress = no_progress,
    ) -> list[Tally]:
        """Tests of all pairs."""
        tallies = []
        part = 1.0
        if self.trials is None:
            part = 1 / len(pairs)
        for done, pair in enumerate(pairs, 1):
            tallies += self._attack_pair(pair, part)
            progress(done, len(pairs), pair.name)
        return tallies

    def _attack_pair(self, pair: Pair, part: float) -> list[Tally]:
        """Choose thresholds from the first fifth of the trials, count the rest against them."""
        histograms = self._histograms(pair, part * _TRAINING)
        self.histograms.append(histograms[0])
        thresholds = [self._thresholds(histogram) for histogram in histograms]
        below, above = np.array(thresholds)[pair.group].T
        # By event, integer observed and neighbour, the one that favours the event first.
        hits = np.zeros((2, len(pair.group), 2), dtype=np.int64)
        small, large = hits
        count = 0
        for size in self._batches(part * (1 - _TRAINING)):
            for neighbour, row in enumerate(pair.rows):
                seen = pair.observe(self.release(row, size))
                small[:, neighbour] += np.count_nonzero(seen <= below, axis=0)
                large[:, 1 - neighbour] += np.count_nonzero(seen >= above, axis=0)
            count += size
        tallies = []
        for name, members in pair.pools.items():
            pooled = hits[:, members].sum(axis=1)
            tallies.append(Tally(name, pooled, count * len(members)))
        if len(pair.group) > 1:
            name = f"{pair.name}, each coordinate by itself"
            tallies.append(Tally(name, hits.reshape(-1, 2), count, pooled=False))
        return tallies

    def _batches(self, share: float) -> Iterator[int]:
        """Sizes of batches that together are ``share`` of what the run may spend."""
        end = time.perf_counter() + self.seconds * share
        left = math.inf
        if self.trials is not None:
            left = max(1, round(self.trials * share))
        while True:
            size = int(min(self.batch, left))
            self.vectors += 2 * size
            yield size
            left -= size
            if not left or (self.trials is None and time.perf_counter() >= end):
                return

    def _histograms(self, pair: Pair, part: float) -> list[Histogram]:
        """Return a histogram of the observations under the two neighbours for each group."""
        groups = int(pair.group.max()) + 1
        width = 2 * _REACH + 1
        counts = np.zeros((2, groups, width), dtype=np.int64)
        for size in self._batches(part):
            for neighbour, row in enumerate(pair.rows):
                seen = pair.observe(self.release(row, size))
                bins = seen.clip(-_REACH, _REACH) + _REACH
                places = pair.group * width + bins
                in_bins = np.bincount(places.ravel(), minlength=groups * width)
                counts[neighbour] += in_bins.reshape(groups, width)
        histograms = []
        for first, second in zip(*counts, strict=True):
            bins = np.flatnonzero(first + second)
            histograms.append((bins - _REACH, first[bins], second[bins]))
        return histograms

    def _thresholds(self, histogram: Histogram) -> tuple[int, int]:
        """The limits of the two events, below and above, with the largest bound on epsilon.

        The bound is the one that the training counts alone would give, for all candidates at once:
        among a thousand events, some rare one looks strong by luck.
        """
        values, first, second = histogram
        below = self._threshold(values, first, second)
        above = self._threshold(values[::-1], second[::-1], first[::-1])
        return below, above

    def _threshold(self, values: Counts, favoured: Counts, other: Counts) -> int:
        """The value up to which, in their order, all together are the strongest event."""
        evenly = np.linspace(0, len(values) - 1, _MAX_CANDIDATES)
        places = np.unique(evenly.astype(np.intp))
        hits = [np.cumsum(counts)[places] for counts in (favoured, other)]
        trials = [favoured.sum(), other.sum()]
        alpha = self.alpha / len(places)
        bounds = epsilon_lower_bound(hits, trials, self.guarantee.delta, alpha)
        return int(values[places[np.argmax(bounds)]])

    def report(self, subject: str, tallies: Sequence[Tally], normal: bool) -> AttackReport:
        """Findings in thirds of the error: pooled events, single coordinates, normal deviation."""
        delta = self.guarantee.delta
        alpha = self.alpha / 3
        kinds = [tally.pooled for tally in tallies]
        findings = []
        for tally in tallies:
            share = alpha / kinds.count(tally.pooled)
            findings.append(tally.finding(delta, share))
        if normal:
            findings.append(_gaussian_finding(self.histograms[0], delta, alpha))
        findings.sort(key=lambda finding: -finding.lower_bound)
        return AttackReport(
            subject,
            self.guarantee,
            self.confidence,
            tuple(findings),
            self.vectors,
            time.perf_counter() - self.started,
        )


def _repeats(run: _Run, privatizer: Privatizer, pair: Pair) -> Tally:
    """The event that two releases are equal, one of which is of a known vector.

    If both used the same noise, they would differ by no noise at all. The second release is always
    of the pair's first row, so only the first one depends on which neighbour it is. Releases are
    compared within one call, whose halves different threads serve, and between two calls.
    """
    half = _REPEAT_ROWS // 2
    known = pair.rows[0]
    hits = np.zeros((2, 2), dtype=np.int64)  # within a call and between two, by neighbour
    for neighbour, row in enumerate(pair.rows):
        rows = np.repeat([row, known], half, axis=0)
        seen = pair.observe(privatizer.privatize(rows, threads=2))
        again = pair.observe(run.release(known, half))
        run.vectors += len(rows) + half
        for event, other in enumerate((seen[half:], again)):
            same = seen[:half] == other
            if not pair.independent:  # whole codes are compared
                same = same.all(axis=1)
            hits[event, neighbour] = np.count_nonzero(same)
    return Tally("the same noise twice", hits, same.size)


def _alone(run: _Run, pair: Pair) -> Tally:
    """Return the tally of a pair that differs in one attribute, a release being one trial."""
    trials = min(run.trials or _ALONE, _ALONE)
    alone = replace(run, trials=trials)
    tally = alone.attack([pair])[0]
    run.vectors += alone.vectors
    return replace(tally, name=f"{pair.name}, one attribute alone")


def _gaussian_finding(histogram: Histogram, delta: float, alpha: float) -> Finding:
    """Lower bound from the deviation and the shift of the noise, *if* the noise is normal.

    A delta of 1e-6 shows itself in tails that take 10⁹ trials to count. If the noise is taken for
    what the method says it is, normal, a thousandth of that measures its deviation to a per mille.
    Exact limits for normal samples, a third of alpha each for the variance and the two means.
    Rounding and dither only widen the observed noise, which errs on the safe side.
    """
    values, *counts = histogram
    sizes = []
    means = []
    squares = 0.0
    for count in counts:
        size = int(count.sum())
        mean = float(count @ values) / size
        squares += float(count @ (values - mean) ** 2)
        sizes.append(size)
        means.append(mean)
    least_chi2 = special.chdtri(sum(sizes) - 2, 1 - alpha / 3)
    deviation = math.sqrt(squares / least_chi2)
    quantile = -float(special.ndtri(alpha / 3))
    margin = sum(quantile * deviation / math.sqrt(size) for size in sizes)
    first, second = means
    shift = max(0.0, second - first - margin)
    bound = 0.0
    ratio = math.inf
    if shift > 0:
        ratio = deviation / shift
        bound = gaussian_epsilon(shift / deviation, delta)
    evidence = f"deviation at most {ratio:.6g} shifts"
    return Finding("if the noise is normal: its deviation", bound, evidence, min(sizes))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least epsilon at which normal noise of deviation ``shift/mu`` is (ε, δ), [0, ∞).

    Balle & Wang 2018, Thm 8: ``δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)``, decreasing in ε.

    >>> round(gaussian_epsilon(1 / 4.22467889, 1e-6), 6)
    1.0
    """

    def excess(epsilon: float) -> float:
        favoured = special.log_ndtr(mu / 2 - epsilon / mu)
        other = special.log_ndtr(-mu / 2 - epsilon / mu)
        return math.exp(favoured) - math.exp(epsilon + other) - delta

    # At this epsilon the first term alone is delta.
    upper = mu**2 / 2 - mu * float(special.ndtri(delta))
    if excess(0.0) > 0:
        return float(optimize.brentq(excess, 0.0, upper))
    return 0.0


def binomial_bounds(hits: Any, trials: Any, alpha: float) -> tuple[Any, Any]:
    """Lower and upper bound of a probability, each wrong with probability at most ``alpha``.

    Clopper & Pearson 1934: exact for every number of trials, never approximate. Numbers or arrays.

    >>> low, high = binomial_bounds(0, 1000, 0.001)
    >>> float(low), round(float(high), 5)
    (0.0, 0.00688)
    """
    hits = np.asarray(hits, dtype=np.float64)
    trials = np.asarray(trials, dtype=np.float64)
    missed = trials - hits
    # Not a number where there are no hits, or nothing else.
    low = special.betaincinv(hits, missed + 1, alpha)
    high = special.betainccinv(hits + 1, missed, alpha)
    return np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)


def epsilon_lower_bound(hits: Any, trials: Any, delta: float, alpha: float) -> Any:
    """The least epsilon that counts of one event allow, in [0, ∞), wrong at most ``alpha``.

    ``hits[i]`` of ``trials[i]`` releases of neighbour i fell into the event. Under (ε, δ)
    ``P₀ ≤ e^ε·P₁ + δ``, so ``ε ≥ log((P₀ − δ) / P₁)``; alpha is halved between the two bounds.

    >>> round(float(epsilon_lower_bound((7500, 2500), (10000, 10000), 0.0, 0.001)), 2)
    1.02
    """
    low, _ = binomial_bounds(hits[0], trials[0], alpha / 2)
    _, high = binomial_bounds(hits[1], trials[1], alpha / 2)
    return np.log(np.maximum((low - delta) / high, 1.0))
