"""An index that was published to a vector database, searched where it is."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Singles, row_blocks, spaced, unit
from dpindex.base.checks import id_array, other_kind_of_ids
from dpindex.base.errors import InputError, naming
from dpindex.base.progress import no_progress
from dpindex.base.text import refuse_unprintable
from dpindex.denoise import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.index.filters import Filter, parsed
from dpindex.index.hits import Hits, joined, no_hits
from dpindex.index.kinds import kind_of
from dpindex.index.private_index import PrivateIndex
from dpindex.index.ranking import DenoisedVectors, Ranking
from dpindex.index.search_backend import EXACT
from dpindex.index.searchable import Batch, Found, FoundCodes, Searchable
from dpindex.integrations.database import Condition, Database, Layout, Rows
from dpindex.integrations.lance import Lance
from dpindex.integrations.milvus import Milvus
from dpindex.integrations.postgres import Postgres
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.parameters import Codebook
from dpindex.similarity.learned import SAMPLE_ROWS, learned_similarity
from dpindex.similarity.similarity import Estimator, PrivateQueries, Queries
from dpindex.storage.code_store import CodeStore
from dpindex.storage.ids import ids_from_bytes, ids_to_bytes
from dpindex.storage.manifest import Settings
from dpindex.storage.payload import ID, Payload, Table

_FETCHED_BYTES = 1 << 24


class PublishedIndex(Searchable):
    """A published index; made by :func:`dpindex.open`.

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

    >>> import dpindex as dpi
    >>> index = dpi.open("books.db", "books")  # doctest: +SKIP
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


FACTS = "facts"
"""Name of the document that describes the publication."""

SAMPLE = "sample"
"""Name of the document of the ids that the prior is learned from."""

_CODEBOOK = "codebook"
_DENOISER = "denoiser"
_FORMAT = 1
_FOREIGN = (
    *(ValueError, KeyError, TypeError, AttributeError),
    *(RecursionError, OverflowError, NotImplementedError),
)
"""What parsers raise for documents that dpindex did not write."""
_WIDER = {"|i1": "<i2", "<i2": "<i4"}
"""What integers are kept as: noise of codes that are added later may go beyond what is there."""
_CHUNK_BYTES = 1 << 20
"""Of a request: Milvus Lite takes 50 times as long for a row in one of eight megabytes."""
_ROW_BYTES = 256


@dataclass(frozen=True)
class Publication:
    """A published collection without its rows.

    Attributes
    ----------
    settings : Settings
    denoiser : Denoiser, optional
    dtype : str
        Type of the integers of a code.
    text_ids, exact_queries : bool
        Whether ids are strings, and whether there are vectors for exact queries.
    ids_are_rows : bool
        Whether the ids are 0, 1, 2, … in the order of the rows.
    schema : str, optional
        The payload's Arrow schema in base64.
    rows : int
        How many were to be published.
    digest : str
        SHA-256 of all that was to be published.
    done : int
        Rows that are published for certain.
    complete : bool
        Whether it may be searched.
    """

    settings: Settings
    denoiser: Denoiser | None
    dtype: str
    text_ids: bool
    exact_queries: bool
    ids_are_rows: bool
    schema: str | None
    rows: int
    digest: str
    done: int = 0
    complete: bool = False

    def check_types(self) -> None:
        """Refuse fields that nothing here has written, which would fail later and elsewhere."""
        kinds: dict[type, list[object]] = {
            str: [self.dtype, self.digest, "" if self.schema is None else self.schema],
            bool: [self.text_ids, self.exact_queries, self.ids_are_rows, self.complete],
            int: [self.rows, self.done],
        }
        for kind, values in kinds.items():
            if any(type(value) is not kind for value in values):
                raise TypeError
        if np.dtype(self.dtype).kind not in "iu" or min(self.rows, self.done) < 0:
            raise ValueError
        _ = self.layout  # reads the schema of the payload

    @cached_property
    def ranking(self) -> Ranking:
        """The ranking that turns codes into vectors to rank by, and queries likewise."""
        settings = self.settings
        if self.denoiser is not None:
            return DenoisedVectors(self.denoiser, settings.metric, EXACT)
        return kind_of(settings.spec).ranking(settings.spec.code_length, settings.metric, EXACT)

    @property
    def by_symbol(self) -> bool:
        """True if rows are found by the symbols that their codes are."""
        return self.settings.spec.format_type.symbolic

    @property
    def by_hamming(self) -> bool:
        """True if private queries are compared with stored codes by their Hamming distance."""
        return self.denoiser is None and self.settings.spec.format_type.hamming

    @property
    def layout(self) -> Layout:
        """The columns of the collection."""
        spec = self.settings.spec
        code_bytes = spec.format.width * np.dtype(self.dtype).itemsize
        has_vectors = self.exact_queries or not self.by_hamming
        schema = None
        if self.schema is not None:
            import pyarrow as pa

            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))
            refuse_unprintable(schema.names, "payload column")
        vector_width = 0
        if has_vectors:
            vector_width = spec.code_length
        if self.by_symbol:
            code_bytes = 0
            vector_width = 0
        metric: Literal["ip", "l2"] = "ip"
        if self.settings.metric == "l2":
            metric = "l2"
        return Layout(
            text_ids=self.text_ids,
            code_bytes=code_bytes,
            vector_width=vector_width,
            metric=metric,
            schema=schema,
        )

    def ranked(self, vectors: AnyArray) -> Singles:
        """Vectors of codes or queries of which inner products, or distances, are the scores."""
        single = np.ascontiguousarray(vectors, np.float32)
        if self.by_hamming or self.denoiser or self.settings.metric != "cosine":
            return single
        return unit(single)

    def rows_of(self, codes: Codes, ids: AnyArray, payload: Any) -> Rows:
        """Rows of a collection with this layout."""
        if self.by_symbol:
            return Rows(ids, codes.stored[:, 0], payload=payload)
        stored = codes.format.concatenate([codes.stored])  # as narrow as they can be
        if not np.can_cast(stored.dtype, self.dtype):
            raise InputError("these codes have larger numbers than the published index can hold.")
        packed = np.ascontiguousarray(stored.astype(self.dtype)).view(np.uint8)
        vectors = None
        if self.layout.vector_width:
            items: AnyArray = codes.to_float()
            if not self.by_hamming:
                items = self.ranking.items(codes)
            vectors = self.ranked(items)
        return Rows(ids, packed, vectors, payload)

    def codes_of(self, rows: Rows) -> Codes:
        """The codes of rows that came out of the collection; InputError if they are none."""
        format_ = self.settings.spec.format
        if self.by_symbol:
            stored = rows.codes.astype(np.uint16).reshape(-1, 1)
        else:
            stored = np.ascontiguousarray(rows.codes).view(self.dtype)
        if fault := format_.fault(stored):
            raise InputError(f"the collection is damaged: codes in it {fault}; publish it anew.")
        return format_.codes(stored)

    def to_bytes(self) -> bytes:
        """Return it as JSON; denoiser and codewords are documents of their own."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        facts["format"] = _FORMAT
        facts["settings"] = self.settings.to_dict()
        facts["denoiser"] = self.denoiser is not None
        facts["fingerprint"] = self.settings.spec.fingerprint.hex()
        return json.dumps(facts).encode()

    @classmethod
    def read(cls, database: Database) -> Publication | None:
        """Read the documents of a collection; None if there is no publication.

        Raises
        ------
        InputError
            If they contradict themselves or were written by a later version.
        """
        if (text := database.read(FACTS)) is None:
            return None
        try:
            facts: dict[str, Any] = json.loads(text)
            if facts.pop("format") != _FORMAT:
                raise InputError("it was published by another version of dpindex.")
            settings = Settings.from_dict(facts.pop("settings"))
            fingerprint = facts.pop("fingerprint")
            if (book := database.read(_CODEBOOK)) is not None:
                spec = settings.spec.with_codebook(Codebook.from_bytes(book))
                settings = replace(settings, spec=spec)
            if settings.spec.fingerprint.hex() != fingerprint:
                raise InputError("its spec does not have the fingerprint of its codes.")
            denoiser = None
            if facts.pop("denoiser"):
                denoiser = denoiser_from_bytes(database.read(_DENOISER) or b"", settings.spec)
            publication = cls(settings, denoiser, **facts)
            publication.check_types()
            return publication
        except _FOREIGN as error:
            reason = "a field is missing or wrong."
            if isinstance(error, InputError):
                reason = str(error)
            raise InputError(f"the published collection cannot be read: {reason}") from None


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
    What was interrupted is gone on with by the same call.

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
    with (
        index._lock.read(),
        naming(f"{os.fspath(uri)}, collection {collection}"),
        closing(open_database(uri, collection, new=True)) as database,
    ):
        _write(
            database,
            index._settings,
            index._store,
            index._denoiser,
            exact_queries=exact_queries,
            progress=progress,
        )


def _write(
    database: Database,
    settings: Settings,
    store: CodeStore,
    denoiser: Denoiser | None,
    *,
    exact_queries: bool,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Write codes, ids and payload to a collection; what was cut off is gone on with.

    Raises
    ------
    InputError
        If the store is empty, or the collection is there and not an unfinished publication.
    """
    if len(store) == 0:
        raise InputError("the index is empty: there is nothing to publish.")
    schema = None
    if store.payload.table is not None:
        schema = base64.b64encode(store.payload.table.schema.serialize()).decode()
    dtype = store.take(slice(0)).stored.dtype.str
    publication = Publication(
        settings=settings,
        denoiser=denoiser,
        dtype=_WIDER.get(dtype, dtype),
        text_ids=store.ids_of(slice(1)).dtype.kind == "U",
        exact_queries=exact_queries,
        ids_are_rows=np.array_equal(store.ids, np.arange(len(store))),
        schema=schema,
        rows=len(store),
        digest="",
    )
    publication = replace(publication, digest=_digest(publication, store))
    done = _begin(database, publication, store)
    report = progress or no_progress
    for number, rows in enumerate(_chunks(publication, done)):
        part = publication.rows_of(store.take(rows), store.ids_of(rows), store.payload.take(rows))
        database.insert(part, replace=number == 0 and done > 0)
        done += len(part.ids)
        database.write(FACTS, replace(publication, done=done).to_bytes())
        report(done, len(store))
    database.finish()
    if (count := database.count()) != len(store):
        raise InputError(
            f"the collection has {count} rows in place of {len(store)}: something else writes it; "
            f"drop it and publish again."
        )
    database.write(FACTS, replace(publication, done=done, complete=True).to_bytes())


def _begin(database: Database, publication: Publication, store: CodeStore) -> int:
    """Make the collection, or resume one; return how many rows it has for certain."""
    if database.exists():
        earlier = Publication.read(database)
        if earlier is None:
            raise InputError("there is a collection of that name, which is none of dpindex's.")
        if earlier.complete:
            raise InputError(
                "there is a published index of that name; name another collection, or drop that "
                "one."
            )
        if earlier.done and earlier.digest == publication.digest:
            database.open(publication.layout)
            return earlier.done
    database.drop()
    book = publication.settings.spec.codebook
    if book is not None:
        database.write(_CODEBOOK, book.to_bytes())
    if publication.denoiser is not None:
        database.write(_DENOISER, denoiser_to_bytes(publication.denoiser))
    sample = spaced(len(store), SAMPLE_ROWS)
    database.write(SAMPLE, ids_to_bytes(store.ids_of(sample)))
    database.write(FACTS, publication.to_bytes())
    database.create(publication.layout)
    return 0


def _chunks(publication: Publication, start: int) -> Iterator[slice]:
    layout = publication.layout
    row_bytes = layout.code_bytes + 4 * layout.vector_width + _ROW_BYTES
    return row_blocks(publication.rows, _CHUNK_BYTES // row_bytes, start)


def _digest(publication: Publication, store: CodeStore) -> str:
    """Return the SHA-256 of everything that is published."""
    digest = hashlib.sha256(publication.to_bytes())
    if publication.denoiser is not None:
        digest.update(denoiser_to_bytes(publication.denoiser))
    for rows in _chunks(publication, 0):
        digest.update(store.take(rows).stored.tobytes())
        digest.update(ids_to_bytes(store.ids_of(rows)))
        table = store.payload.take(rows)
        if table is not None:
            digest.update(json.dumps(table.to_pylist(), default=str).encode())
    return digest.hexdigest()


def stated_columns(schema: Any) -> Mapping[str, str]:
    """Return the type of each payload column by its name, in Arrow's words."""
    if schema is None:
        return {}
    return {field.name: str(field.type) for field in schema}


_MAX_GROUP = 1024
_REQUEST_ROWS = 1000
"""A request takes about as long as reading so many rows."""


def nearest_symbols(
    database: Database,
    similarities: AnyArray,
    count: int,
    where: Condition | None,
    rows_of_symbol: float,
) -> list[tuple[AnyArray, Doubles]]:
    """Return ids and scores of the rows whose symbols are nearest to each query, best first.

    Parameters
    ----------
    database : Database
    similarities : array of shape (queries, symbols)
        Score of each symbol.
    count : int
        Rows of each query, [1, max_found of the database].
    where : Condition, optional
        Holds for the rows that are searched.
    rows_of_symbol : float
        Rows that a symbol has on average, as far as is known.
    """
    order = np.argsort(-similarities, axis=1, kind="stable")
    symbols = _Symbols(database, count, where, rows_of_symbol)
    used = np.zeros(len(order), int)
    pending = list(range(len(order)))
    while pending:
        unread = set()
        for query in pending:
            missing = count - symbols.rows_of(order[query, : used[query]])
            used[query] += symbols.expected(missing)
            unread.update(order[query, : used[query]].tolist())
        symbols.read(unread)
        pending = [
            query
            for query in pending
            if used[query] < order.shape[1] and symbols.rows_of(order[query, : used[query]]) < count
        ]
    return [
        symbols.found(nearest[:last], scores)
        for nearest, last, scores in zip(order, used, similarities, strict=True)
    ]


class _Symbols:
    """Ids under the symbols that were read: of each, up to as many as one query takes."""

    def __init__(
        self, database: Database, count: int, where: Condition | None, rows_of_symbol: float
    ) -> None:
        self._database = database
        self._count = count
        self._where = where
        self._rows_of_symbol = rows_of_symbol
        self._ids: dict[int, AnyArray] = {}
        self._rows = 0

    def expected(self, missing: int) -> int:
        """Return how many symbols are likely to have the rows that are missing."""
        return math.ceil(missing / max(self._rows_of_symbol, 1 / missing))

    def rows_of(self, symbols: AnyArray) -> int:
        """Return how many rows symbols that were read have."""
        return sum(len(self._ids[symbol]) for symbol in symbols.tolist())

    def found(self, symbols: AnyArray, scores: AnyArray) -> tuple[AnyArray, Doubles]:
        """Return ids of symbols in their order, and their scores, up to the count."""
        ids = [self._ids[symbol] for symbol in symbols.tolist()]
        repeated = np.repeat(scores[symbols].astype(np.float64), [len(names) for names in ids])
        return np.concatenate(ids)[: self._count], repeated[: self._count]

    def read(self, symbols: Iterable[int]) -> None:
        """Read those that were not read, several at a time."""
        unread = sorted(set(symbols) - self._ids.keys())
        size = 1
        if self._rows_of_symbol < self._count + _REQUEST_ROWS:
            half = self._database.max_found / 2
            size = int(half / max(self._rows_of_symbol, half / _MAX_GROUP))
        for group in row_blocks(len(unread), size):
            self._read_group(unread[group])
        self._rows_of_symbol = self._rows / len(self._ids)

    def _read_group(self, symbols: list[int]) -> None:
        condition = self._database.dialect.field("code").isin(symbols)
        if self._where is not None:
            condition = condition & self._where
        limit = self._database.max_found
        if len(symbols) == 1:  # the rows of one symbol are equal
            limit = self._count
        rows = self._database.select(condition.true, limit)
        if len(rows.ids) == limit and len(symbols) > 1:  # some may be missing
            middle = len(symbols) // 2
            self._read_group(symbols[:middle])
            self._read_group(symbols[middle:])
            return
        order = np.argsort(rows.codes, kind="stable")
        cuts = np.searchsorted(rows.codes[order], symbols[1:])
        self._rows += len(rows.ids)
        for symbol, ids in zip(symbols, np.split(rows.ids[order], cuts), strict=True):
            self._ids[symbol] = ids


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


def open_published(uri: str | os.PathLike[str], collection: str) -> PublishedIndex:
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
