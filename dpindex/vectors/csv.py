"""Vectors in text: a .csv file of numbers, one vector a line, perhaps below a line of names."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from dpindex.base.arrays import Doubles
from dpindex.vectors.source import Location, VectorSource


def open_csv(location: Location) -> VectorSource:
    """The file is read once for its shape; every line is checked when its row is read."""
    file = location.open_binary()
    text = io.TextIOWrapper(io.BufferedReader(file), "utf-8-sig")  # type: ignore[type-var]

    def lines() -> Iterator[str]:
        text.seek(0)
        try:
            yield from (line for line in text if line.strip())
        except UnicodeDecodeError:  # its message repeats what it cannot read
            raise location.error("it is not text in UTF-8; save it again.") from None

    first = next(lines(), "")
    columns = len(first.split(","))
    skipped = 0 if _is_numbers(first) else 1
    rows = sum(1 for _ in lines()) - skipped

    def stream(firsts: range) -> Iterator[Doubles]:
        left = islice(lines(), skipped + firsts.start, None)
        return (_numbers(location, list(islice(left, firsts.step)), start, columns)
                for start in firsts)  # fmt: skip

    return VectorSource(location, (rows, columns), np.dtype(np.float64), stream)


def _numbers(location: Location, lines: list[str], first: int, columns: int) -> Doubles:
    try:
        numbers = _parsed(lines)
        if numbers.shape[1] == columns:
            return numbers
    except ValueError:
        pass
    for row, line in enumerate(lines, first):
        cells = line.strip().split(",")
        if len(cells) != columns:
            raise location.error(
                f"row {row} has {len(cells)} values and the first line {columns}; all lines must "
                f"have as many, separated by commas."
            )
        for column, cell in enumerate(cells):
            if not _is_numbers(cell):
                raise location.error(
                    f"row {row}, column {column} is no number (its text is not shown); a .csv of "
                    f"vectors holds numbers only: leave other columns out."
                )
    raise location.error("its lines are no numbers separated by commas.")


def _parsed(lines: Iterable[str]) -> Doubles:
    return np.loadtxt(lines, delimiter=",", ndmin=2, comments=None, quotechar='"')


def _is_numbers(line: str) -> bool:
    try:
        return bool(line.strip()) and bool(_parsed([line]).size)
    except ValueError:
        return False
