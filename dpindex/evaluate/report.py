"""The files of an evaluation: CSV tables, charts, and one HTML report that contains everything."""

from __future__ import annotations

import csv
import io
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

from dpindex.errors import InputError
from dpindex.evaluate.charts import PANEL_TITLES, curve_png, report_library
from dpindex.evaluate.curve import Curve, Point
from dpindex.evaluate.inversion import EXPOSURE
from dpindex.files import write_file
from dpindex.index import QueryMode
from dpindex.privacy import Guarantee
from dpindex.spec import Spec
from dpindex.version import __version__

__all__ = ["Picture", "write_curve", "write_files"]

_EXHAUSTIVE = ("f32", "f16", "int8")


@dataclass(frozen=True)
class Picture:
    """A PNG, the caption below it and the heading above it. ``small`` ones keep their own size."""

    png: bytes
    caption: str
    title: str = ""
    small: bool = False


def write_curve(
    curve: Curve,
    directory: str | os.PathLike[str],
    *,
    title: str = "Retrieval quality by epsilon",
    notes: Iterable[str] = (),
    pictures: Iterable[Picture] = (),
) -> Path:
    """Write a curve as files; returns the path of the report.

    ``curve.csv`` has one line for each spec, query mode and measure, with mean and standard
    deviation; ``runs.csv`` has one line for each run; ``curve.png`` is the chart of precision@10;
    ``report.html`` contains everything. Each file is written whole or not at all.

    Parameters
    ----------
    curve : Curve
    directory : path
        Created if missing; files of these names in it are replaced.
    title : str
        Heading of the report.
    notes : iterable of str
        Sentences on what was not measured, for example ``SpecGrid.refused``.
    pictures : iterable of Picture
        Further pictures for the report.

    Raises
    ------
    InputError
        If Matplotlib or Jinja2 is missing (the CSV files are written first), or the directory
        cannot be written.
    """
    folder = Path(directory)
    write_files(folder, {"curve.csv": _curve_csv(curve), "runs.csv": _runs_csv(curve)})
    charts = {name: curve_png(curve, name) for name in ("precision@10", "recall@100")}
    if not all(math.isnan(point.mean[EXPOSURE[0]]) for point in curve.points):
        charts["exposure"] = curve_png(curve, "exposure")
    promises = _promises(curve)
    html = _render(
        curve=curve,
        title=title,
        charts=charts,
        pictures=tuple(pictures),
        notes=tuple(notes),
        panel_titles=PANEL_TITLES,
        best=_best(curve),
        promises=promises,
        limits=dict.fromkeys(line for _, p in promises for line in p.does_not_protect(curve.dim)),
        exhaustive=curve.index_type in _EXHAUSTIVE,
        version=__version__,
        libraries=(np, scipy, faiss),
        platform=platform,
        now=datetime.now(timezone.utc),
    )
    write_files(folder, {"curve.png": charts["precision@10"], "report.html": html.encode()})
    return folder / "report.html"


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write each file whole or not at all; InputError if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_file(folder / name, data)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror or error}; choose another directory."
        ) from error


def _curve_csv(curve: Curve) -> bytes:
    return _csv(
        {
            **_spec_cells(curve, point.spec, point.query),
            "measure": name,
            "mean": mean,
            "std": "" if math.isnan(point.std[name]) else point.std[name],
            "runs": point.runs,
        }
        for point in curve.points
        for name, mean in point.mean.items()
    )


def _runs_csv(curve: Curve) -> bytes:
    return _csv(
        {**_spec_cells(curve, run.spec, run.query), "seed": run.seed, **run.values}
        for run in curve.runs
    )


def _spec_cells(curve: Curve, spec: Spec, query: QueryMode) -> dict[str, Any]:
    private = query == "private" and spec.epsilon is not None
    return {
        "method": spec.method,
        "definition": spec.guarantee.definition,
        "adjacency": str(spec.adjacency),
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "k": spec.code_length,
        "repetitions": spec.repetitions,
        "query": query,
        "query_epsilon": (curve.query_epsilon or spec.epsilon) if private else None,
    }


def _csv(lines: Iterable[dict[str, Any]]) -> bytes:
    first, *rest = lines
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, first, lineterminator="\n")
    writer.writeheader()
    writer.writerows([first, *rest])
    return buffer.getvalue().encode()


def _render(**context: Any) -> str:
    """The HTML of report.html.j2, which refers to nothing outside itself."""
    jinja = report_library("jinja2")
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
    """The DP method of highest precision@10 for each query mode and epsilon.

    Methods with iDP are left out, because their epsilon promises less.
    """
    best: dict[tuple[QueryMode, float], Point] = {}
    for point in curve.points:
        if point.spec.guarantee.definition == "DP":
            leader = best.setdefault((point.query, point.spec.budget), point)
            if point.mean["precision@10"] > leader.mean["precision@10"]:
                best[point.query, point.spec.budget] = point
    return list(best.values())


def _promises(curve: Curve) -> list[tuple[str, Guarantee]]:
    """Methods with the same kind of guarantee, and that guarantee at the largest epsilon."""
    groups: dict[tuple[str, float], list[Spec]] = {}
    for spec in (point.spec for point in curve.points if point.spec.epsilon is not None):
        groups.setdefault((spec.guarantee.definition, spec.delta), []).append(spec)
    return [
        (
            ", ".join(dict.fromkeys(spec.method for spec in specs)),
            max(specs, key=lambda spec: spec.budget).guarantee,
        )
        for specs in groups.values()
    ]
