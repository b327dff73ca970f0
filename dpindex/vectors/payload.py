"""Tables of payload columns, which are published beside the codes, from .parquet and .csv files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dpindex.vectors.source import Location, locate

Table: TypeAlias = Any
"""A ``pyarrow.Table``."""


def read_payload(location: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Table:
    """Read a table with one row for each vector.

    Parameters
    ----------
    location : path
        A .parquet file, or a .csv file whose first line names the columns. A key after a colon,
        which names a column of vectors, is passed over.
    columns : sequence of str, optional
        Columns to take; default all.

    Raises
    ------
    InputError
        For a file that cannot be read, and a column that is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "payload.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("title,year\\none,1999\\ntwo,2001\\n")
    ...     read_payload(path, ["year"]).to_pydict()
    {'year': [1999, 2001]}
    """
    file, read = locate(location, _TABLES, "file of payload columns")
    with file.reading(), file.resources:
        table = read(file)
        file.check_names(table.column_names)
        for name in columns or ():
            if table.column_names.count(name) != 1:
                names = ", ".join(table.column_names)
                raise file.error(f"it has no single column {name!r}; its columns are {names}.")
        if columns is None:
            return table
        return table.select(columns)


def _parquet(location: Location) -> Table:
    from pyarrow import parquet

    return parquet.read_table(location.path, partitioning=None)


def _csv(location: Location) -> Table:
    from pyarrow import csv

    try:
        return csv.read_csv(location.path)
    except ValueError as error:  # Arrow repeats the line, other columns of it included
        row = re.search(r"Row #(\d+)", str(error))
        place = f"line {row[1]} of it" if row else "it"
        raise location.error(
            f"{place} is no line of a table in UTF-8; give every line one cell for each column."
        ) from None


_TABLES: dict[str, Callable[[Location], Table]] = {".parquet": _parquet, ".csv": _csv}
