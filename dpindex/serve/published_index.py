"""An index that was published to a vector database, searched where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, row_blocks
from dpindex.base.checks import id_array, other_kind_of_ids
from dpindex.base.errors import InputError, naming
from dpindex.denoise import Denoiser
from dpindex.index.filters import Filter, parsed
from dpindex.index.hits import Hits, joined, no_hits
from dpindex.index.publish import SAMPLE, Publication, stated_columns
from dpindex.index.searchable import Batch, Found, FoundCodes, Searchable
from dpindex.mechanism.codes import Codes
from dpindex.serve.symbol_rows import nearest_symbols
from dpindex.similarity.learned import learned_similarity
from dpindex.similarity.similarity import Estimator, PrivateQueries, Queries
from dpindex.storage.databases import Condition, Database, Rows, open_database
from dpindex.storage.ids import ids_from_bytes
from dpindex.storage.payload import ID, Payload, Table

__all__ = ["PublishedIndex", "connect"]

_FETCHED_BYTES = 1 << 24


class PublishedIndex(Searchable):
    """A published index; made by :func:`dpindex.connect`.

    It is searched as the index itself is. Rankings are those of a flat search, whatever index type
    the index had. Similarities and errors are computed here, from the codes of the rows that the
    database found, and cosines under the distribution of cosines of the index that was published.

    Parameters
    ----------
    database : Database
    publication : Publication
        A complete one.

    Attributes
    ----------
    spec, metric, query_epsilon, query_spec, denoiser
        As those of the index.
    payload_columns : mapping
        Type of each payload column by its name, in Arrow's words.
    id_type : str or int
        What ids are.

    >>> from dpindex import connect
    >>> index = connect("books.db", "books")  # doctest: +SKIP
    >>> index.search(queries, k=10, filter="year >= 2020").ids.shape  # doctest: +SKIP
    (3, 10)
    """

    def __init__(self, database: Database, publication: Publication) -> None:
        super().__init__(publication.settings)
        self._database = database
        self._publication = publication
        self._layout = publication.layout
        self.denoiser: Final[Denoiser | None] = publication.denoiser
        self.payload_columns: Final = stated_columns(self._layout.schema)
        self.id_type: Final = str if publication.text_ids else int
        self._no_payload: Table = None
        if self._layout.schema is not None:
            self._no_payload = self._layout.schema.empty_table()
        database.open(self._layout)

    def __len__(self) -> int:
        return self._database.count()

    def __contains__(self, id: object) -> bool:
        """Whether there is a code under that id; 7 and "7" are different ids."""
        if isinstance(id, np.integer | np.str_):
            id = id.item()
        return type(id) is self.id_type and self._database.count(self._among([id])) > 0

    def __getitem__(self, id: int | str) -> Codes:
        """The code under one id, as codes of one row; KeyError if there is none."""
        if id not in self:
            raise KeyError(f"id {id!r} is not in the index")
        return self._publication.codes_of(self._fetched(id_array(id)))

    def __repr__(self) -> str:
        return f"<PublishedIndex: {len(self)} codes, {self.spec.method}, {self.metric}>"

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def save(self) -> None:
        """Make durable what was added."""
        self._database.finish()

    def lease(self) -> AbstractContextManager[Path | None]:
        """Be the only collector of this index until the block ends.

        The context gives the private folder of the collector beside an index in files, and None
        where a server keeps the index. A Milvus server gives no lease: run one collector.

        Raises
        ------
        BusyError
            If another collector has the lease.
        """
        return self._database.lease()

    def add_codes(self, codes: Codes, ids: Any, *, payload: Any = None) -> None:
        """Add codes that devices made under the same spec; spends nothing.

        They are denoised and compared as those that were published: publish the index anew when it
        has grown much. Parameters are those of :meth:`PrivateIndex.add_codes`.

        Raises
        ------
        InputError
            If the codes come from another spec, have numbers beyond those that were published, or
            for bad ids or payload.
        """
        self._check_codes(codes)
        self._refuse_shuffled()
        names = self._ids(ids)
        if len(names) != len(codes) or len(set(names.tolist())) < len(names):
            raise InputError(f"{len(codes)} codes need as many ids, each another.")
        if repeated := self._database.count(self._among(names.tolist())):
            raise InputError(f"{repeated} of these ids are in the index; ids must be unique.")
        table = Payload(self._no_payload).checked(payload, len(codes))
        self._database.insert(self._publication.rows_of(codes, names, table))

    def _search(self, batches: list[Batch], k: int, filter_: Filter) -> Hits:
        self._check_count(batches[0], k)
        condition = self._condition(filter_)
        parts = [self._nearest(batch, k, condition) for batch in batches]
        if min(part.ids.shape[1] for part in parts):
            return joined(parts)
        if filter_ is None:
            raise InputError("the published index is empty.")
        ids = np.empty(0, np.str_ if self._layout.text_ids else np.int64)
        return no_hits(sum(map(len, parts)), ids, self._no_payload)

    def _range_search(self, batches: list[Batch], threshold: float, filter_: Filter) -> list[Hits]:
        raise InputError(
            "a published index is searched by range among candidates only: say who orders them.",
            field="rerank",
        )

    def _find(self, queries: Queries, count: int, selection: Condition | None) -> Found:
        neighbours = self._found(queries, count, selection)
        width = min(len(ids) for ids, _ in neighbours)
        ids = np.stack([ids[:width] for ids, _ in neighbours])
        scores = np.stack([scores[:width] for _, scores in neighbours])
        rows = ids if self._publication.ids_are_rows else None
        return Found(ids, scores, rows, self._publication.rows, in_order=True)

    def _check_count(self, batch: Batch, k: int) -> None:
        name = "k"
        count = k
        if batch.reranking is not None:
            name = "candidates"
            count = batch.reranking.candidates
        if count > self._database.max_found:
            raise InputError(
                f"{name} must be at most {self._database.max_found} here, not {count}."
            )

    def _codes_of(self, found: Found) -> FoundCodes:
        names, inverse = np.unique(found.ids, return_inverse=True)
        fetched = self._fetched(names, payload=True)
        codes = self._publication.codes_of(fetched)
        places = inverse.reshape(found.ids.shape)
        payload = fetched.payload
        if payload is not None:
            payload = payload.take(places.ravel())
        return FoundCodes(lambda columns: codes.take(places[:, columns].ravel()), payload)

    def _empty_payload(self) -> Table:
        return self._no_payload

    def _found(
        self, queries: Queries, k: int, where: Condition | None
    ) -> list[tuple[AnyArray, Doubles]]:
        """Return ids and scores of each query's neighbours, best first."""
        publication = self._publication
        text = None
        if where is not None:
            text = where.true
        items = publication.ranking.asked(queries)
        if publication.by_symbol:
            rows_of_symbol = publication.rows / items.shape[1]
            return nearest_symbols(self._database, items, k, where, rows_of_symbol)
        if publication.by_hamming and isinstance(queries, PrivateQueries):
            ids, scores = self._database.search(items, k, text)
            length = self.spec.code_length
            scores = [length + 2.0 * negative for negative in scores]
            return list(zip(ids, scores, strict=True))
        if not self._layout.vector_width:
            raise InputError(
                "this index was published for private queries alone: ask with query='private'."
            )
        # In a range where single precision is good, whatever the units.
        unit = 1.0
        if publication.by_hamming:
            unit = float(np.abs(items).max()) or 1.0
        ids, scores = self._database.search(publication.ranked(items / unit), k, text)
        return [(names, unit * values) for names, values in zip(ids, scores, strict=True)]

    def _learned(self) -> Estimator | None:
        return self._published_learned

    @cached_property
    def _published_learned(self) -> Estimator | None:
        """The estimator that was learned from the codes that were published."""
        rows = self._publication.rows
        return learned_similarity(self.spec, self.metric, self.denoiser, self._sample, rows)

    def _sample(self) -> Codes:
        names = ids_from_bytes(self._database.read(SAMPLE) or b"")
        unique, order = np.unique(names, return_inverse=True)
        return self._publication.codes_of(self._fetched(unique)).take(order)

    def _fetched(self, names: AnyArray, *, payload: bool = False) -> Rows:
        """Return the rows of ids, which are sorted and unique, in their order."""
        row_bytes = max(1, self._layout.code_bytes)
        size = min(self._database.max_found, _FETCHED_BYTES // row_bytes)
        parts = []
        for rows in row_blocks(len(names), size):
            block = names[rows]
            among = self._among(block.tolist())
            parts.append(self._database.select(among, len(block), payload=payload))
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids)
        if not np.array_equal(ids[order], names):
            raise InputError("rows were removed while they were searched; search again.")
        table = None
        if parts[0].payload is not None:
            import pyarrow as pa

            table = pa.concat_tables([part.payload for part in parts]).take(order)
        codes = np.concatenate([part.codes for part in parts])
        return Rows(names, codes[order], payload=table)

    def _among(self, ids: list[Any]) -> str:
        return self._database.dialect.is_in(ID, ids)

    def _ids(self, ids: Any) -> AnyArray:
        names = id_array(ids)
        if len(names) and (names.dtype.kind == "U") != self._layout.text_ids:
            raise other_kind_of_ids(self._layout.text_ids, "those that are looked up")
        return names

    def _condition(self, filter_: Filter) -> Condition | None:
        """Return a filter as a condition of the database."""
        if filter_ is None:
            return None
        dialect = self._database.dialect
        if isinstance(filter_, str):
            condition = parsed(filter_, [ID, *self.payload_columns], dialect)
            if not isinstance(condition, Condition):
                raise InputError(f"the filter {filter_!r} compares no column.")
            return condition
        if callable(filter_) or isinstance(filter_, Mapping) or np.asarray(filter_).dtype == bool:
            raise InputError(
                'a published index is filtered by a list of ids or a text such as "year >= 2020".'
            )
        if isinstance(filter_, Set | range):
            filter_ = list(filter_)
        return dialect.field(ID).isin(self._ids(filter_).tolist())


def connect(uri: str | os.PathLike[str], collection: str = "dpindex") -> PublishedIndex:
    """Open a published index, to be searched where it is.

    Parameters
    ----------
    uri : str
        ``milvus://host:port``, ``milvus+tls://host:port``, ``postgresql://user@host/database``, or
        the path of a file of Milvus Lite, which ends in ``.db``, or of a folder of LanceDB, which
        ends in ``.lance``. A token of Milvus is read from the environment, ``MILVUS_TOKEN``; a
        password of PostgreSQL from ``PGPASSWORD`` or ``~/.pgpass``.
    collection : str
        Its name there.

    Raises
    ------
    InputError
        If nothing answers there, or the collection is missing, unfinished, or none of dpindex's.

    >>> connect("books.sqlite")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: books.sqlite names no database: give milvus://host:port, \
milvus+tls://host:port, postgresql://user@host/database, or the path of a file of Milvus Lite, \
which ends in .db, or of a folder of LanceDB, which ends in .lance.
    """
    database = open_database(uri, collection)
    with naming(f"{os.fspath(uri)}, collection {collection}"), ExitStack() as opened:
        opened.callback(database.close)
        publication = Publication.read(database)
        if publication is None:
            raise InputError("there is no published index; dpindex publish makes one.")
        if not publication.complete:
            raise InputError("the publication is unfinished; run it again.")
        index = PublishedIndex(database, publication)
        opened.pop_all()  # it stays open
        return index
