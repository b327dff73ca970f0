"""Object stores: an S3-compatible server that answers 409, 412 and 500, too late, or not at all."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.common import DIM, attribute_spec, counted, fails, refuses, tables, vectors
from helpers.faulty_s3 import FAULTS, KEYS, moto_server, objects, proxied

import dpindex as dpi
from dpindex.data import open_dataset, stores
from dpindex.decode.calibration import SimilarityCalibration
from dpindex.mechanism.codes import codes_from_bytes
from dpindex.storage.contents import replace_learned
from dpindex.storage.history import Terms
from dpindex.storage.manifest import MANIFEST
from dpindex.storage.shards import CodeCheck
from dpindex.storage.targets import IndexOptions, build_index

pytestmark = [pytest.mark.slow, pytest.mark.extra]
SPEC = attribute_spec("dp-oporp-staircase", DIM, k=4, epsilon=3.0)
ROWS = 240


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    with moto_server("lake") as address:
        yield address


@pytest.fixture
def proxy(server, monkeypatch):
    """A dataset in ``s3://lake/data``, and a proxy that will spoil a third of the PUTs."""
    import obstore
    import pyarrow.parquet as pq

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "WAITS", (0.02, 0.1, 0.5, 2.0))
    with proxied(server, share=0.0) as (proxy, url):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = obstore.store.from_url("s3://lake/data")
        for name, table in tables(ROWS, files=4):
            file = io.BytesIO()
            pq.write_table(table, file, row_group_size=30)
            obstore.put(store, name, file.getvalue())
        yield proxy


def lake():
    return open_dataset("s3://lake/data", id_column="id", rows_per_part=30)


def attempts(times, workers):
    """An engine that runs every shard several times, at once."""

    def engine(function, shards, /):
        repeated = [shard for shard in shards for _ in range(times)]
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(function, repeated)

    return engine


def test_each_vector_once_whatever_the_store_answers(proxy, server, tmp_path):
    target = "s3://lake/index"
    ledger = dpi.Ledger(tmp_path / "ledger")
    dataset = lake()
    options = IndexOptions(private=tmp_path / "private")
    proxy.share = 1.0
    engine = attempts(3, 6)
    outcome = build_index(dataset, target, SPEC, options, Terms(ledger), engine=engine, threads=1)
    proxy.share = 0.0
    assert set(proxy.injected) == set(FAULTS)
    everything, plain = proxy.sent_once("lake/index")
    assert len(plain) < len(everything)
    # Whatever anyone could see, once, is there at the end.
    assert plain == objects(target, server)
    index = dpi.PrivateIndex.open(target)
    assert sorted(index.ids) == sorted(f"n{row}" for row in range(ROWS))
    assert outcome.drawn == ROWS
    assert counted(ledger) == [(ROWS, 1)]
    assert not (tmp_path / "private").exists()


def test_what_a_stored_index_learns_is_replaced_whatever_the_store_answers(proxy, tmp_path, run):
    target = "s3://lake/again"
    dataset = lake()
    build_index(dataset, target, SPEC, IndexOptions(private=tmp_path / "private"))
    bucket = stores.Bucket(target)
    text = bucket.read(MANIFEST, 1 << 20)
    assert text is not None
    proxy.share = 1.0
    learned = SimilarityCalibration(7).to_bytes()
    replace_learned(target, "calibration", learned)
    proxy.share = 0.0
    tables_there = (name for name in bucket.sizes() if name.startswith("calibration/"))
    (path,) = tables_there
    assert bucket.read(path, 1 << 20) == learned
    assert not bucket.replace(MANIFEST, text, b"what was read before somebody else wrote")
    assert run(f"calibrate {target}")[:2] == (0, f"Calibrated: learned from {ROWS} codes.\n")


def test_h4_codes_of_the_loser_are_in_no_body_that_anyone_can_read(proxy, tmp_path, monkeypatch):
    """Two attempts draw every segment before either is kept: the store hears of one."""
    target = "s3://lake/once"
    dataset = lake()
    both = threading.Barrier(2)
    privatize = dpi.Privatizer.privatize
    drawn = []

    def together(*arguments, **options):
        codes = privatize(*arguments, **options)
        drawn.append(codes)
        both.wait(600)
        return codes

    monkeypatch.setattr(dpi.Privatizer, "privatize", together)
    options = IndexOptions(private=tmp_path / "private")
    engine = attempts(2, 2)
    build_index(dataset, target, SPEC, options, engine=engine, threads=1)
    assert len(drawn) == 2 * 8
    everything, plain = proxy.sent_once("lake/once")

    def is_readable(content):
        return any(content in body for body in everything)

    seen = [codes.stored.tobytes() for codes in drawn if is_readable(codes.stored.tobytes())]
    assert len(seen) == 8
    published = [codes_from_bytes(plain[f"segments/{number:06d}.codes"]) for number in range(8)]
    assert {codes.stored.tobytes() for codes in published} == set(seen)
    for row in vectors(ROWS):
        assert not is_readable(row.tobytes())


def test_h4_two_builds_that_begin_at_once_publish_one(proxy, tmp_path):
    """Each with a private folder of its own, and begun while the place was empty."""
    target = "s3://lake/twice"
    dataset = lake()

    def overtaken(function, shards, /):
        yield from map(function, shards)
        if isinstance(function, CodeCheck):
            options = IndexOptions(private=tmp_path / "first")
            assert build_index(dataset, target, SPEC, options, threads=1).drawn == ROWS

    options = IndexOptions(private=tmp_path / "second")
    with refuses():
        build_index(
            dataset,
            target,
            SPEC,
            options,
            engine=overtaken,
            threads=1,
        )
    proxy.sent_once("lake/twice")


def test_the_command_line(proxy, run, prints, tmp_path):
    import numpy as np

    spec = "--method dp-oporp-staircase --beta 1 --epsilon 3 --code-length 4 --id-column id"
    build = f"build s3://lake/data:v s3://lake/second {spec}"
    fails(run(build), "name a private folder ", "(--private)")
    build = f"{build} --private private"
    code, output, error = run(f"{build} --denoise linear")
    assert code == 0
    assert "240 vectors (240 privatized now)" in output
    assert "not denoised: 240 codes are too few" in error
    fails(run(build), "is a finished index")
    assert "240 vectors of 12 attributes" in prints("info s3://lake/second")
    np.save(tmp_path / "q.npy", vectors(2))
    assert " n" in prints("query s3://lake/second q.npy -k 3")
    fails(run("add s3://lake/second q.npy"), "in a folder only")


def test_a_store_that_is_not_there(monkeypatch):
    pytest.importorskip("obstore")
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_RETRIES", "1")
    with refuses("cannot be read"):
        dpi.PrivateIndex.open("s3://lake/index")


def test_an_endpoint_without_tls_says_what_it_needs(proxy, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with refuses(r"http://…, needs AWS_ALLOW_HTTP=true"):
        dpi.PrivateIndex.open("s3://lake/nothing")


def test_a_tampered_object_is_named_by_its_url(proxy, tmp_path):
    import obstore

    dataset = lake()
    options = IndexOptions(private=tmp_path / "private")
    build_index(
        dataset,
        "s3://lake/tampered",
        SPEC,
        options,
        Terms(None),
        threads=1,
    )
    bucket = obstore.store.from_url("s3://lake/tampered")
    names = [one["path"] for listed in obstore.list(bucket) for one in listed]
    name = min(name for name in names if "codes" in name)
    whole = obstore.get(bucket, name).bytes()
    data = bytearray(bytes(whole))
    data[-1] ^= 1
    obstore.put(bucket, name, bytes(data))
    with refuses() as refused:
        dpi.PrivateIndex.open("s3://lake/tampered")
    assert "s3://lake/tampered" in str(refused.value)
    assert "dpindex-" not in str(refused.value)
