"""Publishing an index into a vector database: what its documents are, its rows, and their order.

Codes, ids, payload, spec, codebook, design, denoiser and calibration are published: what an index
directory holds, and nothing of a ledger or a journal. Vectors to rank by are functions of codes and
public parameters.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Bytes,
    Doubles,
    Indices,
    Singles,
    Table,
    row_blocks,
    spaced,
    unit,
)
from dpindex.base.display import Progress, no_progress
from dpindex.base.errors import InputError, naming, refuse_unprintable
from dpindex.base.files import AnyPath, pack, unpack
from dpindex.base.ids import COLLECTION
from dpindex.base.tables import arrow
from dpindex.data.dataset import Dataset
from dpindex.data.stores import local_path
from dpindex.decode import decoder_of
from dpindex.decode.base import Decoder
from dpindex.decode.calibration import SimilarityCalibration, calibration_from_bytes
from dpindex.decode.denoiser import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.decode.signs import unlike_signs
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations.database import Database, Layout, code_bytes, open_database
from dpindex.mechanism.codes import Codes
from dpindex.mechanism.spec import Spec
from dpindex.storage.manifest import EXACT, Settings
from dpindex.storage.payload import Payload

MARK = "begun"
"""Name of the first document, which is empty: whose collection it is."""
WHOLE = "publication"
"""Name of the last document, a container of that kind: all that is published beside the rows."""
_DTYPES = ("|u1", "<u2", "<i2", "<i4", "<i8")
_WIDER = {"|i1": "<i2", "<i2": "<i4"}
"""Types that a database gets for integers: noise of codes that are added later may be larger."""
_STATED = {
    "dtype": str,
    "text_ids": bool,
    "exact_queries": bool,
    "ids_are_rows": bool,
    "rows": int,
    "vector_unit": float,
    "effort": int,
    "recall": float,
}
"""Fields of a publication that its document states as they are."""
_PART = 64_000
"""Characters of a document in one row: a string of Milvus has at most 65 535."""
_MOST_PARTS = (1 << 31) // _PART
"""Rows that a document may have: whoever keeps the database says how many there are."""
_PARTS = 100
"""Rows of a document that are read and written together."""
CHUNK_BYTES = 1 << 20
"""Bytes of one request: Milvus Lite takes 50 times as long for a row in a request of 8 MB."""
_ROW_BYTES = 256
_PROBES = 100
_NEIGHBOURS = 10
_EFFORTS = (64, 128, 256, 512, 1000)
_WANTED_RECALL = 0.98
_LEAST_ROWS = 1000
_MOST_UNLIKE = 0.3
"""Share of bits that flips make unlike in two codes of one vector: with more of them the nodes of a
graph have no near ones, and a search of it takes the time of a scan (``docs/engines.md``)."""


class Documents:
    """Named bytes, in a collection beside that of the rows: ``NAME_dpindex``.

    A document is base64 text in parts. Each is a row with the id ``name/number``, and their count
    as its code.

    Attributes
    ----------
    rows : Database
        The collection.
    """

    def __init__(self, database: Database) -> None:
        self.rows = database.beside("_dpindex")
        self._layout = Layout(
            text_ids=True,
            code_bytes=0,
            vector_width=0,
            metric="ip",
            schema=arrow().schema([("data", arrow().string())]),
        )

    def open(self) -> bool:
        """Whether there are any; a collection without documents counts as one."""
        is_there = self.rows.exists()
        if is_there:
            self.rows.open(self._layout)
        return is_there

    def begin(self) -> None:
        """Make the collection anew, without documents."""
        self.rows.drop()
        self.rows.create(self._layout)

    def read(self, name: str) -> bytes | None:
        """A document; None if it is not whole or not there. InputError if it is damaged."""
        first = self._parts(name, range(1))
        if first is None:
            return None
        ((text, count),) = first
        texts = [text]
        damaged = InputError(f"the document {name} is damaged; publish the index anew.")
        if not 1 <= count <= _MOST_PARTS:
            raise damaged
        for numbers in row_blocks(count, _PARTS, start=1):
            parts = self._parts(name, range(numbers.start, numbers.stop))
            if parts is None:
                return None
            texts += [text for text, _ in parts]
        try:
            if max(map(len, texts)) > _PART:
                raise damaged
            return base64.b64decode("".join(texts), validate=True)
        except (ValueError, TypeError):
            raise damaged from None

    def _parts(self, name: str, numbers: range) -> list[tuple[Any, int]] | None:
        """Some parts of a document, each with the number of all; None unless they are there."""
        ids = [f"{name}/{number}" for number in numbers]
        condition = self.rows.is_in("id", ids)
        rows = self.rows.select(condition, len(ids), ["data"])
        parts = {row["id"]: (row["data"], row["code"]) for row in rows.to_pylist()}
        if parts.keys() != set(ids):
            return None
        return [parts[id] for id in ids]

    def write(self, name: str, data: bytes) -> None:
        """Keep a document under a name that none has."""
        text = base64.b64encode(data).decode()
        parts = [text[cut] for cut in row_blocks(max(1, len(text)), _PART)]
        count = len(parts)
        ids = [f"{name}/{number}" for number in range(count)]
        counts = [count] * count
        rows = self._layout.table({"id": ids, "code": counts, "data": parts})
        for cut in row_blocks(count, _PARTS):
            self.rows.insert(rows.slice(cut.start, _PARTS))


@dataclass(frozen=True)
class Publication:
    """A published collection without its rows.

    Attributes
    ----------
    settings : Settings
    dtype : str
        Type of the integers of a code.
    text_ids, exact_queries : bool
        Whether ids are strings, and whether there are vectors for exact queries.
    ids_are_rows : bool
        Whether the ids are 0, 1, 2, … in the order of the rows.
    rows : int
        How many were published.
    vector_unit : float
        Vectors are kept in units of this power of two, near their largest number: products in
        single precision then neither overflow nor vanish.
    effort : int
        Nodes of the database's graph of bits that a search visits; 0 without a graph.
    recall : float
        Share of the ten nearest by a scan that it finds then; 1 without a graph.
    denoiser : Denoiser, optional
    calibration : SimilarityCalibration, optional
    schema : pyarrow.Schema, optional
        Of the payload.
    """

    settings: Settings
    dtype: str
    text_ids: bool
    exact_queries: bool
    ids_are_rows: bool
    rows: int
    vector_unit: float = 1.0
    effort: int = 0
    recall: float = 1.0
    denoiser: Denoiser | None = None
    calibration: SimilarityCalibration | None = None
    schema: Any = None

    @classmethod
    def of(
        cls, index: PrivateIndex, codes: Codes, ids: AnyArray, exact_queries: bool
    ) -> Publication:
        """What is published of an index that has these rows."""
        dtype = codes.stored.dtype.str
        publication = cls(
            Settings(index.spec, index.metric, EXACT, index.query_epsilon),
            dtype=_WIDER.get(dtype, dtype),
            text_ids=ids.dtype.kind == "U",
            exact_queries=exact_queries,
            ids_are_rows=np.array_equal(ids, np.arange(len(ids))),
            rows=len(ids),
            denoiser=index.denoiser,
            calibration=index.calibration,
            schema=None if index.payload is None else index.payload.schema,
        )
        return publication.in_unit_of(codes)

    def in_unit_of(self, codes: Codes) -> Publication:
        """This publication with the unit in which the vectors of these codes are kept."""
        if not self.layout.vector_width or self.has_unit_vectors:
            return self
        largest = 0.0
        for rows in row_blocks(len(codes), CHUNK_BYTES // self.layout.vector_width):
            items = self.decoder.vectors(codes.take(rows))
            largest = max(largest, float(np.abs(items).max()))
        return replace(self, vector_unit=float(power_of_two(largest)))

    def to_bytes(self) -> bytes:
        """A container, in which everything but settings and numbers is an array of bytes."""
        parts: dict[str, bytes] = {}
        if (part := self.settings.spec.public) is not None:
            parts[part.kind] = part.to_bytes()
        if self.denoiser is not None:
            parts["denoiser"] = denoiser_to_bytes(self.denoiser)
        if self.calibration is not None:
            parts["calibration"] = self.calibration.to_bytes()
        if self.schema is not None:
            parts["schema"] = self.schema.serialize().to_pybytes()
        facts = {name: getattr(self, name) for name in _STATED}
        facts["settings"] = self.settings.to_dict()
        arrays = {name: np.frombuffer(data, np.uint8) for name, data in parts.items()}
        return pack(WHOLE, facts, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Publication:
        """The inverse of :meth:`to_bytes`; InputError for anything else."""
        facts, arrays = unpack(data, WHOLE)
        parts = {name: array.tobytes() for name, array in arrays.items()}
        try:
            settings = Settings.from_dict(facts["settings"])
            spec = settings.spec
            if spec.public is not None:
                part = spec.public.from_bytes(parts[spec.public.kind])
                settings = replace(settings, spec=spec.with_public(part))
        except (KeyError, TypeError, AttributeError):
            raise InputError("its settings are damaged.") from None
        for name, kind in _STATED.items():
            if type(facts.get(name)) is not kind:
                raise InputError(f"it states a wrong {name}.")
        stated = {name: facts[name] for name in _STATED}
        if "denoiser" in parts:
            stated["denoiser"] = denoiser_from_bytes(parts["denoiser"], settings.spec)
        if "calibration" in parts:
            stated["calibration"] = calibration_from_bytes(parts["calibration"])
        if "schema" in parts:
            stated["schema"] = _schema_from(parts["schema"])
        made = cls(settings, **stated)
        wrong_unit = made.vector_unit != power_of_two(made.vector_unit)
        wrong_graph = made.effort not in (0, *_EFFORTS) or not 0 <= made.recall <= 1
        wrong_facts = made.dtype not in _DTYPES or made.rows < 0 or settings.index_type != EXACT
        if wrong_facts or wrong_unit or wrong_graph:
            raise InputError("it contradicts itself.")
        return made

    @classmethod
    def read(cls, database: Database) -> Publication:
        """Read what describes a collection.

        Raises
        ------
        InputError
            If there is no publication or an unfinished one, and if it contradicts itself, was
            changed, or was written by another version.
        """
        documents = Documents(database)
        if documents.open():
            with naming("the published collection cannot be read"):
                data = documents.read(WHOLE)
                if data is not None:
                    return cls.from_bytes(data)
                if documents.read(MARK) is not None:
                    raise InputError("the publication is unfinished; run it again.")
        raise InputError("there is no published index; dpindex publish makes one.")

    @cached_property
    def decoder(self) -> Decoder:
        """What codes and queries are ranked by."""
        return decoder_of(self.settings.spec, self.settings.metric, self.denoiser)

    @cached_property
    def layout(self) -> Layout:
        """The columns of the collection."""
        spec = self.settings.spec
        code_bytes = vector_width = 0
        if not self.decoder.by_symbol:
            code_bytes = spec.format.width * np.dtype(self.dtype).itemsize
            if self.exact_queries or not self.decoder.by_hamming:
                vector_width = self.decoder.width
        metric: Literal["ip", "l2"] = "ip"
        if self.settings.metric == "l2":
            metric = "l2"
        facts = {"spec": spec.to_json(), "guarantee": str(spec.guarantee)}
        return Layout(self.text_ids, code_bytes, vector_width, metric, self.schema, facts)

    @property
    def has_unit_vectors(self) -> bool:
        """True if vectors and queries are brought to norm 1."""
        return self.decoder.ranked_by == "cosine"

    def asked(self, items: AnyArray) -> tuple[Singles, Doubles]:
        """Vectors that the database compares, and the unit of each one's scores, shape (nq,).

        Parameters
        ----------
        items : array, shape (nq, width)
            Queries in units of the data.
        """
        ones = np.ones(len(items))
        if self.has_unit_vectors:
            return unit(items), ones
        wide = items.astype(np.float64)
        if self.layout.metric == "l2":
            return (wide / self.vector_unit).astype(np.float32), ones * self.vector_unit**2
        # An inner product ranks alike in any unit of the query.
        units = power_of_two(np.abs(wide).max(axis=1))
        return (wide / units[:, None]).astype(np.float32), units * self.vector_unit

    def rows_of(self, codes: Codes, ids: AnyArray, payload: Table) -> Table:
        """Rows of a collection with this layout."""
        columns: dict[str, Any] = {"id": ids}
        if self.decoder.by_symbol:
            columns["code"] = codes.stored[:, 0]
        else:
            narrow = codes.format.concatenate([codes.stored])  # as narrow as they can be
            if not np.can_cast(narrow.dtype, self.dtype):
                raise InputError(
                    "these codes have larger numbers than the published index can hold."
                )
            stored = narrow.astype(self.dtype)
            columns["code"] = [row.tobytes() for row in stored]
        if self.layout.vector_width:
            items = self.decoder.vectors(codes)
            if self.has_unit_vectors:
                vectors = unit(items)
            else:
                vectors = (items / self.vector_unit).astype(np.float32)
            columns["vector"] = list(vectors)
        rows = self.layout.table(columns)
        for field in self.layout.fields:
            rows = rows.append_column(field, payload[field.name])
        return rows

    def codes_of(self, rows: Table) -> Codes:
        """The codes of rows that came out of the collection; InputError if they are none."""
        format_ = self.settings.spec.format
        if self.decoder.by_symbol:
            symbols = rows["code"].to_numpy()
            stored = symbols.astype(np.uint16).reshape(-1, 1)
        else:
            stored = code_bytes(rows["code"]).view(self.dtype)
        if fault := format_.fault(stored):
            raise InputError(f"the collection is damaged: codes in it {fault}; publish it anew.")
        return format_.codes(stored)


def power_of_two(largest: Any) -> Any:
    """The greatest power of two that no number exceeds, of each number; 1 for 0.

    >>> power_of_two(np.array([0.0, 3.0, 1e30])).tolist()
    [1.0, 2.0, 6.338253001141147e+29]
    """
    _, exponents = np.frexp(largest)
    powers = np.ldexp(1.0, exponents - 1)
    return np.where(np.asarray(largest) > 0, powers, 1.0)[()]


def _schema_from(data: bytes) -> Any:
    """The schema of a payload; InputError for bytes that are none."""
    import pyarrow as pa

    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError):
        raise InputError("its payload has no schema.") from None
    refuse_unprintable(schema.names, "payload column")
    return schema


def publish(
    index: PrivateIndex,
    uri: AnyPath,
    collection: str = COLLECTION,
    *,
    exact_queries: bool = True,
    graph: bool = False,
    allow_unprotected: bool = False,
    progress: Progress = no_progress,
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
    graph : bool
        Whether LanceDB or PostgreSQL builds a graph over signs (HNSW), by which private queries
        without a filter are answered. It misses some neighbours:
        :attr:`PublishedIndex.index_recall` says how many.
    allow_unprotected : bool
        Publish the exact codes of a ``none-*`` baseline.
    progress : callable, optional
        Called with the rows that are published, all rows, and an empty text.

    Raises
    ------
    InputError
        If the index is empty, the collection is there, or the database refuses something, and for
        a graph that cannot pay.

    >>> import dpindex as dpi
    >>> dpi.publish(dpi.open("my-index"), "books.db", "books")  # doctest: +SKIP
    """
    if not isinstance(index, PrivateIndex):
        raise InputError(
            f"what is published is an index, not {type(index).__name__}: open it first, "
            f"dpindex.publish(dpindex.open(path), …).",
            field="index",
        )
    index.spec.refuse_unprotected(allow_unprotected, "publish it")
    if len(index) == 0:
        raise InputError("the index is empty: there is nothing to publish.")
    with (
        closing(open_database(uri, collection, new=True)) as database,
        naming(f"{os.fspath(uri)}, {collection}"),
    ):
        _write(database, index, exact_queries, graph, progress)


def table_at(location: AnyPath, dataset: Dataset) -> Callable[[Path], None] | None:
    """What publishes the index in a folder as a table, if a location names one.

    Raises
    ------
    InputError
        For one object in a store, as what is built there is a prefix, and for a payload that no
        table keeps: nothing is drawn yet.
    """
    text = os.fspath(location)
    if not text.rstrip("/").endswith(".parquet"):
        return None
    if local_path(text) is None and not text.endswith("/"):
        raise InputError(f"a table is built in an object store as a prefix: say {text}/.")
    part = dataset.parts[0]
    payload = part.payload()
    schema = None
    if payload is not None:
        schema = Payload().checked(payload, part.rows).schema
    with closing(open_database(text, COLLECTION, new=True)) as database:
        database.create(Layout(False, 0, 0, "ip", schema))

    def publish_once(folder: Path) -> None:
        index = PrivateIndex.open(folder)
        with closing(open_database(text, COLLECTION, new=True)) as database:
            documents = Documents(database)
            if documents.open():
                whole = Publication.of(index, index.codes, index.ids, True).to_bytes()
                if documents.read(WHOLE) == whole:
                    return  # it died after this
        publish(index, text, allow_unprotected=True)

    return publish_once


def _write(
    database: Database,
    index: PrivateIndex,
    exact_queries: bool,
    graph: bool,
    progress: Progress,
) -> None:
    codes = index.codes
    ids = index.ids[: len(codes)]  # others may have come since
    payload = index.payload
    publication = Publication.of(index, codes, ids, exact_queries)
    if graph:
        _check_graph(publication, index.query_spec, database)
    layout = publication.layout
    documents = Documents(database)
    _begin(database, documents)
    database.create(layout)
    row_bytes = layout.code_bytes + 4 * layout.vector_width + _ROW_BYTES

    def insert(rows: Indices, written: int) -> None:
        for block in row_blocks(len(rows), CHUNK_BYTES // row_bytes):
            some = rows[block]
            table = None
            if payload is not None:
                table = payload.take(some)
            database.insert(publication.rows_of(codes.take(some), ids[some], table))
            progress(written + block.stop, len(ids), "")
        database.finish()

    # Rows that ask how many neighbours a graph finds come when it is built: none is a node of it.
    probes = spaced(len(ids), _PROBES if graph else 0)
    nodes = np.delete(np.arange(len(ids)), probes)
    insert(nodes, 0)
    if graph:
        database.make_graph()
        effort, recall = _measured(database, codes.take(probes).stored.astype(np.uint8))
        publication = replace(publication, effort=effort, recall=recall)
        insert(probes, len(nodes))
    if (count := database.count()) != len(ids):
        raise InputError(
            f"the collection has {count} rows in place of {len(ids)}: something else writes it; "
            f"drop it and publish again."
        )
    documents.write(WHOLE, publication.to_bytes())  # last: from here on it may be searched
    documents.rows.finish()


def _check_graph(publication: Publication, query_spec: Spec, database: Database) -> None:
    """Refuse a graph where there is none, and where it cannot pay."""
    database.check_graph()
    if not publication.decoder.by_hamming:
        raise InputError("a graph is for signs that private queries are compared with.")
    if publication.rows < _LEAST_ROWS:
        raise InputError(f"a graph is for {_LEAST_ROWS} codes or more, not {publication.rows}.")
    unlike = unlike_signs(publication.settings.spec, query_spec)
    if unlike > _MOST_UNLIKE:
        raise InputError(
            f"a graph cannot pay here: flips make {unlike:.0%} of the signs of a query and of a "
            f"code of the same vector unlike, and up to {_MOST_UNLIKE:.0%} it is faster than a "
            f"scan; publish without one."
        )


def _measured(database: Database, queries: Bytes) -> tuple[int, float]:
    """The effort that finds enough of what a scan finds, or the greatest, and the recall then."""
    last = [scores[-1] for _, scores in database.search(queries, _NEIGHBOURS, None)]
    for effort in _EFFORTS:
        database.effort = effort
        found = 0
        near = database.search(queries, _NEIGHBOURS, None)
        for (_, scores), least in zip(near, last, strict=True):
            found += int(np.sum(scores >= least))
        recall = found / (_NEIGHBOURS * len(queries))
        if recall >= _WANTED_RECALL:
            break
    return effort, recall


def _begin(database: Database, documents: Documents) -> None:
    """Make the documents anew, where nothing is or an interrupted call was.

    The first document is a mark: a collection beside it is dpindex's. Before it is written there
    are documents without a row, or nothing.
    """
    is_there = documents.open()
    if is_there and documents.read(WHOLE) is not None:
        raise InputError(
            f"there is a published index of that name; name another {database.noun}, or drop that "
            f"one."
        )
    begun = is_there and documents.read(MARK) is not None
    if not begun:
        has_foreign_rows = is_there and documents.rows.count() > 0
        if has_foreign_rows or database.exists():
            raise InputError(
                f"there is a {database.noun} of that name, which is none of dpindex's."
            )
    database.drop()
    documents.begin()
    documents.write(MARK, b"")
