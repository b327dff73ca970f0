"""Which rows a hit may come from: filters, and queries as SQL that ranks rows by their symbols.

A filter is given by ids, a mask, a function or an expression; what that means is in
:mod:`dpindex.index.conditions`. A lookup is a table of a query's scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Longs, Rows, Table, row_blocks
from dpindex.base.errors import InputError, naming
from dpindex.base.ids import ID, id_array, other_kind_of_ids
from dpindex.base.tables import arrow, as_table, speaks_arrow
from dpindex.index.conditions import Condition, DuckDb, Language, of_expression, parsed
from dpindex.storage.code_store import CodeStore


@dataclass(frozen=True)
class Where:
    """A condition in a database's own language, which is passed on as it is."""

    text: str


Filter: TypeAlias = Any
"""Ids, a mask, a function of a row, or an expression: see :func:`kept_rows`."""

_ASKED_ROWS = 4096
_FORMS = (
    "a filter is a list of ids, a mask of bools, a function of a row, or an expression such as "
    '"year >= 2020"'
)


def kept_rows(filter_: Filter, store: CodeStore) -> Rows:
    """Rows of a store that a filter keeps, ascending.

    Parameters
    ----------
    filter_ : ids, mask, callable, str or pyarrow.compute.Expression
        - A list, set or array of ids; those that are not in the index are passed over.
        - A mask: one bool for each row, in the order of ``index.ids``.
        - A callable, which gets each row as a dict of ``id`` and payload columns.
        - An expression over ``id`` and payload columns, as text or made with pyarrow. Where it is
          null, the row is not kept.

    Raises
    ------
    InputError
        For a mask of another length, ids of another kind, and an expression that has no meaning.

    >>> from dpindex.mechanism.codes import SignFormat
    >>> format_ = SignFormat(8, bytes(16))
    >>> store = CodeStore.of_segments(format_)
    >>> store = store.grown(format_.codes(np.zeros((4, 1), np.uint8)), np.arange(4))
    >>> kept_rows([3, 1, 99], store), kept_rows("id >= 2 or id == 0", store)
    (array([1, 3]), array([0, 2, 3]))
    """
    if isinstance(filter_, Where):
        raise InputError(
            "where is text for the database of a published index, and this index has none; give a "
            "filter.",
            field="where",
        )
    id_kind = store.ids.take(slice(1)).dtype.kind
    if isinstance(filter_, str) or type(filter_).__name__ == "Expression":
        condition = condition_of(filter_, column_types_of(store))
        if condition is not None:
            return _matching(condition, store)
    if callable(filter_):
        kept = [bool(filter_(row)) for row in _dicts(store)]
        return np.flatnonzero(kept)
    values = ids_or_mask(filter_, _FORMS)
    if values.dtype == np.bool_:
        if values.shape != (len(store),):
            raise InputError(
                f"the mask has shape {values.shape}; this index needs one bool for each of its "
                f"{len(store)} rows."
            )
        if np.ma.is_masked(filter_):
            raise InputError("the mask has masked entries itself; fill them with True or False.")
        return np.flatnonzero(values)
    if len(values) and values.dtype.kind != id_kind:
        raise other_kind_of_ids(id_kind == "U", "those of a filter")
    return store.ids.rows(values, missing=True)


def ids_or_mask(filter_: Filter, forms: str) -> AnyArray:
    """Return the ids that a filter lists, or its mask of bools.

    InputError for anything else, which begins with the forms that a filter may have.
    """
    if isinstance(filter_, Set | range):
        filter_ = list(filter_)
    try:
        values = as_table(filter_) if speaks_arrow(filter_) else np.asarray(filter_)
    except (InputError, ValueError):  # text, or lists of several lengths, are no mask
        values = np.empty(0, object)
    if values.dtype == np.bool_:
        return np.asarray(values)
    with naming(forms):
        if isinstance(filter_, Mapping):
            raise InputError("not a mapping.")
        return id_array(filter_)  # NumPy would make "1" of the 1 in [1, "a"]


def _dicts(store: CodeStore) -> Any:
    """Every row as a dict of its id and payload."""
    for block in row_blocks(len(store), _ASKED_ROWS):
        ids = store.ids.take(block).tolist()
        payload = store.payload_of(block)
        rows: list[dict[str, Any]] = [{}] * len(ids)
        if payload is not None:
            rows = payload.to_pylist()
        for id_, row in zip(ids, rows, strict=True):
            yield {ID: id_, **row}


def _matching(condition: Condition, store: CodeStore) -> Rows:
    """Return the rows of which a condition is true, and not null."""
    pa = arrow()
    columns = {ID: pa.array(store.ids.array)}
    payload = store.payload.whole
    if payload is not None:
        columns |= {name: payload[name] for name in payload.column_names}
    for name, column in columns.items():
        if pa.types.is_float16(column.type):  # Arrow compares no half floats
            columns[name] = column.cast(pa.float32())
    kept = condition.mask(columns).fill_null(False)
    if isinstance(kept, pa.ChunkedArray):
        kept = kept.combine_chunks()
    return np.flatnonzero(kept.to_numpy(zero_copy_only=False))


def condition_of(filter_: Filter, kinds: Mapping[str, Any]) -> Condition | None:
    """Return the condition that a text or an expression of pyarrow states; None for another filter.

    Parameters
    ----------
    filter_ : object
    kinds : mapping
        Arrow types of ``id`` and the payload columns by name.
    """
    if isinstance(filter_, str):
        return parsed(filter_, kinds)
    kind = type(filter_)
    if kind.__module__.partition(".")[0] == "pyarrow" and kind.__name__ == "Expression":
        return of_expression(filter_, kinds)
    return None


def column_types(text_ids: bool, schema: Any) -> dict[str, Any]:
    """Return the Arrow types of ``id`` and of the columns of a schema, if there is a payload."""
    kinds = {ID: arrow().string() if text_ids else arrow().int64()}
    for field in schema or ():
        kinds[field.name] = field.type
    return kinds


def column_types_of(store: CodeStore) -> dict[str, Any]:
    """Return the Arrow types of ``id`` and of the payload columns of a store."""
    has_text = store.ids.take(slice(1)).dtype.kind == "U"
    payload = store.payload.table
    if payload is None:
        return column_types(has_text, None)
    return column_types(has_text, payload.schema)


class _Spark(Language):
    quote = "`"

    def literal(self, value: Any, kind: Any, name: str) -> str:
        text = super().literal(value, kind, name)
        if isinstance(value, str):
            return text.replace("\\", "\\\\").replace("''", "\\'")
        return text.replace("double precision", "double")


DIALECTS: Mapping[str, tuple[Language, str]] = {
    "duckdb": (DuckDb(), "read_parquet('{}')"),
    "spark": (_Spark(), "parquet.`{}`"),
    "postgresql": (Language(), '"{}"'),
}
"""How each engine writes a condition, and where rows lie: in files of a path, or in a table."""

_SQL = """\
with lookup (code, score) as (values
  {values}
), found as (
  select id, code from {table} where code in ({codes}){condition}
)
select id, score from found join lookup using (code)
order by score desc, id limit {count}"""


@dataclass(frozen=True, eq=False)
class Lookup:
    """Scores of symbols for one query, and how many rows it takes.

    Attributes
    ----------
    codes : int64 array, shape (m,)
        Symbols that are looked up, best first: those that have the rows, or all of them.
    scores : float64 array, shape (m,)
        Higher is nearer.
    count : int
        Rows that the query takes at most.
    condition : Condition, optional
        Holds for the rows that are searched.
    """

    codes: Longs
    scores: Doubles
    count: int
    condition: Condition | None = None

    def table(self) -> Table:
        """An Arrow table of the columns ``code`` and ``score``, best first."""
        return arrow().table({"code": self.codes, "score": self.scores})

    def sql(self, place: str, dialect: str = "duckdb") -> str:
        """The statement that finds ids and scores, best first and of equal scores by id.

        Parameters
        ----------
        place : str
            Where rows with the columns ``id`` and ``code`` lie: a Parquet file, a folder of them
            with a slash at its end, or the name of a table in PostgreSQL. It is written as it is.
        dialect : "duckdb", "spark" or "postgresql"

        Raises
        ------
        InputError
            For another dialect.

        >>> import numpy as np
        >>> print(Lookup(np.array([7, 2]), np.array([0.5, 0.25]), 100).sql("codes.parquet"))
        with lookup (code, score) as (values
          (7, 5.0000000000000000e-01), (2, 2.5000000000000000e-01)
        ), found as (
          select id, code from read_parquet('codes.parquet') where code in (7, 2)
        )
        select id, score from found join lookup using (code)
        order by score desc, id limit 100
        """
        if dialect not in DIALECTS:
            raise InputError(f"the dialects are {', '.join(DIALECTS)}, not {dialect!r}.")
        language, table = DIALECTS[dialect]
        if dialect == "duckdb" and place.endswith("/"):
            place += "*.parquet"
        condition = ""
        if self.condition is not None:
            condition = f" and ({self.condition.said(language)})"
        pairs = zip(self.codes.tolist(), self.scores.tolist(), strict=True)
        return _SQL.format(
            # With an exponent a number is a double everywhere, and loses nothing.
            values=", ".join(f"({code}, {score:.16e})" for code, score in pairs),
            codes=", ".join(map(str, self.codes.tolist())),
            table=table.format(place),
            condition=condition,
            count=self.count,
        )
