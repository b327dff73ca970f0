"""Object stores: an S3-compatible server that answers 409, 412 and 500, too late, or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from datasets import DIM, tables, vectors, watched
from dpindex.shards import Shard, build, plan_shards
from faulty_s3 import FAULTS, KEYS, BucketView, Proxy, moto_server, proxied

import dpindex as dpi
from dpindex.cli import app
from dpindex.vectors import open_dataset, stores

pytestmark = pytest.mark.slow
SPEC = dpi.Spec("dp-oporp-staircase", dim=DIM, k=4, epsilon=3.0)
ROWS = 240


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    with moto_server("lake") as address:
        yield address


@pytest.fixture
def proxy(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A dataset in ``s3://lake/data``, and a proxy that will spoil a third of the PUTs."""
    import obstore
    import pyarrow.parquet as pq

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "_WAITS", (0.02, 0.1, 0.5, 2.0))
    with proxied(server, share=0.0) as (proxy, url):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        store = obstore.store.from_url("s3://lake/data")
        for name, table in tables(ROWS, files=4):
            file = io.BytesIO()
            pq.write_table(table, file, row_group_size=30)
            obstore.put(store, name, file.getvalue())
        yield proxy


def thrice(function: Any, shards: Sequence[Shard], /) -> Iterable[Any]:
    """An engine that runs every shard three times, all at once."""
    with ThreadPoolExecutor(6) as pool:
        yield from pool.map(function, list(shards) * 3)


def test_each_vector_once_whatever_the_store_answers(
    proxy: Proxy, server: tuple[str, int], tmp_path: Path
) -> None:
    target = "s3://lake/index"
    ledger = dpi.Ledger(tmp_path / "ledger")
    dataset = open_dataset("s3://lake/data", id_column="id", rows_per_part=30)
    proxy.share = 1.0
    with watched(BucketView(target, server)):
        plan = plan_shards(dataset, target, SPEC)
        made = build(plan, thrice, ledger=ledger, threads=1)
    proxy.share = 0.0
    assert set(proxy.injected) == set(FAULTS)
    index = dpi.PrivateIndex.open(target)
    assert sorted(index.ids) == sorted(f"n{row}" for row in range(ROWS))
    assert made == ROWS
    assert [(total.ids, total.releases) for total in ledger.totals()] == [(ROWS, 1)]


def test_the_command_line(proxy: Proxy, tmp_path: Path) -> None:
    import numpy as np

    run = typer.testing.CliRunner().invoke
    spec = ["--method", "dp-oporp-staircase", "--epsilon", "3", "--code-length", "4"]
    build = ["build", "s3://lake/data:v", "s3://lake/second", *spec, "--id-column", "id"]
    done = run(app, build, catch_exceptions=False)
    assert "240 vectors (240 privatized now)" in done.output
    with pytest.raises(dpi.InputError, match="is a finished index"):
        run(app, build, catch_exceptions=False)
    assert "240 vectors of 12 attributes" in run(app, ["info", "s3://lake/second"]).output
    np.save(tmp_path / "q.npy", vectors(2))
    asked = run(app, ["query", "s3://lake/second", str(tmp_path / "q.npy"), "-k", "3"])
    assert " n" in asked.output
    for command in (
        ["add", "s3://lake/second", str(tmp_path / "q.npy")],
        [*build[:2], "s3://lake/third", *build[3:], "--denoise", "auto"],
    ):
        with pytest.raises(dpi.InputError, match="in a folder only"):
            run(app, command, catch_exceptions=False)


def test_a_store_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_RETRIES", "1")
    with pytest.raises(dpi.InputError, match="cannot be read"):
        dpi.PrivateIndex.open("s3://lake/index")
