"""The journal: what was seen in a directory is what is committed, wherever a write is cut off."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpindex.index.claim import Claim
from dpindex.index.index_sinks import NewDirectory
from dpindex.index.ingest import CodesFile, ingest
from dpindex.index.journal import Journal, state_folder

from dpindex.base import files
from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.index import directory as directory_module
from dpindex.index.private_index import PrivateIndex
from dpindex.mechanism.spec import Spec
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings
from dpindex.vectors import as_source

SPEC = Spec(method="dp-oporp-staircase", dim=8, k=8, epsilon=2.0)
ROWS = 12
VECTORS = np.random.default_rng(0).uniform(-1, 1, (ROWS, 8))
CALLS = ("replace", "fsync", "unlink", "mkdir", "rmdir")


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpindex.index.ingest._CHUNK_BYTES", 6 * 8 * 8)  # six rows
    monkeypatch.setattr("dpindex.storage.code_store._SEGMENT_ROWS", 6)


class _Crash(BaseException):
    """Stands for the end of the process: nothing in the library may catch it."""


def _build(path: Path) -> None:
    ingest(as_source(VECTORS), NewDirectory(path, Settings(SPEC)))


def _save(path: Path) -> None:
    index = PrivateIndex(SPEC)
    index.add(VECTORS)
    index.save(path)


def _add(path: Path) -> None:
    """What the command `add` does; when it is run again it may find that it was done."""
    index = PrivateIndex.open(path)
    if len(index) == ROWS:
        index.add(VECTORS, np.arange(ROWS) + 100)
        index.save(path)


def _remove(path: Path) -> None:
    index = PrivateIndex.open(path)
    if len(index) == ROWS:
        index.remove(np.arange(7))
        index.save(path)


def _codes(path: Path) -> dict[str, bytes]:
    """Every file with codes that whoever watches the directory sees, temporary ones too."""
    return {
        file.name.removesuffix(".tmp"): file.read_bytes()
        for file in path.rglob("*")
        if file.parent.name == "segments"
    }


def _watched(
    patch: pytest.MonkeyPatch, path: Path, at: int, seen: dict[str, bytes], error: bool = False
) -> None:
    """Look at the directory before every call to the disk; at the ``at``-th the process ends, or
    from then on the disk is full.
    """
    calls = 0

    def wrap(plain: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            for name, data in _codes(path).items():
                if len(data) > len(seen.get(name, b"")):
                    seen[name] = data
            if calls >= at and not error:
                raise _Crash
            if calls >= at and error and plain.__name__ in ("replace", "fsync"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return None if plain.__name__ == "fsync" else plain(*arguments, **options)

        return wrapped

    for name in CALLS:
        patch.setattr(os, name, wrap(getattr(os, name)))


@pytest.fixture(params=[_build, _save, _add, _remove], ids=lambda f: f.__name__)
def work(request: pytest.FixtureRequest) -> Any:
    return request.param


def _places(tmp_path: Path, work: Callable[[Path], None]) -> Iterator[Path]:
    """Directories in which the work can begin."""
    first = tmp_path / "first"
    if work in (_add, _remove):
        _save(first)
    for number in range(10_000):
        place = tmp_path / f"place{number}"
        if first.exists():
            shutil.copytree(first, place)
        yield place


def _again(work: Callable[[Path], None], path: Path) -> None:
    """Run the same command again; what was finished without it refuses to be done twice."""
    done = IndexDirectory(path)
    with suppress(InputError):
        done.finish_interrupted()
    if work in (_build, _save) and done.exists and done.manifest().state == "complete":
        with pytest.raises(InputError, match=r"already holds an index|finished index"):
            work(path)
    else:
        work(path)


@pytest.mark.slow
@pytest.mark.parametrize("error", [False, True], ids=["killed", "full"])
def test_finding_6_codes_that_were_seen_are_the_codes_that_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], None], error: bool
) -> None:
    """At every call to the disk: neither name nor temporary name ever shows codes that are drawn
    again, no removed code survives the next open, and nothing is left in state or directory.
    """
    for number, path in enumerate(_places(tmp_path, work)):
        at = number * (3 if error else 1) + 1
        seen: dict[str, bytes] = {}
        stopped = False
        with monkeypatch.context() as patch:
            _watched(patch, path, at, seen, error)
            try:
                work(path)
            except (_Crash, InputError):
                stopped = True
        if not stopped:
            break
        _again(work, path)
        found = _codes(path)
        assert PrivateIndex.open(path).ids.size == {_add: 2 * ROWS, _remove: 5}.get(work, ROWS)
        assert found.keys() == {Path(p).name for p in _named(path) if p.endswith(".codes")}
        removed = 2 if work is _remove else 0  # segments of the index before
        kept = {name: data for name, data in seen.items() if int(name[:6]) >= removed}
        for name, data in kept.items():
            assert found[name].startswith(data), f"{name} was drawn again (call {at})"
        files = {str(f.relative_to(path)) for f in path.rglob("*") if f.is_file()}
        assert files == {".lock", "manifest.json", *_named(path)}
        assert not IndexDirectory(path).journal.exists
    assert at > 25, "the work made fewer calls than it must"


def _named(path: Path) -> list[str]:
    return IndexDirectory(path).manifest().paths


def test_finding_6_a_save_that_the_disk_refused_is_repeated_by_the_same_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, index = tmp_path / "i", PrivateIndex(SPEC)
    index.add(VECTORS)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "published", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(InputError, match="cannot be written: full"):
            index.save(path)
    index.add(VECTORS[:1])
    index.save(path)
    assert PrivateIndex.open(path).codes.to_bytes() == index.codes.to_bytes()
    assert not IndexDirectory(path).journal.exists


def test_finding_6_removed_codes_do_not_survive_a_kill_before_the_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "i"
    _save(path)
    before = set(_codes(path))
    with monkeypatch.context() as patch:
        plain = IndexDirectory.discard_uncommitted
        calls = iter([plain, lambda *_: (_ for _ in ()).throw(_Crash())])
        patch.setattr(IndexDirectory, "discard_uncommitted", lambda *a: next(calls)(*a))
        with pytest.raises(_Crash):
            _remove(path)
    assert before < set(_codes(path))
    assert len(PrivateIndex.open(path)) == 5
    assert not before & set(_codes(path))


def test_finding_6_leftovers_of_another_machine_go_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "i"
    _save(path)
    (path / "segments/000009.codes").write_bytes(b"codes")
    (path / "ids/000009.ids.tmp").write_bytes(b"")
    index = PrivateIndex.open(path)
    index.add(VECTORS[:1])
    index.save(path)
    assert not (path / "segments/000009.codes").exists()
    assert not list(path.rglob("*.tmp"))


def test_finding_6_a_file_of_codes_appears_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without a name")
    seen = []
    plain = os.fsync

    def crashing(handle: int) -> None:
        seen.append(list(tmp_path.iterdir()))
        if len(seen) == 1:
            raise _Crash
        plain(handle)

    monkeypatch.setattr(os, "fsync", crashing)
    with pytest.raises(_Crash):
        ingest(as_source(VECTORS), CodesFile(tmp_path / "c", SPEC))
    assert not list(tmp_path.iterdir())
    ingest(as_source(VECTORS), CodesFile(tmp_path / "c", SPEC))
    assert seen[:2] == [[], []]
    with pytest.raises(InputError, match="already exists"):
        create_file(tmp_path / "c", b"")


def test_what_was_removed_by_hand_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "i"
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "published", lambda *_: (_ for _ in ()).throw(_Crash()))
        with pytest.raises(_Crash):
            _save(path)
    assert IndexDirectory(path).journal.exists
    shutil.rmtree(path)
    index = PrivateIndex(SPEC)
    index.add(VECTORS[:2])
    index.save(path)
    assert len(PrivateIndex.open(path)) == 2


def test_a_journal_is_private_and_outside_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "i"
    for state in (path, path / "state"):
        monkeypatch.setenv("DPINDEX_STATE", str(state))
        with pytest.raises(InputError, match="would lie inside"):
            _save(path)
        assert not list(path.rglob("*.codes"))
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "state"))
    journal = IndexDirectory(path).journal
    journal.begin()
    journal.stage("segments/000000.codes", b"codes")
    journal.write_claim(Claim().to_bytes())
    if os.name == "posix":
        modes = {p.stat().st_mode & 0o077 for p in [journal.path, *journal.path.rglob("*")]}
        assert modes == {0}
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="DPINDEX_STATE"):
        _save(tmp_path / "j")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read anything")
def test_who_may_not_see_the_journal_can_read_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _save(tmp_path / "i")
    (tmp_path / "locked").mkdir(mode=0)
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "locked" / "state"))
    assert len(PrivateIndex.open(tmp_path / "i")) == ROWS


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPINDEX_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert state_folder() == Path("/x/dpindex")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert state_folder() == Path("/h/.local/state/dpindex")


@pytest.mark.parametrize("name", ["pending", "claim"])
def test_a_damaged_journal_is_named(tmp_path: Path, name: str) -> None:
    _save(tmp_path / "i")
    index, journal = PrivateIndex.open(tmp_path / "i"), IndexDirectory(tmp_path / "i").journal
    journal.begin()
    (journal.path / name).write_bytes(b"damaged")
    reader = journal.pending if name == "pending" else partial(journal.claim, Claim.from_bytes)
    with pytest.raises(InputError, match=f"{journal.path}/{name}: these bytes are not"):
        reader()
    if name == "pending":
        assert len(PrivateIndex.open(tmp_path / "i")) == ROWS  # it is read all the same
        with pytest.raises(InputError, match="these bytes are not"):
            index.save(tmp_path / "i")


def test_finding_6_names_are_durable_before_what_follows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that reorders: the new journal before codes, removed codes before it is cleared."""
    log: list[str] = []
    sync, unlink, clear = files.sync_folder, Path.unlink, Journal.clear

    def logged(name: str, call: Any) -> Any:
        def log_and_call(place: Any, **rest: Any) -> Any:
            log.append(f"{name} {getattr(place, 'path', place)}")
            return call(place, **rest)

        return log_and_call

    for module in (files, directory_module):
        monkeypatch.setattr(module, "sync_folder", logged("sync", sync))
    monkeypatch.setattr(Path, "unlink", logged("unlink", unlink))
    monkeypatch.setattr(Journal, "clear", logged("clear", clear))
    index = PrivateIndex(Spec("dp-oporp-staircase", 6, k=2, epsilon=1.0))
    index.add(np.zeros((5, 6)))
    index.save(tmp_path / "index")
    journal = IndexDirectory(tmp_path / "index").journal.path
    written = next(i for i, line in enumerate(log) if line.endswith("segments"))
    assert f"sync {journal.parent}" in log[:written]
    assert f"sync {journal}" in log[:written]
    log.clear()
    index.remove([0])
    index.save(tmp_path / "index")
    segments = tmp_path / "index" / "segments"
    removed = log.index(f"unlink {segments / '000000.codes'}")
    synced = log.index(f"sync {segments}", removed)
    assert synced < len(log) - 1 - log[::-1].index(f"clear {journal}")
