"""Publishing an index to a vector database: what is written there, and in which order.

Codes, ids, payload, spec, codebook and denoiser go out: what an index directory holds, and nothing
of a ledger or a journal. Vectors to rank by are functions of codes and public parameters.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpindex.base.arrays import AnyArray, Singles, row_blocks, spaced, unit
from dpindex.base.errors import InputError
from dpindex.base.progress import no_progress
from dpindex.base.text import refuse_unprintable
from dpindex.denoise import Denoiser, denoiser_from_bytes, denoiser_to_bytes
from dpindex.index.kinds import kind_of
from dpindex.index.ranking import DenoisedVectors, Ranking
from dpindex.index.search_backend import EXACT
from dpindex.mechanism.codebook import Codebook
from dpindex.mechanism.codes import Codes
from dpindex.similarity.learned import SAMPLE_ROWS
from dpindex.storage.code_store import CodeStore
from dpindex.storage.databases import Database, Layout, Rows
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.manifest import Settings

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
