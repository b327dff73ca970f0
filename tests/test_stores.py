"""Stores and staging: a file is created once, whole, or not at all."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dpindex.base.errors import InputError
from dpindex.data import stores
from dpindex.data.stores import Bucket, Folder, is_url, open_store
from dpindex.storage.release.sealed import SealedStaging
from dpindex.storage.staging import (
    Staging,
    StagingFolder,
    create_once,
    unpublished_path,
    writing_beside,
)

KEY = bytes(range(32))
Files = Staging | Bucket


def folder_staging(tmp_path: Path) -> StagingFolder:
    (tmp_path / "private" / "token").mkdir(parents=True)
    return StagingFolder(tmp_path / "private" / "token")


def bucket_at(tmp_path: Path) -> Bucket:
    pytest.importorskip("obstore")
    (tmp_path / "index").mkdir(exist_ok=True)
    return Bucket(f"file://{tmp_path}/index")


def sealed_staging(tmp_path: Path) -> SealedStaging:
    bucket_at(tmp_path)
    return SealedStaging(f"file://{tmp_path}/index", KEY)


@pytest.fixture(params=[folder_staging, bucket_at, sealed_staging])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made: Files = request.param(tmp_path)
    return made


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/index")
    assert not is_url("C:\\index")
    assert not is_url(Path("data:key"))


def test_a_file_is_created_once(files: Files) -> None:
    files = pickle.loads(pickle.dumps(files))
    assert files.create("a/b", b"first")
    assert not files.create("a/b", b"second")
    assert not files.create("a/b", b"f")
    assert files.create("a/b", b"first")  # these bytes are there
    assert files.read("a/b", 5) == b"first"
    assert files.read("a/c", 5) is None
    with pytest.raises(InputError, match="bytes; at most"):
        files.read("a/b", 4)


@pytest.mark.parametrize("open_at", [open_store, bucket_at])
def test_a_file_is_read_by_ranges(tmp_path: Path, open_at: Callable[[Path], Any]) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "a").write_bytes(bytes(range(200)))
    store = open_at(tmp_path / "index" if open_at is open_store else tmp_path)
    assert store.sizes() == {"a": 200}
    with store.open("a") as file:
        assert file.seek(-10, os.SEEK_END) == 190
        assert file.read(4) == bytes(range(190, 194))
        assert file.seek(0) == 0
        assert file.read() == bytes(range(200))
        assert file.read() == b""


def test_of_many_attempts_one_is_seen(files: Files) -> None:
    contents = [bytes([number]) * 100_000 for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        for name in ("x/1", "x/2", "x/3"):
            won = list(pool.map(lambda data, name=name: files.create(name, data), contents))
            assert sum(won) == 1
            assert files.read(name, 100_000) == contents[won.index(True)]


def test_the_end_of_a_staging_stops_whoever_still_runs(tmp_path: Path, monkeypatch: Any) -> None:
    """An attempt that was stopped just before its file got its name can never give it one."""
    staging, link = folder_staging(tmp_path), os.link
    staging.create("segments/0", b"code")
    target = tmp_path / "index"

    def late(source: Any, place: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        StagingFolder(staging.path).publish(target)
        shutil.rmtree(staging.path.parent)
        link(source, place)

    monkeypatch.setattr(os, "link", late)
    for _ in range(2):
        with pytest.raises(InputError, match="has ended, and is discarded"):
            staging.create("segments/1", b"noise")
    with pytest.raises(InputError, match="cannot be made"):
        staging.publish(target)
    assert Folder(target).sizes() == {".lock": 0, "segments/0": 4}


def test_a_staging_is_published_by_one_rename(tmp_path: Path) -> None:
    staging, target = folder_staging(tmp_path), tmp_path / "index"
    staging.create("segments/0", b"code")
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="cannot be made"):
        staging.publish(target)
    assert Folder(target).sizes() == {"notes.txt": 4}
    (target / "notes.txt").unlink()
    staging.publish(target)  # where an empty folder waits
    assert Folder(target).sizes() == {".lock": 0, "segments/0": 4}


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_file_that_is_not_whole_is_private(tmp_path: Path, monkeypatch: Any) -> None:
    """It lies in the private folder around the staging, and not in what is published."""
    staging, modes = folder_staging(tmp_path), []
    private = staging.path.parent

    def look(source: Any, place: Any) -> None:
        modes.append(stat.S_IMODE(os.stat(source).st_mode))
        assert Path(source).parent == private
        raise OSError("the process ends here")

    monkeypatch.setattr(os, "link", look)
    with pytest.raises(InputError, match="hard links"):
        staging.create("plan", b"plan")
    assert len(modes) == 1
    assert list(private.iterdir()) == [staging.path]
    with pytest.raises(InputError, match="hard links"), writing_beside(tmp_path / "index"):
        create_once(tmp_path / "index", b"whole", private)
    assert unpublished_path(tmp_path / "index") == tmp_path / "index.unpublished"


def test_sealed_files_are_those_of_the_key(tmp_path: Path) -> None:
    """Two uploads of one content differ; a file under another name or key is refused."""
    staging, place = sealed_staging(tmp_path), tmp_path / "index"
    content = b"codes" * 100
    assert staging.create("a", content)
    assert staging.create("b", content)
    sealed = [(place / name).read_bytes() for name in "ab"]
    assert sealed[0] != sealed[1]
    assert [len(data) for data in sealed] == [len(content) + 28] * 2
    assert not any(b"codes" in data for data in sealed)
    (place / "a").write_bytes(sealed[1])
    for staging_of, name in ((staging, "a"), (SealedStaging(f"file://{place}", b"1" * 32), "b")):
        with pytest.raises(InputError, match="was changed; it is not of this release"):
            staging_of.read(name, 1000)
    (place / "b").write_bytes(b"")
    with pytest.raises(InputError, match="was changed; it is not of this release"):
        staging.read("b", 1000)
    staging.end()
    assert Folder(place).sizes() == {}


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(stores, "_WAITS", (0.0, 0.0))
    return bucket_at(tmp_path)


@pytest.mark.parametrize("done", [True, False])
def test_an_answer_that_was_lost(bucket: Bucket, monkeypatch: Any, done: bool) -> None:
    """A PUT that failed may have been done: what lies there decides."""
    put, tries = bucket._put, []

    def lost(path: str, data: bytes) -> None:
        tries.append(data)
        if len(tries) == 1:
            if done:
                put(path, data)
            raise OSError("time-out")
        put(path, data)

    monkeypatch.setattr(bucket, "_put", lost)
    assert bucket.create("a", b"mine")
    assert bucket.read("a", 9) == b"mine"
    assert len(tries) == (1 if done else 2)


def test_an_answer_that_was_lost_while_another_won(bucket: Bucket, monkeypatch: Any) -> None:
    put = bucket._put

    def lost(path: str, data: bytes) -> None:
        put(path, b"other")
        raise OSError("time-out")

    monkeypatch.setattr(bucket, "_put", lost)
    assert not bucket.create("a", b"mine!")


def test_a_store_that_stays_away_is_one_sentence(bucket: Bucket, monkeypatch: Any) -> None:
    def lost(path: str, data: bytes) -> None:
        raise OSError("no route\nto host")

    monkeypatch.setattr(bucket, "_put", lost)
    with pytest.raises(InputError, match=r"cannot be written \(no route to host\); check"):
        bucket.create("a", b"mine")


def test_a_store_that_overwrites_is_refused(bucket: Bucket, monkeypatch: Any) -> None:
    def put(path: str, data: bytes) -> None:
        bucket._obstore.put(bucket._store, path, data)

    monkeypatch.setattr(bucket, "_put", put)
    bucket.create("probe", b"plan")
    with pytest.raises(InputError, match="overwrites objects"):
        bucket.refuse_overwriting("probe", b"plan")


def test_a_store_that_creates_once_is_taken(bucket: Bucket) -> None:
    for _ in range(2):
        bucket.create("probe", b"")
        bucket.refuse_overwriting("probe", b"")
    bucket.remove(bucket.sizes())
    assert bucket.sizes() == {}


def test_a_folder_by_its_url_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(open_store(f"file://{tmp_path}"), Folder)


def test_wrong_urls() -> None:
    with pytest.raises(InputError, match="holds no keys"):
        open_store("s3://key:secret@bucket/x")
    pytest.importorskip("obstore")
    with pytest.raises(InputError, match="cannot be opened"):
        open_store("nonsense://bucket/x")
