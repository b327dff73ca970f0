"""The self-test of released codes: it decodes words as samplers do, and sees what is done after.

That these checks notice what hostile readers planted is held by ``bench/mutants.py``: sixty of its
rows name ``test_what_ships_passes``.
"""

import json
import os
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers.common import Seeded, attribute_spec, codebook, folded, record_spec
from self_test.probes import exact_integers, probe_rows
from self_test.recording import cipher_fault, entropy_fault, words_fault
from self_test.report import check_paths
from self_test.second_reading import REPLAY, refuted
from self_test.words import Recorder, Replay, UnexplainedError

from dpindex import Dense, Repeated, Spec, attribute, l2
from dpindex.audit import verify
from dpindex.audit.law_verifiers import VERIFIERS, law_verifier_class
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.response import FlipsByLevel, draw_flips
from dpindex.mechanism.secret_random import SecretStream, secret_stream
from dpindex.mechanism.spec import Projector
from dpindex.race import PStable, SketchSpec
from dpindex.storage.release import ReleaseRun

STAIRCASE = attribute_spec("dp-oporp-staircase", 24, k=8, epsilon=1.0)
CAP = record_spec("record-cap", 24, k=64, epsilon=1.0)
WAVE = attribute_spec("raw-square-wave", 8, epsilon=1.0, bounds=(0.0, 1.0))
WHOLE = {"dim": 24, "epsilon": 1.0}
WIDE = attribute_spec("dp-oporp-laplace", 24, 8, 0.3, bounds=(-3000.0, 3000.0))
PLAIN = {**WHOLE, "adjacency": attribute(1.0)}
SKETCH = SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0)
BOOKS = [
    record_spec("record-codebook", codebook=codebook(24), **WHOLE),
    Spec("codebook-softmax", codebook=codebook(24), record_epsilon=4.0, **PLAIN),
]
ONE_OF_EACH = [
    STAIRCASE,
    WAVE,
    WIDE,
    Spec("dp-rp-g-opt", k=8, delta=1e-6, **PLAIN),
    Spec("row-oporp-g", k=8, delta=1e-6, adjacency=l2(2.0), **WHOLE),
    attribute_spec("dp-rp-l", k=8, dim=24, epsilon=0.1),
    Spec("dp-signoporp-rr-smooth", k=8, variant=Repeated(2), **PLAIN),
    Spec("dp-signrp-geometric", k=8, variant=Dense("uniform"), **PLAIN),
    Spec("dp-signrp-rr", k=4, delta=1e-6, variant=Dense("gaussian", min_norm=4.0), **PLAIN),
    Spec("idp-signrp-rr", k=9, **PLAIN),
    Spec("idp-signoporp-g", k=8, delta=1e-6, **PLAIN),
    CAP,
    *BOOKS,
    SKETCH,
    replace(SKETCH, delta=1e-6),
]
OPTIONS = {
    "norm": attribute_spec("raw-gaussian", 12, epsilon=1.0, delta=1e-6, norm=1.0),
    "clip": attribute_spec("dp-oporp-staircase", 24, 8, 1.0, bounds=(-0.3, 0.6), clip=True),
    "scale": attribute_spec("dp-signoporp-geometric", 24, 9, 1.0, scale=255.0),
}


def name(spec):
    return getattr(spec, "method", "sketch")


pytestmark = pytest.mark.filterwarnings("ignore:.* were clipped to them")


def test_every_law_is_here():
    assert {law_verifier_class(spec) for spec in ONE_OF_EACH} == set(VERIFIERS.values())


@pytest.mark.slow
@pytest.mark.parametrize("spec", ONE_OF_EACH, ids=name)
def test_what_ships_passes(spec):
    assert check_paths(spec, large=False) == {}


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_what_a_spec_may_state_besides_passes(option):
    assert check_paths(OPTIONS[option], large=False) == {}


@pytest.mark.slow
@pytest.mark.parametrize("spec", [STAIRCASE, CAP, *BOOKS, SKETCH], ids=name)
def test_several_tasks_chunks_and_files_pass(spec):
    assert check_paths(spec) == {}


def test_other_words_are_not_explained():
    words = Replay([np.zeros(5, np.uint32)])
    for count, dtype in ((5, np.uint16), (4, np.uint32)):
        with pytest.raises(UnexplainedError):
            words.take(count, dtype)


@folded("spec", [STAIRCASE, WAVE])
def test_exact_integers_are_those_of_the_encoder(spec):
    rows = probe_rows(spec)
    found = Projector(spec).project(rows)
    assert (found == exact_integers(spec, rows)).all()


def test_the_self_test_of_an_installation(run, prints, monkeypatch):
    """The exit code is that of the report, which names what fails."""
    report = json.loads(prints("audit --self-test --json"))
    assert report["passed"]
    names = [check["name"] for check in report["checks"]]
    assert sum(name.startswith("a release: ") for name in names) == 3
    monkeypatch.setattr(AdditiveNoise, "perturb", perturb_by_half)
    code, out, _ = run("audit --self-test")
    assert code == 1
    assert "FAILED" in out
    assert "known answer: dp-oporp-staircase" in out.splitlines()[0]
    assert run("audit --self-test --exact")[0] == 2


# Planted weaknesses


def perturb_by_half(law, x, stream):
    """Noise that is halved between the draw and the sum."""
    source = law.source
    noise = source.sample(x.size, stream).reshape(x.shape).astype(np.int64)
    sums = x.astype(np.int64) + noise // 2
    return (sums >> source.cell_bits).astype("i4")


REFUSED = "path: vectors that are refused"


def test_a_ledger_that_is_told_too_late_is_named(monkeypatch):
    ledger = "path: a ledger counts every release first"
    book = ReleaseRun.tell_ledger
    draw = ReleaseRun.draw
    told_later = []

    def drawn(run, *work):
        receipts = draw(run, *work)
        book(run, *told_later.pop())
        return receipts

    monkeypatch.setattr(ReleaseRun, "tell_ledger", lambda _, *told: told_later.append(told))
    monkeypatch.setattr(ReleaseRun, "draw", drawn)
    assert ledger in check_paths(STAIRCASE, large=False, only=ledger)


def test_low_a_guarantee_in_other_units_is_named(monkeypatch):
    spec = attribute_spec(
        "dp-oporp-staircase",
        8,
        k=4,
        epsilon=1.0,
        scale=0.01,
    )
    assert verify(spec).passed
    wrong = replace(spec.guarantee, adjacency=spec.adjacency)
    monkeypatch.setattr(Spec, "guarantee", wrong)
    assert verify(spec).failed == ("definition",)


def test_low_levels_by_a_reciprocal(monkeypatch):
    """Rounding in single precision shows only where the sampler runs in single precision."""
    spec = attribute_spec(
        "dp-signrp-geometric",
        24,
        k=8,
        epsilon=8.0,
        variant=Dense("uniform"),
    )

    def perturb(law, x, stream):
        reciprocal = 1.0 / (law.weights * (1 << spec.grid.bits))
        level = np.ceil(np.abs(x) * reciprocal.astype(x.dtype))
        level = np.minimum(level, len(law.thresholds)).astype(np.intp)
        return (x > 0) ^ draw_flips(law.table, level, stream)

    assert refuted(spec) == ()
    monkeypatch.setattr(FlipsByLevel, "perturb", perturb)
    assert REPLAY in refuted(spec)


@pytest.mark.parametrize("clip", [False, True])
def test_low_min_norm_is_that_after_clipping(clip, monkeypatch):
    spec = attribute_spec(
        "dp-signrp-rr",
        24,
        k=4,
        epsilon=1.0,
        delta=1e-6,
        variant=Dense("gaussian", min_norm=2.0),
        clip=clip,
    )
    original = Projector.norms

    def norms(projector, block, clip=False):
        return original(projector, block)

    assert REFUSED not in check_paths(spec, large=False, only=REFUSED)
    monkeypatch.setattr(Projector, "norms", norms)
    assert (REFUSED in check_paths(spec, large=False, only=REFUSED)) == clip


# Streams


def recorders(*reads):
    made = []
    for read in reads:
        recorder = Recorder(Seeded(0))
        recorder.reads = [read]
        made.append(recorder)
    return made


def test_words_read_twice_inverted_or_uneven_are_found():
    words = [Seeded(seed).words(5000, np.uint32) for seed in (1, 2)]
    assert not words_fault(recorders(*words))
    assert words_fault(recorders(*words, words[0][3:]))
    assert words_fault(recorders(words[0], ~words[0]))
    assert words_fault(recorders(words[0] | np.uint32(4)))
    assert words_fault([])


class Doubled(SecretStream):
    """Words of sixteen bits that are eight bits twice."""

    def words(self, count, dtype):
        words = super().words(count, dtype)
        if words.itemsize == 2:
            words = (words & 255) * 257
        return words


class Expanded(SecretStream):
    """Words of which every second follows from the one before."""

    def words(self, count, dtype):
        words = super().words(count, dtype)
        odd = words[1::2]
        even = words[: 2 * len(odd) : 2]
        odd[:] = even * dtype(5) + dtype(77)
        return words


def test_low_words_that_are_not_all_of_the_cipher():
    assert not cipher_fault(secret_stream)
    assert cipher_fault(Doubled)
    assert cipher_fault(Expanded)
    assert cipher_fault(lambda: Seeded(3))


def test_a_key_that_is_not_all_from_the_system_is_found():
    assert not entropy_fault(secret_stream)
    assert not entropy_fault(SecretStream)
    assert entropy_fault(lambda: Seeded(time.perf_counter_ns()))

    def few_bytes():
        return Seeded(int.from_bytes(os.urandom(4), "big"))

    assert entropy_fault(few_bytes)
