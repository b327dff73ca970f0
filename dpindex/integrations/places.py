"""Databases by their addresses."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dpindex.base.errors import InputError
from dpindex.integrations.database import Database
from dpindex.integrations.lance import Lance
from dpindex.integrations.milvus import Milvus
from dpindex.integrations.postgres import Postgres

PLACES: dict[str, type[Database]] = {
    r"milvus(\+tls)?://.+": Milvus,
    r"postgres(ql)?://.+": Postgres,
    r"(?!.*://).*\.db": Milvus,
    r"(?!.*://).*\.lance": Lance,
}
"""What is behind an address that matches as a whole."""

_NAME = re.compile(r"[A-Za-z_]\w{0,54}", re.ASCII)
"""PostgreSQL cuts names after 63 bytes, and documents lie in ``NAME_dpindex``."""


def _database_at(location: str | os.PathLike[str]) -> type[Database] | None:
    text = os.fspath(location)
    found = [kind for pattern, kind in PLACES.items() if re.fullmatch(pattern, text, re.DOTALL)]
    return found[0] if found else None


def is_database_url(location: str | os.PathLike[str]) -> bool:
    """Whether a location is the address of a database, and no folder or object store.

    >>> is_database_url("milvus://localhost:19530"), is_database_url("s3://bucket/index")
    (True, False)
    """
    return _database_at(location) is not None


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
    database = _database_at(text)
    if database is None:
        raise InputError(
            f"{text} names no database: give milvus://host:port, milvus+tls://host:port, "
            f"postgresql://user@host/database, or the path of a file of Milvus Lite, which ends in "
            f".db, or of a folder of LanceDB, which ends in .lance."
        )
    if not _NAME.fullmatch(collection):
        raise InputError(
            f"a collection is called by at most 55 letters, digits and _, not {collection!r}."
        )
    if not (new or "://" in text or Path(text).exists()):
        raise InputError(f"there is nothing at {text}; dpindex publish makes one.")
    return database(text, collection)
