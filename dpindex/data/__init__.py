"""Readers of vector files: one :class:`VectorSource` for every format, read in chunks.

Memory is bounded by the chunk that is asked for, not by the file; only a .npz file is loaded whole,
and refused where it would take far more memory than its size. Whatever a file declares about
itself is checked against its size first; whatever is wrong with it raises an
:class:`~dpindex.base.errors.InputError` of one sentence.

Files of rows with named columns, such as payload and texts to embed, are read whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dpindex.base.arrays import Table
from dpindex.base.checks import unique_fields
from dpindex.base.errors import InputError, naming
from dpindex.base.files import AnyPath
from dpindex.base.tables import arrow, table_of_rows
from dpindex.data.columns import COLUMN_SUFFIXES, open_columns
from dpindex.data.dataset import Dataset, open_dataset
from dpindex.data.ranges import Ranges, one_per_person
from dpindex.data.readers import open_vectors, read_ids
from dpindex.data.source import Location, VectorSource, as_source, dense_rows, locate, taken_rows
from dpindex.data.text import text_table, typed

__all__ = [
    "TABLE_SUFFIXES",
    "Dataset",
    "Ranges",
    "VectorSource",
    "as_source",
    "dense_rows",
    "one_per_person",
    "open_dataset",
    "open_vectors",
    "read_ids",
    "read_payload",
    "read_tables",
    "taken_rows",
]


def read_tables(files: Sequence[AnyPath], texts: Collection[str] = ()) -> Table:
    """Read tables of one format, one below the other.

    Parameters
    ----------
    files : sequence of path
        At least one, each .parquet, .arrow, .feather, .jsonl, or .csv or .tsv whose first line
        names the columns. Cells of text files stay text unless all of their column are numbers.
    texts : collection of str
        Columns of .csv and .tsv files that stay text in any case.

    Raises
    ------
    InputError
        For a file that cannot be read, with the place and nothing of what stands there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/payload.csv"
    ...     with open(path, "w") as file:
    ...         _ = file.write("code,year\\n001,1999\\n020,2001\\n")
    ...     read_tables([path]).to_pydict()
    {'code': ['001', '020'], 'year': [1999, 2001]}
    """
    parts = []
    for path in files:
        location, read = locate(path, _TABLES, "table")
        if location.key is not None and read not in _OF_TEXT.values():
            # Passed over it would publish all columns, where someone meant one.
            raise location.error(
                "leave out what follows ':' and name columns apart.",
                field="column" if texts else "payload_columns",
            )
        with location.reading(), location.resources:
            part = read(location)
            location.check_names(part.column_names)
            parts.append(part)
    try:
        table = arrow().concat_tables(parts)
    except arrow().ArrowException:
        raise InputError(
            f"{files[0]} and files beside it have different columns; make them alike."
        ) from None
    if read in _OF_TEXT.values():
        return typed(table, texts)
    return table


def read_payload(location: AnyPath, columns: Sequence[str] | None = None) -> Table:
    """Read a table with one row for each vector.

    Parameters
    ----------
    location : path
        As for :func:`read_tables`.
    columns : sequence of str, optional
        Columns to take; default all.

    Raises
    ------
    InputError
        For a file that cannot be read, and a column that is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/payload.csv"
    ...     with open(path, "w") as file:
    ...         _ = file.write("title,year\\none,1999\\ntwo,2001\\n")
    ...     read_payload(path, ["year"]).to_pydict()
    {'year': [1999, 2001]}
    """
    table = read_tables([location])
    for name in columns or ():
        if table.column_names.count(name) != 1:
            # What stands for names in the first line of a text may be a row of it: none is shown.
            raise InputError(
                f"{location}: it has no single column {name!r} among its {table.num_columns} "
                f"columns."
            )
    if columns is None:
        return table
    return table.select(columns)


def _columns(location: Location) -> Table:
    file = open_columns(location)
    names = file.schema.names
    for name in names:
        if names.count(name) > 1:
            raise location.error(f"two columns are called {name!r}; rename one of them.")
    return file.read(names, file.groups)


def _json_lines(location: Location) -> Table:
    with naming(location.name):
        return table_of_rows(list(_objects(location)))


def _objects(location: Location) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(Path(location.path).read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.removeprefix(b"\xef\xbb\xbf"), object_pairs_hook=unique_fields)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise location.error(
                f"line {number} is not a JSON object in UTF-8, or has a name twice."
            )
        yield row


_OF_TEXT: dict[str, Callable[[Location], Table]] = {
    ".csv": partial(text_table, delimiter=","),
    ".tsv": partial(text_table, delimiter="\t"),
}
_TABLES: dict[str, Callable[[Location], Table]] = {
    **dict.fromkeys(COLUMN_SUFFIXES, _columns),
    ".jsonl": _json_lines,
    **_OF_TEXT,
}
TABLE_SUFFIXES = tuple(_TABLES)
