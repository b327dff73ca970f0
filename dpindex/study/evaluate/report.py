"""The files of an evaluation: CSV tables, charts, and one HTML report that contains everything.

Matplotlib and Jinja2 are imported only to write a report.
"""

from __future__ import annotations

import io
import math
import os
import platform
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy

from dpindex.base.arrays import AnyArray
from dpindex.base.errors import InputError
from dpindex.base.extras import import_extra
from dpindex.base.files import write_file
from dpindex.index.asked import QueryMode
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Guarantee
from dpindex.study.evaluate.curve import Curve, Point
from dpindex.study.evaluate.inversion import EXPOSURE
from dpindex.study.evaluate.linkage import LINKED
from dpindex.study.evaluate.runs_file import NAME, as_text, csv_bytes, refuse_other_report
from dpindex.study.evaluate.text_attack import TextAttack
from dpindex.version import __version__

_PANEL_TITLES = {
    "private": "private query: query and index are noisy",
    "exact": "exact query: only the index is noisy",
    "linked": "known vectors whose own code fits best",
    "rebuilt_error": "error of rebuilt vectors, relative to a guess",
    "rebuilt_cosine": "cosine of rebuilt vectors to the originals",
}

# The palette of Okabe & Ito (2008), which is safe for colour-blind readers, without its yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E")
_MARKERS = "osD^vPX*"
_GREYS = ("#333333", "#777777", "#A0A0A0")
_MAX_TICKS = 9


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
    charts = {"found": curve_png(curve), "recall@100": curve_png(curve, "recall@100")}
    charts["exposure"] = curve_png(curve, "exposure")
    promises, pictures = _promises(curve), tuple(pictures)
    html = _render(
        curve=curve,
        title=title,
        charts=charts,
        pictures=pictures,
        texts=texts,
        explorer=explorer,
        notes=tuple(notes),
        panel_titles=_PANEL_TITLES,
        best=_best(curve),
        promises=promises,
        limits=dict.fromkeys(line for _, p in promises for line in p.does_not_protect(curve.dim)),
        version=__version__,
        libraries=(np, scipy, faiss),
        platform=platform,
        now=datetime.now(timezone.utc),
    )
    write_all(folder, {picture.file: picture.png for picture in pictures if picture.file})
    write_all(folder, {"curve.png": charts["found"], "report.html": html.encode()})
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
    jinja = _library("jinja2")
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
    _library("matplotlib.figure")
    _library("jinja2")


def _library(module: str) -> Any:
    """A module of Matplotlib or Jinja2; InputError if it is not installed."""
    return import_extra(module, "a report and its charts need matplotlib and jinja2", "eval")


def _figure(width: float, height: float) -> Any:
    """A figure that is independent of pyplot's global state and needs no screen."""
    return _library("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.dpi = 160
    canvas = _library("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.print_png(buffer)  # savefig lays it out twice
    return buffer.getvalue()


def curve_png(curve: Curve, measure: str = "found") -> bytes:
    """Measures by epsilon as a PNG: a panel for each query mode, a line for each method and k.

    With ``measure`` "found" the rows are recall@10 and precision@10; with "exposure" the panels are
    linkage and the two measures of reconstruction. Bands are one standard deviation over runs.
    Baselines are dashed horizontal lines. Lines of iDP methods are dotted, because their epsilon is
    not that of DP.
    """
    return _png(_drawn(curve, measure))


def _drawn(curve: Curve, measure: str) -> Any:
    """The figure of :func:`curve_png`."""
    modes = curve.query_modes
    measures = ("recall@10", "precision@10") if measure == "found" else (measure,)
    shown: list[list[tuple[str, str, QueryMode]]] = [
        [(mode, name, mode) for mode in modes] for name in measures
    ]
    if measure == "exposure":  # it does not depend on the query mode
        known = (LINKED, *EXPOSURE)
        shown = [[(name, name, modes[0]) for name in known if _is_known(curve, name)]]
    styles = _styles(curve)
    height, width, legend_rows = len(shown), len(shown[0]), -(-len(styles) // 2)
    across = 5.6 if width < 3 else 4.4
    figure = _figure(across * width if width > 1 else 7.5, 4.0 * height + 0.3 + 0.24 * legend_rows)
    panels = figure.subplots(height, width, sharey=False, squeeze=False)
    handles: dict[str, Any] = {}
    for row, line_of_panels in zip(panels, shown, strict=True):
        for panel, (title, drawn, mode) in zip(row, line_of_panels, strict=True):
            for name, line in curve.series(mode).items():
                handles.setdefault(name, _draw_line(panel, line, drawn, styles[name]))
            _format_panel(panel, curve, title)
        if measure != "exposure":
            row[0].set_ylabel(curve.full_name(line_of_panels[0][1]))
    figure.legend(
        handles.values(),
        [f"{n} (no privacy: the limit at this k)" if n.startswith("none-") else n for n in handles],
        loc="outside lower center",
        ncols=min(2, len(handles)),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )
    return figure


def _is_known(curve: Curve, measure: str) -> bool:
    return not all(math.isnan(point.mean[measure]) for point in curve.points)


def _styles(curve: Curve) -> dict[str, dict[str, Any]]:
    """By label: a colour for each method, a marker for each code length, greys for baselines."""
    variants: dict[str, int] = {}
    styles: dict[str, dict[str, Any]] = {}
    greys = 0
    for label, spec in {point.label: point.spec for point in curve.points}.items():
        if spec.epsilon is None:
            turn, shade = divmod(greys, len(_GREYS))
            dashes = (0, (6, 2 + 2 * turn + shade))
            styles[label] = {"color": _GREYS[shade], "linestyle": dashes, "linewidth": 1.3}
            greys += 1
            continue
        variant = variants[spec.method] = variants.get(spec.method, -1) + 1
        number = list(variants).index(spec.method)
        styles[label] = {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": ":" if spec.guarantee.definition == "iDP" else "-",
            "linewidth": 1.8,
            "marker": _MARKERS[(number + 3 * variant) % len(_MARKERS)],
            "markersize": 5.5,
            "markerfacecolor": "white" if variant % 2 else None,
        }
    return styles


def _draw_line(panel: Any, line: Sequence[Point], measure: str, style: dict[str, Any]) -> Any:
    means = np.array([point.mean[measure] for point in line])
    spread = np.nan_to_num([point.std[measure] for point in line])
    low, high = means - spread, means + spread
    if line[0].spec.epsilon is None:
        panel.axhspan(low[0], high[0], color=style["color"], alpha=0.12)
        return panel.axhline(means[0], **style)
    epsilons = np.array([point.spec.budget for point in line])
    panel.fill_between(epsilons, low, high, color=style["color"], alpha=0.18, linewidth=0)
    return panel.plot(epsilons, means, **style)[0]


def _format_panel(panel: Any, curve: Curve, what: str) -> None:
    title = _PANEL_TITLES[what]
    if what == "private" and curve.query_epsilon is not None:
        title += f" (query ε = {curve.query_epsilon:g})"
    panel.set_title(title, fontsize=11)
    panel.set(xlabel=curve.adjacency, xscale="log")
    ticks = curve.epsilons[:: -(-len(curve.epsilons) // _MAX_TICKS) or 1]
    panel.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
    panel.minorticks_off()
    # Shares fill [0, 1]; errors above that, and cosines below, widen the panel.
    drawn = panel.dataLim
    panel.set(ylim=(min(0.0, drawn.y0 * 1.05), max(1.02, drawn.y1 * 1.05)))
    if drawn.y1 <= 1.02 and drawn.y0 >= 0:
        panel.set(yticks=np.linspace(0.0, 1.0, 6))
    panel.grid(alpha=0.25)
    panel.tick_params(labelleft=True)
    panel.spines[["top", "right"]].set_visible(False)


def gallery_png(
    rows: Sequence[tuple[str, AnyArray]], shape: tuple[int, ...], limits: tuple[float, float]
) -> bytes:
    """Rows of small images as a PNG, with the caption of each row on its left.

    ``rows`` holds (caption, images of shape (count, height·width), or three times as much for
    colours). ``limits`` are the values of black and white.
    """
    count = len(rows[0][1])
    figure = _figure(2.6 + 0.8 * count, 0.88 * len(rows))
    panels = figure.subplots(len(rows), count, squeeze=False)
    for line, (caption, images) in zip(panels, rows, strict=True):
        for panel, image in zip(line, images, strict=True):
            shades = (np.reshape(image, shape) - limits[0]) / (limits[1] - limits[0])
            panel.imshow(np.clip(shades, 0, 1), cmap="gray", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_color("#BBBBBB")
        line[0].set_ylabel(caption, rotation=0, ha="right", va="center", fontsize=10, labelpad=8)
    return _png(figure)
