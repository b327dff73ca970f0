"""Tables of text, .csv and .tsv: vectors, ids and payload; nothing in them is guessed.

The first line is names, or a vector, or refused. A cell stays the text it is unless every cell of
its column is a number. Messages name lines and columns, and repeat no cell.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Doubles, Table
from dpindex.base.errors import escaped, naming
from dpindex.base.ids import ids_of_text
from dpindex.base.tables import arrow, refuse_ids
from dpindex.data.source import Location, VectorSource

MISSING = (
    *("", "na", "n/a", "n.a.", "nan", "null", "nil", "none", "nul", "missing"),
    *("-", "--", ".", "?", "\\n", "#n/a", "#na", "#n/a n/a", "<na>", "<null>", "(null)"),
)
"""Marks of a missing value, in small letters."""

_HEADERS = {"header=yes": True, "header=no": False}
_WHOLE = "^(0|-?[1-9][0-9]*)$"
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_LOGICAL = "^([Tt]rue|[Ff]alse|TRUE|FALSE)$"
_REMEDY = (
    "say --header yes if it is names, and --header no if it is a vector (in Python PATH:header=yes)"
)
_ROW_INDEX = (
    "it is the row index of a data frame, and no coordinate; write the table without it (pandas: "
    "to_csv(path, index=False))"
)


def stated_header(location: Location) -> bool | None:
    """What ``PATH:header=yes`` or ``PATH:header=no`` says of the first line, None without it."""
    if location.key is None:
        return None
    if location.key not in _HEADERS:
        raise location.error("write PATH:header=yes or PATH:header=no; text has no other keys.")
    return _HEADERS[location.key]


def open_text(location: Location, delimiter: str) -> VectorSource:
    """The file is read once for its shape; every line is checked when its row is read."""
    text = open(location.path, encoding="utf-8-sig")  # noqa: SIM115
    location.resources.enter_context(text)

    def lines() -> Iterator[str]:
        text.seek(0)
        try:
            yield from (line for row, line in enumerate(text) if line.strip() or row == 0)
        except UnicodeDecodeError:  # its message repeats what it cannot read
            refuse_other_encodings(location)
            raise

    line = next(lines(), "")
    _refuse_blank(location, line.strip())
    cells = _cells(line, delimiter)
    columns = len(cells)
    _refuse_other_separators(location, cells, delimiter)
    is_named = re.search(r"[^\W\d_eE]", line)  # 1e-5 is no name
    if delimiter == "," and not is_named and re.search(r"\d *[;\t|] *[-+]?\d", line):
        raise location.error(
            "line 1 has commas within numbers, or two separators; write decimal points, and commas "
            "between numbers."
        )
    skipped = int(_has_names(location, cells, stated_header(location)))
    with naming(escaped(location.name)):
        refuse_ids(cells[: columns * skipped])
    rows = 0
    counted = True
    for rows, line in enumerate(islice(lines(), skipped, None), 1):
        counted = counted and line.partition(delimiter)[0].strip('" ') == str(rows - 1)
    if counted and rows > 1 and columns > 1:
        raise location.error(f"its first column counts the rows from 0: {_ROW_INDEX}.")

    def stream(firsts: range) -> Iterator[Doubles]:
        left = islice(lines(), skipped + firsts.start, None)
        for start in firsts:
            chunk = list(islice(left, firsts.step))
            yield _numbers(location, chunk, skipped + start, columns, delimiter)

    shape, dtype = (rows, columns), np.dtype(np.float64)
    return VectorSource(location, shape, dtype, stream, attributes=cells[: columns * skipped])


def _refuse_blank(location: Location, line: object) -> None:
    if not line:
        raise location.error("line 1 is blank; write the file without blank lines.")


def _refuse_other_separators(location: Location, cells: Sequence[str], delimiter: str) -> None:
    others = [other for other in ";\t|," if other != delimiter and other in cells[0]]
    spaced = cells[0].split()
    if len(spaced) > 1 and all(_which_are_numbers(spaced)):  # as numpy.savetxt writes them
        others.append(" ")
    if len(cells) == 1 and others:
        raise location.error(
            f"line 1 has {others[0]!r} and no {delimiter!r}; separate cells by commas in a .csv, "
            f"and by tabs in a .tsv."
        )


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _has_names(location: Location, cells: Sequence[str], stated: bool | None) -> bool:
    """Whether the first line is names, and no vector; InputError where it may be either."""
    numbers = _which_are_numbers(cells)
    blank = [column for column, cell in enumerate(cells, 1) if cell.strip().lower() in MISSING]
    is_index = not any(numbers) or (cells[1:2] == ["0"] and _is_run(cells[1:]))
    if blank == [1] and not cells[0].strip() and len(cells) > 1 and is_index:
        raise location.error(f"line 1 has no name for column 1: {_ROW_INDEX}.")
    if stated is not None:
        return stated
    if all(numbers):
        if _is_run(cells):
            raise location.error(
                f"line 1 is a run of whole numbers, which may number the columns; {_REMEDY}."
            )
        return False
    if blank and not all(numbers[column - 1] for column in blank):
        raise location.error(
            f"line 1, column {blank[0]} is empty or marks a missing value; fill it, or {_REMEDY}."
        )
    if any(numbers):
        raise location.error(
            f"line 1, column {numbers.index(False) + 1} is not a number and column "
            f"{numbers.index(True) + 1} is one; {_REMEDY}."
        )
    return True


def _which_are_numbers(cells: Sequence[str]) -> list[bool]:
    if not "".join(cells).strip():
        return [False] * len(cells)
    with suppress(ValueError):  # all at once, where they are many
        if _parsed(cells, "\0").shape == (len(cells), 1):
            return [True] * len(cells)
    return [_is_number(cell) for cell in cells]


def _is_number(cell: str) -> bool:
    try:
        return bool(cell.strip()) and _parsed([cell], "\0").size == 1
    except ValueError:
        return False


def _is_run(cells: Sequence[str]) -> bool:
    """Whether the cells are consecutive whole numbers, or 0 alone."""
    if not all(re.match(_WHOLE, cell.strip()) for cell in cells):
        return False
    first = int(cells[0])
    if len(cells) == 1:
        return first == 0
    return [int(cell) for cell in cells] == list(range(first, first + len(cells)))


def _numbers(
    location: Location,
    lines: list[str],
    first: int,
    columns: int,
    delimiter: str,
) -> Doubles:
    with suppress(ValueError):
        numbers = _parsed(lines, delimiter)
        if numbers.shape[1] == columns and np.isfinite(numbers).all():
            return numbers
    for row, line in enumerate(lines, first):
        cells = _cells(line, delimiter)
        if len(cells) != columns:
            raise location.error(
                f"line {_line_number(location, row)} has {len(cells)} values where line 1 "
                f"has {columns}; all lines must have as many."
            )
        for column, cell in enumerate(cells, 1):
            if _is_number(cell) and np.isfinite(_parsed([cell], "\0")).all():
                continue
            fault = (
                "is not a number (its text is not shown); a table of vectors holds numbers only: "
                "leave other columns out"
            )
            if cell.strip().lower() in MISSING:
                fault = "is empty or marks a missing value; fill it, or leave its line out"
            elif _is_number(cell):
                fault = "is no finite number; correct it, or leave its line out"
            raise location.error(f"line {_line_number(location, row)}, column {column} {fault}.")
    raise location.error("its lines are not numbers between separators.")


def _line_number(location: Location, row: int) -> int:
    """The number of a line, of which ``row`` that are not blank stand before it."""
    with open(location.path, encoding="utf-8-sig") as text:
        numbers = (number for number, line in enumerate(text, 1) if line.strip())
        return next(islice(numbers, row, None))


def _parsed(lines: Iterable[str], delimiter: str) -> Doubles:
    return np.loadtxt(
        lines,
        delimiter=delimiter,
        ndmin=2,
        comments=None,
        quotechar='"',
    )


def refuse_other_encodings(location: Location) -> None:
    """Raise InputError, with the line, for a file that is not text in UTF-8."""
    with open(location.path, "rb") as file:
        _refuse_other_encodings(location, file)


def _refuse_other_encodings(location: Location, lines: Iterable[bytes]) -> None:
    for number, line in enumerate(lines, 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            raise location.error(
                f"line {number} cannot be read as UTF-8 (it is Latin-1 or UTF-16, perhaps); save "
                f"the file in UTF-8."
            ) from None


def text_table(location: Location, delimiter: str) -> Table:
    """Return the cells below a line of names, all as text; InputError repeats none of them."""
    pa = arrow()
    from pyarrow import csv as arrow_csv

    refuse_other_encodings(location)
    with open(location.path, encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file, delimiter=delimiter), [])
    _refuse_blank(location, names)
    _refuse_other_separators(location, names, delimiter)
    with open(location.path, "rb") as quoted:
        if sum(line.count(b'"') for line in quoted) % 2:  # else Arrow finds what is wrong
            _refuse_ragged(location, delimiter, len(names))
    if not _has_names(location, names, stated_header(location)):
        raise location.error(
            "line 1 is numbers, and names of columns are needed; write a line of names, or say "
            "PATH:header=yes if these are names."
        )
    for column, name in enumerate(names, 1):
        if not name.isprintable():
            raise location.error(
                f"line 1, column {column} has characters that cannot be printed; rename it."
            )
    if len(set(names)) < len(names):
        raise location.error("line 1 has a name twice; rename one of the columns.")
    try:
        return arrow_csv.read_csv(
            location.path,
            arrow_csv.ReadOptions(use_threads=False),  # which says where it stopped
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except pa.ArrowException:
        _refuse_ragged(location, delimiter, len(names))
        raise location.error(
            f"a line of it is not a line of a table: it needs one cell for each of the "
            f"{len(names)} columns."
        ) from None


def _refuse_ragged(location: Location, delimiter: str, columns: int) -> None:
    """Refuse a line of other cells, and a quote that would take all lines below it into one."""
    with open(location.path, encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(text, delimiter=delimiter, strict=True)
        begins = 0
        try:
            for cells in rows:
                if cells and len(cells) != columns:
                    raise location.error(
                        f"line {begins + 1} has {len(cells)} cells where line 1 has {columns}; all "
                        f"lines must have as many."
                    )
                begins = rows.line_num
        except csv.Error:
            raise location.error(f"line {begins + 1} opens a quote that is not closed.") from None


def typed(table: Table, texts: Collection[str] = ()) -> Table:
    """Return columns of text as numbers where every cell is one, and ids as :func:`ids_of_text`.

    Parameters
    ----------
    table : pyarrow.Table
        Of :func:`text_table`.
    texts : collection of str
        Columns that stay text.
    """
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if name == "id":
            column = arrow().array(ids_of_text(column.to_pylist()))
        elif name not in texts:
            column = _typed(column)
        columns[name] = column
    return arrow().table(columns)


def _typed(column: Any) -> Any:
    """Return whole numbers, decimals or bools, with nulls at marks of missing values, or text.

    A leading zero, twenty digits or ``3e2`` alone stay text: a number would not say the same.
    """
    from pyarrow import compute as pc

    pa = arrow()
    is_missing = pc.is_in(pc.utf8_lower(column), pa.array(MISSING))
    filled = pc.if_else(is_missing, pa.scalar(None, pa.string()), column)
    if filled.null_count == len(filled):
        return column
    forms = {_WHOLE: pa.int64(), _NUMBER: pa.float64(), _LOGICAL: pa.bool_()}
    for pattern, kind in forms.items():
        if not pc.all(pc.match_substring_regex(filled, pattern)).as_py():
            continue
        if pattern == _NUMBER and not pc.any(pc.match_substring(filled, ".")).as_py():
            return column
        try:
            return filled.cast(kind)
        except pa.ArrowException:  # beyond 64 bits
            return column
    return column


def text_ids(location: Location, data: bytes) -> AnyArray:
    """Return ids of one id a line, each the text it is but for the end of its line."""
    _refuse_other_encodings(location, data.split(b"\n"))
    text = data.decode("utf-8-sig")
    whole = text.removesuffix("\n")
    lines = [line.removesuffix("\r") for line in whole.split("\n")]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise location.error(f"line {number} is empty; write one id on every line.")
    return ids_of_text(lines)


def txt_ids(location: Location) -> AnyArray:
    """The lines of a .txt file."""
    location.refuse_key()
    return text_ids(location, Path(location.path).read_bytes())


OPEN_TEXT = {".csv": partial(open_text, delimiter=","), ".tsv": partial(open_text, delimiter="\t")}
