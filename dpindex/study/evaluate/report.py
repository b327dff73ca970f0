"""The files of an evaluation: CSV tables, charts, and one HTML report that contains everything.

Matplotlib and Jinja2 are imported only to write a report.
"""

from __future__ import annotations

import math
import os
import platform
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy

from dpindex.base import charts
from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.base.files import write_file
from dpindex.index.queries import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.study.evaluate.curve import Curve, Point
from dpindex.study.evaluate.curve_charts import PANEL_TITLES, curve_png
from dpindex.study.evaluate.runs_file import NAME, as_text, csv_bytes, refuse_other_report
from dpindex.study.evaluate.text_attack import TextAttack
from dpindex.version import __version__


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


def write_curve(
    curve: Curve,
    directory: str | os.PathLike[str],
    *,
    title: str = "Retrieval quality by epsilon",
    notes: Iterable[str] = (),
    pictures: Iterable[Picture] = (),
    texts: TextAttack | None = None,
    explorer: str | None = None,
    replace: bool = False,
) -> Path:
    """Write a curve as files; returns the path of the report.

    ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
    deviation; ``runs.csv`` has one line for each run; ``curve.png`` is the chart of recall@10 and
    precision@10; ``report.html`` contains everything. Each file is written whole or not at all.

    Parameters
    ----------
    curve : Curve
    directory : path
        Created if missing. A report in it is replaced if this curve has all its runs.
    title : str
        Heading of the report.
    notes : iterable of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.
    pictures : iterable of Picture
        Further pictures for the report.
    texts : TextAttack, optional
        What an attack on codes of texts gives back: a section of the report, and ``texts.csv``.
    explorer : str, optional
        Name of an explorer page beside the report, to be linked.
    replace : bool
        Replace a report of other runs too.

    Raises
    ------
    InputError
        If Matplotlib or Jinja2 is missing (the CSV files are written first), the directory cannot
        be written, or it holds a report of other runs.

    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex.study.evaluate.curve import recall_curve, spec_grid
    >>> base = np.random.default_rng(0).random((60, 8))
    >>> specs = spec_grid(8, ["dp-oporp-staircase"], [2, 20]).specs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_curve(recall_curve(base, base[:5], specs, runs=1, neighbours=10), folder).name
    'report.html'
    """
    folder = Path(directory)
    lines = [curve.line(run) for run in curve.runs]
    if not replace:
        refuse_other_report(folder, list(map(as_text, lines)).__contains__)
    means = csv_bytes(
        {
            **curve.cells(point),
            "measure": curve.full_name(name),
            "mean": mean,
            "std": "" if math.isnan(point.std[name]) else point.std[name],
            "runs": point.runs,
        }
        for point in curve.points
        for name, mean in point.mean.items()
    )
    tables = {"curve.csv": means, NAME: csv_bytes(lines)}
    if texts is not None:
        tables["texts.csv"] = csv_bytes(texts.lines())
    write_all(folder, tables)
    drawn = {name: curve_png(curve, name) for name in ("found", "recall@100", "exposure")}
    promises = _promises(curve)
    pictures = tuple(pictures)
    html = _render(
        curve=curve,
        title=title,
        charts=drawn,
        pictures=pictures,
        texts=texts,
        explorer=explorer,
        notes=tuple(notes),
        panel_titles=PANEL_TITLES,
        best=_best(curve),
        promises=promises,
        limits=dict.fromkeys(line for _, p in promises for line in p.does_not_protect(curve.dim)),
        version=__version__,
        libraries=(np, scipy, faiss),
        platform=platform,
        now=datetime.now(timezone.utc),
    )
    write_all(folder, {picture.file: picture.png for picture in pictures if picture.file})
    write_all(folder, {"curve.png": drawn["found"], "report.html": html.encode()})
    return folder / "report.html"


def write_all(path: Path, files: dict[str, bytes]) -> None:
    """Write each file whole or not at all; InputError if the directory cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_file(path / name, data)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; choose another directory.") from error


def _render(**context: Any) -> str:
    """The HTML of report.html.j2, which refers to nothing outside itself."""
    jinja = _jinja()
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda data: b64encode(data).decode()
    return str(environment.get_template("report.html.j2").render(context))


def _best(curve: Curve) -> list[Point]:
    """The DP method of highest recall@10 for each query mode and epsilon.

    Methods with iDP are left out, because their epsilon promises less.
    """
    best: dict[tuple[QueryMode, float], Point] = {}
    for point in curve.points:
        if point.spec.guarantee.definition == "DP":
            leader = best.setdefault((point.query, point.spec.budget), point)
            if point.mean["recall@10"] > leader.mean["recall@10"]:
                best[point.query, point.spec.budget] = point
    return list(best.values())


def _promises(curve: Curve) -> list[tuple[str, Guarantee]]:
    """Methods with the same kind of guarantee, and that guarantee at the largest epsilon."""
    groups: dict[tuple[Any, ...], list[Spec]] = {}
    for spec in (point.spec for point in curve.points if point.spec.epsilon is not None):
        promise = (spec.guarantee.definition, spec.delta, spec.adjacency)
        groups.setdefault(promise, []).append(spec)
    return [
        (
            ", ".join(dict.fromkeys(spec.method for spec in specs)),
            max(specs, key=lambda spec: spec.budget).guarantee,
        )
        for specs in groups.values()
    ]


def require_matplotlib() -> None:
    """Raise InputError unless Matplotlib and Jinja2 are installed: check before hours of work.

    >>> require_matplotlib()
    """
    charts.require_matplotlib()
    _jinja()


def _jinja() -> Any:
    return import_extra("jinja2", "a report needs jinja2", "eval")
