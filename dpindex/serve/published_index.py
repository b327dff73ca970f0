"""An index that was published to a vector database, searched where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Final

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Vectors
from dpindex.base.checks import id_array
from dpindex.base.errors import InputError, naming
from dpindex.denoise import Denoiser
from dpindex.index.asked import Asked, QueryMode, checked_k
from dpindex.index.filters import parsed
from dpindex.index.hits import Hits, joined, no_hits
from dpindex.index.publish import SAMPLE, Publication, stated_columns
from dpindex.mechanism.codes import Codes, check_format
from dpindex.similarity.learned import Learned, learned_similarity
from dpindex.similarity.posterior import in_ranking_order
from dpindex.similarity.similarity import Queries, similarity_of
from dpindex.storage.code_store import ids_from_bytes
from dpindex.storage.databases import Condition, Database, Rows, open_database
from dpindex.storage.payload import ID, Payload, Table

__all__ = ["PublishedIndex", "connect"]

_BLOCK_NUMBERS = 1 << 24
_FETCHED_BYTES = 1 << 24
_SYMBOLS = 64


class PublishedIndex(Asked):
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
        self._database, self._publication = database, publication
        self._layout = publication.layout
        settings = publication.settings
        super().__init__(settings.spec, settings.query_spec, settings.metric)
        self.query_epsilon: Final = settings.query_epsilon
        self.denoiser: Final[Denoiser | None] = publication.denoiser
        self.payload_columns: Final = stated_columns(self._layout.schema)
        self.id_type: Final = str if publication.text_ids else int
        self._similarity = similarity_of(self.spec, self.metric)
        self._empty: Table = None
        if self._layout.schema is not None:
            self._empty = self._layout.schema.empty_table()
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
        if codes.fingerprint != self.spec.fingerprint:
            raise InputError("these codes were made under another spec than this index.")
        check_format(codes, self.spec.format)
        names = self._ids(ids)
        if len(names) != len(codes) or len(set(names.tolist())) < len(names):
            raise InputError(f"{len(codes)} codes need as many ids, each another.")
        if known := self._database.count(self._among(names.tolist())):
            raise InputError(f"{known} of these ids are in the index; ids must be unique.")
        table = Payload(self._empty).checked(payload, len(codes))
        self._database.insert(self._publication.rows_of(codes, names, table))

    def search(
        self,
        Q: Vectors | Codes,
        k: int = 10,
        query: QueryMode = "exact",
        *,
        filter: Any = None,
        allow_unprotected: bool = False,
    ) -> Hits:
        """The k nearest neighbours of each query: see :meth:`PrivateIndex.search`.

        An exact query is projected here, and the database sees its projection, from which the query
        can be computed: where the database is not yours, ask with ``query="private"``.

        Parameters
        ----------
        Q, query, allow_unprotected
            As there.
        k : int
            Neighbours wanted, at most what one answer of the database holds.
        filter : optional
            A list of ids, or an expression over ``id`` and payload columns as text.

        Raises
        ------
        InputError
            As there, and for exact queries of sign codes that were published without them.
        """
        checked_k(k)
        if k > self._database.max_found:
            raise InputError(f"k must be at most {self._database.max_found} here, not {k}.")
        where, parts = self._where(filter), []
        for batch in self._batches(Q, query, allow_unprotected):
            step = max(1, _BLOCK_NUMBERS // (k * self.spec.code_length))
            for first in range(0, len(batch.queries), step):
                parts.append(self._search(batch.queries[first : first + step], int(k), where))
        shortest = min(part.ids.shape[1] for part in parts)
        if not shortest:
            if filter is None:
                raise InputError("the published index is empty.")
            ids = np.empty(0, np.str_ if self._layout.text_ids else np.int64)
            return no_hits(sum(map(len, parts)), ids, self._empty)
        return joined(parts)

    def _search(self, queries: Queries, k: int, where: Condition | None) -> Hits:
        found = self._found(queries, k, where)
        count = min(len(ids) for ids, _ in found)
        ids = np.stack([ids[:count] for ids, _ in found])
        scores = np.stack([scores[:count] for _, scores in found])
        if not count:
            return no_hits(len(ids), ids, self._empty)
        names, places = np.unique(ids, return_inverse=True)
        rows = self._fetched(names, payload=True)
        codes = self._publication.codes_of(rows).take(places.ravel())
        unbiased = self._similarity.of_found(codes, queries)
        posterior = unbiased
        if self._learned is not None:
            posterior = in_ranking_order(*self._learned.of_found(codes, queries))
        payload = None if rows.payload is None else rows.payload.take(places.ravel())
        exact = np.zeros(ids.shape, np.bool_)
        return Hits(ids, scores, *posterior, *unbiased, exact=exact, payload=payload)

    def _found(
        self, queries: Queries, k: int, where: Condition | None
    ) -> list[tuple[AnyArray, Doubles]]:
        """Ids and scores of each query's neighbours, best first."""
        publication = self._publication
        text = None if where is None else where.true
        asked = publication.ranking.asked(queries)
        if publication.by_symbol:
            return [self._by_symbol(query, k, where) for query in asked]
        if publication.by_hamming and queries.private:
            ids, scores = self._database.search(asked, k, text)
            return [(i, self.spec.code_length + 2.0 * s) for i, s in zip(ids, scores, strict=True)]
        if not self._layout.vector_width:
            raise InputError(
                "this index was published for private queries alone: ask with query='private'."
            )
        # In a range where single precision is good, whatever the units.
        unit = 1.0
        if publication.by_hamming:
            unit = float(np.abs(asked).max()) or 1.0
        ids, scores = self._database.search(publication.ranked(asked / unit), k, text)
        return [(i, s * unit) for i, s in zip(ids, scores, strict=True)]

    def _by_symbol(
        self, similarities: AnyArray, k: int, where: Condition | None
    ) -> tuple[AnyArray, Doubles]:
        """Rows of the symbols nearest to a query, more symbols at a time until there are k."""
        order, at, step = np.argsort(-similarities, kind="stable"), 0, 1
        ids, scores, most, code = (
            [],
            [],
            self._database.max_found,
            self._database.dialect.field("code"),
        )
        wanted = k
        while wanted > 0 and at < len(order):
            some = order[at : at + step]
            among = code.isin(some.tolist())
            limit = most if step > 1 else wanted  # of equal ones any will do
            rows = self._database.select((among if where is None else among & where).true, limit)
            if len(rows.ids) == most and step > 1:  # some may be missing
                step = 1
                continue
            score = similarities[rows.codes]
            best = np.argsort(-score, kind="stable")[:wanted]
            ids.append(rows.ids[best])
            scores.append(score[best].astype(np.float64))
            wanted, at, step = wanted - len(best), at + step, min(2 * step, _SYMBOLS)
        return np.concatenate(ids), np.concatenate(scores)

    @cached_property
    def _learned(self) -> Learned | None:
        """What gives posterior similarities; None without one."""
        rows = self._publication.rows
        return learned_similarity(self.spec, self.metric, self.denoiser, self._sample, rows)

    def _sample(self) -> Codes:
        names = ids_from_bytes(self._database.read(SAMPLE) or b"")
        known, order = np.unique(names, return_inverse=True)
        return self._publication.codes_of(self._fetched(known)).take(order)

    def _fetched(self, names: AnyArray, *, payload: bool = False) -> Rows:
        """The rows of these ids, which are sorted and unique, in their order."""
        row = max(1, self._layout.code_bytes)
        step = max(1, min(self._database.max_found, _FETCHED_BYTES // row))
        parts = [
            self._database.select(self._among(some.tolist()), len(some), payload=payload)
            for some in (names[i : i + step] for i in range(0, len(names), step))
        ]
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids)
        if not np.array_equal(ids[order], names):
            raise InputError("rows were removed while they were searched; search again.")
        table = None
        if parts[0].payload is not None:
            import pyarrow as pa

            table = pa.concat_tables([part.payload for part in parts]).take(order)
        return Rows(names, np.concatenate([p.codes for p in parts])[order], payload=table)

    def _among(self, ids: list[Any]) -> str:
        return self._database.dialect.is_in(ID, ids)

    def _ids(self, ids: Any) -> AnyArray:
        names = id_array(ids)
        if len(names) and (names.dtype.kind == "U") != self._layout.text_ids:
            kind = "strings" if self._layout.text_ids else "whole numbers"
            raise InputError(f"the ids of this index are {kind}.")
        return names

    def _where(self, filter_: Any) -> Condition | None:
        if filter_ is None:
            return None
        dialect = self._database.dialect
        if isinstance(filter_, str):
            found = parsed(filter_, [ID, *self.payload_columns], dialect)
            if not isinstance(found, Condition):
                raise InputError(f"the filter {filter_!r} compares no column.")
            return found
        if callable(filter_) or isinstance(filter_, Mapping) or np.asarray(filter_).dtype == bool:
            raise InputError(
                'a published index is filtered by a list of ids or a text such as "year >= 2020".'
            )
        names = self._ids(list(filter_) if isinstance(filter_, Set | range) else filter_)
        return dialect.field(ID).isin(names.tolist())


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
        found = Publication.read(database)
        if found is None:
            raise InputError("there is no published index; dpindex publish makes one.")
        if not found.complete:
            raise InputError("the publication is unfinished; run it again.")
        index = PublishedIndex(database, found)
        opened.pop_all()  # it stays open
        return index
