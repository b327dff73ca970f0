"""The page of a report: one HTML file, for people without an installation, a server or a network.

A content security policy in it forbids everything but its own two scripts, style and pictures.
"""

from __future__ import annotations

import hashlib
import json
import platform
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy

from dpindex.base.extras import import_extra
from dpindex.index.queries import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee, record
from dpindex.study.attacks.panel import Attack, panel_tables
from dpindex.study.evaluate.curve import Curve, Point
from dpindex.study.evaluate.curve_charts import PANEL_TITLES
from dpindex.study.evaluate.explorer.page_data import page_data
from dpindex.study.evaluate.explorer.samples import View
from dpindex.study.evaluate.explorer.shown import Shown
from dpindex.study.evaluate.text_attack import TextAttack
from dpindex.version import __version__

__all__ = ["TITLE", "Additions", "Picture", "Section", "page_html", "require_libraries"]

TITLE = "What an epsilon hides, and what it finds"

_FILES = Path(__file__).parent
_NEED = "a report needs jinja2 and pillow"


@dataclass(frozen=True)
class Picture:
    """A picture in a report.

    Attributes
    ----------
    png : bytes
        The picture.
    caption, title : str
        What stands below it, and the heading above it.
    small : bool
        Keep its own size.
    file : str
        Name under which it is written beside the report too.

    >>> Picture(b"", "Reconstructions at epsilon 2").title
    ''
    """

    png: bytes
    caption: str
    title: str = ""
    small: bool = False
    file: str = ""


@dataclass(frozen=True, kw_only=True)
class Additions:
    """What a report holds beside the views.

    Attributes
    ----------
    notes : sequence of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.
    pictures : sequence of Picture
    texts : TextAttack, optional
        What an attack on codes of texts gives back.
    attacks : sequence of Attack
        Figures of :func:`dpindex.study.evaluate.attack_panel`.

    >>> Additions(notes=["raw-laplace: left out"]).attacks
    ()
    """

    notes: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    texts: TextAttack | None = None
    attacks: Sequence[Attack] = ()


@dataclass(frozen=True)
class Section:
    """The static part of one view.

    Attributes
    ----------
    curve : Curve
    charts : mapping from str to bytes
        Charts of the curve as PNG, by the name of what they show.
    """

    curve: Curve
    charts: Mapping[str, bytes]

    @property
    def whole_records(self) -> bool:
        """True if any two vectors are neighbours under a guarantee of this view."""
        return any(point.spec.adjacency == record() for point in self.curve.points)

    @property
    def best(self) -> list[Point]:
        """The DP method of highest recall@10 for each query mode and epsilon.

        Methods with iDP are left out, because their epsilon promises less.
        """
        best: dict[tuple[QueryMode, float], Point] = {}
        for point in self.curve.points:
            if point.spec.guarantee.definition == "DP":
                leader = best.setdefault((point.query, point.spec.budget), point)
                if point.mean["recall@10"] > leader.mean["recall@10"]:
                    best[point.query, point.spec.budget] = point
        return list(best.values())

    @property
    def promises(self) -> list[tuple[str, Guarantee]]:
        """Methods with the same kind of guarantee, and that guarantee at the largest epsilon."""
        groups: dict[tuple[Any, ...], list[Spec]] = {}
        for spec in (point.spec for point in self.curve.points if point.spec.epsilon is not None):
            kind = (spec.guarantee.definition, spec.delta, spec.adjacency)
            groups.setdefault(kind, []).append(spec)
        return [
            (
                ", ".join(dict.fromkeys(spec.method for spec in specs)),
                max(specs, key=lambda spec: spec.budget).guarantee,
            )
            for specs in groups.values()
        ]

    @property
    def limits(self) -> list[str]:
        """Sentences on what none of the guarantees protects."""
        lines = [p.does_not_protect(self.curve.dim) for _, p in self.promises]
        return list(dict.fromkeys(line for part in lines for line in part))


def page_html(
    views: Sequence[View],
    shown: Shown | None = None,
    additions: Additions | None = None,
    *,
    charts: Sequence[Mapping[str, bytes]] = (),
    title: str = TITLE,
) -> str:
    """Return a report as one HTML page that refers to nothing outside itself.

    Views with an epsilon can be moved; the tables, charts and sentences below them stand still.

    Parameters
    ----------
    views : sequence of View
        One for each adjacency, at least one, all of one base and the same queries.
    shown : Shown, optional
        How single vectors are shown; without it there are no examples.
    additions : Additions, optional
    charts : sequence of mappings from str to bytes
        For each view its charts, as PNG.
    title : str
        Heading.

    Raises
    ------
    InputError
        If Jinja2 or Pillow is missing.
    """
    jinja = import_extra("jinja2", _NEED, "eval")
    more = additions or Additions()
    movable = [view for view in views if view.curve.epsilons]
    data = None
    scripts: list[str] = []
    if movable:
        values = page_data(movable, shown)
        data = jinja.utils.htmlsafe_json_dumps(values, dumps=json_text)
        scripts = _scripts()
    style = _read("uplot/uPlot.min.css") + _read("page.css")
    drawn = charts or [{} for _ in views]
    sections = [Section(view.curve, each) for view, each in zip(views, drawn, strict=True)]
    text = _template(jinja).render(
        title=title,
        data=data,
        dragged=any(len(view.curve.epsilons) > 1 for view in movable),
        sections=sections,
        curve=views[0].curve,
        pictures=more.pictures,
        texts=more.texts,
        attacks=list(panel_tables(more.attacks)),
        notes=more.notes,
        panel_titles=PANEL_TITLES,
        version=__version__,
        libraries=(np, scipy, faiss),
        platform=platform,
        now=datetime.now(timezone.utc),
        style=style,
        scripts=scripts,
        style_hash=_hash(style),
        script_hashes=[_hash(script) for script in scripts],
    )
    return str(text)


def _template(jinja: Any) -> Any:
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda data: b64encode(data).decode()
    return environment.get_template("page.html.j2")


def _scripts() -> list[str]:
    """Return the library of the charts with its licence, and the page's own script."""
    licence = _read("uplot/LICENSE").replace("*/", "* /")
    return [f"/*\n{licence}*/\n{_read('uplot/uPlot.iife.min.js')}", _read("page.js")]


def json_text(data: Any, **options: Any) -> str:
    """Return JSON without spaces; ValueError for NaN, which JSON has not."""
    del options  # Jinja asks for sorted keys
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def require_libraries() -> None:
    """Raise InputError unless Jinja2 and Pillow are installed: check before hours of work."""
    import_extra("jinja2", _NEED, "eval")
    import_extra("PIL.Image", _NEED, "eval")


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
