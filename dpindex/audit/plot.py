"""The picture of an attack. Matplotlib is optional and is imported only to draw."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from dpindex.audit.attack import AttackReport
from dpindex.extras import import_extra

__all__ = ["attack_png"]

_ONE, _OTHER, _CLAIM = "#0072B2", "#D55E00", "#333333"  # Okabe & Ito, told apart by anyone
_MIN_COUNT = 20
_MAX_BARS = 160
_DPI = 160


def attack_png(report: AttackReport) -> bytes:
    """A PNG of the released values, the log of their ratio, and every test's bound and the claim.

    Raises InputError without matplotlib.
    """
    figures = import_extra("matplotlib.figure", "drawing a picture needs matplotlib", "eval")
    figure = figures.Figure(figsize=(12, 4.8), layout="constrained")
    panels = figure.subplot_mosaic(
        [["values", "bounds"], ["ratios", "bounds"]], width_ratios=(1.2, 1), height_ratios=(1.2, 1)
    )
    _draw_values(panels["values"], panels["ratios"], report)
    _draw_bounds(panels["bounds"], report)
    for panel in panels.values():
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def _draw_values(values: Any, ratios: Any, report: AttackReport) -> None:
    places, *sides = report.histogram
    # As many neighbouring values together as make a readable number of steps; rare ends left out.
    seen = places[sides[0] + sides[1] >= _MIN_COUNT]
    width = max(1, -(-int(seen[-1] - seen[0] + 1) // _MAX_BARS))
    edges = np.arange(seen[0], seen[-1] + width + 1, width) - 0.5
    counts = [np.histogram(places, edges, weights=side)[0] for side in sides]
    for count, side, colour, name in zip(
        counts, sides, (_ONE, _OTHER), ("vector", "neighbour"), strict=True
    ):
        values.stairs(count / side.sum(), edges, color=colour, fill=True, alpha=0.4, label=name)
    values.legend(frameon=False, fontsize=9)
    values.set_ylabel("share of releases")
    values.set_title("what a release shows of the attribute that changed", fontsize=10)
    values.tick_params(labelbottom=False)
    values.sharex(ratios)
    enough = np.minimum(*counts) >= _MIN_COUNT
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(enough, np.log(counts[0] / counts[1]), np.nan)
    ratios.stairs(ratio, edges, baseline=None, color=_CLAIM, linewidth=1.2)
    for bound in (-report.spec.guarantee.epsilon, report.spec.guarantee.epsilon):
        ratios.axhline(bound, color=_CLAIM, linestyle="--", linewidth=1)
    ratios.set_ylabel("log of their ratio")
    numbers = report.spec.mechanism.codes == "numbers"
    ratios.set_xlabel("released value" if numbers else "sum of its signs")


def _draw_bounds(panel: Any, report: AttackReport) -> None:
    findings, promise = report.findings[::-1], report.spec.guarantee
    bounds = [finding.lower_bound for finding in findings]
    colours = [_OTHER if bound > promise.epsilon else _ONE for bound in bounds]
    panel.barh(range(len(bounds)), bounds, color=colours, height=0.32)
    panel.axvline(promise.epsilon, color=_CLAIM, linestyle="--", linewidth=1.4)
    for place, finding in enumerate(findings):
        words = f"{finding.name}: {finding.lower_bound:.3f}"
        panel.text(0.004 * promise.epsilon, place + 0.22, words, fontsize=8.5, va="bottom")
    panel.set_yticks([])
    panel.set_ylim(-0.6, len(bounds) - 0.1)
    panel.set_xlim(0, 1.15 * max(promise.epsilon, *bounds))
    panel.set_xlabel(f"epsilon is at least … (confidence {report.confidence:g} for all together)")
    verdict = "VIOLATED" if report.violated else "not refuted"
    delta = f", δ = {promise.delta:g}" if promise.delta else ""
    title = f"{report.spec.method}, claimed ε = {promise.epsilon:g}{delta} (dashed): {verdict}"
    panel.set_title(title, fontsize=10)
