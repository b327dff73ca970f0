"""One ingest for every sink: what is killed resumes, loses nothing, and spends no budget twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dpindex.index.claim import Claim
from dpindex.index.index_sinks import NewDirectory, OpenIndex
from dpindex.index.ingest import CodesFile, ingest
from scipy import sparse

from dpindex.accounting.ledger import Ledger
from dpindex.base.errors import InputError
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.grid import Grid
from dpindex.mechanism.privatizer import Privatizer
from dpindex.mechanism.spec import Spec
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings
from dpindex.vectors import as_source, open_vectors

SPEC = Spec(method="none-oporp", dim=8, k=8)
ROWS = 23
VECTORS = np.random.default_rng(0).uniform(-1, 1, (ROWS, 8))


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpindex.index.ingest._CHUNK_BYTES", 5 * 8 * 8)  # five rows


def _build(path: Path, source: Any = VECTORS, spec: Spec = SPEC, **options: Any) -> int:
    with as_source(source) as opened:
        return ingest(opened, _sink(path, Settings(spec)), **options)


def _sink(path: Path, settings: Settings = Settings(SPEC)) -> NewDirectory:  # noqa: B008
    return NewDirectory(path, settings, allow_unprotected=True)


def _truth(spec: Spec = SPEC) -> bytes:
    return Privatizer(spec, allow_unprotected=True).privatize(VECTORS).to_bytes()


def _check_complete(path: Path) -> None:
    """Without noise the codes say which row they are: none lost, none twice, all in order."""
    index = PrivateIndex.open(path)
    assert index.ids.tolist() == list(range(ROWS))
    assert index.codes.to_bytes() == _truth()
    assert IndexDirectory(path).manifest().input is None


def test_a_build_holds_every_row_in_order(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert _build(tmp_path / "i", progress=lambda *p: seen.append(p)) == ROWS
    assert seen == [(n, ROWS) for n in (0, 5, 10, 15, 20, 23)]
    _check_complete(tmp_path / "i")


@pytest.mark.parametrize("ids", [[f"r{i}" for i in range(ROWS)], list(range(ROWS, 0, -1))])
def test_ids_are_kept(tmp_path: Path, ids: list[Any]) -> None:
    _build(tmp_path / "i", ids=ids)
    assert PrivateIndex.open(tmp_path / "i").ids.tolist() == ids


def test_sparse_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpindex.index.ingest._SPARSE_ROWS", 4)
    _build(tmp_path / "i", sparse.csr_matrix(VECTORS))
    _check_complete(tmp_path / "i")


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (np.vstack([VECTORS, np.full(8, np.nan)]), {}, "row 23, column 0 is NaN"),
        (VECTORS * 2, {}, "outside the public bounds"),
        (VECTORS[:, :5], {}, "5 columns"),
        (VECTORS, {"ids": [1] * ROWS}, "twice in the input"),
        (VECTORS, {"ids": [1]}, "1 ids for 23"),
        (VECTORS, {"ids": np.arange(ROWS) * 0.5}, "whole numbers or of strings"),
    ],
)
def test_a_fault_writes_nothing(
    tmp_path: Path, source: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        _build(tmp_path / "i", source, **options)
    assert not (tmp_path / "i").exists()


def test_the_unprotected_need_permission(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="protects nothing"):
        NewDirectory(tmp_path / "i", Settings(SPEC))


def test_a_finished_index_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _build(tmp_path / "i")
    monkeypatch.setattr(Privatizer, "check", lambda *_, **__: pytest.fail("read the source"))
    with pytest.raises(InputError, match="finished index"):
        _build(tmp_path / "i")
    _check_complete(tmp_path / "i")


def _stopped(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int = 2,
    vectors: Any = VECTORS,
    **options: Any,
) -> None:
    """A build that died after some committed segments."""
    with monkeypatch.context() as patch:
        plain, calls = IndexDirectory.write_segment, [0]

        def dying(self: IndexDirectory, *arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] > after:
                raise KeyboardInterrupt
            return plain(self, *arguments)

        patch.setattr(IndexDirectory, "write_segment", dying)
        with pytest.raises(KeyboardInterrupt):
            _build(path, vectors, **options)


def test_an_unfinished_build_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stopped(tmp_path / "i", monkeypatch)
    with pytest.raises(InputError, match="unfinished build"):
        PrivateIndex.open(tmp_path / "i")
    with pytest.raises(InputError, match="already holds an index"):
        PrivateIndex(replace(SPEC)).save(tmp_path / "i", allow_unprotected=True)
    assert _build(tmp_path / "i") == ROWS - 10
    _check_complete(tmp_path / "i")


def test_other_input_does_not_continue_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(tmp_path / "i", monkeypatch)
    for spec in (replace(SPEC, seed=5), replace(SPEC, clip=True)):
        with pytest.raises(InputError, match="under another spec"):
            _build(tmp_path / "i", spec=spec)
    with pytest.raises(InputError, match="under another spec"):
        ingest(as_source(VECTORS), _sink(tmp_path / "i", Settings(SPEC, "l2")))
    for source, options in (
        (VECTORS[:-1], {}),
        (VECTORS.astype(np.float32), {}),
        (VECTORS, {"ids": list(range(1, ROWS + 1))}),
    ):
        with pytest.raises(InputError, match="of other input"):
            _build(tmp_path / "i", source, **options)
    assert _build(tmp_path / "i") == ROWS - 10
    _check_complete(tmp_path / "i")


def test_a_touched_file_continues_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content decides, not the time of change."""
    np.save(tmp_path / "v.npy", VECTORS)

    def build() -> int:
        with open_vectors(str(tmp_path / "v.npy")) as source:
            return ingest(source, _sink(tmp_path / "i"))

    with monkeypatch.context() as patch:
        patch.setattr(IndexDirectory, "write_segment", lambda *_: (_ for _ in ()).throw(OSError(5)))
        with pytest.raises(InputError, match="cannot be written"):
            build()
    os.utime(tmp_path / "v.npy", ns=(1, 1))
    assert build() == ROWS
    _check_complete(tmp_path / "i")


def _changes() -> list[Any]:
    """Arrays of the same shape, dtype and size that are not the vectors."""
    first, last, order = VECTORS.copy(), VECTORS.copy(), np.arange(ROWS)
    first[0, 0] = np.nextafter(first[0, 0], 0)
    last[-1, -1] = -last[-1, -1]
    order[[1, 2]] = order[[2, 1]]
    return [VECTORS[::-1], VECTORS[order], np.roll(VECTORS, 5, axis=0), first, last]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("form", ["array", "file", "sparse"])
def test_finding_5_other_vectors_of_equal_size_and_time_do_not_continue_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, form: str
) -> None:
    def source(vectors: Any) -> Any:
        if form == "file":
            np.save(tmp_path / "v.npy", vectors)
            os.utime(tmp_path / "v.npy", ns=(7, 7))
            return open_vectors(tmp_path / "v.npy")
        return as_source(sparse.csr_matrix(vectors) if form == "sparse" else vectors)

    monkeypatch.setattr("dpindex.index.ingest._SPARSE_ROWS", 5)
    _stopped(tmp_path / "i", monkeypatch, vectors=source(VECTORS))
    before = IndexDirectory(tmp_path / "i").manifest()
    with monkeypatch.context() as patch:
        patch.setattr(Privatizer, "privatize", lambda *_, **__: pytest.fail("drew noise"))
        with pytest.raises(InputError, match=r"of other input \(rows \d+ to \d+ differ\)"):
            _build(tmp_path / "i", source(_changes()[number]))
    assert IndexDirectory(tmp_path / "i").manifest() == before
    assert _build(tmp_path / "i", source(VECTORS)) == ROWS - 10
    _check_complete(tmp_path / "i")


def test_finding_5_a_file_that_changes_while_it_is_read_is_not_privatized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were checked under other values would continue a later build as if unchanged."""
    values, report = VECTORS.copy(), []

    def progress(done: int, _: int) -> None:
        report.append(done)
        values[12] = 0.5

    with pytest.raises(InputError, match="rows 10 to 14 differ"):
        _build(tmp_path / "i", values, progress=progress)
    assert report == [0, 5, 10]


def test_finding_5_no_hash_of_the_vectors_or_ids_lies_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it in the journal without the key: two builds of one input have other digests."""
    ids = [f"r{i}" for i in range(ROWS)]
    seen = []
    for name in "ij":
        with monkeypatch.context() as patch:
            _crashing(patch, "os.replace", 4, after=False)
            with pytest.raises(_Crash):
                _build(tmp_path / name, ids=ids)
        claim = IndexDirectory(tmp_path / name).journal.claim(Claim.from_bytes)
        assert claim is not None
        published = b"".join(f.read_bytes() for f in (tmp_path / name).rglob("*") if f.is_file())
        secrets = [claim.key, *claim.tags.values()]
        assert len(secrets) == 7
        assert not any(s in published or s.hex().encode() in published for s in secrets)
        stated = IndexDirectory(tmp_path / name).manifest().input
        assert stated is not None
        assert stated.keys() == {"source", "ledger"}
        assert stated["source"].keys() == {"rows", "columns", "size", "mtime_ns", "key"}
        seen += secrets
    assert len(set(seen)) == 14


@pytest.mark.parametrize("with_ledger", [False, True])
def test_finding_4_a_copied_unfinished_build_is_finished_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_ledger: bool
) -> None:
    """Copied elsewhere, or put in the place of the one that went on: refused, nothing drawn."""
    ledger = Ledger(tmp_path / "ledger") if with_ledger else None
    options: dict[str, Any] = {"ledger": ledger, "ids": list(range(ROWS))}
    path, copy, again = (tmp_path / name for name in ("i", "copy", "again"))
    _stopped(path, monkeypatch, **options)
    shutil.copytree(path, copy)
    shutil.copytree(path, again)
    refused = "begun elsewhere or with another ledger, or an older copy"

    def refuse(place: Path, **stated: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Privatizer, "privatize", lambda *_, **__: pytest.fail("drew noise"))
            with pytest.raises(InputError, match=refused):
                _build(place, **{**options, **stated})

    refuse(copy)
    if with_ledger:
        refuse(path, ledger=None)
        refuse(path, ledger=Ledger(tmp_path / "other"))
    _stopped(path, monkeypatch, after=1, **options)  # one segment more
    path.rename(tmp_path / "aside")
    again.rename(path)
    refuse(path)
    shutil.rmtree(path)
    (tmp_path / "aside").rename(path)
    assert _build(path, **options) == ROWS - 15
    assert PrivateIndex.open(path).codes.to_bytes() == _truth()
    refuse(copy)
    path.rename(tmp_path / "aside")
    copy.rename(path)
    refuse(path)
    if ledger is not None:
        assert [total.releases for total in ledger.totals()] == [1]
        assert not ledger.builds_path.exists()


class _Crash(BaseException):
    """Stands for the end of the process: nothing in the library may catch it."""


def _crashing(patch: pytest.MonkeyPatch, name: str, at: int, after: bool) -> None:
    plain, calls = getattr(os, name.removeprefix("os.")), [0]

    def wrapped(*arguments: Any) -> None:
        calls[0] += 1
        if calls[0] == at and not after:
            raise _Crash
        plain(*arguments)
        if calls[0] == at:
            raise _Crash

    patch.setattr(f"dpindex.base.files.{name}", wrapped)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["os.replace", "os.fsync"])
def test_a_crash_at_any_write_loses_nothing_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    """Dies at the n-th write for every n. Rows are counted as they are privatized: a row that was
    committed before the crash is never privatized again.
    """
    drawn: list[int] = []
    plain = Privatizer.privatize

    def counting(self: Privatizer, x: Any, *, first_row: int = 0, **rest: Any) -> Any:
        drawn.extend(range(first_row, first_row + len(x)))
        return plain(self, x, first_row=first_row, **rest)

    monkeypatch.setattr(Privatizer, "privatize", counting)
    monkeypatch.setattr("dpindex.index.ingest._CHUNK_BYTES", 8 * 8 * 8)  # eight rows: 3 segments
    at = 0
    while True:
        at += 1
        path = tmp_path / str(at)
        drawn.clear()
        crashed = False
        with monkeypatch.context() as patch:
            _crashing(patch, name, at, after)
            try:
                _build(path)
            except _Crash:
                crashed = True
        if not crashed:
            break
        if (path / "manifest.json").exists():
            manifest = IndexDirectory(path).manifest()
            committed = manifest.count
            if manifest.state == "complete":  # died after the commit that ends the build
                assert committed == ROWS
                assert PrivateIndex.open(path).codes.to_bytes() == _truth()
                continue
        else:
            committed = 0
        before = Counter(drawn)
        assert committed <= sum(before.values()) <= committed + 8
        _build(path)
        repeated = [row for row, times in Counter(drawn).items() if times > 1]
        assert not [row for row in repeated if row < committed]
        assert len(repeated) <= 8, "more than the one uncommitted segment was made again"
        _check_complete(path)
        assert not list(path.rglob("*.tmp"))
    assert at > 10, "the build made fewer writes than it must"


def test_two_crashes_in_one_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in (9, 6):
        with monkeypatch.context() as patch:
            _crashing(patch, "os.replace", at, after=False)
            with pytest.raises(_Crash):
                _build(tmp_path / "i")
    _build(tmp_path / "i")
    _check_complete(tmp_path / "i")


_CHILD = """
import sys
import numpy as np
import dpindex.index.ingest as module
from dpindex.index.index_sinks import NewDirectory
from dpindex.storage.manifest import Settings
from dpindex.mechanism.spec import Spec
from dpindex.vectors import open_vectors
module._CHUNK_BYTES = 50 * 8 * 8
spec = Spec(method="none-oporp", dim=8, k=8)
with open_vectors(sys.argv[1]) as source:
    print("go", flush=True)
    sink = NewDirectory(sys.argv[2], Settings(spec), allow_unprotected=True)
    module.ingest(source, sink)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX")
def test_killed_for_real_at_random_moments(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).uniform(-1, 1, (5000, 8))
    np.save(tmp_path / "v.npy", vectors)
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "v.npy"), str(tmp_path / "i")]
    counts = []
    for delay in np.random.default_rng().uniform(0.005, 0.06, 3):
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        directory = IndexDirectory(tmp_path / "i")
        manifest = directory.manifest() if directory.exists else None
        counts.append(manifest.count if manifest else 0)
        if manifest is not None and manifest.state == "complete":
            break
    assert counts == sorted(counts), "committed rows were lost"
    if not (manifest is not None and manifest.state == "complete"):
        subprocess.run(command, check=True, capture_output=True)
    index = PrivateIndex.open(tmp_path / "i")
    assert index.ids.tolist() == list(range(5000))
    spec = Spec(method="none-oporp", dim=8, k=8)
    assert (
        index.codes.to_bytes()
        == Privatizer(spec, allow_unprotected=True).privatize(vectors).to_bytes()
    )


_MEASURED = """
import resource, sys
from dpindex.storage.manifest import Settings
from dpindex.index.index_sinks import NewDirectory
from dpindex.index.ingest import ingest
from dpindex.mechanism.spec import Spec
from dpindex.vectors import open_vectors
spec = Spec(method="dp-oporp-staircase", dim=1024, k=128, epsilon=2.0)
with open_vectors(sys.argv[1]) as source:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ingest(source, NewDirectory(sys.argv[2], Settings(spec)))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is counted in KiB on Linux")
def test_memory_is_bounded_by_a_chunk_not_by_the_file(tmp_path: Path) -> None:
    """400 MB of vectors; pages of the file that are mapped count too, so they must be let go."""
    rows = 100_000
    block: npt.NDArray[np.float32] = np.random.default_rng(2).random((2000, 1024), np.float32)
    file = np.lib.format.open_memmap(
        tmp_path / "v.npy", mode="w+", dtype=np.float32, shape=(rows, 1024)
    )
    for start in range(0, rows, 2000):
        file[start : start + 2000] = block
    del file
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(tmp_path / "v.npy"), str(tmp_path / "i")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 250, f"the build took {done.stdout.strip()} MB beside the library"
    assert IndexDirectory(tmp_path / "i").manifest().count == rows
    (tmp_path / "v.npy").unlink()


class TestOtherSinks:
    """A file of codes and an open index take all codes or none."""

    def test_a_file_of_codes(self, tmp_path: Path) -> None:
        assert (
            ingest(as_source(VECTORS), CodesFile(tmp_path / "c", SPEC, allow_unprotected=True))
            == ROWS
        )
        assert (tmp_path / "c").read_bytes() == _truth()
        with pytest.raises(InputError, match="codes carry no ids"):
            ingest(
                as_source(VECTORS),
                CodesFile(tmp_path / "d", SPEC, allow_unprotected=True),
                ids=range(ROWS),
            )  # type: ignore[arg-type]

    @pytest.mark.parametrize("ids", [None, [f"r{i}" for i in range(ROWS)]])
    def test_an_open_index(self, tmp_path: Path, ids: Any) -> None:
        index = PrivateIndex(SPEC)
        if ids is None:
            index.add(VECTORS[:1], [6])
        seen: list[tuple[int, int]] = []
        sink, progress = OpenIndex(index, allow_unprotected=True), lambda *p: seen.append(p)
        assert ingest(as_source(VECTORS), sink, ids=ids, progress=progress) == ROWS
        assert seen == [(n, ROWS) for n in (0, 5, 10, 15, 20, 23)]
        assert index.ids.tolist() == (ids or [6, *range(7, 7 + ROWS)])
        assert index.codes.stored[-ROWS:].tolist() == (
            Privatizer(SPEC, allow_unprotected=True).privatize(VECTORS).stored.tolist()
        )

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (np.vstack([VECTORS, np.full(8, np.nan)]), "row 23, column 0 is NaN"),
            (VECTORS[:, :5], "5 columns"),
        ],
    )
    def test_a_fault_leaves_nothing(self, tmp_path: Path, source: Any, words: str) -> None:
        index = PrivateIndex(SPEC)
        for sink in (
            OpenIndex(index, allow_unprotected=True),
            CodesFile(tmp_path / "c", SPEC, allow_unprotected=True),
        ):
            with pytest.raises(InputError, match=words):
                ingest(as_source(source), sink)
        assert len(index) == 0
        assert not list(tmp_path.iterdir())

    def test_nothing_is_privatized_while_something_is_wrong(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index, ledger = PrivateIndex(SPEC), Ledger(tmp_path / "ledger")
        index.add(VECTORS[:1], [3])
        index.save(tmp_path / "i", allow_unprotected=True)
        monkeypatch.setattr(Privatizer, "privatize", lambda *_, **__: pytest.fail("drew noise"))
        inside = Ledger(tmp_path / "i" / "ledger")
        for options, words in (
            ({"ids": range(ROWS)}, "already in the index"),
            ({"ids": [1]}, "1 ids for 23"),
            ({"ledger": ledger}, "give every vector an id"),
            ({"ledger": inside, "ids": range(4, 4 + ROWS)}, "meant to be published"),
            ({"allow_rerelease": True}, "name the ledger"),
        ):
            with pytest.raises(InputError, match=words):
                ingest(as_source(VECTORS), OpenIndex(index, allow_unprotected=True), **options)  # type: ignore[arg-type]
        assert not ledger.path.exists()

    def test_all_are_written_down_before_the_first_is_privatized(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index, ledger = PrivateIndex(SPEC), Ledger(tmp_path / "ledger")
        plain, known = Privatizer.privatize, []

        def watching(self: Privatizer, *arguments: Any, **options: Any) -> Any:
            known.append([total.ids for total in ledger.totals()])
            return plain(self, *arguments, **options)

        monkeypatch.setattr(Privatizer, "privatize", watching)
        ids: Any = range(ROWS)
        ingest(as_source(VECTORS), OpenIndex(index, allow_unprotected=True), ids=ids, ledger=ledger)
        assert known == [[ROWS]] * 5


def test_vectors_that_are_added_are_checked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    plain = Grid.first_fault

    def counting(self: Grid, values: Any) -> Any:
        looked.append(len(values))
        return plain(self, values)

    monkeypatch.setattr(Grid, "first_fault", counting)
    for number, ledger in enumerate((None, Ledger(tmp_path / "ledger"))):
        PrivateIndex(SPEC).add(VECTORS, list(range(ROWS)), ledger=ledger)
        assert sum(looked) == ROWS * (number + 1)


def test_a_query_epsilon_that_cannot_be_asked_is_refused_before_anything_is_spent(
    tmp_path: Path,
) -> None:
    spec = Spec(method="dp-rp-l", dim=2, k=2**18, epsilon=1.0)
    with pytest.raises(InputError, match="more noise than a code can hold"):
        NewDirectory(tmp_path / "i", Settings(spec, query_epsilon=0.001))


@pytest.mark.slow
def test_who_searches_never_imports_the_secret_stream(tmp_path: Path) -> None:
    """Opening, searching with exact queries or with codes: neither privatizer nor secret noise."""
    spec = Spec(method="dp-oporp-staircase", dim=8, k=8, epsilon=8.0)
    index = PrivateIndex(spec)
    index.add(np.tile(VECTORS, (40, 1)))
    index.fit_denoiser("linear")
    index.save(tmp_path / "i")
    ingest(as_source(VECTORS[:3]), CodesFile(tmp_path / "q", spec))
    np.save(tmp_path / "v.npy", VECTORS)
    code = (
        "import sys, numpy as np, dpindex as dpi\n"
        "index = dpi.PrivateIndex.open('i')\n"
        "codes = dpi.codes_from_bytes(open('q', 'rb').read())\n"
        "index.search(np.load('v.npy'), k=3), index.search(codes, k=3)\n"
        "index.range_search(codes, 0.5), index.add_codes(codes), index.remove([0])\n"
        "index.fit_denoiser('linear'), index.save('j')\n"
        "secret = {'dpindex.mechanism.privatizer', 'dpindex.randomness.secret'}\n"
        "secret |= {'dpindex.index.ingest'}\n"
        "assert not secret & set(sys.modules), secret & set(sys.modules)\n"
        "index.search(np.load('v.npy'), k=3, query='private')\n"
        "assert 'dpindex.randomness.secret' in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
