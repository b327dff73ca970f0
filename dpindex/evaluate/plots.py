"""The picture of a curve. Matplotlib is optional and is imported only to draw."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpindex.errors import InputError
from dpindex.evaluate.exposure import EXPOSURE

if TYPE_CHECKING:
    from dpindex.evaluate.curve import Curve, Point, QueryMode

__all__ = ["PANEL_TITLES", "curve_png", "gallery_png", "require_matplotlib"]

PANEL_TITLES: Mapping[str, str] = {
    "private": "private query: both sides are noisy",
    "exact": "exact query: the searcher keeps it",
    "rebuilt_error": "error of rebuilt vectors over the public guess's",
    "rebuilt_cosine": "cosine of rebuilt vectors to the originals",
}

# Okabe & Ito's palette, told apart with any colour vision, without its yellow (too pale on white).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E")
_MARKERS = "osD^vPX*"
_CEILINGS = ("#333333", "#777777", "#A0A0A0")
_MAX_TICKS = 9
_DPI = 160


def require_matplotlib() -> None:
    """Raise InputError unless pictures can be drawn: to be asked before hours of measuring."""
    _matplotlib("figure")


def _matplotlib(module: str) -> Any:
    try:
        return import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise InputError(
            "drawing a picture needs matplotlib; run pip install 'dpindex[eval]'."
        ) from error


def _figure(width: float, height: float) -> Any:
    """A figure of its own, apart from pyplot's global state, that is drawn without a screen."""
    figure = _matplotlib("figure").Figure(figsize=(width, height), layout="constrained")
    _matplotlib("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def curve_png(curve: Curve, measure: str = "precision@10") -> bytes:
    """One measure by epsilon as a PNG: a panel for each query mode, a line for each method and k.

    ``measure`` may be "exposure": the two measures of it are then the panels. Bands are one
    standard deviation over repetitions; baselines are dashed horizontal lines; iDP methods are
    dotted, since their epsilon is not that of DP.
    """
    modes = curve.query_modes
    shown_there: list[tuple[str, str, QueryMode]] = [(mode, measure, mode) for mode in modes]
    if measure == "exposure":  # the query does not matter to it
        shown_there = [(name, name, modes[0]) for name in EXPOSURE]
    names = list(dict.fromkeys(name for mode in modes for name in curve.series(mode)))
    rows, width = -(-len(names) // 2), len(shown_there)
    figure = _figure(5.6 * width if width > 1 else 7.5, 4.3 + 0.24 * rows)
    panels = figure.subplots(1, width, sharey=True, squeeze=False)[0]
    styles = _styles(curve)
    handles: dict[str, Any] = {}
    for panel, (title, drawn, mode) in zip(panels, shown_there, strict=True):
        for name, line in curve.series(mode).items():
            handles.setdefault(name, _draw(panel, line, drawn, styles[name]))
        _dress(panel, curve, title)
    if measure != "exposure":
        true = 10 if measure == "recall@10" else curve.neighbours
        panels[0].set_ylabel(f"{measure}, of {true} true neighbours")
    shown = [name for name in names if name in handles]
    figure.legend(
        [handles[name] for name in shown],
        [_legend(name) for name in shown],
        loc="outside lower center",
        ncols=min(2, len(shown)),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )
    return _png(figure)


def _legend(name: str) -> str:
    return f"{name} (no privacy: the ceiling at this k)" if name.startswith("none-") else name


def _styles(curve: Curve) -> dict[str, dict[str, Any]]:
    """A colour for each method, a marker for each of its code lengths, greys for the baselines."""
    methods: dict[str, int] = {}
    seen: dict[str, int] = {}
    styles: dict[str, dict[str, Any]] = {}
    ceilings = 0
    for point in curve.points:
        if point.label in styles:
            continue
        if point.spec.epsilon is None:
            grey = _CEILINGS[ceilings % len(_CEILINGS)]
            dashes = (0, (6, 2 + 2 * (ceilings // len(_CEILINGS)) + ceilings % len(_CEILINGS)))
            styles[point.label] = {"color": grey, "linestyle": dashes, "linewidth": 1.3}
            ceilings += 1
            continue
        method = point.spec.method
        number = methods.setdefault(method, len(methods))
        variant = seen[method] = seen.get(method, -1) + 1
        styles[point.label] = {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": ":" if point.spec.mechanism.definition == "iDP" else "-",
            "linewidth": 1.8,
            "marker": _MARKERS[(number + 3 * variant) % len(_MARKERS)],
            "markersize": 5.5,
            "markerfacecolor": "white" if variant % 2 else None,
        }
    return styles


def _draw(panel: Any, line: Sequence[Point], measure: str, style: dict[str, Any]) -> Any:
    means = np.array([point.mean[measure] for point in line])
    spread = np.nan_to_num([point.std[measure] for point in line])
    if line[0].spec.epsilon is None:
        panel.axhspan(means[0] - spread[0], means[0] + spread[0], color=style["color"], alpha=0.12)
        return panel.axhline(means[0], **style)
    epsilons = np.array([point.spec.budget for point in line])
    panel.fill_between(
        epsilons, means - spread, means + spread, color=style["color"], alpha=0.18, linewidth=0
    )
    return panel.plot(epsilons, means, **style)[0]


def _dress(panel: Any, curve: Curve, what: str) -> None:
    title = PANEL_TITLES[what]
    if what == "private" and curve.query_epsilon is not None:
        title += f" (its ε = {curve.query_epsilon:g})"
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
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def gallery_png(
    rows: Sequence[tuple[str, npt.NDArray[Any]]],
    shape: tuple[int, int],
    limits: tuple[float, float],
) -> bytes:
    """Rows of small grey pictures as a PNG, each row with its words on the left.

    ``rows`` holds (words, vectors of shape (count, height·width)); ``limits`` are black and white.
    """
    count = len(rows[0][1])
    figure = _figure(2.6 + 0.8 * count, 0.88 * len(rows))
    panels = figure.subplots(len(rows), count, squeeze=False)
    for line, (words, pictures) in zip(panels, rows, strict=True):
        for panel, picture in zip(line, pictures, strict=True):
            panel.imshow(np.reshape(picture, shape), cmap="gray", vmin=limits[0], vmax=limits[1])
            panel.set_xticks([])
            panel.set_yticks([])
            for spine in panel.spines.values():
                spine.set_color("#BBBBBB")
        line[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=10, labelpad=8)
    return _png(figure)
