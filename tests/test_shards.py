"""Builds in shards: one plan, many attempts, each vector published once."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import DIM, FolderView, vectors, watched, write_dataset
from dpindex.shards import Plan, build, commit, plan_shards, privatize_shard
from specs import example

import dpindex as dpi
from dpindex.base.errors import InputError
from dpindex.cli import main
from dpindex.mechanism.method_table import methods
from dpindex.storage.manifest import Settings
from dpindex.storage.summary import summarize
from dpindex.vectors import open_dataset

SPEC = dpi.Spec("dp-oporp-staircase", dim=DIM, k=4, epsilon=3.0)
ROWS = 240


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_dataset(tmp_path / "data", ROWS)


def planned(data: Path, target: Path | str, spec: Any = SPEC, **changes: Any) -> Plan:
    dataset = open_dataset(data, id_column=changes.pop("id_column", "id"), rows_per_part=60)
    return plan_shards(dataset, str(target), spec, rows=20, **changes)


def test_the_index_is_that_of_a_plain_build(data: Path, tmp_path: Path) -> None:
    ledger, calls = dpi.Ledger(tmp_path / "ledger"), list[Any]()
    plan = planned(data, tmp_path / "index")
    with watched(FolderView(tmp_path / "index")):
        assert build(plan, ledger=ledger, progress=lambda *call: calls.append(call)) == ROWS
    index = dpi.PrivateIndex.open(tmp_path / "index")
    assert sorted(index.ids) == sorted(f"n{row}" for row in range(ROWS))
    (total,) = ledger.totals()
    assert (total.ids, total.releases) == (ROWS, 1)
    assert calls[0] == (0, 4, "checking")
    assert calls[-1] == (4, 4, "privatizing")
    index.add(vectors(1), ["new"])
    index.save(tmp_path / "index")  # it is an index like any other
    assert len(dpi.PrivateIndex.open(tmp_path / "index")) == ROWS + 1


def test_codes_lie_beside_their_ids(data: Path, tmp_path: Path) -> None:
    """Without noise worth the name every code is that of its id's vector."""
    spec = dpi.Spec("none-oporp", dim=DIM, k=4)
    with pytest.raises(InputError, match="protects nothing"):
        planned(data, tmp_path / "index", spec)
    build(planned(data, tmp_path / "index", spec, allow_unprotected=True))
    index = dpi.PrivateIndex.open(tmp_path / "index")
    order = [int(name[1:]) for name in index.ids]
    exact = dpi.Privatizer(spec, allow_unprotected=True).privatize(vectors(ROWS)[order])
    np.testing.assert_array_equal(index.codes.to_float(), exact.to_float())


def test_the_payload_is_published_with_the_codes(data: Path, tmp_path: Path) -> None:
    """Columns of the dataset lie beside their ids, in the index that goes on as well."""
    dataset = open_dataset(data, id_column="id", payload_columns=["row"], rows_per_part=60)
    target = str(tmp_path / "index")
    plan = plan_shards(dataset, target, SPEC, rows=20)
    plan.begin()
    privatize_shard(plan.shards[1])
    assert build(plan_shards(dataset, target, SPEC, rows=20)) == ROWS - plan.shards[1].part.rows
    index = dpi.PrivateIndex.open(target)
    assert [f"n{row}" for row in index.payload["row"].to_pylist()] == index.ids.tolist()
    assert index.search(vectors(ROWS)[:1], k=3, filter="row < 2").ids.shape == (1, 2)
    with pytest.raises(InputError, match="finished index"):
        plan_shards(dataset, target, SPEC)


def test_what_cannot_be_a_payload(data: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    with pytest.raises(InputError, match="no single column 'title'; name one of id, v, row"):
        open_dataset(data, payload_columns=["title"])
    dataset = open_dataset(data, payload_columns=["v"])
    with pytest.raises(InputError, match=r"from row group|parquet: payload column 'v' is of type"):
        build(plan_shards(dataset, str(tmp_path / "index"), SPEC))
    assert not (tmp_path / "index").exists()
    odd = pa.table({"id": ["x"], "v": [[0.0] * DIM], "row": ["one"]})
    write_table(odd, data / "day=0" / "zzz.parquet")
    with pytest.raises(InputError, match="are of the types string and those of the first file int"):
        open_dataset(data, payload_columns=["row"])
    np.save(tmp_path / "x.npy", vectors(3))
    with pytest.raises(InputError, match="has no columns for a payload"):
        open_dataset(tmp_path / "x.npy", payload_columns=["row"])


@pytest.mark.usefixtures("known_noise")
def test_noise_that_drowns_is_said(data: Path, tmp_path: Path) -> None:
    build(planned(data, tmp_path / "index", dpi.Spec("raw-staircase", DIM, epsilon=0.01)))
    assert "expect no neighbours" in str(summarize(tmp_path / "index").noise_warning)


@pytest.mark.parametrize("row", methods(), ids=lambda row: row.name)
def test_shards_travel_light(row: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((9, 24)))
    dataset = open_dataset(tmp_path / "x.npy", rows_per_part=3)
    spec = example(row)
    plan = plan_shards(dataset, str(tmp_path / "index"), spec, allow_unprotected=True)
    for shard in plan.shards:
        assert len(pickle.dumps(shard)) < 3000
        assert pickle.loads(pickle.dumps(shard)) == shard


def test_planning_writes_nothing_and_is_repeatable(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "index"
    first = planned(data, target)
    assert not target.exists()
    assert not first.begun
    first.begin()
    second = planned(data, target)
    assert second.begun
    assert second.shards == first.shards
    numbers = [segment.number for segment in first.segments]
    assert numbers == [f"{i:06d}" for i in range(len(numbers))]


def test_attempts_at_the_same_time_publish_one(data: Path, tmp_path: Path) -> None:
    """Every shard is run six times at once: the receipts agree, and a watcher sees one code."""
    plan = planned(data, tmp_path / "index")
    with watched(FolderView(tmp_path / "index")):
        plan.begin()
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(privatize_shard, plan.shards * 6))
        receipts = [receipt for result in results for receipt in result]
        assert sum(receipt.made for receipt in receipts) == ROWS
        assert len({str(r.files) for r in receipts}) == len(plan.segments)
        with ThreadPoolExecutor(4) as pool:
            manifests = list(pool.map(lambda _: commit(plan, receipts), range(4)))
    assert all(manifest == manifests[0] for manifest in manifests)
    assert len(dpi.PrivateIndex.open(tmp_path / "index")) == ROWS
    assert not (tmp_path / "index.unpublished").exists()


class Killed(BaseException):
    """What ends an attempt here as SIGKILL would: nothing is tidied up by those who catch it."""


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_attempt(data: Path, tmp_path: Path, monkeypatch: Any, after: bool) -> None:
    """Before its code had a name it is as if it never was; after that, the code stays."""
    plan, link, published = planned(data, tmp_path / "index"), os.link, list[bytes]()

    def dies(source: Any, target: Any) -> None:
        if str(target).endswith("000001.codes"):
            if after:
                link(source, target)
                published.append(Path(target).read_bytes())
            raise Killed
        link(source, target)

    with watched(FolderView(tmp_path / "index")):
        plan.begin()
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", dies)
            with pytest.raises(Killed):
                privatize_shard(plan.shards[0])
        with pytest.raises(InputError, match=r"segment 000000 has no receipt"):
            commit(plan, [])
        with pytest.raises(InputError, match=r"its build is not finished: it has no"):
            dpi.PrivateIndex.open(tmp_path / "index")
        again = planned(data, tmp_path / "index")
        made = build(again)
    assert made == ROWS - (40 if after else 20)
    if after:
        there = tmp_path / "index" / "segments" / "000001.codes"
        assert there.read_bytes() == published[0]


def test_noise_is_drawn_again_for_what_is_missing_only(
    data: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    plan = planned(data, tmp_path / "index")
    plan.begin()
    receipts = [receipt for shard in plan.shards for receipt in privatize_shard(shard)]
    monkeypatch.setattr(dpi.Privatizer, "privatize", None)  # whoever calls it fails
    again = [receipt for shard in plan.shards for receipt in privatize_shard(shard)]
    assert [replace(receipt, made=0) for receipt in receipts] == again


def test_an_attempt_that_outlives_the_build_publishes_nothing(data: Path, tmp_path: Path) -> None:
    """Even if its segment was removed from the index in the meantime."""
    target = tmp_path / "index"
    plan = planned(data, target)
    build(plan)
    index = dpi.PrivateIndex.open(target)
    index.remove(index.ids[:20])
    index.save(target)
    before = FolderView(target).digests()
    with pytest.raises(InputError, match="has not begun, or has ended"):
        privatize_shard(plan.shards[0])
    assert FolderView(target).digests() == before
    assert commit(plan, []).count == ROWS - 20  # what it is now


def test_the_ledger_knows_every_id_before_a_code_is_there(data: Path, tmp_path: Path) -> None:
    ledger, target = dpi.Ledger(tmp_path / "ledger"), tmp_path / "index"
    plan = planned(data, target)
    with pytest.raises(InputError, match="not being built under this plan"):
        privatize_shard(plan.shards[0])
    plan.begin(ledger)
    assert ledger.totals()[0].ids == ROWS
    assert not (target / "segments").exists()
    planned(data, target).begin(ledger)  # the same build, which is counted once
    assert ledger.totals()[0].releases == 1
    other = planned(data, tmp_path / "other")
    with pytest.raises(InputError, match="was released before"):
        build(other, ledger=ledger)
    assert not (tmp_path / "other").exists()
    build(other, ledger=ledger, allow_rerelease=True)
    assert ledger.totals()[0].releases == 2


def test_the_ledger_is_told_in_batches(data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dpindex.shards.plan._LEDGER_ROWS", 70)
    ledger = dpi.Ledger(tmp_path / "ledger")
    plan = planned(data, tmp_path / "index")
    plan.begin(ledger)
    plan.begin(ledger)
    assert sum(entry.count for entry in ledger.entries()) == ROWS
    assert len(ledger.entries()) == 4


def test_a_build_of_other_input_is_refused(data: Path, tmp_path: Path) -> None:
    target, ledger = tmp_path / "index", dpi.Ledger(tmp_path / "ledger")
    planned(data, target).begin()

    def refused(match: str, plan: Plan, **options: Any) -> None:
        with pytest.raises(InputError, match=match):
            plan.begin(**options)

    changed = [
        ("options", planned(data, target, SPEC.with_epsilon(2.0))),
        ("options", planned(data, target, Settings(SPEC, "l2"))),
        ("vectors or ids", planned(data, target, id_column=None)),
        ("vectors or ids", planned(write_dataset(tmp_path / "more", ROWS + 1), target)),
    ]
    for what, plan in changed:
        refused(rf"unfinished build of other input \(its {what} differ\)", plan)
    refused("its ledger differ", planned(data, target), ledger=ledger)
    assert not (tmp_path / "ledger").exists() or not ledger.entries()
    os.rename(target, tmp_path / "moved")
    refused("was begun elsewhere", planned(data, tmp_path / "moved"))


def test_two_builds_that_begin_at_once(data: Path, tmp_path: Path) -> None:
    plans = [planned(data, tmp_path / "index") for _ in range(2)]
    plans[0].begin()
    with pytest.raises(InputError, match="being built by another process"):
        plans[1].begin()
    with pytest.raises(InputError, match="not being built under this plan"):
        privatize_shard(plans[1].shards[0])
    with pytest.raises(InputError, match="not being built under this plan"):
        commit(plans[1], [])


def test_places_of_another_use(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "index"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        planned(data, target)
    (target / "notes.txt").unlink()
    (target / "plan.json").write_text("[]")
    with pytest.raises(InputError, match="no plan of this version"):
        planned(data, target)
    (target / "plan.json").unlink()
    build(planned(data, target))
    with pytest.raises(InputError, match="is a finished index"):
        planned(data, target)


def test_a_fault_in_the_last_vector_leaves_nothing(tmp_path: Path) -> None:
    x = vectors(ROWS)
    x[-1, 3] = np.nan
    np.save(tmp_path / "x.npy", x)
    plan = plan_shards(
        open_dataset(tmp_path / "x.npy", rows_per_part=100), str(tmp_path / "index"), SPEC
    )
    ledger = dpi.Ledger(tmp_path / "ledger")
    with pytest.raises(InputError, match=r"x.npy, from row 200: row 39, column 3 is NaN"):
        build(plan, ledger=ledger)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npy"]


@pytest.mark.parametrize(
    ("ids", "rows"), [([5, 1, 2, 3, 5, 4], (0, 4)), (["a", "b", "c", "d", "e", "b"], (1, 5))]
)
def test_ids_must_be_unique_in_all_files(tmp_path: Path, ids: Any, rows: tuple[int, int]) -> None:
    np.save(tmp_path / "x.npy", vectors(6))
    np.save(tmp_path / "ids.npy", np.array(ids))
    dataset = open_dataset(tmp_path / "x.npy", ids=tmp_path / "ids.npy", rows_per_part=2)
    with pytest.raises(InputError, match=f"rows {rows[0]} and {rows[1]} have the same id"):
        plan_shards(dataset, str(tmp_path / "index"), SPEC)


def test_vectors_that_change_are_noticed(data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    plan = planned(data, tmp_path / "index")
    plan.begin()
    os.utime(data / "day=0" / "000.parquet", ns=(1, 1))
    with pytest.raises(InputError, match="was changed since"):
        privatize_shard(plan.shards[0])
    shard, privatize = plan.shards[1], dpi.Privatizer.privatize

    def changing(*arguments: Any, **options: Any) -> Any:
        os.utime(data / "day=0" / "002.parquet", ns=(1, 1))
        return privatize(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(dpi.Privatizer, "privatize", changing)
        with pytest.raises(InputError, match="was changed since"):
            privatize_shard(shard)
    shard = plan.shards[-1]
    wrong = replace(shard.segments[0], ids=plan.shards[0].segments[0].ids)
    with pytest.raises(InputError, match=r"ids of segment .* are not those of the plan"):
        privatize_shard(replace(shard, segments=(wrong, *shard.segments[1:])))
    assert not list((tmp_path / "index").rglob("*.codes"))


def test_what_lies_under_the_name_of_a_segment_is_checked(data: Path, tmp_path: Path) -> None:
    plan, target = planned(data, tmp_path / "index"), tmp_path / "index"
    build(planned(data, tmp_path / "other", SPEC.with_epsilon(2.0)))
    plan.begin()
    (target / "segments").mkdir()
    os.link(tmp_path / "other" / "segments" / "000000.codes", target / "segments" / "000000.codes")
    with pytest.raises(InputError, match="is not of this build"):
        privatize_shard(plan.shards[0])
    (target / "segments" / "000000.codes").unlink()
    receipts = [receipt for shard in plan.shards for receipt in privatize_shard(shard)]
    changed = dict(zip(receipts[0].files, receipts[1].files.values(), strict=True))
    twice = [*receipts, replace(receipts[0], files=changed)]
    with pytest.raises(InputError, match="was changed after it was published"):
        commit(plan, twice)
    (target / "segments" / "000003.codes").write_bytes(b"")
    with pytest.raises(InputError, match=r"000003.codes is missing or was changed"):
        commit(plan, receipts)
    assert not (target / "manifest.json").exists()


@pytest.mark.slow
def test_a_worker_needs_the_memory_of_a_segment(tmp_path: Path, monkeypatch: Any) -> None:
    """Not that of the shard, which is one large row group here."""
    monkeypatch.setattr("dpindex.shards.work._CHUNK_BYTES", 1 << 20)
    column = pa.FixedSizeListArray.from_arrays(np.zeros(60_000 * 128, np.float32), 128)
    pq.write_table(pa.table({"v": column}), tmp_path / "x.parquet", row_group_size=60_000)
    spec = dpi.Spec("dp-oporp-staircase", dim=128, k=4, epsilon=3.0)
    data = open_dataset(tmp_path / "x.parquet")
    plan = plan_shards(data, str(tmp_path / "index"), spec, rows=3_000)
    plan.begin()
    privatize_shard(replace(plan.shards[0], segments=plan.shards[0].segments[:1]))  # caches
    tracemalloc.start()
    receipts = privatize_shard(plan.shards[0], threads=1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(receipts) == 20
    assert most < 10 << 20  # the shard has 30 MB of vectors


def test_codebooks(data: Path, tmp_path: Path) -> None:
    """The codewords lie in the target; a codebook of private vectors is refused first."""
    shared = dpi.Codebook(vectors(ROWS)[:50])
    book = dpi.Codebook(np.random.default_rng(0).normal(size=(50, DIM)))
    made: Any = {"method": "record-codebook", "dim": DIM, "epsilon": 3.0, "adjacency": dpi.record()}
    with pytest.raises(InputError, match="50 of the 50 codewords are private vectors too"):
        build(planned(data, tmp_path / "index", dpi.Spec(**made, codebook=shared)))
    assert not (tmp_path / "index").exists()
    build(planned(data, tmp_path / "index", dpi.Spec(**made, codebook=book)))
    index = dpi.PrivateIndex.open(tmp_path / "index")
    assert index.spec.codebook == book
    assert len(index) == ROWS
    build(planned(data, tmp_path / "open", dpi.Spec(**made, codebook=shared)), skip_leak_check=True)


@pytest.mark.parametrize("finished", [False, True])
def test_h1_a_target_confirms_no_guess_of_the_vectors(
    data: Path, tmp_path: Path, monkeypatch: Any, finished: bool
) -> None:
    """A reader of a target who guesses all vectors rightly learns no more than who is wrong.

    The guess is made with the library's own code, at the very place and under the very token.
    """
    target = tmp_path / "index"
    plan = planned(data, target)
    plan.begin()
    if finished:
        commit(plan, [receipt for shard in plan.shards for receipt in privatize_shard(shard)])
    text = (target / "plan.json").read_text()
    wrong = write_dataset(tmp_path / "wrong", ROWS, files=2)
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "reader"))
    said = set[str]()
    for guess in (data, wrong):
        shutil.rmtree(target)
        target.mkdir()
        (target / "plan.json").write_text(text)
        attempt = planned(guess, target)
        with pytest.raises(InputError) as refused:
            attempt.begin()
        said.add(str(refused.value))
        again = replace(attempt, begun=False)  # as if the reader had a key of his own
        with pytest.raises(InputError) as refused:
            again.begin()
        said.add(str(refused.value))
    assert len(said) == 2


def test_h1_hashes_in_a_target_are_keyed(data: Path, tmp_path: Path) -> None:
    """Two builds of the same vectors under one token share no hash; the key goes at the end."""
    plan, texts = planned(data, tmp_path / "index"), []
    for _ in range(2):
        plan.begin()
        texts.append(json.loads((tmp_path / "index" / "plan.json").read_text()))
        commit(plan, [receipt for shard in plan.shards for receipt in privatize_shard(shard)])
        state = Path(os.environ["DPINDEX_STATE"])
        assert not [path for path in state.iterdir() if path.name.endswith(plan.job.token)]
        shutil.rmtree(tmp_path / "index")
    first, second = texts
    assert first["token"] == second["token"]
    assert not set(first["hmac"].values()) & set(second["hmac"].values())


def test_too_many_segments(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dpindex.shards.plan.MAX_MANIFEST_BYTES", 3000)
    np.save(tmp_path / "x.npy", vectors(ROWS))
    with pytest.raises(InputError, match="240 segments, too many"):
        plan_shards(open_dataset(tmp_path / "x.npy"), str(tmp_path / "index"), SPEC, rows=1)


def test_other_options(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 12 columns where the spec says 11"):
        planned(data, tmp_path / "index", replace(SPEC, dim=11))
    with pytest.raises(InputError, match="name the ledger"):
        build(planned(data, tmp_path / "index"), allow_rerelease=True)
    inside = dpi.Ledger(tmp_path / "index" / "ledger")
    with pytest.raises(InputError, match="lies inside"):
        planned(data, tmp_path / "index").begin(inside)
    no_ids = planned(data, tmp_path / "index", id_column=None)
    with pytest.raises(InputError, match="give every vector an id"):
        no_ids.begin(dpi.Ledger(tmp_path / "ledger"))
    build(no_ids)
    assert dpi.PrivateIndex.open(tmp_path / "index").ids.tolist() == list(range(ROWS))


def test_an_index_in_a_store(data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr("dpindex.vectors.stores._FILE", "none")
    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path}/store"
    with pytest.raises(InputError, match="is not a dpindex index, or its build is not finished"):
        dpi.PrivateIndex.open(url)
    plan = planned(data, url)
    build(plan)
    index = dpi.PrivateIndex.open(url)
    assert (len(index), index.path) == (ROWS, None)
    with pytest.raises(InputError, match="an index is saved to a folder"):
        index.save(url)
    index.save(tmp_path / "copy")
    assert len(dpi.PrivateIndex.open(tmp_path / "copy")) == ROWS
    codes = tmp_path / "store" / "segments" / "000002.codes"
    codes.write_bytes(codes.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match="changed or damaged"):
        dpi.PrivateIndex.open(url)
    codes.unlink()
    with pytest.raises(InputError, match=r"000002.codes is missing"):
        dpi.PrivateIndex.open(url)


def test_the_page_of_a_newcomer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first commands of docs/scale.md run on a folder of Parquet files."""
    page = (Path(__file__).parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")
    block = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    lines = [line for line in block.splitlines() if line.startswith("dpindex ")]
    monkeypatch.chdir(tmp_path)
    write_dataset(tmp_path / "vectors", ROWS)
    np.save("queries.npy", vectors(2))
    for line in lines:
        monkeypatch.setattr("sys.argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    output = capsys.readouterr().out
    assert len(lines) == 3
    again = lines[0].replace("my-index", "again") + " --allow-rerelease"
    monkeypatch.setattr("sys.argv", shlex.split(again))
    with pytest.raises(SystemExit):
        main()
    output += capsys.readouterr().out
    assert "In total, by the ledger:" in output
    assert f"{ROWS} vectors ({ROWS} privatized now)" in output
    assert f"{ROWS} vectors of {DIM} attributes" in output
    assert "estimate" in output


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ("data index", None),
        ("data index --dask", "local"),
        ("--dask data index", "local"),
        ("data --dask index", "local"),
        ("data index --dask --clip", "local"),
        ("data index --dask tcp://host:8786", "tcp://host:8786"),
        ("--dask host:8786 data index", "host:8786"),
        ("data index --dask=host:8786", "host:8786"),
        ("--dask s3://lake/data s3://lake/index", "local"),
    ],
)
def test_where_dask_runs(arguments: str, address: str | None, monkeypatch: Any) -> None:
    """The address may be left out."""
    from dpindex.cli import shard_commands

    asked: list[Any] = []

    def needed(vectors: str, index: str, id_column: str | None, dask: str | None) -> bool:
        asked.append((vectors.rpartition("/")[2], index.rpartition("/")[2], dask))
        raise InputError("enough")

    monkeypatch.setattr(shard_commands, "needs_shards", needed)
    spec = "--method dp-oporp-staircase --epsilon 3"
    monkeypatch.setattr("sys.argv", ["dpindex", "build", *arguments.split(), *spec.split()])
    with pytest.raises(SystemExit):
        main()
    assert asked == [("data", "index", address)]
