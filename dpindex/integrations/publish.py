"""Publishing: an index is written to a vector database, and may be searched once it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing

import numpy as np

from dpindex.base.arrays import row_blocks
from dpindex.base.display import no_progress
from dpindex.base.errors import InputError, naming
from dpindex.index.backends import EXACT
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations.database import Database
from dpindex.integrations.places import open_database
from dpindex.integrations.publication import (
    FACTS,
    FORMAT,
    MARK,
    Documents,
    Facts,
    Publication,
    documents_of,
    marks,
)
from dpindex.storage.manifest import Settings

_WIDER = {"|i1": "<i2", "<i2": "<i4"}
"""What integers are kept as: noise of codes that are added later may go beyond what is there."""
_CHUNK_BYTES = 1 << 20
"""Of a request: Milvus Lite takes 50 times as long for a row in one of eight megabytes."""
_ROW_BYTES = 256


def publish(
    index: PrivateIndex,
    uri: str | os.PathLike[str],
    collection: str = "dpindex",
    *,
    exact_queries: bool = True,
    allow_unprotected: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Write an index to a vector database, where :func:`dpindex.open` finds it.

    Codes, ids, payload, spec and denoiser are published, and nothing else. It costs no budget.
    What was interrupted cannot be searched, and the same call begins it anew. Rows that are added
    meanwhile are left out.

    Parameters
    ----------
    index : PrivateIndex
    uri : str
        As for :func:`dpindex.open`.
    collection : str
        Its name there; new.
    exact_queries : bool
        Whether signs are kept as vectors too, 32 times as large, to rank by exact queries.
    allow_unprotected : bool
        Publish the exact codes of a ``none-*`` baseline.
    progress : callable, optional
        Called with the rows that are published, and all.

    Raises
    ------
    InputError
        If the index is empty, the collection is there, or the database refuses something.

    >>> import dpindex as dpi
    >>> dpi.publish(dpi.open("my-index"), "books.db", "books")  # doctest: +SKIP
    """
    index.spec.refuse_unprotected(allow_unprotected, "publish it")
    if len(index) == 0:
        raise InputError("the index is empty: there is nothing to publish.")
    with (
        naming(f"{os.fspath(uri)}, {collection}"),
        closing(open_database(uri, collection, new=True)) as database,
    ):
        _write(database, index, exact_queries, progress or no_progress)


def _write(
    database: Database,
    index: PrivateIndex,
    exact_queries: bool,
    progress: Callable[[int, int], object],
) -> None:
    codes, ids, payload = index.codes, index.ids, index.payload
    dtype = codes.stored.dtype.str
    contents = documents_of(index)
    settings = Settings(index.spec, index.metric, EXACT, index.query_epsilon)
    facts = Facts(
        format=FORMAT,
        settings=settings.to_dict(),
        documents=marks(contents),
        dtype=_WIDER.get(dtype, dtype),
        text_ids=ids.dtype.kind == "U",
        exact_queries=exact_queries,
        ids_are_rows=np.array_equal(ids, np.arange(len(ids))),
        rows=len(ids),
    )
    publication = Publication.of(facts, contents)
    layout = publication.layout
    documents = Documents(database)
    _begin(database, documents)
    for name, data in contents.items():
        documents.write(name, data)
    database.create(layout)
    row_bytes = layout.code_bytes + 4 * layout.vector_width + _ROW_BYTES
    for rows in row_blocks(len(ids), _CHUNK_BYTES // row_bytes):
        table = None
        if payload is not None:
            table = payload.slice(rows.start, rows.stop - rows.start)
        database.insert(publication.rows_of(codes.take(rows), ids[rows], table))
        progress(rows.stop, len(ids))
    database.finish()
    if (count := database.count()) != len(ids):
        raise InputError(
            f"the collection has {count} rows in place of {len(ids)}: something else writes it; "
            f"drop it and publish again."
        )
    facts.write(documents)  # last: from here on it may be searched
    documents.rows.finish()


def _begin(database: Database, documents: Documents) -> None:
    """Make the documents anew, where nothing is or an interrupted call was.

    The first document is a mark: a collection beside it is dpindex's. Before it is written there
    are documents without a row, or nothing.
    """
    is_there = documents.open()
    if is_there and documents.read(FACTS) is not None:
        raise InputError(
            "there is a published index of that name; name another collection, or drop that one."
        )
    begun = is_there and documents.read(MARK) is not None
    if not begun and (database.exists() or (is_there and documents.rows.count())):
        raise InputError("there is a collection of that name, which is none of dpindex's.")
    database.drop()
    documents.begin()
    documents.write(MARK, b"")
