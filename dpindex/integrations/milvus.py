"""Milvus, a server or the embedded Milvus Lite."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import numpy as np

from dpindex.base.arrays import Bytes, Singles, Table
from dpindex.base.errors import InputError, StorageError, import_extra
from dpindex.index.conditions import as_text
from dpindex.integrations.database import Database, Layout, Neighbours, json_texts

__all__ = ["Milvus"]

_MOST_TEXT = 65_535
_ROOM = 1 << 23
"""Free bytes below which a disk is called nearly full: what failed needed more."""
_RETRIES = {"retry_times": 3}
_PATIENCE = 120
"""Seconds in which the process that serves a file of Milvus Lite must have begun."""
_NOBODY_LISTENS = 2
"""The code of an error of a client that could not connect."""
_STRONG = {"consistency_level": "Strong"}
_SCHEMES = {"milvus": "http", "milvus+tls": "https"}
_HERE = ("127.0.0.1", "::1", "localhost")
_FILE = re.compile(r"[A-Za-z0-9.\-_]+")
_NULL = "{}_is_null"
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_OPEN: Counter[str | None] = Counter()
"""Files of Milvus Lite that are in use here, each served by one process of its own."""
# Milvus Lite deletes with an id in SQL as it stands, so quotes must not be in it.
_PLAIN = "".join(chr(c) for c in range(32, 127) if chr(c) not in "'\"\\%")


def _id(value: Any) -> Any:
    if value == -(1 << 63):
        raise InputError(f"Milvus cannot look up the id {value}.")
    if isinstance(value, str):
        return quote(value, safe=_PLAIN)
    return value


def _with_value(name: str, text: str) -> str:
    """Return a condition for rows whose column is not null, for which another value stands."""
    if name in ("id", "code"):
        return text
    return f"({_NULL.format(name)} == false and {text})"


class Milvus(Database):
    """A collection of Milvus."""

    title = "Milvus"
    max_found = 16_384
    column_name = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,200}")

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name)
        scheme, is_server, server = address.partition("://")
        if is_server and "@" in server:
            raise InputError("an address holds no password; give user:password as MILVUS_TOKEN.")
        need = "Milvus needs pymilvus and milvus-lite"
        milvus = import_extra("pymilvus", need, "milvus")
        uri = address
        host = urlsplit(f"//{server}").hostname
        if scheme == "milvus" and is_server and host not in _HERE:
            warnings.warn(
                f"{address}: token and queries travel in the clear; a server on another machine "
                f"needs TLS: milvus+tls://{server}.",
                stacklevel=2,
            )
        if is_server:
            uri = f"{_SCHEMES[scheme]}://{server}"
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of pkg_resources, which it imports
                import_extra("milvus_lite", need, "milvus")
            if not _FILE.fullmatch(Path(address).name):
                raise InputError(
                    f"Milvus Lite takes file names of the letters a to z, digits, '.', '-' and '_' "
                    f"only, not {Path(address).name!r}; give the file such a name."
                )
            self.files = str(Path(address).resolve())
        self._types = milvus.DataType
        self.errors = (milvus.MilvusException,)
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what fails is raised as well
        self._client: Any = None
        with self.asking():
            self._client = self._connected(milvus, uri)
        _OPEN[self.files] += 1

    def _connected(self, milvus: Any, uri: str) -> Any:
        """Return a client, which is tried again while the process that serves a file begins.

        A busy machine takes long for that, and the client is told at once that nobody listens.
        """
        token = os.environ.get("MILVUS_TOKEN", "")
        is_file = self.files is not None
        last_try = time.monotonic() + (_PATIENCE if is_file else 0.0)
        while True:
            try:
                return milvus.MilvusClient(uri, token=token, timeout=_PATIENCE if is_file else 10)
            except milvus.MilvusException as error:
                if error.code != _NOBODY_LISTENS or time.monotonic() > last_try:
                    raise
                time.sleep(0.1)

    def refusal(self, error: object) -> InputError:
        if self.files is not None:
            # Milvus Lite reports a full disk as an unknown error.
            folder = Path(self.files).parent
            if folder.is_dir() and shutil.disk_usage(folder).free < _ROOM:
                return StorageError(
                    f"{self.place}: the disk is nearly full: make room there, and run the command "
                    f"again."
                )
        reason = getattr(error, "message", error)
        if self._client is None:
            reason = "no server answers there, or the token in MILVUS_TOKEN is wrong"
            if self.files is not None:
                reason = (
                    "another process has the file open, it is no file of Milvus Lite, or its "
                    "folder is missing"
                )
        return super().refusal(reason)

    def column(self, name: str) -> str:
        return name

    def literal(self, value: Any, kind: Any, name: str) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError("Milvus compares no infinite numbers.", field="filter")
        if isinstance(value, int) and not -(1 << 63) < value < 1 << 63:
            raise InputError(f"Milvus compares whole numbers of 64 bits, not {value}.")
        if kind is not None and not isinstance(value, str) and _kind(kind)[0] == "VARCHAR":
            value = as_text(value, kind)
        if name == "id":
            value = _id(value)
        if isinstance(value, str):
            return self._quoted(value)
        return json.dumps(value)

    def _quoted(self, text: str) -> str:
        # Milvus Lite reads an escape as its letter alone, so that it cannot be given a line break;
        # other control characters stand for themselves.
        if self.files is not None and ("\n" in text or "\r" in text):
            raise InputError(
                "Milvus Lite compares no text that has line breaks; give ids, or search the index "
                "that was published.",
                field="filter",
            )
        escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"}
        return '"{}"'.format("".join(escapes.get(letter, letter) for letter in text))

    def is_nan(self, name: str) -> str:
        # Milvus Lite finds NaN in every list, and "!=" true of NaN in the last rows alone, beyond
        # whole blocks of 64.
        return f"{name} != {name} or ({name} in [0.0] and {name} in [1.0])"

    def compared(self, name: str, operator: str, value: Any, kind: Any, *, negated: bool) -> str:
        literal = self.literal(value, kind, name)
        is_order = operator not in ("==", "!=")
        if (
            is_order
            and not isinstance(value, int | float)
            and (name == "id" or not isinstance(value, str))
        ):
            raise InputError(
                f"Milvus keeps {name!r} as text in another order; compare it by == or in.",
                field="filter",
            )
        text = f"{name} {operator} {literal}"
        if negated:  # Milvus Lite knows no "not (…)"
            text = f"{name} {_OPPOSITE[operator]} {literal}"
        is_true_of_nan = (operator == "!=") != negated
        if is_true_of_nan and isinstance(value, float):
            text = f"({text} or {self.is_nan(name)})"
        return _with_value(name, text)

    def among(self, name: str, values: Sequence[Any], kind: Any, *, negated: bool = False) -> str:
        literals = ", ".join(self.literal(value, kind, name) for value in values)
        text = f"{name} {'not ' * negated}in [{literals}]"
        if isinstance(values[0], float) and negated:
            text = f"({text} or {self.is_nan(name)})"
        elif isinstance(values[0], float):
            text = f"({text} and {name} == {name})"
        return _with_value(name, text)

    def truth(self, name: str, *, negated: bool) -> str:
        return _with_value(name, f"{name} == {str(not negated).lower()}")

    def is_null(self, name: str, *, negated: bool) -> str:
        if name == "id":
            if negated:
                return "id == id"
            return "id != id"
        return f"{_NULL.format(name)} == {str(not negated).lower()}"

    def exists(self) -> bool:
        with self.asking():
            return bool(self._client.has_collection(self.name))

    def drop(self) -> None:
        with self.asking():
            self._client.drop_collection(self.name)

    def make(self, layout: Layout) -> None:
        types = self._types
        with self.asking():
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            kind = types.VARCHAR if layout.text_ids else types.INT64
            schema.add_field("id", kind, is_primary=True, max_length=_MOST_TEXT)
            if layout.code_bytes:
                schema.add_field("code", types.BINARY_VECTOR, dim=8 * layout.code_bytes)
            else:  # a collection has at least one vector
                schema.add_field("code", types.INT32)
                schema.add_field("vector", types.BINARY_VECTOR, dim=8)
            if layout.vector_width:
                schema.add_field("vector", types.FLOAT_VECTOR, dim=layout.vector_width)
            for field in layout.fields:
                name, *_ = _kind(field.type)
                schema.add_field(field.name, types[name], max_length=_MOST_TEXT)
                schema.add_field(_NULL.format(field.name), types.BOOL)
            self._client.create_collection(self.name, schema=schema, **_STRONG)

    def open(self, layout: Layout) -> None:
        self.layout = layout
        with self.asking():
            state = self._client.get_load_state(self.name)["state"]
            if state.name == "Loaded" and self._client.list_indexes(self.name):
                return
            # It is new, or its publication was interrupted: index what is searched.
            indexes = self._client.prepare_index_params()
            bits = "code" if layout.code_bytes else "vector"
            indexes.add_index(bits, index_type="BIN_FLAT", metric_type="HAMMING")
            if layout.vector_width:
                metric = layout.metric.upper()
                indexes.add_index("vector", index_type="FLAT", metric_type=metric)
            self._client.create_index(self.name, indexes)
            self._client.load_collection(self.name)

    def insert(self, rows: Table) -> None:
        for place, field in enumerate(rows.schema):
            if field in self.layout.fields:
                values, nulls = _stored(field, rows[field.name])
                rows = rows.set_column(place, field.name, values)
                rows = rows.append_column(_NULL.format(field.name), nulls)
        made = rows.to_pylist()
        for row in made:
            row["id"] = _id(row["id"])
            if not self.layout.code_bytes:
                row["vector"] = b"\0"
        with self.asking():
            self._client.insert(self.name, made, **_RETRIES)

    def finish(self) -> None:
        with self.asking():
            self._client.flush(self.name)

    def search(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        column = "vector"
        data: list[Any] = list(queries)
        sign = -1.0  # of distances, which are scores of inner products
        if queries.dtype == np.uint8:
            column = "code"
            data = [query.tobytes() for query in queries]
        elif self.layout.metric == "ip":
            sign = 1.0
        with self.asking():
            answers = self._client.search(
                self.name,
                data=data,
                anns_field=column,
                limit=count,
                filter=where or "",
                **_RETRIES,
            )
        found = []
        for hits in answers:
            ids = self.layout.id_array(self._ids(hits))
            distances = np.array([hit["distance"] for hit in hits], float)
            found.append((ids, sign * distances))
        return found

    def _ids(self, rows: Sequence[Any]) -> list[Any]:
        ids = [row["id"] for row in rows]
        if self.layout.text_ids:
            return list(map(unquote, ids))
        return ids

    def select(self, where: str, count: int, payload: Sequence[str] = ()) -> Table:
        with self.asking():
            rows = self._client.query(
                self.name,
                filter=where,
                limit=count,
                output_fields=["id", "code", *payload, *map(_NULL.format, payload)],
                **_RETRIES,
            )
        codes = [row["code"] for row in rows]
        if self.layout.code_bytes:
            codes = [b"".join(code) for code in codes]
        columns = {"id": self._ids(rows), "code": codes}
        for name in payload:
            is_null = _NULL.format(name)
            columns[name] = [None if row[is_null] else row[name] for row in rows]
        return self.layout.table(columns)

    def delete(self, where: str) -> None:
        with self.asking():
            self._client.delete(self.name, filter=where, **_RETRIES)

    def count(self, where: str | None = None) -> int:
        with self.asking():
            rows = self._client.query(
                self.name, filter=where or "", output_fields=["count(*)"], **_RETRIES
            )
        return int(rows[0]["count(*)"])

    def close(self) -> None:
        self._client.close()
        _OPEN[self.files] -= 1
        if self.files is not None and not _OPEN[self.files]:  # let other processes open it
            server = import_extra("milvus_lite.server_manager", "", "milvus")
            server.server_manager_instance.release_server(self.files)


def _kind(kind: Any) -> tuple[str, Any, Any]:
    """Types of Milvus and Arrow that keep a type of Arrow, and what stands for a missing value.

    Dates, timestamps, decimals and lists are kept as text.
    """
    import pyarrow as pa

    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        raise InputError(f"Milvus keeps no {kind} here; make the payload column a number or text.")
    if pa.types.is_boolean(kind):
        return "BOOL", pa.bool_(), False
    if pa.types.is_integer(kind):
        return "INT64", pa.int64(), 0
    if pa.types.is_floating(kind):
        return "DOUBLE", pa.float64(), 0.0
    return "VARCHAR", pa.string(), ""


def _stored(field: Any, column: Any) -> tuple[Any, Any]:
    """A column of the payload as Milvus keeps it, and where values are missing."""
    import pyarrow as pa

    _, stored, fill = _kind(field.type)
    try:
        if pa.types.is_nested(field.type):
            column = pa.array(json_texts(column), pa.string())
        return column.cast(stored).fill_null(fill), column.is_null()
    except pa.ArrowException as error:
        raise InputError(f"Milvus cannot keep payload column {field.name!r}: {error}.") from None
