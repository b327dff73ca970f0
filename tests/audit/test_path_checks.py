"""The self-test of released codes: it decodes words as samplers do, and sees what is done after.

The weaknesses that a hostile reader planted, and which "still held", are tests here.
"""

import hashlib
import json
import os
import time
from dataclasses import replace

import numpy as np
import pytest
import self_test.persons
import shuffle_collector
from helpers.specs import codebook
from helpers.streams import Seeded
from independent.oracle import secret_counts
from scipy import sparse
from self_test import check_paths
from self_test.probes import exact_integers, probe_rows
from self_test.recording import cipher_check, entropy_check, words_check
from self_test.second_reading import REPLAY, refuted
from self_test.words import Recorder, Replay, UnexplainedError, table_draws
from shuffle_collector import Shuffle, ShuffleCollector, ShuffledFile

import dpindex.data
import dpindex.device
import dpindex.mechanism.privatizer
import dpindex.mechanism.spec
import dpindex.storage.code_store
import dpindex.storage.journal
import dpindex.storage.release
from dpindex import Dense, PrivateIndex, Privatizer, Repeated, Spec, attribute, l2, record
from dpindex.accounting.ledger import Ledger
from dpindex.audit import verify
from dpindex.audit.law_verifiers import VERIFIERS, law_verifier_class
from dpindex.data import Ranges
from dpindex.index.search import QueryMaker
from dpindex.integrations.client import Client
from dpindex.mechanism.grid import Grid
from dpindex.mechanism.noise.additive import AdditiveNoise, staircase_noise
from dpindex.mechanism.noise.signs import FlipsByLevel, draw_flips
from dpindex.mechanism.noise.square_wave import SquareWave
from dpindex.mechanism.secret_random import SecretStream, secret_stream
from dpindex.mechanism.spec import Projector
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.journal import Journal
from dpindex.storage.manifest import Settings
from dpindex.storage.release import CodeDraw, ReleaseRun

STAIRCASE = Spec("dp-oporp-staircase", dim=24, k=8, epsilon=1.0, adjacency=attribute(1.0))
CAP = Spec("record-cap", dim=24, k=64, epsilon=1.0, adjacency=record())
WAVE = Spec("raw-square-wave", dim=8, epsilon=1.0, bounds=(0.0, 1.0), adjacency=attribute(1.0))
WHOLE = {"dim": 24, "epsilon": 1.0}
PLAIN = {**WHOLE, "adjacency": attribute(1.0)}
ONE_OF_EACH = [
    STAIRCASE,
    WAVE,
    Spec("dp-rp-g-opt", k=8, delta=1e-6, **PLAIN),
    Spec("row-oporp-g", k=8, delta=1e-6, adjacency=l2(2.0), **WHOLE),
    Spec("dp-rp-l", k=8, dim=24, epsilon=0.1, adjacency=attribute(1.0)),
    Spec("dp-signoporp-rr-smooth", k=8, variant=Repeated(2), **PLAIN),
    Spec("dp-signrp-geometric", k=8, variant=Dense("uniform"), **PLAIN),
    Spec("dp-signrp-rr", k=4, delta=1e-6, variant=Dense("gaussian", min_norm=4.0), **PLAIN),
    Spec("idp-signrp-rr", k=9, **PLAIN),
    Spec("idp-signoporp-g", k=8, delta=1e-6, **PLAIN),
    Spec("record-cap", k=64, adjacency=record(), **WHOLE),
    Spec("record-codebook", adjacency=record(), codebook=codebook(24), **WHOLE),
    Spec("codebook-softmax", codebook=codebook(24), record_epsilon=4.0, **PLAIN),
    SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0),
    SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0, 1e-6),
]

pytestmark = pytest.mark.filterwarnings("ignore:.* were clipped to them")


def test_every_law_is_here():
    assert {law_verifier_class(spec) for spec in ONE_OF_EACH} == set(VERIFIERS.values())


@pytest.mark.slow
@pytest.mark.parametrize("spec", ONE_OF_EACH, ids=lambda s: getattr(s, "method", "sketch"))
def test_what_ships_passes(spec):
    assert check_paths(spec, large=False).failed == ()


@pytest.mark.slow
@pytest.mark.parametrize("spec", [STAIRCASE, CAP], ids=lambda spec: spec.method)
def test_a_check_that_runs_alone_passes(spec):
    checks = check_paths(spec, large=False).checks[:-3]  # the last are of all streams
    for check in checks:
        (alone,) = check_paths(spec, large=False, only=check.name).checks
        assert (alone.name, alone.passed) == (check.name, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        STAIRCASE,
        Spec(
            "dp-oporp-laplace",
            dim=24,
            k=8,
            epsilon=0.3,
            bounds=(-3000.0, 3000.0),
            adjacency=attribute(1.0),
        ),
        Spec("raw-gaussian", dim=12, epsilon=1.0, delta=1e-6, norm=1.0, adjacency=attribute(1.0)),
        Spec(
            "dp-oporp-staircase",
            dim=24,
            k=8,
            epsilon=1.0,
            bounds=(-0.3, 0.6),
            clip=True,
            adjacency=attribute(1.0),
        ),
        Spec(
            "dp-signoporp-geometric",
            dim=24,
            k=9,
            epsilon=1.0,
            scale=255.0,
            adjacency=attribute(1.0),
        ),
        CAP,
        *(spec for spec in ONE_OF_EACH if getattr(spec, "codebook", None) is not None),
        SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0),
    ],
    ids=lambda spec: getattr(spec, "method", "sketch"),
)
def test_several_tasks_chunks_and_files_pass(spec):
    assert check_paths(spec).failed == ()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("method", ["raw-laplace", "raw-staircase"])
def test_a_second_decoder_draws_the_same(method, epsilon):
    """By counting boundaries below a number, not by looking up buckets."""
    source = Spec(method, dim=4, epsilon=epsilon, adjacency=attribute(1.0)).law.source
    stream = Recorder(Seeded(3))
    drawn = source.sample(300_000, stream)
    words = Replay(stream.reads)
    assert (table_draws(source, 300_000, words) == drawn).all()
    assert words.spent


def test_other_words_are_not_explained():
    words = Replay([np.zeros(5, np.uint32)])
    for count, dtype in ((5, np.uint16), (4, np.uint32)):
        with pytest.raises(UnexplainedError):
            words.take(count, dtype)


@pytest.mark.parametrize("spec", [STAIRCASE, WAVE], ids=["bins", "raw"])
def test_exact_integers_are_those_of_the_encoder(spec):
    rows = probe_rows(spec)
    assert (Projector(spec).project(rows) == exact_integers(spec, rows)).all()


def test_the_self_test_of_an_installation(run, monkeypatch):
    """The exit code is that of the report, which names what fails."""
    code, out, _ = run("audit", "--self-test", "--json")
    report = json.loads(out)
    assert (code, report["passed"]) == (0, True)
    names = [check["name"] for check in report["checks"]]
    assert sum(name.startswith("a release: ") for name in names) == 3
    additive(lambda noise, x: noise // 2)(monkeypatch)
    code, out, _ = run("audit", "--self-test")
    assert code == 1
    assert "FAILED" in out
    assert "known answer: dp-oporp-staircase" in out.splitlines()[0]
    assert run("audit", "--self-test", "--exact")[0] == 2


# Planted weaknesses


def additive(change):
    """Noise that is changed between the draw and the sum."""

    def plant(patch):
        def perturb(law, x, stream):
            noise = law.source.sample(x.size, stream).reshape(x.shape).astype(np.int64)
            return ((x.astype(np.int64) + change(noise, x)) >> law.source.cell_bits).astype("i4")

        patch.setattr(AdditiveNoise, "perturb", perturb)
        return STAIRCASE

    return plant


def antithetic(noise, x):
    half = len(noise) // 2
    return np.concatenate([noise[: len(noise) - half], -noise[:half]])


def wrong_edge(patch):
    original = SquareWave.perturb

    def perturb(law, x, stream):
        return original(law, np.minimum(x, law.low + ((law.cells - 1) << law.cell_bits)), stream)

    patch.setattr(SquareWave, "perturb", perturb)
    return WAVE


def doubled_in_add(patch):
    original = PrivateIndex.add

    def add(index, x, ids=None, **terms):
        if terms or not isinstance(x, np.ndarray):
            original(index, x, ids, **terms)
            return
        codes = Privatizer(index.spec.with_epsilon(2.0)).privatize(x)
        index.add_codes(index.spec.format.codes(codes.stored), ids)

    patch.setattr(PrivateIndex, "add", add)
    return STAIRCASE


def clock_key(patch):
    class Clock(Seeded):
        def __init__(self):
            super().__init__(time.perf_counter_ns())

    patch.setattr(dpindex.mechanism.privatizer, "secret_stream", Clock)
    return STAIRCASE


def shared_key(patch):
    patch.setattr(dpindex.mechanism.privatizer, "secret_stream", lambda: Seeded(8))
    return STAIRCASE


def bare_zeros(patch):
    return additive(lambda noise, x: np.where(x == 0, 0, noise))(patch)


def bare_queries(patch):
    original = QueryMaker.__call__

    def make(maker, queries, mode, *, allow_unprotected=False):
        made = original(maker, queries, mode, allow_unprotected=allow_unprotected)
        if mode == "private":
            cells = Projector(maker.spec).project(queries).astype(np.int64) >> 7
            made = original(maker, maker.spec.format.codes(cells.astype(np.int32)), "exact")
        return made

    patch.setattr(QueryMaker, "__call__", make)
    return STAIRCASE


def paired_flips(patch):
    original = FlipsByLevel.perturb

    def perturb(law, x, stream):
        flipped = original(law, x, stream) ^ (x > 0)
        flipped[:, -1] = flipped[:, 0]
        return flipped ^ (x > 0)

    patch.setattr(FlipsByLevel, "perturb", perturb)
    return Spec("dp-signoporp-rr", dim=24, k=8, epsilon=1.0, adjacency=attribute(1.0))


def quiet_large_counts(patch):
    original = RaceSketch.release

    def release(sketch):
        exact = secret_counts(sketch).copy()
        original(sketch)
        released = sketch.released
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
def test_planted_weaknesses_are_named(plant, check, monkeypatch):
    assert check in check_paths(plant(monkeypatch), large=False, only=check).failed


@pytest.mark.slow
def test_less_noise_in_large_batches_is_named(monkeypatch):
    spec = additive(lambda noise, x: noise * 4 // 5 if x.size > 100_000 else noise)(monkeypatch)
    dense = "path: privatize, dense"
    assert dense in check_paths(spec, only=dense).failed


@pytest.mark.slow
def test_a_build_that_averages_two_releases_is_named(monkeypatch):
    original = Privatizer.privatize

    def privatize(coder, x, **how):
        codes = original(coder, x, **how)
        if "first_row" not in how:
            return codes
        other = original(coder, x, **how)
        return coder.spec.format.codes((codes.stored.astype("i4") + other.stored) // 2)

    monkeypatch.setattr(Privatizer, "privatize", privatize)
    built = "path: build, codes file, import, save and open"
    assert built in check_paths(STAIRCASE, only=built).failed


def louder(spec, x):
    """Codes that spend twice epsilon, under the fingerprint of a spec."""
    return spec.format.codes(Privatizer(spec.with_epsilon(2 * spec.budget)).privatize(x).stored)


def device_that_spends_all_that_is_accepted(patch):
    def privatize(vector, spec, *, max_epsilon, public=None):
        spec = spec if isinstance(spec, Spec) else Spec.read(spec)
        coder = Privatizer(spec.with_epsilon(max_epsilon), max_epsilon=max_epsilon)
        return bytes(spec.format.codes(coder.privatize(vector).stored).to_bytes())

    patch.setattr(dpindex.device, "privatize", privatize)
    return STAIRCASE


def device_that_reads_a_louder_file(patch):
    original = dpindex.device.privatize

    def privatize(vector, spec, *, max_epsilon, public=None):
        if isinstance(spec, Spec):
            return original(vector, spec, max_epsilon=max_epsilon)
        return bytes(louder(Spec.read(spec), vector).to_bytes())

    patch.setattr(dpindex.device, "privatize", privatize)
    return STAIRCASE


def device_with_one_noise_a_vector(patch):
    def privatize(vector, spec, *, max_epsilon, public=None):
        spec = spec if isinstance(spec, Spec) else Spec.read(spec)
        coder = Privatizer(spec, max_epsilon=max_epsilon)
        own = hashlib.sha256(coder.project(vector).tobytes()).digest()
        coder.stream = lambda: Seeded(int.from_bytes(own[:8], "big"))
        return bytes(coder.privatize(vector).to_bytes())

    patch.setattr(dpindex.device, "privatize", privatize)
    return STAIRCASE


def device_that_accepts_any_epsilon(patch):
    patch.setattr(dpindex.mechanism.privatizer, "refuse_above", lambda limit, spec: None)
    return STAIRCASE


def single_replacements_at_twice_epsilon(patch):
    original = dpindex.storage.release.release_in_memory

    def released(vectors, privatizer, **terms):
        codes = original(vectors, privatizer, **terms)
        if len(codes) > 1:
            return codes
        return louder(privatizer.spec, vectors)

    patch.setattr(dpindex.storage.release, "release_in_memory", released)
    return STAIRCASE


def half_the_noise_where_a_ledger_counts(patch):
    original = CodeDraw.draw_segment
    privatized = dpindex.storage.release.privatized

    def halved(*arguments):
        codes = privatized(*arguments)
        return codes.format.codes(codes.stored // 2)

    def drawn(draw, *arguments):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(dpindex.storage.release, "privatized", halved)
            return original(draw, *arguments)

    patch.setattr(CodeDraw, "draw_segment", drawn)
    return STAIRCASE


def exact_where(chosen):
    """Private queries that are asked exactly where something holds of them."""

    def plant(patch):
        original = QueryMaker.__call__

        def make(maker, queries, mode, **terms):
            if mode == "private" and chosen(queries):
                mode = "exact"
            return original(maker, queries, mode, **terms)

        patch.setattr(QueryMaker, "__call__", make)
        return STAIRCASE

    return plant


def filtered_exactly(patch):
    original = PrivateIndex.search

    def search(index, queries, k=10, query="exact", filter=None):
        if filter is not None:
            query = "exact"
        return original(index, queries, k, query, filter=filter)

    patch.setattr(PrivateIndex, "search", search)
    return STAIRCASE


def hash_beside_the_codes(patch):
    original = CodeDraw.draw_segment

    def drawn(draw, shard, segment, chunk, labels):
        seal = hashlib.sha256(np.ascontiguousarray(chunk).tobytes()).digest()
        files = {f"segments/{segment.number}.seal": seal}
        return files | original(draw, shard, segment, chunk, labels)

    patch.setattr(CodeDraw, "draw_segment", drawn)
    return STAIRCASE


def ids_from_vectors(patch):
    original = PrivateIndex.add

    def add(index, x, ids=None, **terms):
        if ids is None and isinstance(x, np.ndarray):
            start = len(index)
            norms = np.linalg.norm(np.atleast_2d(x), axis=1)
            ids = [f"{start + place}-{norm}" for place, norm in enumerate(norms)]
        original(index, x, ids, **terms)

    patch.setattr(PrivateIndex, "add", add)
    return STAIRCASE


def shuffle_in_order(patch):
    patch.setattr(shuffle_collector, "secret_order", np.arange)
    return CAP


def shuffle_in_a_public_order(patch):
    def order(count):
        return np.random.default_rng(count).permutation(count)

    patch.setattr(shuffle_collector, "secret_order", order)
    return CAP


def shuffle_in_groups(patch):
    original = ShuffledFile.append

    def append(file, codes):
        if len(codes) > len(file.free):
            file.grow(len(codes))
        file.free[: len(codes)] = np.sort(file.free[: len(codes)])
        original(file, codes)

    patch.setattr(ShuffledFile, "append", append)
    return CAP


def one_key_for_all_builds(patch):
    original = Journal.__init__

    def made(journal, *arguments):
        original(journal, *arguments)
        journal.key = bytes(32)

    patch.setattr(Journal, "__init__", made)
    return STAIRCASE


def persons_that_overlap(patch):
    original = dpindex.data.one_per_person

    def one_per_person(vectors, persons, how="mean"):
        made, names = original(vectors, persons, how)
        made[1:] += 1e-3 * made[:-1]
        return made, names

    patch.setattr(self_test.persons, "one_per_person", one_per_person)
    return CAP


def transformer_of_two_releases(patch):
    sklearn = pytest.importorskip("dpindex.integrations.sklearn")
    original = sklearn.PrivateProjection.transform

    def transform(transformer, x):
        return (original(transformer, x) + original(transformer, x)) / 2

    patch.setattr(sklearn.PrivateProjection, "transform", transform)
    return STAIRCASE


def ranges_from_the_data(patch):
    original = Ranges.scaling

    def scaled(ranges, dtype):
        scale = original(ranges, dtype)

        def widened(chunk):
            made = scale(chunk)
            return made / max(1.0, 2 * float(np.abs(made).max()))

        return widened

    patch.setattr(Ranges, "scaling", scaled)
    return STAIRCASE


def whole_numbers_unseen(patch):
    original = Grid.first_fault

    def first_fault(grid, x):
        if x.dtype.kind in "iu":
            return None
        return original(grid, x)

    patch.setattr(Grid, "first_fault", first_fault)
    return WAVE


def sparse_rows_unseen(patch):
    original = dpindex.mechanism.spec.check_values

    def check(block, *rest):
        if not sparse.issparse(block) or np.isnan(block.data).any():
            original(block, *rest)

    patch.setattr(dpindex.mechanism.spec, "check_values", check)
    return STAIRCASE


def codebook_of_the_vectors(patch):
    patch.setattr(dpindex.storage.release, "refuse_leaks", lambda book, evidence: None)
    return Spec("record-codebook", adjacency=record(), codebook=codebook(24), **WHOLE)


def sketch_records(chosen):
    """Records that count twice where something holds of them."""

    def plant(patch):
        original = RaceSketch.partial_fit

        def partial_fit(sketch, chunks):
            if sparse.issparse(chunks) or isinstance(chunks, np.ndarray):
                chunks = [chunks]
            return original(sketch, [c for c in chunks for _ in range(1 + chosen(c))])

        patch.setattr(RaceSketch, "partial_fit", partial_fit)
        return SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0)

    return plant


def exact_size_in_a_header(patch):
    original = RaceSketch.release

    def release(sketch):
        records = int(secret_counts(sketch)[0].sum())
        original(sketch)
        held = sketch.released
        sketch.released = replace(held, variance=held.variance + 1e-9 * records)
        return sketch

    patch.setattr(RaceSketch, "release", release)
    return SketchSpec(3, 10, 32, PStable(1.0, 2), 1.0)


def released_under_the_budget_of_queries(patch):
    def add(index, x, ids=None, **terms):
        codes = Privatizer(index.query_spec).privatize(x)
        index.add_codes(index.spec.format.codes(codes.stored), ids)

    patch.setattr(PrivateIndex, "add", add)
    return STAIRCASE


def slots_by_one_byte(patch):
    def order(count):
        return np.argsort(secret_stream().words(count, np.uint64) & np.uint64(255), kind="stable")

    patch.setattr(shuffle_collector, "secret_order", order)
    return CAP


def shuffle_of_too_few(patch):
    original = ShuffleCollector.publish

    def finish(collector):
        collector.promised = Shuffle(1, collector.promised.delta)
        original(collector)

    patch.setattr(ShuffleCollector, "publish", finish)
    return CAP


def replaced_codes_that_stay(patch):
    patch.setattr(IndexDirectory, "discard_unnamed", lambda directory, named: None)
    return STAIRCASE


def values_under_nulls(patch):
    patch.setattr(dpindex.storage.code_store, "copied_values", lambda table: table.combine_chunks())
    return STAIRCASE


def a_second_draw_beside_the_first(patch):
    original = Journal.put

    def put(journal, path, data):
        if journal.get(path) is not None:
            original(journal, f"{path}.other", data)
        return original(journal, path, data)

    patch.setattr(Journal, "put", put)
    return STAIRCASE


def reranked_queries_in_the_address(patch):
    original = Client.search

    def search(client, codes, k=10, **how):
        if how.get("queries") is not None:
            client.ask(f"/search?hint={hash(how['queries'].tobytes())}", codes)
        return original(client, codes, k, **how)

    patch.setattr(Client, "search", search)
    return STAIRCASE


def ledger_told_too_late(patch):
    run = ReleaseRun
    book, draw = run.book, run.draw
    told_later = []
    patch.setattr(run, "book", lambda run, *told: told_later.append(told))

    def drawn(run, *work):
        receipts = draw(run, *work)
        book(run, *told_later.pop())
        return receipts

    patch.setattr(run, "draw", drawn)
    return STAIRCASE


def ledger_of_one_token(patch):
    record = Ledger.record

    def of_one_token(ledger, spec, ids, **terms):
        return record(ledger, spec, ids, **{**terms, "token": "one"})

    patch.setattr(Ledger, "record", of_one_token)
    patch.setattr(Ledger, "record_drawn", lambda *_: None)
    return STAIRCASE


REFUSED = "path: vectors that are refused"
ALONE = "path: files hold codes alone"
QUERIES = "path: private queries"
COUNTS = "path: released counts, merged and stored"
LEDGER = "path: a ledger counts every release first"
REMAINS = "path: what is replaced, masked or drawn twice is gone"


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (device_that_spends_all_that_is_accepted, "path: device"),
        (device_that_reads_a_louder_file, "path: device"),
        (device_with_one_noise_a_vector, "path: device"),
        (device_that_accepts_any_epsilon, REFUSED),
        (single_replacements_at_twice_epsilon, "path: replacement in an index"),
        (half_the_noise_where_a_ledger_counts, "path: what a ledger counts"),
        (exact_where(sparse.issparse), QUERIES),
        (filtered_exactly, QUERIES),
        (hash_beside_the_codes, ALONE),
        (ids_from_vectors, ALONE),
        (exact_size_in_a_header, ALONE),
        (shuffle_in_order, "path: order of a shuffle"),
        (shuffle_in_a_public_order, "path: order of a shuffle"),
        (shuffle_in_groups, "path: order of a shuffle"),
        (one_key_for_all_builds, ALONE),
        (persons_that_overlap, "path: one vector a person"),
        (transformer_of_two_releases, "path: scikit-learn transformer"),
        (ranges_from_the_data, "path: PrivateIndex.add"),
        (whole_numbers_unseen, REFUSED),
        (sparse_rows_unseen, REFUSED),
        (codebook_of_the_vectors, REFUSED),
        (sketch_records(sparse.issparse), COUNTS),
        (sketch_records(lambda chunk: chunk.dtype == np.float32), COUNTS),
        (sketch_records(lambda chunk: chunk.shape[0] > 8000), COUNTS),
        (released_under_the_budget_of_queries, "path: PrivateIndex.add"),
        (slots_by_one_byte, "path: order of a shuffle"),
        (shuffle_of_too_few, "path: fewest codes of a shuffle"),
        (replaced_codes_that_stay, REMAINS),
        (values_under_nulls, REMAINS),
        (a_second_draw_beside_the_first, REMAINS),
        (reranked_queries_in_the_address, ALONE),
        (ledger_told_too_late, LEDGER),
        (ledger_of_one_token, LEDGER),
    ],
)
def test_low_ways_that_audits_did_not_run(plant, check, monkeypatch):
    """What a third and a fourth hostile reader planted, and the audits of that day let pass."""
    assert check in check_paths(plant(monkeypatch), large=False, only=check).failed


@pytest.mark.slow
def test_low_one_law_for_every_budget(monkeypatch):
    """A law that is kept for the next budget too leaves queries with noise of another."""
    kept = staircase_noise(STAIRCASE.budget)
    monkeypatch.setattr("dpindex.mechanism.noise.additive.staircase_noise", lambda epsilon: kept)
    assert QUERIES in check_paths(STAIRCASE, only=QUERIES).failed


def test_low_a_guarantee_in_other_units_is_named(monkeypatch):
    spec = Spec("dp-oporp-staircase", dim=8, k=4, epsilon=1.0, scale=0.01, adjacency=attribute(1.0))
    assert verify(spec).passed
    wrong = replace(spec.guarantee, adjacency=spec.adjacency)
    monkeypatch.setattr(Spec, "guarantee", wrong)
    assert verify(spec).failed == ("definition",)


@pytest.mark.slow
def test_low_queries_of_another_budget_are_named(monkeypatch):
    monkeypatch.setattr(
        Settings, "query_spec", property(lambda held: held.spec.with_epsilon(2 * held.spec.budget))
    )
    assert QUERIES in check_paths(STAIRCASE, only=QUERIES).failed


def test_low_levels_by_a_reciprocal(monkeypatch):
    """Rounding in single precision shows only where the sampler runs in single precision."""
    spec = Spec(
        "dp-signrp-geometric",
        dim=24,
        k=8,
        epsilon=8.0,
        variant=Dense("uniform"),
        adjacency=attribute(1.0),
    )

    def perturb(law, x, stream):
        level = np.abs(x) * (1.0 / (law.weights * (1 << spec.grid.bits))).astype(x.dtype)
        level = np.minimum(np.ceil(level), len(law.thresholds)).astype(np.intp)
        return (x > 0) ^ draw_flips(law.table, level, stream)

    assert refuted(spec) == ()
    monkeypatch.setattr(FlipsByLevel, "perturb", perturb)
    assert REPLAY in refuted(spec)


def test_low_rejected_draws_take_the_limits_of_others(monkeypatch):
    def draw_below(limits, stream):
        limits = limits.astype(np.uint64)
        product = stream.words(limits.size, np.uint32).astype(np.uint64) * limits
        low = np.uint64((1 << 32) - 1)
        while (again := np.flatnonzero((product & low) < np.uint64(1 << 32) % limits)).size:
            fresh = stream.words(again.size, np.uint32).astype(np.uint64)
            product[again] = fresh * limits[: again.size]
        return (product >> np.uint64(32)).astype(np.int64)

    monkeypatch.setattr("dpindex.mechanism.noise.square_wave.draw_below", draw_below)
    assert REPLAY in refuted(WAVE)


@pytest.mark.parametrize("clip", [False, True])
def test_low_min_norm_is_that_after_clipping(clip, monkeypatch):
    spec = Spec(
        "dp-signrp-rr",
        dim=24,
        k=4,
        epsilon=1.0,
        delta=1e-6,
        variant=Dense("gaussian", min_norm=2.0),
        clip=clip,
        adjacency=attribute(1.0),
    )
    original = Projector.norms

    def norms(projector, block, clip=False):
        return original(projector, block)

    assert REFUSED not in check_paths(spec, large=False, only=REFUSED).failed
    monkeypatch.setattr(Projector, "norms", norms)
    assert (REFUSED in check_paths(spec, large=False, only=REFUSED).failed) == clip


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
    assert words_check(recorders(*words)).passed
    assert not words_check(recorders(*words, words[0][3:])).passed
    assert not words_check(recorders(words[0], ~words[0])).passed
    assert not words_check(recorders(words[0] | np.uint32(4))).passed
    assert not words_check([]).passed


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
        odd[:] = words[: 2 * len(odd) : 2] * dtype(5) + dtype(77)
        return words


def test_low_words_that_are_not_all_of_the_cipher():
    assert cipher_check(secret_stream).passed
    assert not cipher_check(Doubled).passed
    assert not cipher_check(Expanded).passed
    assert not cipher_check(lambda: Seeded(3)).passed


def test_a_key_that_is_not_all_from_the_system_is_found():
    assert entropy_check(secret_stream).passed
    assert entropy_check(SecretStream).passed
    assert not entropy_check(lambda: Seeded(time.perf_counter_ns())).passed
    assert not entropy_check(lambda: Seeded(int.from_bytes(os.urandom(4), "big"))).passed
