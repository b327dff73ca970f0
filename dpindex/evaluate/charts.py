"""Charts of a curve, and rows of small images, as PNG. Matplotlib is imported only to draw."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.evaluate.curve import Curve, Point
from dpindex.evaluate.inversion import EXPOSURE
from dpindex.extras import import_extra
from dpindex.index import QueryMode

__all__ = ["PANEL_TITLES", "curve_png", "gallery_png", "report_library", "require_matplotlib"]

PANEL_TITLES = {
    "private": "private query: query and index are noisy",
    "exact": "exact query: only the index is noisy",
    "rebuilt_error": "error of rebuilt vectors, relative to a guess",
    "rebuilt_cosine": "cosine of rebuilt vectors to the originals",
}

# The palette of Okabe & Ito (2008), which is safe for colour-blind readers, without its yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E")
_MARKERS = "osD^vPX*"
_GREYS = ("#333333", "#777777", "#A0A0A0")
_MAX_TICKS = 9
_DPI = 160


def require_matplotlib() -> None:
    """Raise InputError unless Matplotlib and Jinja2 are installed: check before hours of work."""
    report_library("matplotlib.figure")
    report_library("jinja2")


def report_library(module: str) -> Any:
    """A module of Matplotlib or Jinja2; InputError if it is not installed."""
    return import_extra(module, "a report and its charts need matplotlib and jinja2", "eval")


def _figure(width: float, height: float) -> Any:
    """A figure that is independent of pyplot's global state and needs no screen."""
    figures = report_library("matplotlib.figure")
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    report_library("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def curve_png(curve: Curve, measure: str = "precision@10") -> bytes:
    """One measure by epsilon as a PNG: a panel for each query mode, a line for each method and k.

    With ``measure`` "exposure" the panels are the two measures of reconstruction. Bands are one
    standard deviation over runs. Baselines are dashed horizontal lines. Lines of iDP methods are
    dotted, because their epsilon is not that of DP.
    """
    modes = curve.query_modes
    shown: list[tuple[str, str, QueryMode]] = [(mode, measure, mode) for mode in modes]
    if measure == "exposure":  # it does not depend on the query mode
        shown = [(name, name, modes[0]) for name in EXPOSURE]
    styles = _styles(curve)
    width, legend_rows = len(shown), -(-len(styles) // 2)
    figure = _figure(5.6 * width if width > 1 else 7.5, 4.3 + 0.24 * legend_rows)
    panels = figure.subplots(1, width, sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for panel, (title, drawn, mode) in zip(panels, shown, strict=True):
        for name, line in curve.series(mode).items():
            handles.setdefault(name, _draw_line(panel, line, drawn, styles[name]))
        _format_panel(panel, curve, title)
    if measure != "exposure":
        true = 10 if measure == "recall@10" else curve.neighbours
        panels[0].set_ylabel(f"{measure}, of {true} true neighbours")
    figure.legend(
        handles.values(),
        [f"{n} (no privacy: the limit at this k)" if n.startswith("none-") else n for n in handles],
        loc="outside lower center",
        ncols=min(2, len(handles)),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )
    return _png(figure)


def _styles(curve: Curve) -> dict[str, dict[str, Any]]:
    """By label: a colour for each method, a marker for each code length, greys for baselines."""
    variants: dict[str, int] = {}
    styles: dict[str, dict[str, Any]] = {}
    greys = 0
    for label, spec in {point.label: point.spec for point in curve.points}.items():
        if spec.epsilon is None:
            dashes = (0, (6, 2 + 2 * (greys // len(_GREYS)) + greys % len(_GREYS)))
            colour = _GREYS[greys % len(_GREYS)]
            styles[label] = {"color": colour, "linestyle": dashes, "linewidth": 1.3}
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
    title = PANEL_TITLES[what]
    if what == "private" and curve.query_epsilon is not None:
        title += f" (query ε = {curve.query_epsilon:g})"
    panel.set_title(title, fontsize=11)
    panel.set_xlabel(curve.adjacency)
    panel.set_xscale("log")
    ticks = curve.epsilons[:: -(-len(curve.epsilons) // _MAX_TICKS) or 1]
    panel.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
    panel.minorticks_off()
    panel.set_ylim(0.0, 1.02)
    panel.set_yticks(np.linspace(0.0, 1.0, 6))
    panel.grid(alpha=0.25)
    panel.tick_params(labelleft=True)
    panel.spines[["top", "right"]].set_visible(False)


def gallery_png(
    rows: Sequence[tuple[str, npt.NDArray[Any]]],
    shape: tuple[int, int],
    limits: tuple[float, float],
) -> bytes:
    """Rows of small grey images as a PNG, with the caption of each row on its left.

    ``rows`` holds (caption, images of shape (count, height·width)). ``limits`` are the values of
    black and white.
    """
    count = len(rows[0][1])
    figure = _figure(2.6 + 0.8 * count, 0.88 * len(rows))
    panels = figure.subplots(len(rows), count, squeeze=False)
    for line, (caption, images) in zip(panels, rows, strict=True):
        for panel, image in zip(line, images, strict=True):
            panel.imshow(np.reshape(image, shape), cmap="gray", vmin=limits[0], vmax=limits[1])
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_color("#BBBBBB")
        line[0].set_ylabel(caption, rotation=0, ha="right", va="center", fontsize=10, labelpad=8)
    return _png(figure)
