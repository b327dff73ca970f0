"""Addresses of databases: which are understood, and what is said of the others."""

from pathlib import Path

from helpers.common import folded, refuses

from dpindex.integrations.database import adapter_of, open_database


@folded("text", ["milvus://h:1", "milvus+tls://h", "postgres://h/d", "b.db", "/a/b.lance"])
def test_addresses_of_engines(text):
    assert adapter_of(text) is not None


@folded("text", ["index", "/a/index", "s3://bucket/x.db", "http://h:1"])
def test_folders_and_stores_are_none(text):
    assert adapter_of(text) is None
    with refuses("names no database"):
        open_database(text, "books")


@folded(
    "address, name, said",
    [
        ("b.db", "two words", "has at most 55 letters"),
        ("milvus://me:secret@h:1", "books", "MILVUS_TOKEN"),
        ("milvus://h:1", 56 * "x", "at most 55"),
        ("missing.db", "books", "nothing at missing.db"),
        ("missing.lance", "books", "nothing at missing.lance"),
    ],
)
def test_wrong_addresses(address, name, said):
    with refuses(said) as raised:
        open_database(address, name)
    assert "secret" not in str(raised.value)
    assert not Path(address).exists()
