"""Stores and journals: a file is created once, whole, or not at all."""

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from helpers.common import names_in, needs_posix, refuses, travelled

from dpindex.base.errors import BusyError
from dpindex.data import stores
from dpindex.data.stores import Bucket, Folder, is_url, open_store
from dpindex.storage.journal import Journal, unpublished_path


def journal_at(tmp_path):
    """The journal of a release that has begun."""
    made = Journal(tmp_path / "private", str(tmp_path / "index"))
    with made.held():
        made.begin({})
    return made


def bucket_at(tmp_path):
    pytest.importorskip("obstore")
    (tmp_path / "index").mkdir(exist_ok=True)
    return Bucket(f"file://{tmp_path}/index")


@pytest.fixture
def journal(tmp_path):
    return journal_at(tmp_path)


def test_what_is_a_url():
    assert is_url("s3://bucket/index")
    assert not is_url("C:\\index")
    assert not is_url(Path("data:key"))


def assert_created_once(create, read):
    assert create("a/b", b"first")
    assert not create("a/b", b"second")
    assert not create("a/b", b"f")
    assert create("a/b", b"first")  # these bytes are there
    assert read("a/b", 5) == b"first"
    assert read("a/c", 5) is None
    with refuses("bytes; at most"):
        read("a/b", 4)


def test_a_file_is_created_once(journal):
    assert_created_once(journal.put, journal.get)
    written = Folder(journal.folder.path / journal.token)
    assert written.sizes() == {"a/b": 5}


@pytest.mark.extra
def test_an_object_is_created_once(tmp_path):
    bucket = travelled(bucket_at(tmp_path))
    assert_created_once(bucket.create, bucket.read)


def test_a_release_is_drawn_once(journal):
    """Begun, drawn, and never back: whoever opens the journal again finds the same."""
    assert journal.digest() is None
    journal.drawn("one")
    journal.drawn("one")
    with refuses("are not those that were drawn"):
        journal.drawn("other")
    with journal.held():
        assert journal.begun
        assert journal.digest() == "one"
        with pytest.raises(BusyError, match="is being written by another"), journal.held():
            pass
        journal.end()
        assert not journal.begun
    assert not journal.folder.path.exists()


STORES = [open_store, pytest.param(bucket_at, marks=pytest.mark.extra)]


@pytest.mark.parametrize("open_at", STORES)
def test_a_file_is_read_by_ranges(tmp_path, open_at):
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


def test_of_many_attempts_one_is_seen(journal):
    contents = [bytes([number]) * 100_000 for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        for name in ("x/1", "x/2", "x/3"):
            won = list(pool.map(partial(journal.put, name), contents))
            assert sum(won) == 1
            assert journal.get(name, 100_000) == contents[won.index(True)]


def test_the_end_of_a_release_stops_whoever_still_runs(journal, tmp_path, monkeypatch):
    """An attempt that was stopped just before its file got its name can never give it one."""
    link = os.link
    journal.put("segments/0", b"code")
    worker = Journal(journal.folder.path, journal.target)
    worker.token = journal.token
    target = tmp_path / "index"

    def late(*names, **folders):
        monkeypatch.setattr(os, "link", link)
        journal.folder.publish(journal.token, target)
        with journal.held():
            journal.end()
        link(*names, **folders)

    monkeypatch.setattr(os, "link", late)
    for _ in range(2):
        with refuses("has ended, and is discarded"):
            worker.put("segments/1", b"noise")
    with refuses("cannot be made"):
        journal.folder.publish(journal.token, target)
    assert Folder(target).sizes() == {".lock": 0, "segments/0": 4}


def test_f1_a_removed_folder_is_not_made_again(journal, tmp_path):
    """Not even where another of its name lies in its place."""
    journal.put("segments/0", b"code")
    shutil.move(tmp_path / "private", tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved")
    (tmp_path / "private" / journal.token / "segments").mkdir(parents=True)
    with refuses("has ended, and is discarded"):
        journal.put("segments/1", b"noise")
    with refuses():
        journal.drawn("codes")
    assert Folder(tmp_path / "private").sizes() == {}


def test_a_folder_is_published_by_one_rename(journal, tmp_path):
    target = tmp_path / "index"
    journal.put("segments/0", b"code")
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with refuses("cannot be made"):
        journal.folder.publish(journal.token, target)
    assert Folder(target).sizes() == {"notes.txt": 4}
    (target / "notes.txt").unlink()
    journal.folder.publish(journal.token, target)  # where an empty folder waits
    assert Folder(target).sizes() == {".lock": 0, "segments/0": 4}


@needs_posix
@pytest.mark.parametrize("umask", [0, 0o077, 0o277])
def test_a_file_that_is_not_whole_is_private(tmp_path, monkeypatch, umask):
    """It lies in the private folder, under any umask, and not in what is published."""
    before = os.umask(umask)
    try:
        journal = journal_at(tmp_path)
        private = tmp_path / "private"
        assert stat.S_IMODE(private.stat().st_mode) == 0o700

        def look(source, place, **folders):
            assert (private / source).is_file()
            raise OSError("the process ends here")

        monkeypatch.setattr(os, "link", look)
        with refuses("hard links"):
            journal.put("plan", b"plan")
    finally:
        os.umask(before)
    assert names_in(private) == sorted(["record", "lock", journal.token])
    assert unpublished_path(tmp_path / "index") == tmp_path / "index.unpublished"


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "WAITS", (0.0, 0.0))
    return bucket_at(tmp_path)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.extra
def test_an_answer_that_was_lost(bucket, monkeypatch, done):
    """A PUT that failed may have been done: what lies there decides."""
    put = bucket.put
    tries = []

    def lost(path, data):
        tries.append(data)
        if len(tries) == 1:
            if done:
                put(path, data)
            raise OSError("time-out")
        put(path, data)

    monkeypatch.setattr(bucket, "put", lost)
    assert bucket.create("a", b"mine")
    assert bucket.read("a", 9) == b"mine"
    assert len(tries) == (1 if done else 2)


@pytest.mark.extra
def test_an_answer_that_was_lost_while_another_won(bucket, monkeypatch):
    put = bucket.put

    def lost(path, data):
        put(path, b"other")
        raise OSError("time-out")

    monkeypatch.setattr(bucket, "put", lost)
    assert not bucket.create("a", b"mine!")


@pytest.mark.extra
def test_a_store_that_stays_away_is_one_sentence(bucket, monkeypatch):
    def lost(path, data):
        raise OSError("no route\nto host")

    monkeypatch.setattr(bucket, "put", lost)
    with refuses(r"cannot be written \(no route to host\); check"):
        bucket.create("a", b"mine")


@pytest.mark.extra
def test_a_store_that_overwrites_is_refused(bucket, monkeypatch):
    import obstore

    store = obstore.store.from_url(bucket.location)

    def put(path, data):
        obstore.put(store, path, data)

    monkeypatch.setattr(bucket, "put", put)
    bucket.create("probe", b"plan")
    with refuses("overwrites objects"):
        bucket.refuse_overwriting("probe", b"plan")


@pytest.mark.extra
def test_a_store_that_creates_once_is_taken(bucket):
    for _ in range(2):
        bucket.create("probe", b"")
        bucket.refuse_overwriting("probe", b"")
    bucket.remove(bucket.sizes())
    assert bucket.sizes() == {}


def test_a_folder_by_its_url_is_a_folder(tmp_path):
    assert isinstance(open_store(f"file://{tmp_path}"), Folder)


def test_a_url_with_keys_is_refused():
    with refuses("holds no keys"):
        open_store("s3://key:secret@bucket/x")


@pytest.mark.extra
def test_a_url_of_no_store_is_refused():
    pytest.importorskip("obstore")
    with refuses("cannot be opened"):
        open_store("nonsense://bucket/x")
