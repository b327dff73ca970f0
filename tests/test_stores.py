"""Folders and buckets: a file is created once, whole, or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from datasets import FolderView, watched

from dpindex.base.errors import InputError
from dpindex.vectors import stores
from dpindex.vectors.stores import Bucket, Folder, Store, is_url, open_store

BUILD = "0" * 32


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(tmp_path / "index")
    pytest.importorskip("obstore")
    (tmp_path / "index").mkdir()
    return Bucket(f"file://{tmp_path}/index")


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/index")
    assert not is_url("C:\\index")
    assert not is_url(Path("data:key"))


def test_a_file_is_created_once(store: Store) -> None:
    assert store.begin(BUILD, "plan.json", b"plan")
    assert store.begin(BUILD, "plan.json", b"plan")
    assert not store.begin(BUILD, "plan.json", b"other")
    assert store.create(BUILD, "a/b", b"first")
    assert not store.create(BUILD, "a/b", b"second")
    assert not store.create(BUILD, "a/b", b"f")
    assert store.create(BUILD, "a/b", b"first")  # these bytes are there
    assert store.read("a/b", 5) == b"first"
    assert store.sizes() == {"a/b": 5, "plan.json": 4}
    assert store.read("a/c", 5) is None
    with pytest.raises(InputError, match="has 5 bytes; at most 4 are read"):
        store.read("a/b", 4)


def test_a_file_is_read_by_ranges(store: Store) -> None:
    store.begin(BUILD, "a", bytes(range(200)))
    with store.open("a") as file:
        assert file.seek(-10, os.SEEK_END) == 190
        assert file.read(4) == bytes(range(190, 194))
        assert file.seek(0) == 0
        assert file.read() == bytes(range(200))
        assert file.read() == b""
    stamp = store.stamp("a")
    assert stamp == store.stamp("a")
    assert stamp.startswith("200 ")
    with pytest.raises(InputError):
        store.stamp("nothing")


def test_of_many_attempts_one_is_seen(store: Store, tmp_path: Path) -> None:
    store.begin(BUILD, "plan.json", b"plan")
    contents = [bytes([number]) * 100_000 for number in range(16)]
    # obstore's own folders show what is not published; a bucket is watched in test_cloud.
    look: Any = (
        nullcontext() if isinstance(store, Bucket) else watched(FolderView(tmp_path / "index"))
    )
    with look, ThreadPoolExecutor(16) as pool:
        for name in ("x/1", "x/2", "x/3"):
            won = list(pool.map(lambda data, name=name: store.create(BUILD, name, data), contents))
            assert sum(won) == 1
            assert store.read(name, 100_000) == contents[won.index(True)]


def test_the_end_of_a_build_stops_whoever_still_runs(tmp_path: Path, monkeypatch: Any) -> None:
    """An attempt that was stopped just before its file got its name can never give it one."""
    store, link = Folder(tmp_path / "index"), os.link
    store.begin(BUILD, "plan.json", b"plan")

    def late(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        assert Folder(tmp_path / "index").end(BUILD, "manifest.json", b"manifest")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(InputError, match="cannot be written"):
        store.create(BUILD, "segments/0", b"noise")
    with pytest.raises(InputError, match="has not begun, or has ended"):
        store.create(BUILD, "segments/0", b"noise")
    assert store.end(BUILD, "manifest.json", b"manifest")
    assert not store.end(BUILD, "manifest.json", b"another")
    assert set(store.sizes()) == {"manifest.json", "plan.json"}
    assert not (tmp_path / "index.unpublished").exists()


def test_from_the_last_file_on_nothing_is_created(tmp_path: Path, monkeypatch: Any) -> None:
    """Attempts end before it is there, and not after: a saved change could free their names."""
    store, link = Folder(tmp_path / "index"), os.link
    store.begin(BUILD, "plan.json", b"plan")

    def last(source: Any, target: Any) -> None:
        with pytest.raises(InputError, match="has not begun, or has ended"):
            Folder(tmp_path / "index").create(BUILD, "segments/0", b"noise")
        link(source, target)

    monkeypatch.setattr(os, "link", last)
    assert store.end(BUILD, "manifest.json", b"manifest")
    assert set(store.sizes()) == {"manifest.json", "plan.json"}


def test_a_build_whose_target_was_removed_ends(tmp_path: Path) -> None:
    """Its attempts publish nothing in the target of the next build at the same place."""
    store = Folder(tmp_path / "index")
    store.begin(BUILD, "plan.json", b"plan")
    shutil.rmtree(tmp_path / "index")
    assert store.begin("1" * 32, "plan.json", b"next")
    with pytest.raises(InputError, match="has not begun, or has ended"):
        store.create(BUILD, "segments/0", b"noise")
    assert store.create("1" * 32, "segments/0", b"code")


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_what_is_not_published_is_private(tmp_path: Path, monkeypatch: Any) -> None:
    store, modes = Folder(tmp_path / "index"), []

    def look(source: Any, target: Any) -> None:
        folder = tmp_path / "index.unpublished"
        modes.extend(stat.S_IMODE(os.stat(f).st_mode) for f in (folder, folder / BUILD))
        assert Path(source).parent == folder / BUILD
        raise OSError("the process ends here")

    monkeypatch.setattr(os, "link", look)
    with pytest.raises(InputError, match="hard links"):
        store.begin(BUILD, "plan.json", b"plan")
    assert modes == [0o700, 0o700]
    assert store.sizes() == {}
    assert not list((tmp_path / "index.unpublished" / BUILD).iterdir())


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    pytest.importorskip("obstore")
    monkeypatch.setattr(stores, "_WAITS", (0.0, 0.0))
    (tmp_path / "index").mkdir()
    return Bucket(f"file://{tmp_path}/index")


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
    assert bucket.create(BUILD, "a", b"mine")
    assert bucket.read("a", 9) == b"mine"
    assert len(tries) == (1 if done else 2)


def test_an_answer_that_was_lost_while_another_won(bucket: Bucket, monkeypatch: Any) -> None:
    put = bucket._put

    def lost(path: str, data: bytes) -> None:
        put(path, b"other")
        raise OSError("time-out")

    monkeypatch.setattr(bucket, "_put", lost)
    assert not bucket.create(BUILD, "a", b"mine!")


def test_a_store_that_stays_away_is_one_sentence(bucket: Bucket, monkeypatch: Any) -> None:
    def lost(path: str, data: bytes) -> None:
        raise OSError("no route\nto host")

    monkeypatch.setattr(bucket, "_put", lost)
    with pytest.raises(InputError, match=r"cannot be written \(no route to host\); check"):
        bucket.create(BUILD, "a", b"mine")


def test_a_store_that_overwrites_is_refused(bucket: Bucket, monkeypatch: Any) -> None:
    def put(path: str, data: bytes) -> None:
        bucket._obstore.put(bucket._store, path, data)

    monkeypatch.setattr(bucket, "_put", put)
    with pytest.raises(InputError, match="overwrites objects"):
        bucket.begin(BUILD, "plan.json", b"plan")


def test_a_folder_by_its_url_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(open_store(f"file://{tmp_path}"), Folder)


def test_wrong_urls() -> None:
    with pytest.raises(InputError, match="holds no keys"):
        open_store("s3://key:secret@bucket/x")
    pytest.importorskip("obstore")
    with pytest.raises(InputError, match="cannot be opened"):
        open_store("nonsense://bucket/x")
