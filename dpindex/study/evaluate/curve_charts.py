"""Charts of a curve, and galleries of images, as PNG files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray
from dpindex.base.charts import (
    COLOURS,
    GREYS,
    MARKERS,
    epsilon_axis,
    legend_below,
    new_figure,
    tidy,
    to_png,
)
from dpindex.index.queries import QueryMode
from dpindex.study.evaluate.curve import Curve, Point, recall_within
from dpindex.study.linkage import LINKED

__all__ = ["PANEL_TITLES", "candidates_png", "curve_png", "gallery_png"]

PANEL_TITLES = {
    "private": "private query: query and index are noisy",
    "exact": "exact query: only the index is noisy",
    "linked": "known vectors whose own code fits best",
    "rebuilt_error": "error of rebuilt vectors, relative to a guess",
    "rebuilt_cosine": "cosine of rebuilt vectors to the originals",
}
"""Titles of charts and tables, by query mode or measure."""

_MAX_TICKS = 9
_MAX_PANELS = 3
_LIGHT = (0.60, 0.78, 0.93)
_DEEP = (0.02, 0.16, 0.36)


def curve_png(curve: Curve, measure: str = "found") -> bytes:
    """Measures by epsilon as a PNG: a panel for each query mode, a line for each method and k.

    With ``measure`` "found" the rows are recall@10 and precision@10; with "exposure" the panels are
    linkage and the two measures of reconstruction. Bands are one standard deviation over runs.
    Baselines are dashed horizontal lines. Lines of iDP methods are dotted, because their epsilon is
    not that of DP.
    """
    return to_png(_drawn(curve, measure))


def candidates_png(curve: Curve) -> bytes:
    """Recall@10 by the number of candidates R as a PNG: a panel for each method, a line for each ε.

    The owner of the vectors orders the first R answers exactly, so recall@10 is the share of the
    true ten among them. Lines of exact queries are solid, those of private ones dashed.
    """
    lines = {
        name: {mode: curve.series(mode)[name] for mode in curve.query_modes}
        for name in curve.series(curve.query_modes[0])
    }
    width = min(len(lines), _MAX_PANELS)
    height = -(-len(lines) // width)
    figure = new_figure(max(7.5, 4.4 * width), 3.6 * height + 0.6)
    panels = figure.subplots(height, width, sharey=True, squeeze=False)
    colours = {epsilon: _shade(i, len(curve.epsilons)) for i, epsilon in enumerate(curve.epsilons)}
    handles: dict[str, Any] = {}
    for panel in panels.ravel()[len(lines) :]:
        panel.set_axis_off()
    for panel, (name, by_mode) in zip(panels.ravel(), lines.items(), strict=False):
        for mode, points in by_mode.items():
            for point in points:
                recall = [point.mean[recall_within(level)] for level in curve.candidates]
                colour = GREYS[1]
                if point.spec.epsilon is not None:
                    colour = colours[point.spec.epsilon]
                dashes = "--" if mode == "private" else "-"
                line = panel.plot(curve.candidates, recall, color=colour, linestyle=dashes)[0]
                handles.setdefault(_budget_and_mode(point), line)
        panel.set(xscale="log", ylim=(0, 1.02), title=name, xlabel="candidates R")
        panel.title.set_fontsize(10)
        panel.set_xticks(curve.candidates[::3], [f"{level}" for level in curve.candidates[::3]])
        panel.minorticks_off()
        tidy(panel)
    for row in panels:
        row[0].set_ylabel("recall@10 of the true 10")
    legend_below(figure, list(handles.values()), list(handles))
    return to_png(figure)


def _budget_and_mode(point: Point) -> str:
    if point.spec.epsilon is None:
        return f"no privacy, {point.query} query"
    return f"ε = {point.spec.epsilon:g}, {point.query} query"


def _shade(place: int, count: int) -> Any:
    """Return the colour of the epsilon at that place, as red, green and blue: light to dark."""
    share = place / max(count - 1, 1)
    return tuple((1 - share) * np.array(_LIGHT) + share * np.array(_DEEP))


def _drawn(curve: Curve, measure: str) -> Any:
    """The figure of :func:`curve_png`."""
    modes = curve.query_modes
    measures = ("recall@10", "precision@10") if measure == "found" else (measure,)
    shown: list[list[tuple[str, str, QueryMode]]] = [
        [(mode, name, mode) for mode in modes] for name in measures
    ]
    if measure == "exposure":  # it does not depend on the query mode
        known = (LINKED, "rebuilt_error", "rebuilt_cosine")
        shown = [[(name, name, modes[0]) for name in known if _is_known(curve, name)]]
    styles = _styles(curve)
    height = len(shown)
    width = len(shown[0])
    legend_rows = -(-len(styles) // 2)
    across = 5.6 if width < 3 else 4.4
    inches = 7.5
    if width > 1:
        inches = across * width
    figure = new_figure(inches, 4.0 * height + 0.3 + 0.24 * legend_rows)
    panels = figure.subplots(height, width, sharey=False, squeeze=False)
    handles: dict[str, Any] = {}
    for row, line_of_panels in zip(panels, shown, strict=True):
        for panel, (title, drawn, mode) in zip(row, line_of_panels, strict=True):
            for name, line in curve.series(mode).items():
                handles.setdefault(name, _draw_line(panel, line, drawn, styles[name]))
            if title == "rebuilt_cosine":
                _draw_guess(panel, curve)
            _format_panel(panel, curve, title)
        if measure != "exposure":
            row[0].set_ylabel(curve.full_name(line_of_panels[0][1]))
    labels = [
        f"{name} (no privacy: the limit at this k)" if name.startswith("none-") else name
        for name in handles
    ]
    legend_below(figure, list(handles.values()), labels)
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
            turn, shade = divmod(greys, len(GREYS))
            dashes = (0, (6, 2 + 2 * turn + shade))
            styles[label] = {"color": GREYS[shade], "linestyle": dashes, "linewidth": 1.3}
            greys += 1
            continue
        variant = variants[spec.method] = variants.get(spec.method, -1) + 1
        number = list(variants).index(spec.method)
        styles[label] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": ":" if spec.guarantee.definition == "iDP" else "-",
            "linewidth": 1.8,
            "marker": MARKERS[(number + 3 * variant) % len(MARKERS)],
            "markersize": 5.5,
            "markerfacecolor": "white" if variant % 2 else None,
        }
    return styles


def _draw_line(panel: Any, line: Sequence[Point], measure: str, style: dict[str, Any]) -> Any:
    means = np.array([point.mean[measure] for point in line])
    spread = np.nan_to_num([point.std[measure] for point in line])
    low = means - spread
    high = means + spread
    if line[0].spec.epsilon is None:
        panel.axhspan(low[0], high[0], color=style["color"], alpha=0.12)
        return panel.axhline(means[0], **style)
    epsilons = np.array([point.spec.budget for point in line])
    panel.fill_between(epsilons, low, high, color=style["color"], alpha=0.18, linewidth=0)
    return panel.plot(epsilons, means, **style)[0]


def _draw_guess(panel: Any, curve: Curve) -> None:
    """Draw the cosine of the best guess without codes, which is one for all methods."""
    guess = np.nanmean([point.mean["guess_cosine"] for point in curve.points])
    panel.axhline(guess, color=GREYS[1], linestyle=":", linewidth=1.0)
    text = "best guess without a code"
    panel.text(0.02, guess, text, transform=panel.get_yaxis_transform(), va="bottom", fontsize=8)


def _format_panel(panel: Any, curve: Curve, what: str) -> None:
    title = PANEL_TITLES[what]
    if what == "private" and curve.query_epsilon is not None:
        title += f" (query ε = {curve.query_epsilon:g})"
    panel.set_title(title, fontsize=11)
    step = math.ceil(len(curve.epsilons) / _MAX_TICKS) or 1
    epsilon_axis(panel, curve.epsilons[::step], curve.adjacency)
    # Shares fill [0, 1]; errors above that, and cosines below, widen the panel.
    drawn = panel.dataLim
    panel.set(ylim=(min(0.0, drawn.y0 * 1.05), max(1.02, drawn.y1 * 1.05)))
    if drawn.y1 <= 1.02 and drawn.y0 >= 0:
        panel.set(yticks=np.linspace(0.0, 1.0, 6))
    panel.tick_params(labelleft=True)
    tidy(panel)


def gallery_png(
    rows: Sequence[tuple[str, AnyArray]], shape: tuple[int, ...], limits: tuple[float, float]
) -> bytes:
    """Rows of small images as a PNG, with the caption of each row on its left.

    ``rows`` holds (caption, images of shape (count, height·width), or three times as much for
    colours). ``limits`` are the values of black and white.
    """
    count = len(rows[0][1])
    figure = new_figure(2.6 + 0.8 * count, 0.88 * len(rows))
    panels = figure.subplots(len(rows), count, squeeze=False)
    for line, (caption, images) in zip(panels, rows, strict=True):
        for panel, image in zip(line, images, strict=True):
            shades = (np.reshape(image, shape) - limits[0]) / (limits[1] - limits[0])
            panel.imshow(np.clip(shades, 0, 1), cmap="gray", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_color("#BBBBBB")
        line[0].set_ylabel(caption, rotation=0, ha="right", va="center", fontsize=10, labelpad=8)
    return to_png(figure)
