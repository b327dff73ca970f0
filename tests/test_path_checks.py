"""The self-test of released codes: it decodes words as samplers do, and sees what is done after.

The weaknesses that a hostile reader planted, and which "still held", are tests here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specs import codebook
from streams import Seeded

import dpindex.mechanism.privatizer
from dpindex import PrivateIndex, Privatizer, Spec, l2, record
from dpindex.audit import verify
from dpindex.audit.decoding import Recorder, Replay, UnexplainedError, table_draws
from dpindex.audit.law_verifiers import VERIFIERS, law_verifier_class
from dpindex.audit.self_test import check_paths
from dpindex.audit.self_test.probes import exact_integers, probe_rows
from dpindex.audit.self_test.recording import entropy_check, words_check
from dpindex.index.queries import QueryMaker
from dpindex.mechanism.noise.additive import AdditiveNoise
from dpindex.mechanism.noise.randomized_response import FlipsByLevel
from dpindex.mechanism.noise.square_wave import SquareWave
from dpindex.mechanism.projector import Projector
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.randomness.secret import SecretStream, secret_stream

STAIRCASE = Spec("dp-oporp-staircase", dim=24, k=8, epsilon=1.0)
WAVE = Spec("raw-square-wave", dim=8, epsilon=1.0, bounds=(0.0, 1.0))
PLAIN: dict[str, Any] = {"dim": 24, "epsilon": 1.0}
ONE_OF_EACH = [
    STAIRCASE,
    WAVE,
    Spec("dp-rp-g-opt", k=8, delta=1e-6, **PLAIN),
    Spec("row-oporp-g", k=8, delta=1e-6, adjacency=l2(2.0), **PLAIN),
    Spec("dp-rp-l", k=8, dim=24, epsilon=0.1),
    Spec("dp-signoporp-rr-smooth", k=8, repetitions=2, **PLAIN),
    Spec("dp-signrp-geometric", k=8, entries="uniform", **PLAIN),
    Spec("dp-signrp-rr", k=4, delta=1e-6, entries="gaussian", min_norm=4.0, **PLAIN),
    Spec("idp-signrp-rr", k=9, **PLAIN),
    Spec("idp-signoporp-g", k=8, delta=1e-6, **PLAIN),
    Spec("record-cap", k=64, adjacency=record(), **PLAIN),
    Spec("record-codebook", adjacency=record(), codebook=codebook(24), **PLAIN),
    SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0),
    SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0, 1e-6),
]

Patch = pytest.MonkeyPatch


def test_every_law_is_here() -> None:
    assert {law_verifier_class(spec) for spec in ONE_OF_EACH} == set(VERIFIERS.values())


@pytest.mark.parametrize("spec", ONE_OF_EACH, ids=lambda s: getattr(s, "method", "sketch"))
def test_what_ships_passes(spec: Any) -> None:
    assert check_paths(spec, large=False).failed == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        STAIRCASE,
        Spec("dp-oporp-laplace", dim=24, k=8, epsilon=0.3, bounds=(-3000.0, 3000.0)),
        Spec("raw-gaussian", dim=12, epsilon=1.0, delta=1e-6, norm=1.0),
        Spec("dp-oporp-staircase", dim=24, k=8, epsilon=1.0, bounds=(-0.3, 0.6), clip=True),
        Spec("dp-signoporp-geometric", dim=24, k=9, epsilon=1.0, scale=255.0),
        *ONE_OF_EACH[-4:-2],
        SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0),
    ],
    ids=str,
)
def test_several_tasks_chunks_and_files_pass(spec: Any) -> None:
    assert check_paths(spec).failed == ()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("method", ["raw-laplace", "raw-staircase"])
def test_a_second_decoder_draws_the_same(method: str, epsilon: float) -> None:
    """By counting boundaries below a number, not by looking up buckets."""
    source = Spec(method, dim=4, epsilon=epsilon).law.source
    if not hasattr(source, "masses"):
        pytest.skip("a law in two digits")
    stream = Recorder(Seeded(3))
    drawn = source.sample(300_000, stream)
    words = Replay(stream.reads)
    assert (table_draws(source, 300_000, words) == drawn).all()
    assert words.spent


def test_other_words_are_not_explained() -> None:
    words = Replay([np.zeros(5, np.uint32)])
    for count, dtype in ((5, np.uint16), (4, np.uint32)):
        with pytest.raises(UnexplainedError):
            words.take(count, dtype)


@pytest.mark.parametrize("spec", [STAIRCASE, WAVE], ids=["bins", "raw"])
def test_exact_integers_are_those_of_the_encoder(spec: Spec) -> None:
    rows = probe_rows(spec)
    assert (Projector(spec).project(rows) == exact_integers(spec, rows)).all()


def test_the_proof_replaces_nothing_in_the_process(monkeypatch: Patch) -> None:
    """Only the self-test records words, in a process of its own."""
    module = dpindex.mechanism.privatizer
    monkeypatch.setattr("dpindex.audit.self_test.recording.recorded", None)
    stream = module.secret_stream
    assert verify(STAIRCASE).passed
    assert module.secret_stream is stream


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    """It runs as a process of its own; the exit code is that of the report."""
    (tmp_path / "spec.json").write_text(WAVE.to_json())
    command = "import sys; from dpindex.cli import main; sys.exit(main())"
    words = ["audit", "spec.json", "--self-test", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", command, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    assert all(check["name"].startswith(("path: ", "stream: ")) for check in report["checks"])


# Planted weaknesses


def additive(change: Callable[[Any, Any], Any]) -> Callable[[Patch], Spec]:
    """Noise that is changed between the draw and the sum."""

    def plant(patch: Patch) -> Spec:
        def perturb(law: AdditiveNoise, x: Any, stream: Any) -> Any:
            noise = law.source.sample(x.size, stream).reshape(x.shape).astype(np.int64)
            return ((x.astype(np.int64) + change(noise, x)) >> law.source.cell_bits).astype("i4")

        patch.setattr(AdditiveNoise, "perturb", perturb)
        return STAIRCASE

    return plant


def antithetic(noise: Any, x: Any) -> Any:
    half = len(noise) // 2
    return np.concatenate([noise[: len(noise) - half], -noise[:half]])


def wrong_edge(patch: Patch) -> Spec:
    original = SquareWave.perturb

    def perturb(law: SquareWave, x: Any, stream: Any) -> Any:
        return original(law, np.minimum(x, law.low + ((law.cells - 1) << law.cell_bits)), stream)

    patch.setattr(SquareWave, "perturb", perturb)
    return WAVE


def doubled_in_add(patch: Patch) -> Spec:
    original = PrivateIndex.add

    def add(index: PrivateIndex, x: Any, ids: Any = None, **terms: Any) -> None:
        if terms or not isinstance(x, np.ndarray):
            original(index, x, ids, **terms)
            return
        codes = Privatizer(index.spec.with_epsilon(2.0)).privatize(x)
        index.add_codes(index.spec.format.codes(codes.stored), ids)

    patch.setattr(PrivateIndex, "add", add)
    return STAIRCASE


def clock_key(patch: Patch) -> Spec:
    class Clock(Seeded):
        def __init__(self) -> None:
            super().__init__(time.perf_counter_ns())

    patch.setattr(dpindex.mechanism.privatizer, "secret_stream", Clock)
    return STAIRCASE


def shared_key(patch: Patch) -> Spec:
    patch.setattr(dpindex.mechanism.privatizer, "secret_stream", lambda: Seeded(8))
    return STAIRCASE


def bare_zeros(patch: Patch) -> Spec:
    return additive(lambda noise, x: np.where(x == 0, 0, noise))(patch)


def bare_queries(patch: Patch) -> Spec:
    original = QueryMaker.__call__

    def make(maker: QueryMaker, queries: Any, mode: Any, *, allow_unprotected: bool = False) -> Any:
        made: Any = original(maker, queries, mode, allow_unprotected=allow_unprotected)
        if mode == "private":
            cells = Projector(maker.spec).project(queries).astype(np.int64) >> 7
            made = original(maker, maker.spec.format.codes(cells.astype(np.int32)), "exact")
        return made

    patch.setattr(QueryMaker, "__call__", make)
    return STAIRCASE


def paired_flips(patch: Patch) -> Spec:
    original = FlipsByLevel.perturb

    def perturb(law: FlipsByLevel, x: Any, stream: Any) -> Any:
        flipped = original(law, x, stream) ^ (x > 0)
        flipped[:, -1] = flipped[:, 0]
        return flipped ^ (x > 0)

    patch.setattr(FlipsByLevel, "perturb", perturb)
    return Spec("dp-signoporp-rr", dim=24, k=8, epsilon=1.0)


def quiet_large_counts(patch: Patch) -> SketchSpec:
    original = RaceSketch.release

    def release(sketch: RaceSketch) -> RaceSketch:
        exact = sketch._secret().copy()
        original(sketch)
        released: Any = sketch._released
        released.counts[exact > 5] = exact[exact > 5]
        return sketch

    patch.setattr(RaceSketch, "release", release)
    return SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0)


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (additive(lambda noise, x: noise // 100), "path: privatize, dense"),
        (additive(lambda noise, x: noise * 2), "path: privatize, dense"),
        (additive(antithetic), "path: privatize, dense"),
        (bare_zeros, "path: privatize, sparse"),
        (wrong_edge, "path: privatize, dense"),
        (doubled_in_add, "path: PrivateIndex.add"),
        (clock_key, "stream: keys come from the operating system"),
        (shared_key, "path: words of calls, tasks and threads"),
        (bare_queries, "path: private queries"),
        (paired_flips, "path: privatize, dense"),
        (quiet_large_counts, "path: released counts, merged and stored"),
    ],
)
def test_planted_weaknesses_are_named(plant: Any, check: str, monkeypatch: Patch) -> None:
    assert check in check_paths(plant(monkeypatch), large=False).failed


@pytest.mark.slow
def test_less_noise_in_large_batches_is_named(monkeypatch: Patch) -> None:
    spec = additive(lambda noise, x: noise * 4 // 5 if x.size > 100_000 else noise)(monkeypatch)
    assert "path: privatize, dense" in check_paths(spec).failed


@pytest.mark.slow
def test_a_build_that_averages_two_releases_is_named(monkeypatch: Patch) -> None:
    original = Privatizer.privatize

    def privatize(coder: Privatizer, x: Any, **how: Any) -> Any:
        codes = original(coder, x, **how)
        if "first_row" not in how:
            return codes
        other = original(coder, x, **how)
        return coder.spec.format.codes((codes.stored.astype("i4") + other.stored) // 2)

    monkeypatch.setattr(Privatizer, "privatize", privatize)
    assert "path: build, codes file, import, save and open" in check_paths(STAIRCASE).failed


# Streams


def recorders(*reads: Any) -> list[Recorder]:
    made = []
    for read in reads:
        recorder = Recorder(Seeded(0))
        recorder.reads = [read]
        made.append(recorder)
    return made


def test_words_read_twice_inverted_or_uneven_are_found() -> None:
    words = [Seeded(seed).words(5000, np.uint32) for seed in (1, 2)]
    assert words_check(recorders(*words)).passed
    assert not words_check(recorders(*words, words[0][3:])).passed
    assert not words_check(recorders(words[0], ~words[0])).passed
    assert not words_check(recorders(words[0] | np.uint32(4))).passed
    assert not words_check([]).passed


def test_a_key_that_is_not_all_from_the_system_is_found() -> None:
    assert entropy_check(secret_stream).passed
    assert entropy_check(SecretStream).passed
    assert not entropy_check(lambda: Seeded(time.perf_counter_ns())).passed
    assert not entropy_check(lambda: Seeded(int.from_bytes(os.urandom(4), "big"))).passed
