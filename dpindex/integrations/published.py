"""An index in a vector database: how it is published there, and searched where it is.

Codes, ids, payload, spec, codebook and denoiser are published: what an index directory holds, and
nothing of a ledger or a journal. Vectors to rank by are functions of codes and public parameters.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_type_hints

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Doubles,
    Singles,
    checked_fields,
    id_array,
    json_value,
    other_kind_of_ids,
    row_blocks,
    unit,
)
from dpindex.base.display import no_progress
from dpindex.base.errors import InputError, naming, refuse_unprintable
from dpindex.denoise import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.index.backends import EXACT
from dpindex.index.filters import Filter
from dpindex.index.hits import Hits
from dpindex.index.kinds import (
    DenoisedVectors,
    PackedSigns,
    Ranking,
    Symbols,
    new_ranking,
    posterior_of,
)
from dpindex.index.private_index import PrivateIndex
from dpindex.index.search import Found, FoundCodes, Searchable
from dpindex.integrations.database import Database, Layout, Rows
from dpindex.integrations.lance import Lance
from dpindex.integrations.milvus import Milvus
from dpindex.integrations.postgres import Postgres
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.design import Design
from dpindex.mechanism.parameters import Codebook
from dpindex.mechanism.spec import Spec
from dpindex.similarity.calibration import SimilarityCalibration, calibration_from_bytes
from dpindex.similarity.similarity import PrivateQueries, Queries
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.manifest import Settings
from dpindex.storage.payload import Payload, Table

_FORMAT = 2
_WIDER = {"|i1": "<i2", "<i2": "<i4"}
"""What integers are kept as: noise of codes that are added later may go beyond what is there."""
_DTYPES = ("|u1", "<u2", "<i2", "<i4", "<i8")
_CHUNK_BYTES = 1 << 20
"""Of a request: Milvus Lite takes 50 times as long for a row in one of eight megabytes."""
_ROW_BYTES = 256
_FETCHED_BYTES = 1 << 24
_MAX_GROUP = 1024
_MILVUS = {"milvus": "http", "milvus+tls": "https"}
_POSTGRES = ("postgresql", "postgres")
_LOCAL: dict[str, type[Milvus | Lance]] = {".db": Milvus, ".lance": Lance}
_NAME = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)


@dataclass(frozen=True)
class Facts:
    """The document ``facts`` of a publication, as JSON.

    Attributes
    ----------
    format : int
    fingerprint : str
        Of the spec, with its codebook.
    metric, query_epsilon, shuffle_delta
        Settings of the index.
    denoised : bool
        Whether there is a document ``denoiser``.
    dtype : str
        Type of the integers of a code.
    text_ids, exact_queries : bool
        Whether ids are strings, and whether there are vectors for exact queries.
    ids_are_rows : bool
        Whether the ids are 0, 1, 2, … in the order of the rows.
    rows : int
        How many were to be published.
    digest : str
        SHA-256 of all that was to be published.
    done : int
        Rows that are published for certain.
    complete : bool
        Whether it may be searched.
    """

    format: int
    fingerprint: str
    metric: str
    query_epsilon: float | None
    shuffle_delta: float | None
    denoised: bool
    dtype: str
    text_ids: bool
    exact_queries: bool
    ids_are_rows: bool
    rows: int
    digest: str = ""
    done: int = 0
    complete: bool = False

    @classmethod
    def from_bytes(cls, text: bytes) -> Facts:
        """Parse and check them; InputError for anything but what :meth:`to_bytes` writes."""
        data = json_value(text, "the description")
        if isinstance(data, dict) and data.get("format") != _FORMAT:
            raise InputError("it was published by another version of dpindex.")
        facts = cls(**checked_fields(data, cls, "the description"))
        for name, kind in get_type_hints(cls).items():
            if not isinstance(getattr(facts, name), kind):
                raise InputError(f"the description has a wrong {name}.")
        if facts.dtype not in _DTYPES or min(facts.rows, facts.done) < 0:
            raise InputError("the description contradicts itself.")
        return facts

    def to_bytes(self) -> bytes:
        """JSON."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Publication:
    """A published collection without its rows.

    Attributes
    ----------
    facts : Facts
    settings : Settings
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    schema : pyarrow.Schema, optional
        Of the payload.
    """

    facts: Facts
    settings: Settings
    denoiser: Denoiser | None
    calibration: SimilarityCalibration | None
    schema: Any

    @classmethod
    def of(cls, facts: Facts, read: Callable[[str], bytes | None]) -> Publication:
        """Make it of its documents; InputError if they contradict each other."""
        spec = Spec.from_json((read("spec") or b"").decode("utf-8", "replace"))
        book = read("codebook")
        if book is not None:
            spec = spec.with_public(Codebook.from_bytes(book))
        matrix = read("design")
        if matrix is not None:
            spec = spec.with_public(Design.from_bytes(matrix))
        if spec.fingerprint.hex() != facts.fingerprint:
            raise InputError("its spec does not have the fingerprint of its codes.")
        denoiser = None
        if facts.denoised:
            denoiser = denoiser_from_bytes(read("denoiser") or b"", spec)
        learned = read("calibration")
        calibration = None if learned is None else calibration_from_bytes(learned)
        metric: Any = facts.metric  # which the settings check
        settings = Settings(spec, metric, EXACT, facts.query_epsilon, facts.shuffle_delta)
        return cls(facts, settings, denoiser, calibration, _schema_from(read("schema")))

    @classmethod
    def read(cls, database: Database) -> Publication | None:
        """Read the documents of a collection; None if there is no publication.

        Raises
        ------
        InputError
            If they contradict themselves or were written by a later version.
        """
        text = database.read("facts")
        if text is None:
            return None
        with naming("the published collection cannot be read"):
            return cls.of(Facts.from_bytes(text), database.read)

    @cached_property
    def ranking(self) -> Ranking:
        """The ranking that turns codes into vectors to rank by, and queries likewise."""
        return new_ranking(replace(self.settings, index_type=EXACT), self.denoiser)

    @property
    def by_symbol(self) -> bool:
        """True if rows are found by the symbols that their codes are."""
        return isinstance(self.ranking, Symbols)

    @property
    def by_hamming(self) -> bool:
        """True if private queries are compared with stored codes by their Hamming distance."""
        return isinstance(self.ranking, PackedSigns)

    @cached_property
    def layout(self) -> Layout:
        """The columns of the collection."""
        spec = self.settings.spec
        code_bytes = vector_width = 0
        if not self.by_symbol:
            code_bytes = spec.format.width * np.dtype(self.facts.dtype).itemsize
            if self.facts.exact_queries or not self.by_hamming:
                vector_width = self.ranking.width
        metric: Literal["ip", "l2"] = "ip"
        if self.settings.metric == "l2":
            metric = "l2"
        return Layout(self.facts.text_ids, code_bytes, vector_width, metric, self.schema)

    def ranked(self, vectors: AnyArray) -> Singles:
        """Vectors of codes or queries of which inner products, or distances, are the scores."""
        single = np.ascontiguousarray(vectors, np.float32)
        scaled = isinstance(self.ranking, PackedSigns | DenoisedVectors)
        if scaled or self.settings.metric != "cosine":
            return single
        return unit(single)

    def rows_of(self, codes: Codes, ids: AnyArray, payload: Table) -> Rows:
        """Rows of a collection with this layout."""
        if self.by_symbol:
            return Rows(ids, codes.stored[:, 0], payload=payload)
        stored = codes.format.concatenate([codes.stored])  # as narrow as they can be
        if not np.can_cast(stored.dtype, self.facts.dtype):
            raise InputError("these codes have larger numbers than the published index can hold.")
        packed = np.ascontiguousarray(stored.astype(self.facts.dtype)).view(np.uint8)
        vectors = None
        if self.layout.vector_width:
            items: AnyArray = codes.to_float() if self.by_hamming else self.ranking.items(codes)
            vectors = self.ranked(items)
        return Rows(ids, packed, vectors, payload)

    def codes_of(self, rows: Rows) -> Codes:
        """The codes of rows that came out of the collection; InputError if they are none."""
        format_ = self.settings.spec.format
        if self.by_symbol:
            stored = rows.codes.astype(np.uint16).reshape(-1, 1)
        else:
            stored = np.ascontiguousarray(rows.codes).view(self.facts.dtype)
        if fault := format_.fault(stored):
            raise InputError(f"the collection is damaged: codes in it {fault}; publish it anew.")
        return format_.codes(stored)


def _schema_from(data: bytes | None) -> Any:
    """The schema of a payload; InputError for bytes that are none."""
    if data is None:
        return None
    import pyarrow as pa

    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError):
        raise InputError("its payload has no schema.") from None
    refuse_unprintable(schema.names, "payload column")
    return schema


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
    What was interrupted is gone on with by the same call. Rows that are added meanwhile are left
    out.

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
        naming(f"{os.fspath(uri)}, collection {collection}"),
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
    facts = Facts(
        format=_FORMAT,
        fingerprint=index.spec.fingerprint.hex(),
        metric=index.metric,
        query_epsilon=index.query_epsilon,
        shuffle_delta=index.shuffle_delta,
        denoised=index.denoiser is not None,
        dtype=_WIDER.get(dtype, dtype),
        text_ids=ids.dtype.kind == "U",
        exact_queries=exact_queries,
        ids_are_rows=np.array_equal(ids, np.arange(len(ids))),
        rows=len(ids),
    )
    documents = _documents(index)
    layout = Publication.of(facts, documents.get).layout
    row_bytes = layout.code_bytes + 4 * layout.vector_width + _ROW_BYTES

    def chunks(start: int) -> Iterator[tuple[slice, Table]]:
        for rows in row_blocks(len(ids), _CHUNK_BYTES // row_bytes, start):
            yield rows, None if payload is None else payload.slice(start, rows.stop - start)
            start = rows.stop

    digest = hashlib.sha256(facts.to_bytes() + b"".join(documents.values()))
    for rows, table in chunks(0):
        digest.update(codes.take(rows).stored.tobytes() + ids_to_bytes(ids[rows]))
        if table is not None:
            digest.update(json.dumps(table.to_pylist(), default=str).encode())
    facts = replace(facts, digest=digest.hexdigest())
    publication = Publication.of(facts, documents.get)
    done = _begin(database, publication, documents)
    replaced = done > 0  # what an interrupted call wrote after its last note is there already
    for rows, table in chunks(done):
        database.insert(publication.rows_of(codes.take(rows), ids[rows], table), replace=replaced)
        replaced = False
        database.write("facts", replace(facts, done=rows.stop).to_bytes())
        progress(rows.stop, len(ids))
    database.finish()
    if (count := database.count()) != len(ids):
        raise InputError(
            f"the collection has {count} rows in place of {len(ids)}: something else writes it; "
            f"drop it and publish again."
        )
    database.write("facts", replace(facts, done=len(ids), complete=True).to_bytes())


def _documents(index: PrivateIndex) -> dict[str, bytes]:
    """What is published beside the rows."""
    documents = {"spec": index.spec.to_json().encode()}
    if index.spec.codebook is not None:
        documents["codebook"] = index.spec.codebook.to_bytes()
    if index.spec.design is not None:
        documents["design"] = index.spec.design.to_bytes()
    if index.denoiser is not None:
        documents["denoiser"] = denoiser_to_bytes(index.denoiser)
    if index.calibration is not None:
        documents["calibration"] = index.calibration.to_bytes()
    if index.payload is not None:
        documents["schema"] = index.payload.schema.serialize().to_pybytes()
    return documents


def _begin(database: Database, publication: Publication, documents: dict[str, bytes]) -> int:
    """Make the collection, or resume one; return how many rows it has for certain."""
    if database.exists():
        earlier = Publication.read(database)
        if earlier is None:
            raise InputError("there is a collection of that name, which is none of dpindex's.")
        if earlier.facts.complete:
            raise InputError(
                "there is a published index of that name; name another collection, or drop that "
                "one."
            )
        if earlier.facts.done and earlier.facts.digest == publication.facts.digest:
            database.open(publication.layout)
            return earlier.facts.done
    database.drop()
    for name, data in documents.items():
        database.write(name, data)
    database.write("facts", publication.facts.to_bytes())
    database.create(publication.layout)
    return 0


class PublishedIndex(Searchable):
    """A published index; made by :func:`dpindex.open`.

    It is searched as the index itself is. Rankings are those of a flat search, whatever index type
    the index had. Similarities and errors are computed here, from the codes of the rows that the
    database found, and cosines under the distribution of cosines of the index that was published.

    A ``filter`` is a list of ids, or a condition in the database's own language, which is passed on
    as it is: ``"year >= 2000 and title is not null"`` in SQL. Never pass on what a stranger wrote.

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
    >>> index.search(queries, k=10, query="private", filter="year >= 2020")  # doctest: +SKIP
    """

    is_remote: ClassVar[bool] = True

    def __init__(self, database: Database, publication: Publication) -> None:
        super().__init__(publication.settings)
        self._database = database
        self._publication = publication
        self._layout = publication.layout
        self.denoiser: Final[Denoiser | None] = publication.denoiser
        self._posterior = posterior_of(
            publication.settings, publication.calibration, publication.denoiser
        )
        self.id_type: Final = str if publication.facts.text_ids else int
        self._no_payload: Table = None
        if publication.schema is not None:
            self._no_payload = publication.schema.empty_table()
        self.payload_columns: Final = Payload(self._no_payload).columns
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
        if table is None and self._no_payload is not None:  # nulls
            import pyarrow as pa

            schema = self._no_payload.schema
            nulls = [pa.nulls(len(codes), field.type) for field in schema]
            table = pa.table(nulls, schema=schema)
        self._database.insert(self._publication.rows_of(codes, names, table))

    @contextmanager
    def _selected(self, filter_: Filter, count: int) -> Iterator[str | None]:
        most = self._database.max_found
        if count > most:
            raise InputError(f"k and candidates must be at most {most} here, not {count}.")
        yield self._condition(filter_)

    def _in_range(self, queries: Queries, threshold: float, filter_: Filter) -> list[Hits]:
        raise InputError(
            "a published index is searched by range among candidates only: say who orders them.",
            field="rerank",
        )

    def _find(self, queries: Queries, count: int, selection: str | None) -> Found:
        neighbours = self._neighbours(queries, count, selection)
        width = min(len(ids) for ids, _ in neighbours)
        if width == 0 and selection is None:
            raise InputError("the published index is empty.")
        ids = np.stack([ids[:width] for ids, _ in neighbours])
        scores = np.stack([scores[:width] for _, scores in neighbours])
        facts = self._publication.facts
        return Found(ids, scores, ids if facts.ids_are_rows else None, facts.rows)

    def _neighbours(
        self, queries: Queries, k: int, where: str | None
    ) -> list[tuple[AnyArray, Doubles]]:
        """Return ids and scores of each query's neighbours, best first."""
        publication = self._publication
        items = publication.ranking.asked(queries)
        if publication.by_symbol:
            rows_of_symbol = publication.facts.rows / items.shape[1]
            return nearest_symbols(self._database, items, k, where, rows_of_symbol)
        if publication.by_hamming and isinstance(queries, PrivateQueries):
            ids, scores = self._database.search(items, k, where)
            length = self.spec.code_length
            scores = [length + 2.0 * negative for negative in scores]
            return list(zip(ids, scores, strict=True))
        if not self._layout.vector_width:
            raise InputError(
                "this index was published for private queries alone: ask with query='private'."
            )
        # In a range where single precision is good, whatever the units.
        scale = 1.0
        if publication.by_hamming:
            scale = float(np.abs(items).max()) or 1.0
        ids, scores = self._database.search(publication.ranked(items / scale), k, where)
        return [(names, scale * values) for names, values in zip(ids, scores, strict=True)]

    def _codes_of(self, found: Found) -> FoundCodes:
        if not found.ids.size:
            return FoundCodes(
                lambda columns: self.spec.format.codes(np.empty((0, 1), np.int8)), self._no_payload
            )
        names, inverse = np.unique(found.ids, return_inverse=True)
        fetched = self._fetched(names, payload=True)
        codes = self._publication.codes_of(fetched)
        places = inverse.reshape(found.ids.shape)
        payload = fetched.payload
        if payload is not None:
            payload = payload.take(places.ravel())
        return FoundCodes(lambda columns: codes.take(places[:, columns].ravel()), payload)

    def _fetched(self, names: AnyArray, *, payload: bool = False) -> Rows:
        """Return the rows of ids, which are sorted and unique, in their order."""
        row_bytes = max(1, self._layout.code_bytes)
        size = min(self._database.max_found, _FETCHED_BYTES // row_bytes)
        parts = [
            self._database.select(self._among(names[rows].tolist()), size, payload=payload)
            for rows in row_blocks(len(names), size)
        ]
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
        return self._database.is_in("id", ids)

    def _ids(self, ids: Any) -> AnyArray:
        names = id_array(ids)
        if len(names) and (names.dtype.kind == "U") != self._layout.text_ids:
            raise other_kind_of_ids(self._layout.text_ids, "those that are looked up")
        return names

    def _condition(self, filter_: Filter) -> str | None:
        """Return a filter as a condition of the database."""
        if filter_ is None or isinstance(filter_, str):
            return filter_
        if callable(filter_) or isinstance(filter_, Mapping) or np.asarray(filter_).dtype == bool:
            raise InputError(
                "a published index is filtered by a list of ids, or by text in the language of "
                "its database such as 'year >= 2020'."
            )
        if isinstance(filter_, Set | range):
            filter_ = list(filter_)
        names = self._ids(filter_).tolist()
        if not names:
            return "id != id"
        return self._among(names)


def nearest_symbols(
    database: Database,
    similarities: AnyArray,
    count: int,
    where: str | None,
    rows_of_symbol: float,
) -> list[tuple[AnyArray, Doubles]]:
    """Return ids and scores of the rows whose symbols are nearest to each query, best first.

    Each symbol is read once, and several of them in one request.

    Parameters
    ----------
    database : Database
    similarities : array of shape (queries, symbols)
        Score of each symbol.
    count : int
        Rows of each query, [1, max_found of the database].
    where : str, optional
        Holds for the rows that are searched.
    rows_of_symbol : float
        Rows that a symbol has on average, as far as is known.
    """
    order = np.argsort(-similarities, axis=1, kind="stable")
    ids: dict[int, list[Any]] = {}
    used = np.zeros(len(order), int)

    def read(symbols: list[int]) -> None:
        condition = database.is_in("code", symbols)
        if where is not None:
            condition = f"({condition}) and ({where})"
        # The rows of one symbol are equal: so many of them are enough.
        limit = count if len(symbols) == 1 else database.max_found
        rows = database.select(condition, limit)
        if len(rows.ids) == limit and len(symbols) > 1:  # some may be missing
            middle = len(symbols) // 2
            read(symbols[:middle])
            read(symbols[middle:])
            return
        ids.update({symbol: [] for symbol in symbols})
        for name, symbol in zip(rows.ids.tolist(), rows.codes.tolist(), strict=True):
            ids[symbol].append(name)

    def missing(query: int) -> int:
        return count - sum(len(ids[symbol]) for symbol in order[query, : used[query]].tolist())

    pending = list(range(len(order)))
    while pending:
        for query in pending:  # as many symbols more as are likely to have the missing rows
            used[query] += math.ceil(missing(query) / max(rows_of_symbol, 1 / count))
        wanted = {symbol for q in pending for symbol in order[q, : used[q]].tolist()}
        unread = sorted(wanted - ids.keys())
        size = int(min(database.max_found / 2 / max(rows_of_symbol, 1e-9), _MAX_GROUP))
        for group in row_blocks(len(unread), size):
            read(unread[group])
        rows_of_symbol = sum(map(len, ids.values())) / len(ids)
        pending = [q for q in pending if used[q] < order.shape[1] and missing(q) > 0]
    found = []
    for nearest, last, scores in zip(order, used, similarities, strict=True):
        symbols = nearest[:last].tolist()
        names = [name for symbol in symbols for name in ids[symbol]][:count]
        repeated = np.repeat(scores[symbols], [len(ids[symbol]) for symbol in symbols])
        found.append((np.array(names), repeated[:count].astype(np.float64)))
    return found


def is_database_url(location: str | os.PathLike[str]) -> bool:
    """Whether a location is the address of a database, and no folder or object store.

    >>> is_database_url("milvus://localhost:19530"), is_database_url("s3://bucket/index")
    (True, False)
    """
    text = os.fspath(location)
    scheme, separator, _ = text.partition("://")
    if separator:
        return scheme in _MILVUS or scheme in _POSTGRES
    return Path(text).suffix in _LOCAL


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
    return _LOCAL[Path(place).suffix](place, collection)


def open_published(uri: str | os.PathLike[str], collection: str) -> PublishedIndex:
    """Open a published index, to be searched where it is: see :func:`dpindex.open`.

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
        if not publication.facts.complete:
            raise InputError("the publication is unfinished; run it again.")
        index = PublishedIndex(database, publication)
        opened.pop_all()  # it stays open
        return index
