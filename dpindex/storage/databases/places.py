"""Which database an address names."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dpindex.base.errors import InputError
from dpindex.storage.databases.database import Database
from dpindex.storage.databases.lance import Lance
from dpindex.storage.databases.milvus import Milvus
from dpindex.storage.databases.postgres import Postgres

__all__ = ["is_database_url", "open_database"]

_MILVUS = {"milvus": "http", "milvus+tls": "https"}
_POSTGRES = ("postgresql", "postgres")
_LOCAL: dict[str, type[Milvus | Lance]] = {".db": Milvus, ".lance": Lance}
_NAME = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)


def is_database_url(location: str | os.PathLike[str]) -> bool:
    """Whether a location is the address of a database, and no folder or object store.

    >>> is_database_url("milvus://localhost:19530"), is_database_url("s3://bucket/index")
    (True, False)
    """
    text = os.fspath(location)
    scheme, separator, _ = text.partition("://")
    if separator:
        return scheme in _MILVUS or scheme in _POSTGRES
    return _suffix(text) in _LOCAL


def _suffix(place: str) -> str:
    return Path(place).suffix


def open_database(
    location: str | os.PathLike[str], collection: str, *, new: bool = False
) -> Database:
    """A collection, which need not be there yet, of the database at an address.

    A file or folder is made only if it may be ``new``.

    Raises
    ------
    InputError
        For an address or a name that is not understood, a database that does not answer, and
        without the packages it needs.
    """
    text = os.fspath(location)
    if not is_database_url(text):
        raise InputError(
            f"{text} names no database: give milvus://host:port, milvus+tls://host:port, "
            f"postgresql://user@host/database, or the path of a file of Milvus Lite, which ends in "
            f".db, or of a folder of LanceDB, which ends in .lance."
        )
    if not _NAME.fullmatch(collection):
        raise InputError(f"a collection is called by letters, digits and _, not {collection!r}.")
    scheme, _, place = text.rpartition("://")
    if scheme in _POSTGRES:
        if re.match("[^/@]*:[^/@]*@", place) or "password=" in place:
            raise InputError("an address holds no password; give it as PGPASSWORD or in ~/.pgpass.")
        return Postgres(text, collection)
    if "@" in place:
        raise InputError("an address holds no password; give user:password as MILVUS_TOKEN.")
    if scheme and not place.startswith("/"):
        return Milvus(f"{_MILVUS[scheme]}://{place}", collection)
    if scheme and not place.endswith(".db"):
        raise InputError(f"a file of Milvus Lite ends in .db; {place} does not.")
    if not (new or Path(place).exists()):
        raise InputError(f"there is nothing at {place}; dpindex publish makes one.")
    return _LOCAL[_suffix(place)](place, collection)
