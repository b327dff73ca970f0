"""HTML for notebooks: a title, facts or a table; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

__all__ = ["facts_html", "table_html"]

_LEFT = ' style="text-align: left"'


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A title and labelled lines.

    >>> facts_html("Index", {"path": "<a>"})  # doctest: +ELLIPSIS
    '<b>Index</b><table><tr><th ...>path</th><td ...>&lt;a&gt;</td></tr></table>'
    """
    rows = (f"<th{_LEFT}>{_text(name)}</th><td{_LEFT}>{_text(v)}</td>" for name, v in facts.items())
    return f"<b>{_text(title)}</b><table>{_lines(rows)}</table>"


def table_html(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A title and a table.

    >>> table_html("Hits", ["id"], [["<b>"]])
    '<b>Hits</b><table><tr><th>id</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = ("".join(f"<td>{_text(value)}</td>" for value in row) for row in rows)
    return f"<b>{_text(title)}</b><table>{_lines([head, *body])}</table>"


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"<tr>{row}</tr>" for row in rows)


def _text(value: object) -> str:
    return escape(str(value))
