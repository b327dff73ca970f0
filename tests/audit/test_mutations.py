"""Deliberately broken copies of the mechanism, each caught by at least one check of the audit.

``bench/mutations.md`` lists which check catches which; ``pytest tests/audit/test_mutations.py -s -k
table`` prints its rows. Mutants are made here, by altered laws, grids and streams in private seams;
the package has no option to weaken it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from helpers.specs import with_variant
from helpers.streams import seed_noise
from independent.oracle import secret_counts
from self_test.second_reading import REPLAY, refuted

import dpindex
import dpindex.audit.input_checks
import dpindex.mechanism.privatizer
import dpindex.race.sketch
from dpindex import Codebook, Spec, attribute, l2, record
from dpindex.audit import attack
from dpindex.mechanism.grid import Grid
from dpindex.mechanism.noise.additive import (
    AdditiveNoise,
    CellTable,
    TwoDigitLaplace,
    geometric_table,
    laplace_noise,
    staircase_noise,
)
from dpindex.mechanism.noise.base import uniform_share
from dpindex.mechanism.noise.cap import CapResponse, best_cap, rank_weights
from dpindex.mechanism.noise.gaussian import (
    gaussian_table,
    optimal_sigma,
    rounded_gaussian,
)
from dpindex.mechanism.noise.signs import FlipsByLevel, geometric_flips, response_threshold
from dpindex.mechanism.noise.symbols import CodebookResponse
from dpindex.mechanism.papers.signs import IndividualFlips, IndividualGaussian
from dpindex.mechanism.projections.dense import Oporp
from dpindex.race import PStable, RaceSketch, SketchSpec

ROOT = Path(__file__).parents[2]
METHODS = import_module("dpindex.mechanism.method_table")  # the package's `methods` is the function

DIM = 48
K = 16
RATIO = "law: ratio of neighbouring cells"
LEVELS = "law: ratio of neighbouring levels"
HOCKEY = "law: hockey-stick divergence"
STREAM = "stream: noise is used once"
GRID = "grid: steps of one beta"
WHOLE = "law: Gaussian on the whole code"
STEP = "law: ratio of one cell"
NORM = "projection: operator norm"
CHANGES = "law: signs that can change"
INSIDE_G = "law: Gaussian inside A, worst size of A"
INSIDE = "law: ratio of one flip, for every size N of A"
SUMS = "hash: sums are exact integers"
CAP = "law: ratio inside and outside the cap"
SYMBOL = "law: least and largest chance of a symbol, whatever the record"
SCORE = "a record and its opposite, the score of a code"
SYMBOLS_ALONE = "a record and its opposite, each coordinate by itself"
WITHIN = "a record and its opposite, each coordinate by itself"
MOVES = "sensitivity: what one record moves"
RELEASE = "release: noise on every count, and the promise that goes with it"
POOLED = "across zero, pool"
ALONE = "across zero, each coordinate by itself"


def staircase(epsilon=1.0):
    return Spec("dp-oporp-staircase", dim=DIM, k=K, epsilon=epsilon, adjacency=attribute(1.0))


def signs(method="dp-signoporp-geometric", **changes):
    return Spec(
        **{
            "adjacency": attribute(1.0),
            "method": method,
            "dim": DIM,
            "k": K,
            "epsilon": 1.0,
            **with_variant(changes),
        }
    )


def altered(spec, **parts):
    """The spec with parts of what it resolves to replaced."""
    for name, part in parts.items():
        object.__setattr__(spec, name, part)
    return spec


def with_table(spec, table):
    return altered(spec, law=AdditiveNoise(table, spec.law.grid_bits))


def small_sigma(patch):
    spec = Spec("dp-oporp", dim=DIM, k=K, epsilon=1.0, delta=1e-6, adjacency=attribute(1.0))
    law = spec.law
    cells = 1 << (law.grid_bits - law.source.cell_bits)
    sigma = 0.95 * optimal_sigma(1.0, 1e-6) * cells
    return with_table(spec, gaussian_table(sigma, 1.0, 1e-6, K, law.source.cell_bits))


def steep_ratio(patch):
    return altered(staircase(), law=staircase_noise(1.05))


def ladder(spec, width):
    law = spec.law
    inner = max(1, round(width / (1 + math.exp(0.5))))
    return with_table(spec, geometric_table(mpmath.mpf(1), width, inner, law.source.cell_bits))


def cells_per_beta(spec):
    law = spec.law
    return int(1 << (law.grid_bits - law.source.cell_bits))


def half_sensitivity(patch):
    spec = staircase()
    return ladder(spec, cells_per_beta(spec) // 2)


def coarse_law(patch):
    spec = staircase()
    return ladder(spec, cells_per_beta(spec) - 1)


class FineGrid(Grid):
    """One beta spans 2^bits + 1 steps."""

    @property
    def step(self):
        return self.beta / ((1 << self.bits) + 1)


class TightGrid(Grid):
    """One beta spans exactly 2^bits steps, before any float rounding."""

    @property
    def step(self):
        return self.beta / (1 << self.bits)


def with_grid(kind):
    def make(patch):
        spec = staircase()
        g = spec.grid
        return altered(spec, grid=kind(g.beta, g.bits, g.scale, g.bounds, g.clip, g.max_column_l1))

    return make


def rounded_down(patch):
    spec = signs("dp-signoporp-rr")
    law = spec.law
    return altered(spec, law=FlipsByLevel([law.thresholds[0] - 1]))


def few_flips(patch):
    spec = signs("dp-signoporp-rr")
    law = spec.law
    return altered(spec, law=FlipsByLevel([law.thresholds[0] * 95 // 100]))


def loose_chain(patch):
    """Each threshold rounded down by itself, instead of up along the chain."""
    spec = signs("dp-signoporp-rr-smooth")
    with mpmath.workprec(256):
        thresholds = [int(2**64 / (1 + mpmath.exp(level))) for level in range(1, 44)]
    return altered(spec, law=FlipsByLevel(thresholds))


def unsplit_budget(patch):
    return altered(signs(repetitions=2), law=geometric_flips(1.0))


class BareBit(FlipsByLevel):
    def perturb(self, x, stream):
        bits = super().perturb(x, stream)
        bits[:, -1] = x[:, -1] > 0
        return bits


class BareBin(AdditiveNoise):
    def perturb(self, x, stream):
        codes = super().perturb(x, stream)
        codes[:, -1] = x[:, -1].astype(np.int32) >> self.source.cell_bits
        return codes


class ShortWords(FlipsByLevel):
    """Thresholds cut to sixteen bits."""

    def perturb(self, x, stream):
        level = np.clip(np.ceil(np.abs(x) / 4096), 1, len(self.thresholds)).astype(np.intp)
        top = np.array([0, *(t >> 48 for t in self.thresholds)], dtype=np.uint16)
        coins = stream.words(x.size, np.uint16).reshape(x.shape)
        return (x > 0) ^ np.where(x == 0, coins < 1 << 15, coins < top[level])


def bare_bit(patch):
    spec = signs()
    return altered(spec, law=BareBit(list(spec.law.thresholds)))


def bare_bin(patch):
    spec = staircase()
    law = spec.law
    return altered(spec, law=BareBin(law.source, law.grid_bits))


def short_words(patch):
    spec = signs()
    return altered(spec, law=ShortWords(list(spec.law.thresholds)))


class Restarting:
    """A key stream that begins again for every call."""

    def __init__(self):
        self._rng = np.random.default_rng(8)

    def words(self, count, dtype):
        most = np.iinfo(dtype).max
        return self._rng.integers(0, most, count, dtype=dtype, endpoint=True)


class Deaf:
    """Keeps its key, and so takes no new one after a fork."""

    def __init__(self):
        self._encryptor = Cipher(AES(os.urandom(32)), CTR(os.urandom(16))).encryptor()

    def words(self, count, dtype):
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(bytearray(self._encryptor.update(bytes(size))), dtype)


def reused_stream(patch):
    patch.setattr(dpindex.mechanism.privatizer, "secret_stream", Restarting)
    return staircase()


def forked_stream(patch):
    stream = Deaf()
    patch.setattr(dpindex.mechanism.privatizer, "secret_stream", lambda: stream)
    return staircase()


def two_bins(patch):
    return altered(staircase(), projection=Oporp(DIM, K, 0, repetitions=2))


def mislabelled(patch):
    row = METHODS.find_method("idp-signrp-rr")
    lie = replace(row, calibration=replace(row.calibration, definition="DP"))
    patch.setitem(METHODS.TABLE, row.name, lie)
    return signs("idp-signrp-rr")


def heavy_tail_cut(patch):
    """The tail given to the middle: a bounded law, whose ends tell neighbours apart."""
    spec = staircase()
    law = spec.law
    masses = list(law.source.masses)
    middle = len(masses) // 2
    masses[middle - 1] += masses[0] - 1
    masses[middle] += masses[-1] - 1
    masses[0] = masses[-1] = 1
    table = CellTable(masses, law.source.first, cell_bits=law.source.cell_bits, tails=True)
    return with_table(spec, table)


def dense(method, **changes):
    plain = {"adjacency": attribute(1.0), "method": method, "dim": DIM, "k": K, "epsilon": 1.0}
    return Spec(**{**plain, **with_variant(changes)})


def small_dense_sigma(patch):
    """Noise for a map whose rows are a twentieth shorter."""
    spec = dense("dp-rp-g-opt", delta=1e-6)
    sigma = 0.95 * optimal_sigma(1.0, 1e-6) * math.sqrt(spec.projection.sensitivity.l2_squared)
    return altered(spec, law=rounded_gaussian(sigma, 1.0, 1e-6, K))


def l1_for_l2(patch):
    """The Laplace law of a sparse map fed its L2 sensitivity, √s, where L1 is meant, s."""
    return altered(dense("dp-sjlt-laplace", sparsity=4), law=laplace_noise(1.0, 2))


def steep_digits(patch):
    spec = dense("dp-rp-l", epsilon=0.1)
    law = spec.law
    wide = TwoDigitLaplace(law.source.drop * mpmath.mpf("1.05"), law.source.cell_bits)
    return altered(spec, law=AdditiveNoise(wide, law.grid_bits))


def short_norm(patch):
    """Whole vectors, under an operator norm that is a twentieth too small."""
    spec = dense("row-rp-g-opt", delta=1e-6, adjacency=l2(2.0))
    norm = spec.projection
    object.__setattr__(norm, "operator_norm", 0.95 * norm.operator_norm)
    return altered(spec, projection=norm)


def half_radius(patch):
    """Add or remove where replace is meant: the law of half the radius."""
    spec = dense("row-oporp-g", delta=1e-6, adjacency=l2(2.0))
    law = dense("row-oporp-g", epsilon=2.0, delta=1e-6, adjacency=l2(2.0)).law
    return altered(spec, law=law)


def narrow_levels(patch):
    """Levels of one beta, where one attribute moves a coordinate by its weight times that."""
    spec = signs("dp-signrp-geometric", entries="uniform")
    law = spec.law
    return altered(spec, law=FlipsByLevel(list(law.thresholds)))


def one_sign_short(patch):
    """Epsilon shared by one sign fewer than can change."""
    spec = signs("dp-signrp-rr", k=256, delta=1e-6, entries="gaussian", min_norm=4.0)
    law = spec.law
    counted = round(1.0 / math.log(2**64 / law.thresholds[0] - 1))
    return altered(spec, law=FlipsByLevel([response_threshold(1.0, counted - 1)]))


class HalvedNoise(AdditiveNoise):
    """Adds half of what its source draws."""

    def perturb(self, x, stream):
        noise = self.source.sample(x.size, stream).reshape(x.shape) >> 1
        return (x.astype(np.int64) + noise) >> self.source.cell_bits


def halved_noise(patch):
    spec = staircase()
    return altered(spec, law=HalvedNoise(spec.law.source, spec.law.grid_bits))


def small_individual_sigma(patch):
    """Gaussian noise inside A for one coordinate, where all of A move."""
    return altered(signs("idp-signrp-g", delta=1e-6), law=IndividualGaussian(1.0, 1e-6, K, 1))


def unshared_individual(patch):
    return altered(signs("idp-signrp-rr"), law=IndividualFlips(1.0, K, 1))


def sketch(**changes):
    return replace(SketchSpec(3, 20, 16, PStable(1.0, 2), 1.0), **changes)


def with_source(spec, source):
    return altered(spec, law=AdditiveNoise(source, 0))


def weak_counts(patch):
    return with_source(sketch(), geometric_table(mpmath.mpf("1.05") / 20, 1, 1, 0))


def one_row_short(patch):
    return with_source(sketch(), geometric_table(mpmath.mpf(1) / 19, 1, 1, 0))


def add_for_replace(patch):
    return altered(sketch(neighbouring="replace"), law=sketch().law)


def small_count_sigma(patch):
    sigma = 0.95 * optimal_sigma(1.0, 1e-6) * math.sqrt(20)
    return with_source(sketch(delta=1e-6), gaussian_table(sigma, 1.0, 1e-6, 320, 0))


class BareCount(RaceSketch):
    def release(self):
        first = secret_counts(self)[0, 0].copy()
        super().release()
        assert self.released is not None
        self.released.counts[0, 0] = first
        return self


class Boast(RaceSketch):
    """Promises half the epsilon that it spends."""

    def release(self):
        super().release()
        assert self.released is not None
        promise = replace(self.released.guarantee, epsilon=0.5)
        self.released = replace(self.released, guarantee=promise)
        return self


class CountedTwice(RaceSketch):
    def fit(self, x):
        super().fit(x)
        secret_counts(self)[3] *= 2
        return self


def by_sketch(kind):
    def make(patch):
        patch.setattr(dpindex.audit.input_checks, "RaceSketch", kind)
        return sketch()

    return make


def same_count_noise(patch):
    patch.setattr(dpindex.race.sketch, "secret_stream", Restarting)
    return sketch()


def fine_directions(patch):
    spec = sketch()
    spec.hasher.whole_directions += 2.0**-8
    return spec


def cap(epsilon=1.0):
    return Spec("record-cap", dim=DIM, k=64, epsilon=epsilon, adjacency=record())


def with_cap(kind):
    return lambda patch: altered(cap(), law=kind(cap().law.cap))


def likely_cap(patch):
    return altered(cap(), law=CapResponse(best_cap(rank_weights(64), 1.05)))


def thin_cap(patch):
    """Sampled one level of sums further out than it was counted."""
    one = cap().law.cap
    return altered(cap(), law=CapResponse(replace(one, threshold=one.threshold + 1)))


class BareSign(CapResponse):
    def perturb(self, x, stream):
        bits = super().perturb(x, stream)
        bits[:, -1] = x[:, -1] >= 0
        return bits


def book():
    return Codebook(np.random.default_rng(4).normal(size=(60, DIM)))


def symbols(subset=20):
    return Spec("record-codebook", DIM, epsilon=1.0, adjacency=record(), codebook=book(),
                subset=subset)  # fmt: skip


def with_response(kind):
    def make(patch):
        spec = symbols()
        return altered(spec, law=kind(spec.law.codebook, spec.subset, spec.law.uniform))

    return make


def likely_set(patch):
    return altered(symbols(), law=CodebookResponse(book(), 20, uniform_share(60, 1.05, 20)))


def small_set(patch):
    """The uniform share of a set of 20 for a set of 16."""
    return altered(symbols(), law=CodebookResponse(book(), 16, symbols().law.uniform))


class Wide(CodebookResponse):
    """Finds four codewords fewer than the uniform share was made for."""

    def perturb(self, x, stream):
        return CodebookResponse(self.codebook, self.subset - 4, self.uniform).perturb(x, stream)


@dataclass(frozen=True)
class Mutant:
    """A broken copy, the exact checks that must fail, and the finding that must refute it."""

    name: str
    make: Callable[[pytest.MonkeyPatch], Any]
    exact: tuple[str, ...]
    seen: str | None = None
    trials: int = 100_000


MUTANTS = (
    Mutant("Gaussian sigma × 0.95", small_sigma, (HOCKEY,), "if the noise is normal", 1_000_000),
    Mutant("staircase ratio e^{1.05 ε}", steep_ratio, (RATIO,), POOLED, 1_000_000),
    Mutant("sensitivity of add where replace is meant", half_sensitivity, (RATIO,), POOLED),
    Mutant("law one cell of a beta too narrow", coarse_law, (RATIO,), None),
    Mutant("tail cut off", heavy_tail_cut, (RATIO,), None),
    Mutant("grid one step of a beta too fine", with_grid(FineGrid), (GRID,), None),
    Mutant("grid without slack for float rounding", with_grid(TightGrid), (GRID,), None),
    Mutant("flip probability rounded down by 2^-64", rounded_down, (LEVELS,), None),
    Mutant("flip probability × 0.95", few_flips, (LEVELS,), POOLED),
    Mutant("smooth flips each rounded by itself", loose_chain, (LEVELS,), None),
    Mutant("flip thresholds cut to 16 bits", short_words, (REPLAY,), None),
    Mutant("budget not split over repetitions", unsplit_budget, (LEVELS,), POOLED),
    Mutant("last bit without noise", bare_bit, (REPLAY,), ALONE),
    Mutant("last bin without noise", bare_bin, (REPLAY,), ALONE),
    Mutant("key stream used again", reused_stream, (STREAM,), "the same noise twice"),
    Mutant("stream shared after a fork", forked_stream, (STREAM,), None),
    Mutant("an attribute in two bins", two_bins, (STEP,), None),
    Mutant("iDP labelled DP", mislabelled, ("definition",), None),
    Mutant("dense Gaussian sigma × 0.95", small_dense_sigma, (WHOLE,), None),
    Mutant("L2 sensitivity for a Laplace law", l1_for_l2, (STEP,), POOLED),
    Mutant("two-digit Laplace steeper by 1.05", steep_digits, (STEP,), None),
    Mutant("operator norm × 0.95", short_norm, (NORM,), None),
    Mutant("law of half the radius", half_radius, (WHOLE,), None),
    Mutant("levels narrower than the weights", narrow_levels, (LEVELS,), None),
    Mutant("one sign fewer than can change", one_sign_short, (CHANGES,), None),
    Mutant("iDP signs that do not share epsilon", unshared_individual, (INSIDE,), None),
    Mutant("half of the noise added", halved_noise, (REPLAY,), POOLED),
    Mutant("iDP Gaussian noise of one coordinate", small_individual_sigma, (INSIDE_G,), None),
    Mutant("cap: chance of the inside for 1.05 ε", likely_cap, (CAP,), SCORE, 500_000),
    Mutant("cap: counted one level too wide", thin_cap, (CAP,), SCORE, 400_000),
    Mutant("cap: last sign without noise", with_cap(BareSign), (REPLAY,), WITHIN),
    Mutant("codebook: uniform share for 1.05 ε", likely_set, (SYMBOL,), SCORE, 500_000),
    Mutant("codebook: four codewords too few", small_set, (SYMBOL,), SCORE, 500_000),
    Mutant(
        "codebook: a smaller set is drawn from",
        with_response(Wide),
        (REPLAY,),
        SYMBOLS_ALONE,
        500_000,
    ),
    Mutant("sketch: geometric noise steeper by 1.05", weak_counts, (STEP,), None),
    Mutant("sketch: epsilon shared by one row too few", one_row_short, (STEP,), None),
    Mutant("sketch: add-remove where replace is meant", add_for_replace, (STEP,), None),
    Mutant("sketch: Gaussian sigma × 0.95", small_count_sigma, (WHOLE,), None),
    Mutant("sketch: one count without noise", by_sketch(BareCount), (RELEASE,), None),
    Mutant("sketch: promises half its epsilon", by_sketch(Boast), (RELEASE,), None),
    Mutant("sketch: a row counted twice", by_sketch(CountedTwice), (MOVES,), None),
    Mutant("sketch: key stream used again", same_count_noise, (STREAM,), None),
    Mutant("sketch: directions that are no integers", fine_directions, (SUMS,), None),
)
by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@pytest.mark.slow
@by_name
def test_the_verifier_names_what_is_broken(mutant, monkeypatch):
    failed = refuted(mutant.make(monkeypatch))
    assert set(mutant.exact) <= set(failed), failed


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.seen], ids=lambda mutant: mutant.name)
def test_the_attack_refutes_it(mutant, monkeypatch):
    seed_noise(monkeypatch)  # of narrow weaknesses chance would hide one in some hundred runs
    spec = mutant.make(monkeypatch)
    report = attack(spec, trials=mutant.trials)
    refuting = [f.name for f in report.findings if f.lower_bound > spec.budget]
    assert any(name.startswith(str(mutant.seen)) for name in refuting), str(report)


@pytest.mark.slow
def test_the_originals_pass(monkeypatch):
    """So it is the mutation that is caught."""
    for spec in (staircase(), signs(), signs("idp-signrp-rr"), signs(repetitions=2), sketch(),
                 cap(), symbols()):  # fmt: skip
        assert refuted(spec) == ()


def test_the_table_of_what_catches_what_is_up_to_date():
    """``bench/mutations.md`` says what the tests above hold; every mutant has an exact check."""
    rows = [f"| {m.name} | {', '.join(m.exact)} | {m.seen or '–'} |" for m in MUTANTS]
    print("\n".join(rows))
    assert all(mutant.exact for mutant in MUTANTS)
    page = ROOT / "bench" / "mutations.md"
    if not page.is_file():
        pytest.skip("the documents are not here")
    altered, _ = page.read_text().split("## The campaign")
    assert [line for line in altered.splitlines() if line.startswith("| ")][1:] == rows


@pytest.fixture
def bench(monkeypatch):
    folder = ROOT / "bench"
    if not (folder / "mutants.py").is_file():
        pytest.skip("the benchmarks are not here")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_every_weakness_has_a_seam_and_tests(bench):
    """What it replaces is there, and so are the tests that must fail."""
    campaign = import_module("mutants")
    planted = campaign.MUTANTS
    assert len(planted) >= 213
    assert len({mutant.name for mutant in planted}) == len(planted)
    places = campaign.places()
    for mutant in planted:
        assert {name.partition("[")[0] for name in mutant.tests} <= set(places), mutant.name
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)


def test_the_campaign_missed_nothing_and_its_table_is_up_to_date(bench):
    """As it last ran: ``python bench/mutants.py`` runs it again."""
    campaign = import_module("mutants")
    results = campaign.read_results()
    assert [result.name for result in results] == [mutant.name for mutant in campaign.MUTANTS]
    assert not [result.name for result in results if result.missed]
    page = campaign.PAGE.read_text().split(campaign.BEGIN)[1].split(campaign.END)[0]
    assert page == campaign.table(results)
