"""The order of durable steps: what a loss of power finds on the disk, seen from the calls.

A file is synced before it has its name, a name before what rests on it, and the ledger is told as
durably as SQLite can. Kills and lost names are the contract's; contents are looked at here.
"""

import os
import sqlite3

import pytest
from helpers.common import (
    attribute_spec,
    build,
    filled_index,
    interrupted_at,
    needs_posix,
    uniform,
    write_codes,
)

import dpindex as dpi
from dpindex.storage.history import History
from dpindex.storage.manifest import Settings

pytestmark = needs_posix

SPEC = attribute_spec("dp-oporp-staircase", 8, k=8, epsilon=2.0)
INDEX = Settings(SPEC, "ip")
VECTORS = uniform(24, 8)
IDS = [f"person-{row}" for row in range(24)]


PUBLISH = "dpindex.storage.targets.IndexTarget.publish_files"
RENAME = "dpindex.storage.journal.PrivateFolder.publish"
GROW = "dpindex.storage.directory.IndexDirectory.publish_staged"


class Calls:
    """What was synced and named, in order: ``("sync", inode)``, ``("name", inode, path)``, …"""

    def __init__(self, patch):
        self.events = []
        for name in ("fsync", "link", "rename", "replace", "unlink"):
            watched = self._watched(name, getattr(os, name))
            patch.setattr(os, name, watched)

    def _watched(self, name, call):
        def watched(first, *rest, **options):
            if name == "fsync":
                event = ("sync", os.fstat(first).st_ino)
            elif name == "unlink":
                folder = options.get("dir_fd")
                event = ("gone", os.path.basename(first), _folder(first, folder))
            else:
                status = os.stat(first, dir_fd=options.get("src_dir_fd"))
                kind = "folder" if os.path.isdir(first) else "name"
                if options.get("src_dir_fd") is not None:
                    kind = "name" if status.st_mode & 0o170000 == 0o100000 else "folder"
                event = (kind, status.st_ino, os.fspath(rest[0]))
            done = call(first, *rest, **options)
            self.events.append(event)
            return done

        return watched

    def unsynced_files(self):
        """Files that got a name before their content was synced."""
        synced = set()
        found = []
        for kind, inode, *place in self.events:
            if kind == "sync":
                synced.add(inode)
            elif kind == "name" and inode not in synced:
                found.append(place[0])
        return found


def _folder(path, descriptor):
    folder = os.path.dirname(path)
    if descriptor is not None and folder == "":
        return os.fstat(descriptor).st_ino
    return os.stat(folder or ".", dir_fd=descriptor).st_ino


@pytest.fixture
def calls(monkeypatch):
    with monkeypatch.context() as patch:
        yield Calls(patch)


def built(folder, **terms):
    build(folder / "index", INDEX, VECTORS, rows=6, **terms)


def grown(folder, **terms):
    index = dpi.PrivateIndex(SPEC, metric="ip")
    index.save(folder / "index")
    index.add(VECTORS, IDS, **terms)
    index.save(folder / "index")


WAYS = {
    "build": built,
    "build with a ledger": lambda folder: built(
        folder, ids=IDS, ledger=dpi.Ledger(folder / "ledger")
    ),
    "codes": lambda folder: write_codes(folder / "codes", SPEC, VECTORS),
    "save": grown,
    "add with a ledger": lambda folder: grown(folder, ledger=dpi.Ledger(folder / "ledger")),
}


def places_of(events, kind):
    """Where events of a kind stand among them."""
    return [place for place, event in enumerate(events) if event[0] == kind]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_is_on_the_disk_before_it_has_its_name(way, calls, tmp_path):
    WAYS[way](tmp_path)
    assert [event for event in calls.events if event[0] == "name"]
    assert calls.unsynced_files() == []


@pytest.mark.parametrize("way", ["build", "build with a ledger", "codes"])
def test_the_end_of_a_release_is_on_the_disk_before_anything_else_goes(way, calls, tmp_path):
    """A mark that came back after what was drawn is gone would let all be drawn anew."""
    WAYS[way](tmp_path)
    events = calls.events
    (place,) = (at for at in places_of(events, "gone") if events[at][1] == "record")
    folder = events[place][2]
    later = [event for event in events[place + 1 :] if event[0] != "name"]
    assert later[0] == ("sync", folder)


def test_names_of_what_was_drawn_are_on_the_disk_before_it_is_published(calls, tmp_path):
    built(tmp_path)
    events = calls.events
    (end,) = places_of(events, "folder")
    index = tmp_path / "index"
    published = {path.parent.stat().st_ino for path in index.glob("*/0*")}
    published.add(index.stat().st_ino)
    before = events[:end]
    syncs = places_of(before, "sync")
    assert published <= {events[at][1] for at in syncs}
    assert max(places_of(before, "name")) < max(syncs)


def test_what_was_released_is_known_before_its_codes_are_seen(tmp_path):
    """Stopped at the last step of a build, and at that of an ``add`` and of a first save."""
    index = filled_index(SPEC, VECTORS, metric="ip")
    interrupted_at(PUBLISH, lambda: build(tmp_path / "built", INDEX, VECTORS))
    interrupted_at(RENAME, lambda: index.save(tmp_path / "saved"))
    for name in ("built", "saved"):
        assert not (tmp_path / name).exists()
        assert len(History.read(tmp_path / name).rows) == 24
    build(tmp_path / "built", INDEX, VECTORS)
    index = dpi.open(tmp_path / "built")
    index.add(-VECTORS)
    interrupted_at(GROW, lambda: index.save(tmp_path / "built"))
    assert len(History.read(tmp_path / "built").rows) == 48


def test_a_ledger_is_as_durable_as_sqlite_can_be(tmp_path, monkeypatch):
    """EXTRA: less would let a loss of power take a release back that was told."""
    found = []

    class Watched(sqlite3.Connection):
        def close(self):
            rows = [self.execute(f"PRAGMA {name}").fetchone() for name in LEVELS]
            found.append([level for (level,) in rows])
            super().close()

    plain = sqlite3.connect

    def connect(*arguments, **options):
        return plain(*arguments, factory=Watched, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    ledger = dpi.Ledger(tmp_path / "ledger")
    ledger.record(SPEC, IDS, token="one")
    ledger.record_drawn("one", "0" * 64)
    ledger.check(["else"])
    assert found == [[3, 1, "delete"]] * 3


LEVELS = ("synchronous", "fullfsync", "journal_mode")
