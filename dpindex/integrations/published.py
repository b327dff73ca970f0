"""An index in a vector database, searched where it is."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, ClassVar, Final

import numpy as np

from dpindex.base.arrays import (
    AnyArray,
    Bytes,
    Doubles,
    Longs,
    Singles,
    Table,
    row_blocks,
)
from dpindex.base.display import counted
from dpindex.base.errors import InputError, naming
from dpindex.base.files import AnyPath
from dpindex.base.ids import id_array, other_kind_of_ids
from dpindex.decode.base import Queries
from dpindex.decode.denoiser import Denoiser
from dpindex.index.backends import tie_keys
from dpindex.index.filters import Filter, Lookup, Where, column_types, condition_of, ids_or_mask
from dpindex.index.hits import Hits
from dpindex.index.search import Found, FoundCodes, Searchable
from dpindex.integrations.database import Database, Neighbours, open_database
from dpindex.integrations.publication import Publication
from dpindex.mechanism.codes import Codes
from dpindex.storage.payload import Payload
from dpindex.storage.statement import Summary

_FETCHED_BYTES = 1 << 24
_MAX_GROUP = 1024
_SPARE = 16
"""Rows read beyond those that are wanted, since several may have the score of the last one."""
STREAMED_ROWS = 1 << 20
_ALL = 1 << 62
_ASKED_IDS = 1 << 16
"""Ids that one condition names."""
_FORMS = (
    "a published index is filtered by a list of ids, or by an expression such as 'year >= 2020'; "
    "text in the language of its database is where"
)
_MORE = 4
"""So many times as many rows are asked for where more have that score."""


class PublishedIndex(Searchable):
    """A published index; made by :func:`dpindex.open`.

    It is searched as the index itself is. Rankings are those of a flat search, whatever index type
    the index had, unless it was published with a graph. Similarities and errors are computed here,
    from the codes of the rows that the database found, and cosines under the distribution of
    cosines of the index that was published.

    A ``filter`` is a list of ids or an expression, and means what it means of the index. ``where``
    is a condition in the database's own language, which is passed on as it is:
    ``"year >= 2000 and title is not null"`` in SQL. Never pass on what a stranger wrote.

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
        self.database = database
        self._publication = publication
        self._layout = publication.layout
        self.denoiser: Final[Denoiser | None] = publication.denoiser
        self._decoder = publication.decoder
        self._state_by(publication.calibration, publication.rows)
        self.id_type: Final = str if publication.text_ids else int
        no_rows: Table = None
        if publication.schema is not None:
            no_rows = publication.schema.empty_table()
        self._no_payload = Payload(no_rows)
        self.payload_columns: Final = self._no_payload.columns
        database.open(self._layout)
        database.effort = publication.effort

    @property
    def index_recall(self) -> float | None:
        """Share of the ten nearest by a scan that the graph finds; None without a graph.

        Measured when the index was published, by a hundred codes that were no part of the graph.
        """
        if self._publication.effort:
            return self._publication.recall
        return None

    def __len__(self) -> int:
        return self.database.count()

    def __contains__(self, id: object) -> bool:
        """Whether there is a code under that id; 7 and "7" are different ids."""
        try:
            names = self._ids([id])
        except InputError:  # it is no id, or one of another kind
            return False
        return self.database.count(self._among(names.tolist())) > 0

    def __getitem__(self, id: int | str) -> Codes:
        """The code under one id, as codes of one row; KeyError if there is none."""
        if id not in self:
            raise KeyError(f"id {id!r} is not in the index")
        return self._publication.codes_of(self._fetched(id_array(id)))

    @property
    def summary(self) -> Summary:
        """The index described without its codes and ids: search settings, spec and promise."""
        publication = self._publication
        return Summary(
            publication.settings,
            count=len(self),
            bytes=None,
            payload=dict(self.payload_columns),
            denoiser=publication.denoiser,
            calibration=publication.calibration,
            crowding=None,
        )

    def __repr__(self) -> str:
        codes = counted(len(self), "code")
        return f"<PublishedIndex: {codes}, {self.spec.method}, {self.metric}>"

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def save(self) -> None:
        """Make durable what was added."""
        self.database.finish()

    def remove(self, ids: Any) -> int:
        """Remove codes by id, with their payload; returns how many.

        No search finds them from then on, by any connection. Their bytes may stay in files of the
        database until it rewrites these, in older versions of a LanceDB table, and in backups: see
        "Erase" in ``docs/databases.md``.

        Raises
        ------
        InputError
            If one of the ids is not in the index; nothing is removed then.

        >>> import dpindex as dpi
        >>> dpi.open("books.db", "books").remove(["7"])  # doctest: +SKIP
        1
        """
        names = self._ids(ids)
        listed = list(dict.fromkeys(names.tolist()))
        found = sum(self.database.count(condition) for condition in self._conditions(listed))
        if found < len(listed):
            raise InputError(
                f"{len(listed) - found} of these {len(listed)} ids are not in the index."
            )
        for condition in self._conditions(listed):
            self.database.delete(condition)
        self.database.finish()
        return found

    def _conditions(self, ids: list[Any]) -> Iterator[str]:
        """Conditions that hold together for rows of these ids, each for not too many."""
        for block in row_blocks(len(ids), min(_ASKED_IDS, self.database.max_found)):
            yield self._among(ids[block])

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
        names = self._ids(ids)
        listed = names.tolist()
        if not len(listed) == len(codes) == len(set(listed)):
            raise InputError(f"{len(codes)} codes need as many ids, each another.")
        if repeated := self.database.count(self._among(listed)):
            raise InputError(f"{repeated} of these ids are in the index; ids must be unique.")
        if payload is not None and not self.payload_columns:
            raise InputError("this index was published without a payload: leave it out here too.")
        filled = self._no_payload
        if self.payload_columns:
            if payload is not None:
                payload = filled.checked(payload, len(codes), names)
            filled = filled.extended(0, payload, len(codes))  # nulls where none is given
        rows = self._publication.rows_of(codes, names, filled.table)
        self.database.insert(rows)

    def _selected(self, filter_: Filter) -> AbstractContextManager[str | None]:
        return nullcontext(self._condition(filter_))

    def _in_range(self, queries: Queries, threshold: float, filter_: Filter) -> list[Hits]:
        raise InputError(
            "a published index is searched by range among candidates only: say who orders them.",
            field="rerank",
        )

    def _find(self, queries: Queries, count: int, selection: str | None) -> Found:
        most = self.database.max_found
        if count > most:
            raise InputError(f"k and candidates must be at most {most} here, not {count}.")
        neighbours = self._neighbours(queries, count, selection)
        width = min(len(ids) for ids, _ in neighbours)
        if width == 0 and selection is None:
            raise InputError("the published index is empty.")
        ids = np.stack([ids[:width] for ids, _ in neighbours])
        scores = np.stack([scores[:width] for _, scores in neighbours])
        rows = None
        if self._publication.ids_are_rows:
            rows = ids
        return Found(ids, rows, self._publication.rows, scores)

    def _neighbours(self, queries: Queries, k: int, where: str | None) -> Neighbours:
        """Return ids and scores of each query's neighbours, best first."""
        publication = self._publication
        items = self._decoder.query_items(queries)
        if self._decoder.by_symbol:
            rows_of_symbol = publication.rows / items.shape[1]
            return nearest_symbols(self.database, items, k, where, rows_of_symbol, self._tie_order)
        if self._decoder.by_hamming and queries.is_private:
            length = self.spec.code_length
            found = self._searched(items, k, where)
            return [(ids, length + 2.0 * negative) for ids, negative in found]
        if not self._layout.vector_width:
            raise InputError(
                "this index was published for private queries alone: ask with query='private'."
            )
        asked, units = publication.asked(items)
        found = self._searched(asked, k, where)
        return [(ids, size * scores) for (ids, scores), size in zip(found, units, strict=True)]

    @property
    def _column_types(self) -> Mapping[str, Any]:
        return column_types(self._publication.text_ids, self._publication.schema)

    @property
    def _tie_order(self) -> Callable[[AnyArray], AnyArray]:
        """What orders the rows of a symbol as in the index; the ids where they are not its rows."""
        if self._publication.ids_are_rows:
            return tie_keys
        return np.asarray

    def _symbol_counts(self) -> Longs | None:
        known = self.database.code_counts()
        if known is None:
            return None
        counts = np.zeros(len(self.spec.codewords), np.int64)
        counts[[*known]] = [*known.values()]
        return counts

    def stream(self, lookup: Lookup) -> Iterator[tuple[AnyArray, Doubles]]:
        """The candidates of one query, however many: ids and scores in blocks, best first.

        Memory is that of a block, of a million rows or of one symbol. Candidates are those of the
        index; of equal ones any comes first.

        Parameters
        ----------
        lookup : Lookup
            Of :meth:`to_lookup` here.

        Raises
        ------
        InputError
            At the first block, of a database that does not count its codes.

        >>> import dpindex as dpi
        >>> index = dpi.open("codes.parquet")  # doctest: +SKIP
        >>> lookup = index.to_lookup(query, "private", candidates="5%")  # doctest: +SKIP
        >>> for ids, scores in index.stream(lookup):  # doctest: +SKIP
        ...     rerank(ids)
        """
        counts = self._symbol_counts()
        if counts is None:
            raise InputError(f"{self.database.title} does not count codes; search instead.")
        sizes = counts[lookup.codes]
        blocks = (np.cumsum(sizes) - sizes) // STREAMED_ROWS
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        where = None
        if lookup.condition is not None:
            where = lookup.condition.said(self.database)
        left = lookup.count
        for places in np.split(np.arange(len(sizes)), cuts):
            if not len(places):
                return  # the table is empty
            found = self.database.ids_of_codes(lookup.codes[places].tolist(), where, _ALL)
            taken = []
            for names in found:
                if len(names) > left:
                    # As in the index: of the last symbol a few rows, by its random order.
                    nearest = np.argpartition(self._tie_order(names), left)[:left]
                    names = names[nearest]
                taken.append(names)
                left -= len(names)
            scores = np.repeat(lookup.scores[places], [len(names) for names in taken])
            yield np.concatenate(taken), scores
            if left == 0:
                return

    def _searched(self, queries: Bytes | Singles, count: int, where: str | None) -> Neighbours:
        """Return ids and scores as the database finds them; of equal scores the lowest ids.

        Which of them a database returns is its own affair, so it is asked for more until the last
        score that is wanted is not the last that came.
        """
        most = self.database.max_found
        asked = min(most, count + _SPARE)
        found = self.database.search(queries, asked, where)
        while asked < most and any(_is_cut(scores, count, asked) for _, scores in found):
            asked = min(most, _MORE * asked)
            found = self.database.search(queries, asked, where)
        nearest = []
        for ids, scores in found:
            order = np.lexsort((ids, -scores))[:count]
            nearest.append((ids[order], scores[order]))
        return nearest

    def _codes_of(self, found: Found, selection: str | None) -> FoundCodes:
        if not found.ids.size:
            none = self.spec.format.codes(np.empty((0, 1), np.int8))
            return FoundCodes(lambda *_: none, self._no_payload.table)
        names, inverse = np.unique(found.ids, return_inverse=True)
        fetched = self._fetched(names)
        codes = self._publication.codes_of(fetched)
        places = inverse.reshape(found.ids.shape)
        payload = None
        if self.payload_columns:
            columns = fetched.select([*self.payload_columns])
            payload = columns.take(places.ravel())
        return FoundCodes(lambda *block: codes.take(places[block].ravel()), payload)

    def _fetched(self, names: AnyArray) -> Table:
        """Return the rows of ids, which are sorted and unique, in their order."""
        import pyarrow as pa

        payload = [*self.payload_columns]
        row_bytes = max(1, self._layout.code_bytes)
        size = min(_ASKED_IDS, self.database.max_found, _FETCHED_BYTES // row_bytes)
        parts = []
        for block in row_blocks(len(names), size):
            condition = self._among(names[block].tolist())
            parts.append(self.database.select(condition, size, payload))
        rows = pa.concat_tables(parts).sort_by("id")
        if rows["id"].to_pylist() != names.tolist():
            raise InputError("rows were removed while they were searched; search again.")
        return rows

    def _among(self, ids: list[Any]) -> str:
        return self.database.is_in("id", ids)

    def _ids(self, ids: Any) -> AnyArray:
        names = id_array(ids)
        are_texts = names.dtype.kind == "U"
        if len(names) and are_texts != self._layout.text_ids:
            raise other_kind_of_ids(self._layout.text_ids, "those that are looked up")
        return names

    def _condition(self, filter_: Filter) -> str | None:
        """Return a filter as a condition of the database."""
        if filter_ is None:
            return None
        if isinstance(filter_, Where):
            return filter_.text
        condition = condition_of(filter_, self._column_types)
        if condition is not None:
            return condition.said(self.database)
        values = ids_or_mask(filter_, _FORMS)
        if values.dtype == np.bool_:
            raise InputError(f"{_FORMS}: not a mask.")
        names = self._ids(values).tolist()
        if not names:
            return "id != id"
        return self._among(names)


def open_published(uri: AnyPath, collection: str) -> PublishedIndex:
    """Open a published index, to be searched where it is: see :func:`dpindex.open`.

    Raises
    ------
    InputError
        If nothing answers there, or the collection is missing, unfinished, or none of dpindex's.
    """
    database = open_database(uri, collection)
    with naming(f"{os.fspath(uri)}, {collection}"), ExitStack() as opened:
        opened.callback(database.close)
        index = PublishedIndex(database, Publication.read(database))
        opened.pop_all()  # it stays open
        return index


def _is_cut(scores: Doubles, count: int, asked: int) -> bool:
    """Whether rows that did not come may have the score of the last one that is wanted."""
    return len(scores) >= asked and bool(scores[count - 1] == scores[-1])


def nearest_symbols(
    database: Database,
    similarities: AnyArray,
    count: int,
    where: str | None,
    rows_of_symbol: float,
    tie_order: Callable[[AnyArray], AnyArray],
) -> Neighbours:
    """Return ids and scores of the rows whose symbols are nearest to each query, best first.

    Each symbol is read once and whole, as far as one answer holds its rows, and several symbols in
    one request.

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
    tie_order : callable
        From ids to what orders the rows of a symbol.
    """
    ids: dict[int, AnyArray] = {}
    room = database.max_found / 2  # symbols have more rows, and fewer, than on average
    per_request = min(room / max(rows_of_symbol, 1e-9), _MAX_GROUP)

    def read_new(symbols: list[int]) -> None:
        unread = [symbol for symbol in symbols if symbol not in ids]
        for group in row_blocks(len(unread), int(per_request)):
            read(unread[group])

    def read(symbols: list[int]) -> None:
        limit = database.max_found
        found = database.ids_of_codes(symbols, where, limit)
        if sum(map(len, found)) >= limit and len(symbols) > 1:  # some may be missing
            middle = len(symbols) // 2
            read(symbols[:middle])
            read(symbols[middle:])
            return
        for symbol, names in zip(symbols, found, strict=True):
            order = np.lexsort((names, tie_order(names)))
            ids[symbol] = names[order]

    found = []
    likely = math.ceil(count / max(rows_of_symbol, 1))  # as many as are likely to have the rows
    orders = np.argsort(-similarities, axis=1, kind="stable")
    nearest = np.unique(orders[:, :likely])
    read_new(nearest.tolist())
    for scores, order in zip(similarities, orders.tolist(), strict=True):
        near = [database.layout.id_array([])]
        start = 0
        while start < len(order) and sum(map(len, near)) < count:
            symbols = order[start : start + max(likely, start)]  # twice as many, each time
            start += len(symbols)
            read_new(symbols)
            near += [ids[symbol] for symbol in symbols]
        sizes = [*map(len, near[1:])]
        values = np.repeat(scores[order[:start]].astype(np.float64), sizes)
        found.append((np.concatenate(near)[:count], values[:count]))
    return found
