"""Milvus, a server or the embedded Milvus Lite."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from dpindex.base.arrays import AnyArray, Bytes, Doubles, Singles, row_blocks
from dpindex.base.errors import InputError, StorageError, import_extra, one_line
from dpindex.integrations.database import Database, Layout, Rows, lease_beside

__all__ = ["Milvus"]

_PART_BYTES = 48_000
"""Bytes of a document in one row: a string of Milvus has at most 65 535."""
_REPLACED = 100
"""Rows replaced in one request: Milvus Lite takes quadratic time."""
_MOST_TEXT = 65_535
_ROOM = 1 << 23
"""Free bytes below which a disk is called nearly full: what failed needed more."""
_RETRIES = {"retry_times": 3}
_STRONG = {"consistency_level": "Strong"}
_COLUMN = re.compile(r"[A-Za-z_]\w{0,200}", re.ASCII)
_OWN = ("id", "code", "vector")
_NULL = "{}_is_null"
_OPEN: Counter[str | None] = Counter()
"""Files of Milvus Lite that are in use here, each served by one process of its own."""
# Milvus Lite deletes with an id in SQL as it stands, so quotes must not be in it.
_PLAIN = "".join(chr(c) for c in range(32, 127) if chr(c) not in "'\"\\%")


def _is_nearly_full(folder: Path) -> bool:
    """True if the disk of a folder has hardly any room for an insertion."""
    return folder.is_dir() and shutil.disk_usage(folder).free < _ROOM


def _groups(items: list[Any]) -> list[list[Any]]:
    return [items[rows] for rows in row_blocks(len(items), _REPLACED)]


def _id(value: Any) -> Any:
    if value == -(1 << 63):
        raise InputError(f"Milvus cannot look up the id {value}.")
    if isinstance(value, str):
        return quote(value, safe=_PLAIN)
    return value


class Milvus(Database):
    """A collection of Milvus; its documents are rows of a second one, ``NAME_dpindex``.

    The properties of a collection hold a megabyte at most, and nothing in Milvus Lite.
    """

    max_found = 16_384

    def __init__(self, address: str, name: str) -> None:
        need = "Milvus needs pymilvus and milvus-lite"
        milvus = import_extra("pymilvus", need, "milvus")
        if not address.startswith("http"):
            import_extra("milvus_lite", need, "milvus")
        self._types = milvus.DataType
        self._error = milvus.MilvusException
        self._place = f"{address}, {name}"
        self._file = None if address.startswith("http") else str(Path(address).resolve())
        self._name = name
        self._documents = f"{name}_dpindex"
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what fails is raised as well
        with self._asking(
            "no server answers there, the token in MILVUS_TOKEN is wrong, or another process has "
            "the file open"
        ):
            token = os.environ.get("MILVUS_TOKEN", "")
            self._client = milvus.MilvusClient(address, token=token, timeout=10)
        _OPEN[self._file] += 1

    @contextmanager
    def _asking(self, cause: str = "") -> Iterator[None]:
        try:
            yield
        except self._error as error:
            if self._file is not None and _is_nearly_full(Path(self._file).parent):
                # Milvus Lite reports a full disk as an unknown error.
                raise StorageError(
                    f"{self._place}: the disk is nearly full: make room there, and run the command "
                    f"again."
                ) from None
            reason = cause or one_line(error.message)
            raise InputError(f"{self._place}: Milvus refuses this ({reason}).") from None

    def is_in(self, column: str, values: Sequence[Any]) -> str:
        return f"{column} in {json.dumps([_id(value) for value in values])}"

    def exists(self) -> bool:
        with self._asking():
            return any(map(self._client.has_collection, (self._name, self._documents)))

    def drop(self) -> None:
        with self._asking():
            for collection in (self._name, self._documents):
                if self._client.has_collection(collection):
                    self._client.drop_collection(collection)

    def create(self, layout: Layout) -> None:
        self._layout = layout
        types = self._types
        columns = {field.name: field.type for field in layout.fields}
        nulls = {_NULL.format(name) for name in columns}
        for name in columns:
            if not _COLUMN.fullmatch(name) or name in _OWN or name in nulls:
                raise InputError(
                    f"Milvus cannot have a payload column called {name!r}: letters, digits and _ "
                    f"are possible, and not {', '.join(_OWN)}; rename it in the index."
                )
        with self._asking():
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            if layout.text_ids:
                schema.add_field("id", types.VARCHAR, is_primary=True, max_length=_MOST_TEXT)
            else:
                schema.add_field("id", types.INT64, is_primary=True)
            if layout.code_bytes:
                schema.add_field("code", types.BINARY_VECTOR, dim=8 * layout.code_bytes)
            else:  # a collection has at least one vector
                schema.add_field("code", types.INT32)
                schema.add_field("vector", types.BINARY_VECTOR, dim=8)
            if layout.vector_width:
                schema.add_field("vector", types.FLOAT_VECTOR, dim=layout.vector_width)
            for name, kind in columns.items():
                schema.add_field(name, types[_kind(kind)[0]], max_length=_MOST_TEXT)
                schema.add_field(_NULL.format(name), types.BOOL)
            self._client.create_collection(self._name, schema=schema, **_STRONG)

    def open(self, layout: Layout) -> None:
        self._layout = layout

    def _index(self, collection: str, **columns: tuple[str, str]) -> None:
        """Index columns by type and metric, and load the collection."""
        indexes = self._client.prepare_index_params()
        for name, (kind, metric) in columns.items():
            indexes.add_index(name, index_type=kind, metric_type=metric)
        self._client.create_index(collection, indexes)
        self._client.load_collection(collection)

    def insert(self, rows: Rows, *, replace: bool = False) -> None:
        layout = self._layout
        ids = [_id(value) for value in rows.ids.tolist()]
        columns: dict[str, Sequence[Any]] = {"id": ids}
        if layout.code_bytes:
            columns["code"] = [code.tobytes() for code in rows.codes]
        else:
            columns |= {"code": rows.codes.tolist(), "vector": [b"\0"] * len(ids)}
        if rows.vectors is not None:
            columns["vector"] = list(rows.vectors)
        for field in layout.fields:
            values, nulls = _stored(field, rows.payload.column(field.name))
            columns |= {field.name: values, _NULL.format(field.name): nulls}
        made = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        with self._asking():
            if not replace:
                self._client.insert(self._name, made, **_RETRIES)
                return
            for group in _groups(made):
                self._client.upsert(self._name, group, **_RETRIES)

    def finish(self) -> None:
        columns = {"vector": ("BIN_FLAT", "HAMMING")}
        if self._layout.code_bytes:
            columns = {"code": ("BIN_FLAT", "HAMMING")}
        if self._layout.vector_width:
            columns["vector"] = ("FLAT", self._layout.metric.upper())
        with self._asking():
            self._client.flush(self._name)
            self._index(self._name, **columns)

    def search(
        self, queries: Bytes | Singles, count: int, where: str | None
    ) -> tuple[list[AnyArray], list[Doubles]]:
        binary = queries.dtype == np.uint8
        with self._asking():
            answers = self._client.search(
                self._name,
                data=[query.tobytes() for query in queries] if binary else list(queries),
                anns_field="code" if binary else "vector",
                limit=count,
                filter=where or "",
                **_RETRIES,
            )
        sign = 1.0
        if binary or self._layout.metric == "l2":
            sign = -1.0
        ids = [self._ids(hits) for hits in answers]
        return ids, [sign * np.array([hit["distance"] for hit in hits], float) for hits in answers]

    def _ids(self, rows: Sequence[Any]) -> AnyArray:
        ids = [row["id"] for row in rows]
        if self._layout.text_ids:
            ids = list(map(unquote, ids))
        return self._layout.id_array(ids)

    def select(self, where: str, count: int, *, payload: bool = False) -> Rows:
        names: list[str] = []
        if payload:
            for field in self._layout.fields:
                names += (field.name, _NULL.format(field.name))
        with self._asking():
            rows = self._client.query(
                self._name,
                filter=where,
                limit=count,
                output_fields=["id", "code", *names],
                **_RETRIES,
            )
        codes = [row["code"] for row in rows]
        if self._layout.code_bytes:
            codes = [b"".join(code) for code in codes]
        table = None
        if names:
            table = _restored(rows, self._layout.schema)
        return Rows(self._ids(rows), self._layout.code_array(codes), payload=table)

    def count(self, where: str | None = None) -> int:
        with self._asking():
            rows = self._client.query(
                self._name, filter=where or "", output_fields=["count(*)"], **_RETRIES
            )
        return int(rows[0]["count(*)"])

    def read(self, name: str) -> bytes | None:
        with self._asking():
            if not self._client.has_collection(self._documents):
                return None
        first = self._parts([f"{name}/0"])
        if not first:
            return None
        count, _, start = first[0].partition(":")
        parts = [start]
        for group in _groups([f"{name}/{i}" for i in range(1, int(count))]):
            parts += self._parts(group)
        return b"".join(map(base64.b64decode, parts))

    def _parts(self, names: Sequence[str]) -> list[str]:
        with self._asking():
            rows = self._client.query(
                self._documents,
                filter=f"id in {json.dumps(names)}",
                output_fields=["id", "data"],
                **_RETRIES,
            )
        data = {row["id"]: row["data"] for row in rows}
        return [data[name] for name in names if name in data]

    def write(self, name: str, data: bytes) -> None:
        cuts = range(0, max(1, len(data)), _PART_BYTES)
        parts = [base64.b64encode(data[i : i + _PART_BYTES]).decode() for i in cuts]
        parts[0] = f"{len(parts)}:{parts[0]}"
        rows = [{"id": f"{name}/{i}", "data": p, "vector": b"\0"} for i, p in enumerate(parts)]
        with self._asking():
            if not self._client.has_collection(self._documents):
                self._create_documents()
            for group in _groups(rows):
                self._client.upsert(self._documents, group, **_RETRIES)

    def _create_documents(self) -> None:
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", self._types.VARCHAR, is_primary=True, max_length=1000)
        schema.add_field("data", self._types.VARCHAR, max_length=_MOST_TEXT)
        schema.add_field("vector", self._types.BINARY_VECTOR, dim=8)
        self._client.create_collection(self._documents, schema=schema, **_STRONG)
        self._index(self._documents, vector=("BIN_FLAT", "HAMMING"))

    def lease(self) -> AbstractContextManager[Path | None]:
        if self._file is None:  # a server has neither locks nor insertion that keeps ids unique
            return nullcontext()
        return lease_beside(self._file, self._name)

    def close(self) -> None:
        self._client.close()
        _OPEN[self._file] -= 1
        if self._file is not None and not _OPEN[self._file]:  # let other processes open it
            server = import_extra("milvus_lite.server_manager", "", "milvus")
            server.server_manager_instance.release_server(self._file)


def _kind(kind: Any) -> tuple[str, Any, Any]:
    """Types of Milvus and Arrow that keep a type of Arrow, and what stands for a missing value.

    Times, decimals and lists are kept as text.
    """
    import pyarrow as pa

    if pa.types.is_duration(kind):
        raise InputError("Milvus has no durations; make the payload column a number.")
    if pa.types.is_boolean(kind):
        return "BOOL", pa.bool_(), False
    if pa.types.is_integer(kind):
        return "INT64", pa.int64(), 0
    if pa.types.is_floating(kind):
        return "DOUBLE", pa.float64(), 0.0
    return "VARCHAR", pa.string(), ""


def _stored(field: Any, column: Any) -> tuple[list[Any], list[bool]]:
    """A column of the payload as Milvus keeps it, and where values are missing."""
    import pyarrow as pa

    _, stored, fill = _kind(field.type)
    try:
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(v) for v in column.to_pylist()]
            column = pa.array(texts, pa.string())
        return column.cast(stored).fill_null(fill).to_pylist(), column.is_null().to_pylist()
    except pa.ArrowException as error:
        raise InputError(f"Milvus cannot keep payload column {field.name!r}: {error}.") from None


def _restored(rows: Sequence[Any], schema: Any) -> Any:
    """The payload of rows that were found, as it was published."""
    import pyarrow as pa

    columns = []
    for field in schema:
        missing = _NULL.format(field.name)
        values = [None if row[missing] else row[field.name] for row in rows]
        if pa.types.is_nested(field.type):
            values = [None if v is None else json.loads(v) for v in values]
            columns.append(pa.array(values, field.type))
        else:
            columns.append(pa.array(values, _kind(field.type)[1]).cast(field.type))
    return pa.table(columns, schema=schema)
