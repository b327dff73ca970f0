"""The files of an evaluation: CSV tables, charts, and one HTML page that contains everything.

Matplotlib, Pillow and Jinja2 are imported only to write a report.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpindex.base import charts
from dpindex.base.errors import InputError
from dpindex.base.files import write_file
from dpindex.study.evaluate.curve import Curve
from dpindex.study.evaluate.curve_charts import candidates_png, curve_png
from dpindex.study.evaluate.explorer import page
from dpindex.study.evaluate.explorer.page import TITLE, Additions, page_html
from dpindex.study.evaluate.explorer.samples import View
from dpindex.study.evaluate.explorer.shown import Shown
from dpindex.study.evaluate.runs_file import NAME, as_text, csv_bytes, refuse_other_report

__all__ = ["require_libraries", "write_all", "write_report"]


def write_report(
    directory: str | os.PathLike[str],
    views: Sequence[View],
    shown: Shown | None = None,
    additions: Additions | None = None,
    *,
    title: str = TITLE,
    replace: bool = False,
) -> Path:
    """Write what was measured as files; return the path of the page.

    ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
    deviation; ``runs.csv`` has one line for each run; ``curve.png`` is the chart of recall@10 and
    precision@10, and ``candidates.png`` that of recall@10 after R candidates were ordered exactly;
    ``report.html`` contains everything, and epsilon is a slider in it where two or more were
    measured. Each file is written whole or not at all.

    The page shows originals beside reconstructions, so it is as private as the vectors that it was
    made of: make it of public data before it is sent around.

    Parameters
    ----------
    directory : path
        Created if missing. A report in it is replaced if this one has all its runs.
    views : sequence of View
        What was measured under each adjacency: of :func:`measured_views`, or ``[View(curve)]``.
    shown : Shown, optional
        How examples are shown; without it the page has none.
    additions : Additions, optional
        Further sections of the page; ``texts.csv`` and ``attacks.csv`` if it has such.
    title : str
        Heading of the page.
    replace : bool
        Replace a report of other runs too.

    Raises
    ------
    InputError
        If Matplotlib, Pillow or Jinja2 is missing (the CSV files are written first), the directory
        cannot be written, or it holds a report of other runs.

    >>> from dpindex import attribute
    >>> import tempfile
    >>> import numpy as np
    >>> from dpindex.study.evaluate import recall_curve, spec_grid
    >>> base = np.random.default_rng(0).random((60, 8))
    >>> specs = spec_grid(8, ["dp-oporp-staircase"], [2, 20], adjacency=attribute(1.0)).specs
    >>> curve = recall_curve(base, base[:5], specs, runs=1, neighbours=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(folder, [View(curve)]).name
    'report.html'
    """
    folder = Path(directory)
    curves = [view.curve for view in views]
    lines = [curve.line(run) for curve in curves for run in curve.runs]
    if not replace:
        refuse_other_report(folder, list(map(as_text, lines)).__contains__)
    means = [line for curve in curves for line in _means(curve)]
    tables = {"curve.csv": csv_bytes(means), NAME: csv_bytes(lines)}
    more = additions or Additions()
    if more.texts is not None:
        tables["texts.csv"] = csv_bytes(more.texts.lines())
    if more.attacks:
        tables["attacks.csv"] = csv_bytes(figure.line() for figure in more.attacks)
    write_all(folder, tables)
    drawn = [
        {
            "found": curve_png(curve),
            "candidates": candidates_png(curve),
            "recall@100": curve_png(curve, "recall@100"),
            "exposure": curve_png(curve, "exposure"),
        }
        for curve in curves
    ]
    html = page_html(views, shown, more, charts=drawn, title=title)
    write_all(folder, {picture.file: picture.png for picture in more.pictures if picture.file})
    charts_of_first = {
        "curve.png": drawn[0]["found"],
        "candidates.png": drawn[0]["candidates"],
    }
    write_all(folder, {**charts_of_first, "report.html": html.encode()})
    return folder / "report.html"


def _means(curve: Curve) -> Iterator[dict[str, Any]]:
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


def write_all(path: Path, files: dict[str, bytes]) -> None:
    """Write each file whole or not at all; InputError if the directory cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_file(path / name, data)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; choose another directory.") from error


def require_libraries() -> None:
    """Raise InputError unless Matplotlib, Jinja2 and Pillow are installed.

    Check before hours of work.

    >>> require_libraries()
    """
    charts.require_matplotlib()
    page.require_libraries()
