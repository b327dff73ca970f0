"""What Milvus cannot keep, and places where it is not."""

import warnings
from types import SimpleNamespace

import pytest
from helpers.common import refuses
from helpers.lite import LITE, layout

from dpindex.base.errors import StorageError
from dpindex.integrations import milvus
from dpindex.integrations.milvus import Milvus
from dpindex.testing import rows_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("milvus_lite")
pytestmark = [*LITE, pytest.mark.extra]


@pytest.fixture
def database(tmp_path):
    made = Milvus(str(tmp_path / "x.db"), "books")
    yield made
    made.close()


@pytest.mark.parametrize("name", ["two words", "code", "_ö"])
def test_columns_that_milvus_cannot_have(database, name):
    with refuses("rename it"):
        database.create(layout(pa.schema({name: "int64"})))


def test_what_milvus_refuses_is_one_sentence(database):
    database.create(layout())
    with refuses("Milvus refuses this"):
        database.count("nothing == 3")
    with refuses("cannot look up"):
        database.insert(rows_of(database, [-(2**63)]))


def test_a_full_disk_is_not_the_fault_of_a_server(database, monkeypatch):
    """Milvus Lite calls it an unknown error."""
    database.create(layout())
    full = SimpleNamespace(free=0)
    monkeypatch.setattr(milvus.shutil, "disk_usage", lambda _: full)
    with pytest.raises(StorageError, match="the disk is nearly full: make room there"):
        database.count("nothing == 3")


def test_numbers_beyond_64_bits_are_refused(database):
    big = pa.table({"n": pa.array([2**64 - 1], "uint64")})
    database.create(layout(big.schema))
    with refuses("cannot keep payload column 'n'"):
        database.insert(rows_of(database, [1], big))


def test_times_that_are_not_read_back_are_refused(database):
    for kind in (pa.duration("s"), pa.time64("us")):
        with refuses("Milvus keeps no .* here; make the payload column a number or text"):
            database.create(layout(pa.schema({"at": kind})))


def test_a_process_that_begins_late_is_waited_for(tmp_path, monkeypatch):
    """As on a busy machine: the client finds nobody who listens, twice."""
    import pymilvus

    client = pymilvus.MilvusClient
    silence = pymilvus.MilvusException(code=2, message="server unavailable")
    late = iter([silence, silence])

    def connected(*args, **options):
        for error in late:
            raise error
        return client(*args, **options)

    monkeypatch.setattr(pymilvus, "MilvusClient", connected)
    Milvus(str(tmp_path / "late.db"), "books").close()
    assert not list(late)


def test_places_where_no_milvus_is(tmp_path):
    (tmp_path / "no.db").write_bytes(b"no database, but something else" * 99)
    for name in ("no.db", "missing/books.db"):
        with refuses("no file of Milvus Lite, or its folder is missing"):
            Milvus(str(tmp_path / name), "books")
    with refuses("no server answers"):
        Milvus("milvus://127.0.0.1:9", "books")


@pytest.mark.parametrize("name", ["my books.db", "a+b.db", "a[1].db", "ä.db", "(a).db", "a'b.db"])
def test_a_file_name_that_milvus_lite_does_not_take_is_one_sentence(tmp_path, name):
    with refuses(r"Milvus Lite takes file names of the letters"):
        Milvus(str(tmp_path / name), "books")
    assert not (tmp_path / name).exists()
    folder = tmp_path / "two words"
    folder.mkdir()
    Milvus(str(folder / "a_b-c.1.db"), "books").close()


def test_a_server_on_another_machine_without_tls_is_warned_of():
    with (
        pytest.warns(UserWarning, match=r"travel in the clear; .* needs TLS: milvus\+tls://"),
        refuses("no server answers"),
    ):
        Milvus("milvus://192.0.2.1:9", "books")
    for address in ("milvus://localhost:9", "milvus://[::1]:9"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            with refuses("no server answers"):
                Milvus(address, "books")
