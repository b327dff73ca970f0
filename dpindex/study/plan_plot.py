"""The plot of a plan: what its best methods find by epsilon. Matplotlib is imported to draw it."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from dpindex.base.errors import import_extra
from dpindex.study.plan_result import Plan
from dpindex.study.row import Row

# The palette of Okabe & Ito (2008), which is safe for colour-blind readers, without its yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E")
_MARKERS = "osD^vPX*"
_DPI = 160
_LINE = {"markersize": 5, "linewidth": 1.8}
_RING = {
    "marker": "o",
    "markersize": 15,
    "markerfacecolor": "none",
    "markeredgecolor": "black",
    "markeredgewidth": 1.6,
    "linestyle": "none",
    "clip_on": False,
}


def require_matplotlib() -> None:
    """Raise InputError unless Matplotlib is installed: check before hours of work.

    >>> require_matplotlib()
    """
    _library("figure")


def _library(module: str) -> Any:
    return import_extra(f"matplotlib.{module}", "drawing a picture needs matplotlib", "plot")


def plan_png(outcome: Plan) -> bytes:
    """A panel for each measure of a plan, the recommended point marked by a ring.

    The lines are the plan's ``curves``, for the query mode of the plan.

    Parameters
    ----------
    outcome : Plan
        What :func:`dpindex.plan` returned, with ``curves``.

    Raises
    ------
    InputError
        If Matplotlib is missing.

    >>> import numpy as np
    >>> import dpindex as dpi
    >>> public = np.random.default_rng(0).uniform(-1, 1, (500, 8))
    >>> terms = {"epsilon": 4.0, "adjacency": dpi.attribute(1.0), "methods": ["raw-staircase"]}
    >>> plan_png(dpi.plan(public, n=2000, **terms, curves=True))[1:4]
    b'PNG'
    """
    best = outcome.best
    lines = outcome.curves
    height = 4.4 + 0.24 * math.ceil((len(lines) + 1) / 2)  # with room for the legend
    # Independent of pyplot's global state, and without a screen.
    figure = _library("figure").Figure(figsize=(11.2, height), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, 2)
    ticks = sorted({row.spec.budget for line in lines for row in line})
    for panel, measure in zip(panels, outcome.goal.measures, strict=True):
        for line, colour, marker in zip(lines, cycle(_COLOURS), cycle(_MARKERS), strict=False):
            epsilons = [row.spec.budget for row in line]
            shares = [outcome.share(row, measure) for row in line]
            panel.plot(epsilons, shares, color=colour, marker=marker, label=_label(line), **_LINE)
        recommended = f"recommended: {best.method}, {best.contents}, ε = {best.spec.budget:g}"
        panel.plot(best.spec.budget, outcome.share(best, measure), label=recommended, **_RING)
        panel.set(
            title=str(measure),
            xlabel=f"ε under {best.guarantee.adjacency}",
            xscale="log",
            ylabel=f"predicted, {outcome.goal.query} queries",
            ylim=(0.0, 1.02),
        )
        panel.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(2, len(handles)),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )
    buffer = io.BytesIO()
    canvas = _library("backends.backend_agg").FigureCanvasAgg(figure)
    canvas.print_png(buffer)  # savefig lays it out twice
    return buffer.getvalue()


def _label(line: Sequence[Row]) -> str:
    """Return what one line of a plot shows."""
    several = {row.contents for row in line}
    contents = line[0].contents if len(several) == 1 else "the best code at each ε"
    denoised = ", denoised" if any(row.denoiser for row in line) else ""
    return f"{line[0].method}, {contents}{denoised}"
