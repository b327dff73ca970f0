"""Integrations: vector databases, the collector with its client, Dask, LangChain and scikit-learn.

Each uses what ``dpindex`` exports and a few contracts that ``tests/test_layers.py`` lists; nothing
else in the package imports them. A new one is written from the same contracts.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from dpindex.base.errors import InputError
from dpindex.base.files import AnyPath
from dpindex.base.ids import COLLECTION

if TYPE_CHECKING:
    from dpindex.index.private_index import PrivateIndex
    from dpindex.integrations.client import Client
    from dpindex.integrations.published import PublishedIndex


def open(place: AnyPath, collection: str = COLLECTION) -> PrivateIndex | PublishedIndex | Client:
    """Open an index: in a folder, an object store or a vector database, or behind a collector.

    Parameters
    ----------
    place : path or URL
        The folder of an index; the URL of one in an object store, such as ``s3://bucket/index``; a
        database, ``milvus://host:port``, ``milvus+tls://host:port``,
        ``postgresql://user@host/database``, a file of Milvus Lite, which ends in ``.db``, a folder
        of LanceDB, ``.lance``, or a Parquet file or the folder or URL of several, ``.parquet`` or
        ``.parquet/``; or the address of a collector, ``https://…``. A
        token of Milvus is read from the environment, ``MILVUS_TOKEN``; a password of PostgreSQL
        from ``PGPASSWORD`` or ``~/.pgpass``.
    collection : str
        Its name in a database; elsewhere there is none.

    Returns
    -------
    A :class:`~dpindex.PrivateIndex` of a folder or object store, a
    :class:`~dpindex.PublishedIndex` of a database, or a
    :class:`~dpindex.integrations.client.Client` of a collector.

    Raises
    ------
    InputError
        If there is no index, nothing answers there, or it is unfinished or damaged, and for the
        name of a collection where there are none.

    >>> import dpindex as dpi
    >>> dpi.open("https://collector.example")
    Client('https://collector.example')
    """
    if re.match("https?://", os.fspath(place)):
        from dpindex.integrations.client import Client

        _refuse_name(place, collection)
        return Client(os.fspath(place))
    if is_published(place, collection):
        from dpindex.integrations.published import open_published

        return open_published(place, collection)
    from dpindex.index.private_index import PrivateIndex

    return PrivateIndex.open(place)


def is_published(place: AnyPath, collection: str) -> bool:
    """Return whether a place names a database or a table, rather than the folder of an index.

    Raises
    ------
    InputError
        For the name of a collection where there are none.
    """
    from dpindex.integrations.database import adapter_of

    is_index = os.path.exists(os.path.join(place, "manifest.json"))  # whatever its folder is called
    if adapter_of(place) is not None and not is_index:
        return True
    _refuse_name(place, collection)
    return False


def _refuse_name(place: AnyPath, collection: str) -> None:
    if collection != COLLECTION:
        raise InputError(f"{place} is one index, without collections.", field="collection")
