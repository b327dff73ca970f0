"""The files of an evaluation: tables, pictures and a report, each whole or not at all."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from dpindex.evaluate.curve import Curve
from dpindex.evaluate.exposure import EXPOSURE
from dpindex.evaluate.output import curve_csv, runs_csv, write_file
from dpindex.evaluate.plots import curve_png
from dpindex.evaluate.report import Picture, report_html

__all__ = ["write_curve"]

_CHARTED = ("precision@10", "recall@100")

_EXPOSED = (
    "What the strongest attack here rebuilds from the published codes. Left: mean squared error "
    "over that of the best guess from public facts, 1 for nothing gained. Right: mean cosine to "
    "the original. An epsilon for one attribute does not hide a vector."
)


def write_curve(
    curve: Curve,
    directory: str | os.PathLike[str],
    *,
    title: str = "What each epsilon buys",
    notes: Iterable[str] = (),
    pictures: Iterable[Picture] = (),
) -> Path:
    """Write the curve as files; returns the path of the report.

    ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
    deviation; ``runs.csv`` one for each single repetition; ``curve.png`` is the picture of
    precision@10 and ``report.html`` holds everything. Each file appears whole or not at all.

    Parameters
    ----------
    directory : path
        Made if missing; files of these names in it are replaced.
    title : str
        Headline of the report.
    notes : iterable of str
        Sentences on what was left out, e.g. ``SpecGrid.refused``.
    pictures : iterable of Picture
        Further pictures for the report.

    Raises
    ------
    InputError
        If matplotlib is missing (the CSV files are written first) or the directory cannot be
        written.
    """
    folder = Path(directory)
    write_file(folder / "curve.csv", curve_csv(curve).encode())
    write_file(folder / "runs.csv", runs_csv(curve).encode())
    charts = [Picture(curve_png(curve, name), _caption(curve, name)) for name in _CHARTED]
    if not all(math.isnan(point.mean[EXPOSURE[0]]) for point in curve.points):
        charts.append(Picture(curve_png(curve, "exposure"), _EXPOSED))
    html = report_html(curve, charts, title=title, notes=notes, pictures=pictures)
    write_file(folder / "curve.png", charts[0].png)
    write_file(folder / "report.html", html.encode())
    return folder / "report.html"


def _caption(curve: Curve, measure: str) -> str:
    words = [
        f"{measure} by epsilon (logarithmic axis): mean over {curve.repetitions} repetitions, "
        f"with a band of one standard deviation."
    ]
    if any(point.spec.epsilon is None for point in curve.points):
        words.append("Dashed: the same projection without privacy, the ceiling of its kind.")
    if any(point.spec.mechanism.definition == "iDP" for point in curve.points):
        words.append("Dotted: iDP, whose epsilon promises less than that of DP.")
    return " ".join(words)
