"""Filters of a search: which rows a hit may come from, by id, mask, function or expression.

An expression in text is parsed by Python's own parser and translated, node by node, into one of
``pyarrow.compute``; nothing in it is ever evaluated as code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from functools import cached_property, reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, TypeAlias

import numpy as np

from dpindex.base.arrays import Doubles, Rows, row_blocks
from dpindex.base.errors import InputError, import_extra, naming, one_line
from dpindex.base.ids import ID, id_array, other_kind_of_ids
from dpindex.decode.base import Queries
from dpindex.decode.guided import GuidedQueries
from dpindex.index.backends import SearchBackend, best_of, unfilled
from dpindex.index.ranking import Ranking
from dpindex.storage.code_store import CodeStore

Filter: TypeAlias = Any
"""Ids, a mask, a function of a row, or an expression: see :func:`kept_rows`."""

_MAX_TEXT = 1 << 14
_BLOCK_ROWS = 4096
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: eq,
    ast.NotEq: ne,
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
}
_JOIN = {ast.And: and_, ast.Or: or_, ast.BitAnd: and_, ast.BitOr: or_}
_FORMS = (
    "a filter is a list of ids, a mask of bools, a function of a row, or an expression such as "
    '"year >= 2020"'
)
_NEED = "a filter expression needs pyarrow"
_GRAMMAR = (
    "an expression compares columns with numbers or quoted strings, such as "
    '"year >= 2020 and lang in [\'en\', \'de\']", "not seen" or "title is not None"'
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
    >>> store = CodeStore(format_)
    >>> store.append(format_.codes(np.zeros((4, 1), np.uint8)), np.arange(4))
    >>> kept_rows([3, 1, 99], store), kept_rows("id >= 2 or id == 0", store)
    (array([1, 3]), array([0, 2, 3]))
    """
    if callable(filter_) and not _is_expression(filter_):
        kept = [bool(filter_(row)) for row in _dicts(store)]
        return np.flatnonzero(kept)
    if isinstance(filter_, str):
        filter_ = parsed(filter_, [ID, *store.payload.columns])
    if _is_expression(filter_):
        return _matching(filter_, store)
    if isinstance(filter_, Set | range):
        filter_ = list(filter_)
    try:
        values = np.asarray(filter_)
    except ValueError:  # lists of several lengths are no ids
        values = np.empty(0, object)
    if values.dtype == np.bool_:
        if values.shape != (len(store),):
            raise InputError(
                f"the mask has shape {values.shape}; this index needs one bool for each of its "
                f"{len(store)} rows."
            )
        return np.flatnonzero(values)
    with naming(_FORMS):
        if isinstance(filter_, Mapping):
            raise InputError("not a mapping.")
        ids = id_array(values if values.dtype.kind in "iuU" else filter_)
    id_kind = store.ids.take(slice(1)).dtype.kind
    if len(ids) and ids.dtype.kind != id_kind:
        raise other_kind_of_ids(id_kind == "U", "those of a filter")
    return store.ids.rows(ids, missing=True)


def _is_expression(value: Any) -> bool:
    kind = type(value)
    return kind.__module__.partition(".")[0] == "pyarrow" and kind.__name__ == "Expression"


def _dicts(store: CodeStore) -> Any:
    """Every row as a dict of its id and payload."""
    for block in row_blocks(len(store), _BLOCK_ROWS):
        ids = store.ids.take(block).tolist()
        payload = store.payload.take(block)
        rows: list[dict[str, Any]] = [{}] * len(ids)
        if payload is not None:
            rows = payload.to_pylist()
        for id_, row in zip(ids, rows, strict=True):
            yield {ID: id_, **row}


def _matching(expression: Any, store: CodeStore) -> Rows:
    """Return the rows of which an expression is true, and not null."""
    pa = import_extra("pyarrow", _NEED, "io")
    acero = import_extra("pyarrow.acero", _NEED, "io")
    table = pa.table({ID: store.ids.array})
    payload = store.payload.whole
    if payload is not None:
        table = payload.add_column(0, ID, table[ID])
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    options = acero.ProjectNodeOptions([expression], ["kept"])
    projection = acero.Declaration("project", options, [source])
    try:
        kept = projection.to_table(use_threads=False)["kept"]
        if not pa.types.is_boolean(kept.type):
            raise TypeError(f"it is {kept.type}, neither true nor false; compare it")
        bits = kept.fill_null(False).combine_chunks()
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        kinds = [f"{name} ({kind})" for name, kind in store.payload.columns.items()]
        columns = ", ".join(kinds) or "no payload"
        raise InputError(
            f"the filter {expression} has no meaning here ({one_line(error)}); the columns are: "
            f"{ID}, {columns}.",
            field="filter",
        ) from None
    # Arrow takes longer to make bytes of its bits than to compare a column.
    packed = np.frombuffer(bits.buffers()[1], np.uint8)
    unpacked = np.unpackbits(packed, bitorder="little")
    mask = unpacked[bits.offset : bits.offset + len(bits)]
    return np.flatnonzero(mask.view(np.bool_))


def parsed(text: str, columns: list[str]) -> Any:
    """The ``pyarrow.compute`` expression of a text over these columns.

    Known are ``and or not & | ~ == != < <= > >= in``, ``is None`` and ``is not None``, numbers,
    strings, True, False, and names of columns; ``field("two words")`` is a name that Python cannot
    write.

    Raises
    ------
    InputError
        For anything else, and for an unknown column.

    >>> parsed("year >= 2020 and lang in ['en', 'de']", ["year", "lang"])
    <pyarrow.compute.Expression ((year >= 2020) and is_in(lang, {value_set=string:[
      "en",
      "de"
    ], null_matching_behavior=MATCH}))>
    """
    try:
        if len(text) > _MAX_TEXT:
            raise SyntaxError("it is too long")
        tree = ast.parse(text.strip(), mode="eval").body
        return _Translator(text, columns).condition(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        raise InputError(
            f"the filter {text[:200]!r} cannot be read ({reason}); {_GRAMMAR}.",
            field="filter",
        ) from None


class _Translator:
    """Turns the nodes of a parsed expression into expressions of ``pyarrow.compute``."""

    def __init__(self, text: str, columns: list[str]) -> None:
        self._compute = import_extra("pyarrow.compute", _NEED, "io")
        self._text = text
        self._columns = columns

    def condition(self, node: ast.expr) -> Any:
        """Something that is true or false of a row."""
        match node:
            case ast.BoolOp(op=operator, values=parts):
                return reduce(_JOIN[type(operator)], map(self.condition, parts))
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as operator, right=right):
                join = _JOIN[type(operator)]
                return join(self.condition(left), self.condition(right))
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return ~self.condition(operand)
            case ast.Compare(left=first, ops=operators, comparators=others):
                pairs = zip([first, *others], operators, others, strict=False)
                return reduce(and_, [self._compared(*pair) for pair in pairs])
            case ast.Name() | ast.Call():
                return self._value(node)
        raise self._refused(node)

    def _compared(
        self,
        left: ast.expr,
        operator: ast.cmpop,
        right: ast.expr,
    ) -> Any:
        value = self._value(left)
        if isinstance(operator, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._refused(right)
            is_null = value.is_null()
            return is_null if isinstance(operator, ast.Is) else ~is_null
        if isinstance(operator, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set):
                raise self._refused(right)
            is_member = value.isin([self._constant(item) for item in right.elts])
            return is_member if isinstance(operator, ast.In) else ~is_member
        compare = _COMPARE[type(operator)]
        return compare(value, self._value(right))

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return self._column(name)
            case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str(name))]):
                return self._column(name)
        return self._compute.scalar(self._constant(node))

    def _column(self, name: str) -> Any:
        if name not in self._columns:
            raise InputError(
                f"the filter {self._text[:200]!r} names {name!r}; the columns are "
                f"{', '.join(self._columns)}, and strings are quoted.",
                field="filter",
            )
        return self._compute.field(name)

    def _constant(self, node: ast.expr) -> Any:
        with suppress(ValueError, TypeError):  # what is no literal
            value = ast.literal_eval(node)
            if isinstance(value, bool | int | float | str):
                return value
        raise self._refused(node)

    def _refused(self, node: ast.expr) -> InputError:
        part = ast.get_source_segment(self._text.strip(), node) or "a part of it"
        return InputError(
            f"the filter {self._text[:200]!r} cannot be read at {part[:80]!r}; {_GRAMMAR}.",
            field="filter",
        )


FEW = 8
_SPARE = 16


class Selection:
    """Some rows of a ranking that holds every row, for the batches of queries of one search.

    Less than an eighth of all rows are searched by themselves, exactly, whatever the index type. Of
    more, twice the expected number of neighbours is found and the others are left out; queries for
    which too few remain are searched again among the rows alone.

    Parameters
    ----------
    ranking : Ranking
    rows : int64 array, shape (m,)
        Ascending.
    """

    def __init__(self, ranking: Ranking, rows: Rows) -> None:
        self._ranking = ranking
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries: Queries | GuidedQueries, count: int) -> tuple[Doubles, Rows]:
        """Return scores and rows of the best ``count`` ≤ m, m ≥ 1, for each query, best first."""
        total = len(self._ranking.backend)
        candidates = 2 * count * total // len(self._rows) + _SPARE
        if len(self._rows) * FEW < total or candidates >= total:
            return self._search_alone(queries, count)
        scores, rows = self._ranking.search(queries, candidates)
        is_kept = np.isin(rows, self._rows, kind="table")
        kept_first = np.argsort(~is_kept, axis=1, kind="stable")
        first = kept_first[:, :count]
        scores = np.take_along_axis(scores, first, axis=1)
        rows = np.take_along_axis(rows, first, axis=1)
        short = np.flatnonzero(is_kept.sum(axis=1) < count)
        if short.size:
            short_scores, short_rows = self._search_alone(queries[short], count)
            scores[short] = short_scores
            rows[short] = short_rows
        return scores, rows

    def _search_alone(self, queries: Queries | GuidedQueries, count: int) -> tuple[Doubles, Rows]:
        """Search the rows by themselves, exactly."""
        backend = self._ranking.backend
        if len(self._rows) <= backend.max_subset:
            # In the order of the backend, also among equals.
            scores, places = self._ranking.search(queries, count, self._subset)
            return scores, self._rows[places]
        scores, rows = unfilled(len(queries))
        for part in row_blocks(len(self._rows), backend.max_subset):  # as fits into memory
            block = self._rows[part]
            depth = min(count, len(block))
            near, places = self._ranking.search(queries, depth, backend.subset(block))
            scores, rows = best_of([(scores, rows), (near, block[places])], count)
        return scores, rows

    @cached_property
    def _subset(self) -> SearchBackend:
        """A backend of all the rows, made once for all batches."""
        return self._ranking.backend.subset(self._rows)
