"""One collector an index, wherever it is started: the lease is where the index is."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.common import attribute_spec, fails, needs_posix, refuses
from helpers.lite import LITE, PLACES, address, end_with_children
from helpers.postgres_server import new_database, programs, wait_for_leases_to_end
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.base.errors import BusyError, StorageError
from dpindex.integrations.client import Client
from dpindex.integrations.collector import Collector, Submission, UnavailableError
from dpindex.integrations.database import Layout, open_database

pytestmark = [*LITE, needs_posix]

SECONDS = 600.0
"""Against a hang only."""
SPEC = attribute_spec("dp-signoporp-rr", 64, k=64, epsilon=4.0)
SYMBOLS = Layout(text_ids=False, code_bytes=0, vector_width=0, metric="ip")
FILES = [place for place in PLACES if "postgresql" not in place.values]
postgres = pytest.mark.skipif(programs() is None, reason="no PostgreSQL is installed")


def codes(seed):
    bits = np.random.default_rng(seed).integers(0, 2, (1, 64))
    return dpi.BitCodes.from_signs(bits.astype(bool), SPEC.fingerprint)


def published(folder, place):
    index = dpi.PrivateIndex(SPEC)
    index.add_codes(codes(0), ["old"])
    uri = address(folder, place)
    dpi.publish(index, uri)
    return uri


def serve(place):
    return f"serve {place} --open-to-all --port 0"


@contextmanager
def served(place, state):
    """A collector with a state folder of its own, and a client of it."""
    command = [sys.executable, "-W", "ignore", "-m", "dpindex", *serve(place).split()]
    env = os.environ | {"DPINDEX_STATE": str(state)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            url = process.stdout.readline().split()[-1]
            yield process, Client(url, "")
        finally:
            end_with_children(process, signal.SIGTERM)
            if str(place).startswith("postgresql"):
                wait_for_leases_to_end(str(place))


def submit(client, seed):
    return client.submit(codes(seed).to_bytes(), ["one"])


def test_h5_an_index_directory_under_another_name(tmp_path, run):
    pytest.importorskip("starlette")
    index = tmp_path / "index"
    dpi.PrivateIndex(SPEC).save(index)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(index)
    with served(index, tmp_path / "a") as (_, client):
        assert submit(client, 1) == "stored"
        fails(run(serve(link)), "is being written by another process")
    stored = dpi.open(link)["one"].stored
    assert_array_equal(stored, codes(1).stored)


@pytest.mark.parametrize("place", PLACES)
def test_h5_a_published_index_with_two_state_folders(place, tmp_path, run, monkeypatch):
    """The second is refused; when the first was killed it knows what that accepted."""
    pytest.importorskip("starlette")
    uri = published(tmp_path, place)
    monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "b"))
    with served(uri, tmp_path / "a") as (process, client):
        assert submit(client, 1) == "stored"
        said = run(serve(uri))
        fails(said)
        assert re.search("is being written by another|another process has the file", said[2])
        end_with_children(process, signal.SIGTERM if place == "postgresql" else signal.SIGKILL)
    with served(uri, tmp_path / "b") as (_, client):  # the lease ended with its holder
        assert submit(client, 2) == "taken"
    index = dpi.open(uri)
    assert_array_equal(index["one"].stored, codes(1).stored)
    index.close()
    if place != "postgresql":
        assert not (tmp_path / "a").exists()
        assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("place", FILES)
def test_h5_a_symbolic_link_to_the_files(place, tmp_path):
    first = dpi.open(published(tmp_path, place))
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / f"link{Path(place).suffix}"
    link.symlink_to(tmp_path / place)
    second = dpi.open(link)
    with first.database.lease() as folder:
        assert folder is not None
        assert folder.parent == tmp_path.resolve()
        assert folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(BusyError, match=r"is being written by another process; wait"):
            second.database.lease().__enter__()
    with second.database.lease() as again:
        assert again == folder
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.raises(StorageError, match="is a symbolic link, not a folder"):
        first.database.lease().__enter__()
    first.close()
    second.close()


@postgres
@pytest.mark.extra
def test_h5_sessions_of_postgresql(tmp_path):
    pytest.importorskip("psycopg")
    uri = new_database()
    first = open_database(uri, "books", new=True)
    second = open_database(uri, "books", new=True)
    first.create(SYMBOLS)
    second.open(SYMBOLS)
    other = open_database(uri, "films", new=True)
    with refuses("the table is missing"):
        other.lease().__enter__()
    other.create(SYMBOLS)
    with first.lease() as folder:
        assert folder is None
        with pytest.raises(BusyError, match="is being written by another collector"):
            second.lease().__enter__()
        with other.lease():  # another collection has a lease of its own
            pass
    with second.lease():
        second.close()  # as when the connection is lost
        wait_for_leases_to_end(uri)
    with first.lease():
        pass
    first.close()
    other.close()


def test_h5_whoever_waits_is_answered_when_the_index_is_lost(tmp_path):
    class Lost(dpi.PrivateIndex):
        def __contains__(self, id):
            raise StorageError("the server cannot be reached.")

    collector = Collector(Lost(SPEC), tmp_path / "log", lambda: None)
    collector.__enter__()
    submission = Submission(codes(1), np.array(["one"]))
    outcome = collector.submit(submission)
    with pytest.raises(UnavailableError):
        outcome.result(SECONDS)
    with refuses("could not be written"):
        collector.__exit__()
