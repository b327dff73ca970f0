"""A picture of a plan: predicted recall against epsilon for each method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpindex.base.display import (
    COLOURS,
    MARKERS,
    epsilon_axis,
    legend_below,
    new_figure,
    tidy,
    to_png,
)
from dpindex.study.planner.plan_result import Measure, Plan, Row

__all__ = ["plan_png"]


def plan_png(outcome: Plan) -> bytes:
    """A panel for recall and one for precision, the recommended point marked by a ring.

    The lines are the plan's ``curves``, for the query mode of the plan.

    Parameters
    ----------
    outcome : Plan
        What :func:`dpindex.plan` returned, with ``curves``.

    Raises
    ------
    InputError
        If Matplotlib is missing.

    >>> from dpindex.study.planner.public_sample import Facts
    >>> from dpindex.study.planner.planner import plan
    >>> facts = Facts(norm=1.0, neighbour_cosine=0.9)
    >>> from dpindex import attribute
    >>> options = {"methods": ["raw-staircase"], "curves": True, "adjacency": attribute(1.0)}
    >>> plan_png(plan(dim=8, n=500, epsilon=4.0, facts=facts, **options))[1:4]
    b'PNG'
    """
    lines = outcome.curves
    rows = -(-(len(lines) + 1) // 2)
    figure = new_figure(11.2, 4.4 + 0.24 * rows)
    ticks = sorted({row.spec.budget for line in lines for row in line})
    handles = []
    for panel, measure in zip(figure.subplots(1, 2), outcome.measures, strict=True):
        handles = [
            _draw(panel, line, outcome, measure, number) for number, line in enumerate(lines)
        ]
        best = outcome.best
        handles.append(
            panel.plot(
                best.spec.budget, measure.of(best.found(outcome.query)), "o",
                markersize=15, markerfacecolor="none", markeredgecolor="black",
                markeredgewidth=1.6, linestyle="none",
                label=f"recommended: {best.method}, {best.contents}, "
                f"ε = {best.spec.budget:g}",
            )[0]
        )  # fmt: skip
        panel.set(
            title=str(measure), ylim=(0.0, 1.02), ylabel=f"predicted, {outcome.query} queries"
        )
        epsilon_axis(panel, ticks, f"ε under {best.guarantee.adjacency}")
        tidy(panel)
    legend_below(figure, handles, [handle.get_label() for handle in handles])
    return to_png(figure)


def _draw(panel: Any, line: Sequence[Row], outcome: Plan, measure: Measure, number: int) -> Any:
    shares = [measure.of(row.found(outcome.query)) for row in line]
    denoised = ", denoised" if any(row.denoiser for row in line) else ""
    codes = {row.contents for row in line}
    contents = "the best code at each ε"
    if len(codes) == 1:
        contents = line[0].contents
    return panel.plot(
        [row.spec.budget for row in line], shares, color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)], markersize=5, linewidth=1.8,
        label=f"{line[0].method}, {contents}{denoised}",
    )[0]  # fmt: skip
