"""What is shown of long work and of results: a progress bar, counts, HTML, JSON, bounds.

Rich is imported only when something is drawn.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from html import escape
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import escaped

__all__ = ["no_progress", "progress_bar"]  # what the reference shows

Progress: TypeAlias = Callable[[int, int, str], object]
"""Called with the steps that are done, all steps, and what is done now."""


def no_progress(done: int, total: int, task: str = "") -> None:
    """Show nothing, whatever ``done``, ``total`` and ``task`` are: see :func:`progress_bar`.

    >>> no_progress(1, 2)
    """


@contextmanager
def progress_bar(what: str, *, quarters: bool = False) -> Iterator[Callable[..., None]]:
    """A bar named ``what`` on a terminal and in a notebook with ipywidgets.

    In a pipe a line for each quarter if ``quarters``, for what takes minutes; else nothing.

    Yields ``report(done, total, task="")``, which the ``progress`` argument of
    :func:`dpindex.plan`, :func:`dpindex.evaluate` and :func:`dpindex.build` takes.

    >>> with progress_bar("planning") as report:
    ...     report(1, 2)
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not is_terminal and "IPython" not in sys.modules:
        # nobody waits for rich to be imported
        yield _quarter_lines(what) if quarters else no_progress
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    seen = console.is_terminal
    if console.is_jupyter:  # rich warns about a notebook without ipywidgets and shows nothing
        seen = find_spec("ipywidgets") is not None
    with Progress(console=console, disable=not seen, transient=True) as progress:
        bar = progress.add_task(what, total=None)

        def report(done: int, total: int, task: str = "") -> None:
            description = what
            if task:
                description = f"{what}: {task}"
            progress.update(bar, completed=done, total=total, description=description)

        yield report


def _quarter_lines(what: str) -> Callable[..., None]:
    """Return a report that prints a line for each quarter, and for each further pass."""
    before = 0
    shown = 0

    def report(done: int, total: int, task: str = "") -> None:
        nonlocal before, shown
        quarter = 4 * done // total
        share = f"{100 * done // total} %; "
        if done < before:  # a further pass, whose share of all that is done is not known
            share = ""
        if not share or shown < quarter < 4:
            print(f"{what}: {share}{task}", file=sys.stderr, flush=True)
        before = done
        shown = max(shown, quarter)

    return report


_PRECISION = re.compile(r"(?:\.(\d+))?([gf%])")
_DIGITS = 400
"""More than any float needs."""

_LEFT = ' style="text-align: left"'


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    >>> counted(1, "code"), counted(2, "code")
    ('1 code', '2 codes')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A title and labelled lines.

    >>> facts_html("Index", {"path": "<a>"})  # doctest: +ELLIPSIS
    '<b>Index</b><table><tr><th ...>path</th><td ...>&lt;a&gt;</td></tr></table>'
    """
    rows = []
    for name, fact in facts.items():
        rows.append(f"<th{_LEFT}>{_text(name)}</th><td{_LEFT}>{_text(fact)}</td>")
    return f"<b>{_text(title)}</b><table>{_lines(rows)}</table>"


def text_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as aligned text; what cannot be printed of a cell is escaped, None is empty.

    >>> print(text_table(["id", "score"], [[7, "0.5"], ["doc-1", None]]))
    id     score
    7      0.5
    doc-1
    """
    lines = [
        ["" if cell is None else escaped(str(cell)) for cell in row] for row in [headings, *rows]
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [map(str.ljust, line, widths) for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def table_html(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
) -> str:
    """A title and a table.

    On a narrow screen the table scrolls by itself.

    >>> table_html("Hits", ["id"], [["<b>"]])  # doctest: +ELLIPSIS
    '<b>Hits</b><div ...><table><tr><th>id</th></tr><tr><td>&lt;b&gt;</td></tr></table></div>'
    """
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = ("".join(f"<td>{_text(value)}</td>" for value in row) for row in rows)
    table = f"<table>{_lines([head, *body])}</table>"
    return f'<b>{_text(title)}</b><div style="overflow-x:auto">{table}</div>'


def json_columns(columns: Mapping[str, AnyArray]) -> dict[str, list[Any]]:
    """Return arrays by name as lists of plain values: JSON has no NaN, so None is in its place.

    >>> json_columns({"score": np.array([0.5, np.nan]), "id": np.array([7, 9])})
    {'score': [0.5, None], 'id': [7, 9]}
    """
    lists = {}
    for name, column in columns.items():
        values = column.astype(object)
        if column.dtype.kind == "f":
            values[~np.isfinite(column)] = None
        elif column.dtype.kind == "O":
            is_bad = [isinstance(one, float) and not math.isfinite(one) for one in column.flat]
            values[np.reshape(is_bad, column.shape).astype(np.bool_)] = None
        lists[name] = values.tolist()
    return lists


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"<tr>{row}</tr>" for row in rows)


def _text(value: object) -> str:
    return escape(str(value))


class _Bound(float):
    """A float that formats as a number on the safe side of it."""

    __slots__ = ()
    _rounding: ClassVar[str]

    def __format__(self, form: str) -> str:
        precision = _PRECISION.fullmatch(form)
        number = Decimal(repr(float(self)))
        if precision is None or not number.is_finite():
            return float.__format__(self, form)
        digits = int(precision[1] or 6)
        if precision[2] == "g":
            number = Context(max(1, digits), self._rounding).plus(number)
        else:
            places = digits + 2 * (precision[2] == "%")
            step = Decimal(1).scaleb(-places)
            number = number.quantize(step, self._rounding, Context(_DIGITS))
        return float.__format__(float(number), form)


class UpperBound(_Bound):
    """A number that is never exceeded: what an epsilon, a delta or a rate of success is at most.

    >>> f"{UpperBound(0.1234561):g}", f"{UpperBound(0.4):.0%}", f"{UpperBound(1.001):.1f}"
    ('0.123457', '40%', '1.1')
    """

    __slots__ = ()
    _rounding = ROUND_CEILING


class LowerBound(_Bound):
    """A number that is never fallen short of: the change that an epsilon pays for.

    >>> f"{LowerBound(2 / 3):g}"
    '0.666666'
    """

    __slots__ = ()
    _rounding = ROUND_FLOOR
