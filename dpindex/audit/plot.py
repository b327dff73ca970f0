"""The picture of an attack. Matplotlib is optional and is imported only to draw."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np

from dpindex.audit.attack import AttackReport
from dpindex.errors import InputError

__all__ = ["attack_png"]

_ONE, _OTHER, _CLAIM = "#0072B2", "#D55E00", "#333333"  # Okabe & Ito, told apart by anyone
_MIN_COUNT = 20
_MAX_BARS = 160
_DPI = 160


def attack_png(report: AttackReport) -> bytes:
    """What the attack saw, as a PNG: above the released values, below the log of their ratio.

    Beside them every test's lower bound against the claim. Raises InputError without matplotlib.
    """
    try:
        figures = import_module("matplotlib.figure")
        canvas = import_module("matplotlib.backends.backend_agg")
    except ImportError as error:
        raise InputError(
            "drawing a picture needs matplotlib; run pip install 'dpindex[eval]'."
        ) from error
    figure = figures.Figure(figsize=(12, 4.8), layout="constrained")
    canvas.FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.2, 1), height_ratios=(1.2, 1))
    values = figure.add_subplot(grid[0, 0])
    _draw_values(values, figure.add_subplot(grid[1, 0], sharex=values), report)
    _draw_bounds(figure.add_subplot(grid[:, 1]), report)
    for panel in figure.axes:
        panel.grid(alpha=0.25)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def _draw_values(values: Any, ratios: Any, report: AttackReport) -> None:
    places, first, second = report.histogram
    # As many neighbouring values together as make a readable number of steps; rare ends left out.
    seen = np.flatnonzero(first + second >= _MIN_COUNT)
    low, high = int(places[seen[0]]), int(places[seen[-1]])
    width = max(1, -(-(high - low + 1) // _MAX_BARS))
    edges = np.arange(low, high + width + 1, width)
    counts = [np.histogram(places, edges, weights=side)[0] for side in (first, second)]
    borders = edges - 0.5
    for count, total, colour, name in zip(
        counts, (first.sum(), second.sum()), (_ONE, _OTHER), ("vector", "neighbour"), strict=True
    ):
        values.stairs(count / total, borders, color=colour, fill=True, alpha=0.35, label=name)
        values.stairs(count / total, borders, color=colour, linewidth=1.2)
    values.legend(frameon=False, fontsize=9)
    values.set_ylabel("share of releases")
    values.set_title("what a release shows of the attribute that changed", fontsize=10)
    values.tick_params(labelbottom=False)
    enough = np.minimum(*counts) >= _MIN_COUNT
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(enough, np.log(counts[0] / counts[1]), np.nan)
    ratios.stairs(ratio, borders, baseline=None, color=_CLAIM, linewidth=1.2)
    epsilon = report.spec.guarantee.epsilon
    for sign in (-1, 1):
        ratios.axhline(sign * epsilon, color=_CLAIM, linestyle="--", linewidth=1)
    ratios.set_ylabel("log of their ratio")
    ratios.set_xlabel(
        "released value" if report.spec.mechanism.codes == "numbers" else "sum of its signs"
    )


def _draw_bounds(panel: Any, report: AttackReport) -> None:
    findings = report.findings[::-1]
    epsilon = report.spec.guarantee.epsilon
    bounds = [finding.lower_bound for finding in findings]
    colours = [_OTHER if bound > epsilon else _ONE for bound in bounds]
    panel.barh(range(len(bounds)), bounds, color=colours, height=0.32)
    panel.axvline(epsilon, color=_CLAIM, linestyle="--", linewidth=1.4)
    for place, finding in enumerate(findings):
        words = f"{finding.name}: {finding.lower_bound:.3f}"
        panel.text(0.004 * epsilon, place + 0.22, words, fontsize=8.5, va="bottom")
    panel.set_yticks([])
    panel.set_ylim(-0.6, len(bounds) - 0.1)
    panel.set_xlim(0, 1.15 * max(epsilon, *bounds))
    panel.set_xlabel(f"epsilon is at least … (confidence {report.confidence:g} for all together)")
    verdict = "VIOLATED" if report.violated else "not refuted"
    delta = f", δ = {report.spec.delta:g}" if report.spec.delta else ""
    panel.set_title(
        f"{report.spec.method}, claimed ε = {epsilon:g}{delta} (dashed): {verdict}", fontsize=10
    )
