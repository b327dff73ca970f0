"""Tests of what a law has made: known answers of this installation, and codes that were released.

*Self-test.* The cipher must give NIST's key stream, every kind of law the outcomes that are pinned
below, and codes that are released here must be the law's outcomes of the secret words that were
read for them. It takes a second and shows that the libraries underneath compute as they should on
this machine. Whether the guarantee holds is what :func:`dpindex.audit.verify` proves; every way of
release is compared with an independent implementation in the tests of the package.

*Released codes.* A proof or an attack is about a method, run here with fresh noise. Of codes that
someone else made, only their values are known. The tests below hold for every possible collection
of vectors, so codes that fail one were not made by the claimed law. Codes that pass may still lack
noise: data that vary as widely and as smoothly as the noise look like noise, and no test of the
codes alone can tell.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from dpindex.audit.law_verifiers import (
    FlipsVerifier,
    IndividualFlipsVerifier,
    IndividualGaussianVerifier,
    SquareWaveVerifier,
    TableVerifier,
    TwoDigitGaussianVerifier,
    TwoDigitLaplaceVerifier,
    law_verifier,
)
from dpindex.audit.record_verifiers import CapVerifier, CodebookVerifier, SoftmaxVerifier
from dpindex.audit.verdict import Check, Difference, LawVerifier, Report
from dpindex.base.arrays import AnyArray, Doubles
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.method_table import find_method
from dpindex.mechanism.noise.gaussian import least_epsilon, optimal_sigma
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.projections import Projection, Sensitivity
from dpindex.mechanism.public_random import BitSource, PublicStream
from dpindex.mechanism.secret_random import fill
from dpindex.mechanism.spec import Spec
from dpindex.race import PStable, SketchSpec

_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
_KEY_STREAM = "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"

_DIM = 24
_ROWS = 200


_KNOWN: dict[str, tuple[type[LawVerifier], str, dict[str, Any]]] = {
    "dp-oporp-staircase": (TableVerifier, "e437570c9d0f6a4a", {"k": 8}),
    "dp-oporp": (TableVerifier, "238f2f4241e44066", {"k": 8, "delta": 1e-6}),
    "dp-rp-g-opt": (
        TwoDigitGaussianVerifier,
        "3b7bc832b5e80b42",
        {"k": 8, "epsilon": 0.1, "delta": 1e-6},
    ),
    "dp-rp-l": (TwoDigitLaplaceVerifier, "9b18a6fa4da971cf", {"k": 8, "epsilon": 0.1}),
    "raw-square-wave": (SquareWaveVerifier, "c3bc620a40a867ee", {"bounds": (0.0, 1.0)}),
    "idp-signrp-rr": (IndividualFlipsVerifier, "3968587a542f2dbf", {"k": 8}),
    "idp-signrp-g": (IndividualGaussianVerifier, "2d789a7a57a058a1", {"k": 8, "delta": 1e-6}),
    "dp-signoporp-geometric": (FlipsVerifier, "dac01f9055327b79", {"k": 8}),
    "record-cap": (CapVerifier, "585bcd55e79bd573", {"k": 64}),
    "record-codebook": (CodebookVerifier, "79c13cb04b08599e", {}),
    "codebook-softmax": (SoftmaxVerifier, "f33640540ee1fe5b", {"record_epsilon": 8.0}),
    "RACE": (TableVerifier, "b9c07ab3b85ce346", {}),
}
"""A method of every law: its verifier, the digest of its outcomes on public words, and its spec."""


_SIGMAS = (
    (1e-4, 1e-15, 61463.604299027263, 0.00020346979673564573),
    (1e-4, 0.1, 3.9771494214111438, 0.2904824521527468),
    (1.0, 1e-6, 4.2246788893268353, 2.1228571322818624),
    (8.0, 1e-9, 0.79223704980409406, 17.817389877181876),
    (40.0, 1e-15, 0.24595290877044989, 96.940973179463792),
    (40.0, 0.1, 0.12729726929774437, 142.59635074630978),
)
"""Epsilon, delta, the least sigma for them, and what four such releases have at that delta.

By bisection of Balle & Wang's curve in arithmetic of 60 digits.
"""
_EXCESS = 1e-6


def self_test() -> Report:
    """Known answers of the cipher, the Gaussian curve and all laws; a release of each format.

    >>> self_test().passed
    True
    """
    checks = [_cipher_check(), _curve_check()]
    specs: dict[type, Spec] = {}
    for method in _KNOWN:
        checks.append(_sampler_check(method))
        spec = _spec(method)
        if isinstance(spec, Spec):
            specs.setdefault(type(spec.format), spec)
    checks += map(_release_check, specs.values())
    return Report(tuple(checks))


def known_answers(kind: type[LawVerifier]) -> list[Check]:
    """The known answers of the kind of law that this class verifies."""
    return [_sampler_check(name) for name, (verifier, *_) in _KNOWN.items() if verifier is kind]


def _spec(method: str) -> Any:
    if method == "RACE":
        return SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0)
    *_, stated = _KNOWN[method]
    fields = find_method(method).example(_DIM)
    return Spec(**{**fields, "k": None, "epsilon": 1.0, **stated})


def _vectors(spec: Spec) -> Doubles:
    """Public vectors within the bounds."""
    low, high = spec.bounds
    shares = PublicStream(1, "audit/self-test").uniform(_ROWS, spec.dim)
    return shares * (high - low) + low


class _Recorder:
    """A stream that keeps the words of another, and gives copies, which a sampler writes over."""

    def __init__(self, stream: BitSource) -> None:
        self._stream = stream
        self.reads: list[AnyArray] = []

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        words = self._stream.words(count, dtype)
        self.reads.append(words)
        return words.copy()


class _Again:
    """Recorded words, dealt in the order in which they were read."""

    def __init__(self, reads: list[AnyArray]) -> None:
        self.left = reads

    def words(self, count: int, dtype: type[np.unsignedinteger[Any]]) -> AnyArray:
        return self.left.pop(0)


def _cipher_check() -> Check:
    stream = np.empty(32, dtype=np.uint8)
    fill(stream, bytes.fromhex(_KEY), bytes.fromhex(_COUNTER))
    found = stream.tobytes().hex()
    return Check(
        "known answer: the cipher",
        found,
        _KEY_STREAM,
        "NIST SP 800-38A, F.5.5: two blocks of the key stream of AES-256-CTR",
        found == _KEY_STREAM,
    )


def _curve_check() -> Check:
    """Sigma, and the epsilon of four releases, are never below the least ones."""
    excess = []
    for epsilon, delta, sigma, four in _SIGMAS:
        excess.append(optimal_sigma(epsilon, delta) / sigma - 1)
        excess.append(least_epsilon(sigma / 2, delta) / four - 1)
    # The known answers are rounded to floats.
    return Check(
        "known answer: the Gaussian curve",
        f"{min(excess):.2g} to {max(excess):.2g} above the least",
        f"0 to {_EXCESS:g}",
        "sigma and composed epsilon against 60 digits (Balle & Wang 2018, Thm 8)",
        min(excess) >= -(2.0**-52) and max(excess) <= _EXCESS,
    )


def _sampler_check(method: str) -> Check:
    """Outcomes of public words in place of secret ones, as eight signs a byte or little-endian."""
    spec = _spec(method)
    words = _Recorder(PublicStream(2, "audit/self-test"))
    if method == "RACE":
        outcomes = spec.law.source.sample(_ROWS * _DIM, words)
    else:
        exact = Privatizer(spec).project(_vectors(spec))
        outcomes = spec.format.pack(spec.law.perturb(exact, words))
    little_endian = outcomes.dtype.newbyteorder("<")
    digest = hashlib.sha256(outcomes.astype(little_endian).tobytes())
    found = digest.hexdigest()[:16]
    _, answer, _ = _KNOWN[method]
    return Check(
        f"known answer: {method}",
        found,
        answer,
        "a law is a fixed function of its words: other outcomes are those of another law",
        found == answer,
    )


def _release_check(spec: Spec) -> Check:
    """Codes under fresh secret words are the outcomes of the law on a record of these words."""
    recorder = _Recorder(Privatizer(spec).stream())
    privatizer = Privatizer(spec, stream=lambda: recorder)
    vectors = _vectors(spec)
    codes = privatizer.privatize(vectors, threads=1)
    words = _Again(recorder.reads)
    outcomes = spec.law.perturb(privatizer.project(vectors), words)
    expected = spec.format.pack(outcomes)
    same = np.array_equal(expected, codes.stored) and not words.left
    found = f"{len(codes)} codes"
    if not same:
        found = "other codes than those of the words"
    return Check(
        f"a release: {codes.format.name} of {spec.method}",
        found,
        "the outcomes of the recorded words",
        "what is released is what the law makes of the exact integers and the words, and no more",
        same,
    )


_ALPHA = 1e-7
_MOST_ROWS = 1 << 17
_PAIRED_ROWS = 1500
_MOST_NUMBERS = 1 << 20
_FREQUENCIES = 48

CAVEAT = (
    "All of the above but the checks of codes is about the method, with fresh noise of this "
    "installation. That noise is in these codes cannot be shown, only that it is not: trust in "
    "codes is trust in those who made them."
)


class CodesReport(Report):
    """Whether released codes are possible under the law that is claimed.

    Attributes
    ----------
    checks : tuple of Check
        Each wrong about codes that the claimed law made with probability at most 1e-7.

    >>> CodesReport(()).passed
    True
    """

    @property
    def verdict(self) -> str:
        if self.passed:
            return "these codes: not refuted"
        return "these codes: WERE NOT MADE by the claimed law"

    def __str__(self) -> str:
        return f"{super().__str__()}\n{CAVEAT}"

    def to_dict(self) -> dict[str, Any]:
        return {"codes": {**super().to_dict(), "caveat": CAVEAT}}


def examine(codes: Codes, spec: Spec) -> CodesReport:
    """Test whether ``codes`` can have been released under ``spec``, whatever the vectors were.

    >>> from dpindex import attribute
    >>> from dpindex.mechanism.privatizer import Privatizer
    >>> spec = Spec(method="dp-oporp-staircase", dim=6, k=2, epsilon=1.0, adjacency=attribute(1.0))
    >>> examine(Privatizer(spec).privatize(np.zeros((500, 6))), spec).passed
    True
    """
    return CodesReport(tuple(_code_tests(codes, spec)))


def _code_tests(codes: Codes, spec: Spec) -> Iterator[Check]:
    verifier = law_verifier(spec, _nothing_apart(spec))
    max_chance, alike = verifier.likeliest()
    if max_chance >= 1.0:
        reason = "far from zero this law adds no noise that must show: any codes are possible"
        yield Check("codes: no test of this method's codes", "–", "–", reason, True)
        return
    rows = min(_MOST_ROWS, max(1, _MOST_NUMBERS // codes.k))
    sample = codes.take(slice(rows))
    values = np.asarray(sample.format.coordinates(sample.stored))
    yield _frequency_check(values, max_chance)
    yield _pairs_check(values[:_PAIRED_ROWS], alike)
    spread = verifier.spread()
    if spread is not None:
        yield _spread_check(verifier, values.astype(np.float64), spread)


def _nothing_apart(spec: Spec) -> Difference:
    """No neighbours are compared here: only the law's own integers are asked for."""
    nothing = Fraction(0)
    if not spec.is_rounded:
        return Difference(nothing, nothing, Sensitivity.of_signs(1))
    moves = Projection.of(spec.projection).sensitivity
    return Difference(nothing, nothing, moves, spec.grid.bits)


def _frequency_check(values: AnyArray, max_chance: float) -> Check:
    """The most frequent value of each coordinate, by Hoeffding's inequality."""
    rows, k = values.shape
    largest = 0
    for column in values.T:
        _, counts = np.unique(column, return_counts=True)
        largest = max(largest, int(counts.max()))
    tries = k * max(2, rows)  # in each coordinate no more values than rows: a union bound
    log_tries = math.log(tries / _ALPHA)
    bound = max_chance + math.sqrt(log_tries / (2 * rows))
    return Check(
        "codes: most frequent value of a coordinate",
        f"{largest} of {rows} rows",
        f"{min(bound, 1.0):.4g} of them",
        f"given its vector, a coordinate takes no value with more than {max_chance:.4g} chance",
        bool(largest <= bound * rows),
    )


def _pairs_check(values: AnyArray, alike: float) -> Check:
    """Rows that agree in many coordinates: even of equal vectors the codes differ.

    A pair agrees in t coordinates or more with at most a binomial chance p, so c of P pairs do with
    at most P·p/c (Markov's inequality). The error is divided among all t.
    """
    rows, k = values.shape
    equal = np.zeros((rows, rows), dtype=np.int32)
    for column in values.T:
        equal += column[:, None] == column[None, :]
    agreements = equal[np.triu_indices(rows, 1)]
    pairs = len(agreements)
    exactly = np.bincount(agreements, minlength=k + 1)
    from_the_top = np.cumsum(exactly[::-1])
    at_least = from_the_top[::-1][1:]  # 1, 2, … or k coordinates
    expected = pairs * special.bdtrc(np.arange(k), k, alike)
    with np.errstate(divide="ignore", invalid="ignore"):
        chances = np.where(at_least > 0, k * expected / at_least, 1.0)
    worst = int(np.argmin(chances))
    chance = float(chances[worst])
    return Check(
        "codes: rows that agree",
        f"{at_least[worst]} of {pairs} pairs in {worst + 1} of {k} coordinates or more, "
        f"chance at most {min(1.0, chance):.3g}",
        f"chance {_ALPHA:g}",
        f"given their vectors, two codes agree in a coordinate with at most {alike:.4g} chance",
        chance >= _ALPHA,
    )


def _spread_check(verifier: LawVerifier, values: AnyArray, spread: float) -> Check:
    """``|mean e^{itc}| ≤ |φ(t)|``, the noise's own, for any vectors and every t.

    Given the vectors, codes are sums of independent noise and of integers, so the expectation is a
    mean of numbers of size one, times φ. The mean of n terms exceeds its expected size, which is at
    most ``|φ| + 1/√n``, by s with probability at most e^(−ns²/2) (McDiarmid 1989).
    """
    scales = np.geomspace(0.3, 30.0, _FREQUENCIES)
    times = np.minimum(scales / spread, math.pi)
    limits = verifier.characteristic(times)
    worst = -math.inf
    where = ""
    tries = _FREQUENCIES * (values.shape[1] + 1)
    for t, limit in zip(times, limits, strict=True):
        means = np.exp(1j * t * values).mean(axis=0)
        for name, size, n in (
            ("all coordinates", abs(means.mean()), values.size),
            ("one coordinate", np.abs(means).max(), len(values)),
        ):
            deviation = math.sqrt(2 * math.log(tries / _ALPHA) / n)
            allowed = limit + deviation + 1 / math.sqrt(n)
            excess = float(size - allowed)
            if excess > worst:
                worst = excess
                where = f"mean of {size:.4f} over {name}, where noise leaves {allowed:.4f}"
    return Check(
        "codes: spread and low-order cells",
        where,
        "no more structure than the noise leaves",
        "the sum of any vectors and the noise is no less spread than the noise, at every scale",
        worst <= 0,
    )
