"""Charts: the palette, the axes and the PNG files that all pictures of the package share.

Matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from dpindex.base.extras import import_extra

__all__ = [
    "BAND",
    "BLUE",
    "COLOURS",
    "DARK",
    "GREYS",
    "MARKERS",
    "ORANGE",
    "epsilon_axis",
    "legend_below",
    "new_figure",
    "require_matplotlib",
    "tidy",
    "to_png",
]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E")
"""The palette of Okabe & Ito (2008), which is safe for colour-blind readers, without its yellow."""

BLUE = COLOURS[0]
ORANGE = COLOURS[1]
GREYS = ("#333333", "#777777", "#A0A0A0")
"""For lines that are not private."""

DARK = GREYS[0]
BAND = "#888888"
"""For the range that noise alone covers."""

MARKERS = "osD^vPX*"

_DPI = 160


def require_matplotlib() -> None:
    """Raise InputError unless Matplotlib is installed: check before hours of work.

    >>> require_matplotlib()
    """
    _library("figure")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of that size in inches.

    It is independent of pyplot's global state and needs no screen. InputError without Matplotlib.

    >>> new_figure(4, 3).get_size_inches().tolist()
    [4.0, 3.0]
    """
    return _library("figure").Figure(figsize=(width, height), layout="constrained")


def to_png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG.

    >>> to_png(new_figure(1, 1))[1:4]
    b'PNG'
    """
    buffer = io.BytesIO()
    figure.dpi = _DPI
    canvas = _library("backends.backend_agg").FigureCanvasAgg(figure)
    canvas.print_png(buffer)  # savefig lays it out twice
    return buffer.getvalue()


def tidy(panel: Any) -> None:
    """Draw a light grid, and no frame above and on the right of a panel."""
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)


def epsilon_axis(panel: Any, epsilons: Sequence[float], label: str) -> None:
    """Make the horizontal axis of a panel logarithmic, with a tick for each epsilon."""
    panel.set(xlabel=label, xscale="log")
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()


def legend_below(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Name lines below all panels of a figure, in two columns."""
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(2, len(handles)),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def _library(module: str) -> Any:
    return import_extra(f"matplotlib.{module}", "drawing a picture needs matplotlib", "eval")
