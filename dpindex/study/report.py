"""The files of an evaluation, tables as CSV and one HTML page with everything; and a demonstration.

The page is for people without an installation, a server or a network. An epsilon is dragged in it,
and recall and exposure follow; uPlot draws its charts. A content security policy in it forbids
everything but its own two scripts, style and pictures. Pillow and Jinja2 are imported only to
write a report.
"""

from __future__ import annotations

import hashlib
import math
import platform
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy

from dpindex.base.errors import import_extra
from dpindex.base.files import AnyPath, make_folder, write_file, writing
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Adjacency, Guarantee, record
from dpindex.study.attacks import Attack
from dpindex.study.curve import Curve, Point
from dpindex.study.examples import TextGuess
from dpindex.study.explorer import NEED, Shown, page_data
from dpindex.study.runs_file import REMEDY, RUNS_FILE, csv_bytes, refuse_other_report
from dpindex.version import __version__

TITLE = "What an epsilon hides, and what it finds"

_FILES = Path(__file__).parent / "page"


@dataclass(frozen=True, kw_only=True)
class Additions:
    """What a report holds beside the curves.

    Attributes
    ----------
    notes : sequence of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.
    texts : sequence of TextGuess
        What :func:`dpindex.study.text_attack` returns.
    attacks : sequence of Attack
        What :func:`dpindex.study.attack_panel` returns.

    >>> Additions(notes=["raw-laplace: left out"]).attacks
    ()
    """

    notes: Sequence[str] = ()
    texts: Sequence[TextGuess] = ()
    attacks: Sequence[Attack] = ()


def write_report(
    directory: AnyPath,
    curves: Sequence[Curve],
    shown: Shown | None = None,
    additions: Additions | None = None,
    *,
    title: str = TITLE,
    replace: bool = False,
) -> Path:
    """Write what was measured as files; return the path of the page.

    ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
    deviation; ``runs.csv`` has one line for each run; ``report.html`` contains everything, and
    epsilon is a slider in it where two or more were measured. Each file is written whole or not at
    all.

    The page shows originals beside reconstructions, so it is as private as the vectors that it was
    made of: make it of public data before it is sent around.

    Parameters
    ----------
    directory : path
        Created if missing. A report in it is replaced if this one has all its runs.
    curves : sequence of Curve
        What :func:`dpindex.evaluate` measured, at least one.
    shown : Shown, optional
        How examples are shown; default as stripes of numbers, if they were measured: see
        ``evaluate(examples=…)``. Name pictures or texts here.
    additions : Additions, optional
        Further sections of the page; ``texts.csv`` and ``attacks.csv`` if it has such.
    title : str
        Heading of the page.
    replace : bool
        Replace a report of other runs too.

    Raises
    ------
    InputError
        If Pillow or Jinja2 is missing (the CSV files are written first), the directory cannot be
        written, or it holds a report of other runs.

    >>> import tempfile
    >>> from dpindex import attribute, evaluate
    >>> from dpindex.study import spec_grid
    >>> base = np.random.default_rng(0).random((60, 8))
    >>> specs = spec_grid(8, ["dp-oporp-staircase"], [2, 20], adjacency=attribute(1.0)).specs
    >>> curves = evaluate(base, base[:5], specs, runs=1, neighbours=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(folder, curves).name
    'report.html'
    """
    folder = Path(directory)
    lines = [curve.line(run) for curve in curves for run in curve.runs]
    if not replace:
        refuse_other_report(folder, {line["run"] for line in lines})
    more = additions or Additions()
    tables = {
        "curve.csv": [line for curve in curves for line in _mean_lines(curve)],
        RUNS_FILE: lines,
        "texts.csv": [guess.line() for guess in more.texts],
        "attacks.csv": [figure.line() for figure in more.attacks],
    }
    write_all(folder, {name: csv_bytes(table) for name, table in tables.items() if table})
    measured = [curve.examples for curve in curves if curve.examples]
    if shown is None and measured:
        shown = Shown(*measured[0].vectors)
    html = page_html(curves, shown, more, title=title)
    write_all(folder, {"report.html": html.encode()})
    return folder / "report.html"


def _mean_lines(curve: Curve) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``curve.csv``."""
    for point in curve.points:
        facts = curve.cells(point)
        for name, mean in point.mean.items():
            std = point.std[name]
            yield {
                **facts,
                "measure": curve.full_name(name),
                "mean": mean,
                "std": "" if math.isnan(std) else std,
                "runs": point.runs,
            }


def write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write each file whole or not at all; InputError if the directory cannot be written."""
    with writing(folder, REMEDY):
        make_folder(folder)
        for name, data in files.items():
            write_file(folder / name, data)


def require_libraries() -> None:
    """Raise InputError unless Jinja2 and Pillow are installed.

    Check before hours of work.

    >>> require_libraries()
    """
    import_extra("jinja2", NEED, "eval")
    import_extra("PIL.Image", NEED, "eval")


def weakest_guarantees(points: Iterable[Point]) -> list[tuple[str, Guarantee]]:
    """Return methods with the same kind of guarantee, and that guarantee at the largest epsilon."""
    groups: dict[tuple[Any, ...], list[Spec]] = {}
    for spec in (point.spec for point in points):
        if spec.epsilon is not None:
            kind = (spec.guarantee.definition, spec.delta, spec.adjacency)
            groups.setdefault(kind, []).append(spec)
    promises = []
    for specs in groups.values():
        methods = dict.fromkeys(spec.method for spec in specs)
        weakest = max(specs, key=lambda spec: spec.budget)
        promises.append((", ".join(methods), weakest.guarantee))
    return promises


def page_html(
    curves: Sequence[Curve],
    shown: Shown | None = None,
    additions: Additions | None = None,
    *,
    title: str = TITLE,
) -> str:
    """Return a report as one HTML page that refers to nothing outside itself.

    Curves with an epsilon can be moved; the tables and sentences below them stand still.

    Parameters
    ----------
    curves : sequence of Curve
        One for each adjacency, at least one, all of one base and the same queries.
    shown, additions, title
        As of :func:`write_report`.

    Raises
    ------
    InputError
        If Jinja2 or Pillow is missing.
    """
    more = additions or Additions()
    points = [point for curve in curves for point in curve.points]
    promises = weakest_guarantees(points)
    dim = curves[0].dim
    limits = [line for _, guarantee in promises for line in guarantee.does_not_protect(dim)]
    movable = [curve for curve in curves if curve.epsilons]
    data = None
    scripts: list[str] = []
    if movable:
        data = page_data(movable, shown)
        licence = _read("uplot/LICENSE").replace("*/", "* /")
        scripts = [f"/*\n{licence}*/\n{_read('uplot/uPlot.iife.min.js')}", _read("page.js")]
    text = _template().render(
        title=title,
        data=data,
        dragged=any(len(curve.epsilons) > 1 for curve in movable),
        curves=curves,
        curve=curves[0],
        promises=promises,
        limits=dict.fromkeys(limits),
        whole_records=any(point.spec.adjacency == record() for point in points),
        texts=list(_tables(more.texts, "row")),
        attacks=list(_tables(more.attacks, "name", "setting")),
        notes=more.notes,
        version=__version__,
        libraries=(np, scipy, faiss),
        platform=platform,
        now=datetime.now(timezone.utc),
        style=_read("uplot/uPlot.min.css") + _read("page.css"),
        scripts=scripts,
    )
    return str(text)


def _template() -> Any:
    """Return the template of the page."""
    jinja = import_extra("jinja2", NEED, "eval")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(_FILES),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # NaN, which JSON has not, is an error.
    json_format = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    environment.policies["json.dumps_kwargs"] = json_format
    environment.filters["hash"] = _hash
    return environment.get_template("page.html.j2")


def _tables(
    figures: Iterable[Attack | TextGuess], *row: str
) -> Iterator[tuple[str, list[float], list[list[Attack | TextGuess | None]]]]:
    """Yield for each method and adjacency its name, its epsilons, and rows of figures by epsilon.

    Figures of one row agree in the attributes ``row``; None stands where there is no figure.
    """
    row_of = attrgetter(*row)
    tables: dict[tuple[str, Adjacency], dict[Any, dict[float, Any]]] = {}
    for figure in figures:
        spec = figure.spec
        table = tables.setdefault((spec.method, spec.adjacency), {})
        table.setdefault(row_of(figure), {})[spec.budget] = figure
    for (method, _), table in tables.items():
        epsilons = sorted({epsilon for cells in table.values() for epsilon in cells})
        rows = [[cells.get(epsilon) for epsilon in epsilons] for cells in table.values()]
        yield method, epsilons, rows


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return what a content security policy allows a text by."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{b64encode(digest).decode()}"
