"""Pictures of released sketches and of their answers; all of it is post-processing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Floats
from dpindex.base.charts import BAND, BLUE, new_figure, tidy, to_png
from dpindex.base.errors import InputError
from dpindex.race.explore import box
from dpindex.race.sketch import RaceSketch

__all__ = ["answers_png", "counts_png", "map_png"]

_GRID = {1: 401, 2: 101}
_BINS = 60
_FEW = 100
"""Up to so many queries have an error bar each."""

_WIDTH = 4.4
"""Inches of a panel."""


def map_png(sketches: Mapping[str, RaceSketch], bounds: tuple[Any, Any]) -> bytes:
    """Return a PNG of how many records lie near each place of a box, with standard errors.

    One column of panels for each sketch, under its title; all share their axes and their scale.
    With one attribute a curve within two standard errors, with two a map of the counts above a map
    of the standard errors.

    Parameters
    ----------
    sketches : mapping of title to RaceSketch
        Released; all of one attribute, or all of two.
    bounds : (low, high)
        Public box, numbers or one for each attribute.

    Raises
    ------
    InputError
        For more than two attributes, for sketches of different width, and without matplotlib.
    """
    dims = {sketch.spec.dim for sketch in sketches.values()}
    if len(dims) > 1 or not dims <= set(_GRID):
        raise InputError(
            "a map needs sketches of one or two attributes, all of the same number; draw the "
            "released counts of others."
        )
    (dim,) = dims
    low, high = box(bounds, "bounds", dim)
    axes = np.linspace(low, high, _GRID[dim], axis=1)
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    answers = {title: sketch.summary(places) for title, sketch in sketches.items()}
    figure = _figure(len(sketches), 4.0 * dim)
    panels = figure.subplots(dim, len(sketches), sharex=True, sharey=True, squeeze=False)
    for panel, title in zip(panels[0], sketches, strict=True):
        panel.set_title(title, fontsize=9)
    for panel in panels[-1]:
        panel.set_xlabel("attribute 0")
    if dim == 1:
        _curves(panels[0], axes[0], answers, sketches)
    else:
        labels = {"count": "records near a place", "stderr": "standard error"}
        for row, (name, label) in zip(panels, labels.items(), strict=True):
            layers = [answer[name] for answer in answers.values()]
            _maps(figure, row, (low, high), layers, label)
    return to_png(figure)


def _curves(
    panels: Any, x: Floats, answers: Mapping[str, Any], sketches: Mapping[str, RaceSketch]
) -> None:
    for panel, title in zip(panels, sketches, strict=True):
        count = answers[title]["count"]
        error = answers[title]["stderr"]
        panel.fill_between(x, count - 2 * error, count + 2 * error, color=BLUE, alpha=0.2, lw=0)
        panel.plot(x, count, color=BLUE, label="estimate ± 2 standard errors")
        _noise_band(panel, sketches[title].count_noise)
        tidy(panel)
    panels[0].set_ylabel("records near a place")
    panels[0].legend(frameon=False, fontsize=8)


def _maps(
    figure: Any, panels: Any, limits: tuple[Floats, Floats], layers: list[Floats], label: str
) -> None:
    side = _GRID[2]
    extent = np.stack(limits, axis=1).ravel()
    low = np.min(layers)
    high = np.max(layers)
    for panel, layer in zip(panels, layers, strict=True):
        image = panel.imshow(
            layer.reshape(side, side).T, origin="lower", extent=extent, aspect="auto",
            vmin=low, vmax=high, cmap="viridis",
        )  # fmt: skip
    figure.colorbar(image, ax=panels, label=label)
    panels[0].set_ylabel("attribute 1")


def counts_png(sketches: Mapping[str, RaceSketch]) -> bytes:
    """Return a PNG of the released counts of each sketch, as a histogram on a band of the noise.

    Where the histogram is no wider than the band, the sketch shows no place with more records than
    another. All panels share their axes.

    Raises
    ------
    InputError
        Without matplotlib.
    """
    figure = _figure(len(sketches), 4.0)
    panels = figure.subplots(1, len(sketches), sharex=True, sharey=True, squeeze=False)[0]
    counts = {title: sketch.counts.ravel() for title, sketch in sketches.items()}
    low = int(min(part.min() for part in counts.values()))
    high = int(max(part.max() for part in counts.values()))
    edges = np.arange(low, high + 1, max(1, (high - low) // _BINS)) - 0.5
    edges = np.append(edges, high + 0.5)
    for panel, (title, sketch) in zip(panels, sketches.items(), strict=True):
        part = counts[title]
        panel.hist(part, edges, color=BLUE, alpha=0.7, weights=np.full(part.size, 1 / part.size))
        even = sketch.size / sketch.spec.columns
        noise = np.sqrt(sketch.noise_variance)
        label = "± 2 standard deviations of the noise\naround an even spread of the records"
        panel.axvspan(even - 2 * noise, even + 2 * noise, color=BAND, alpha=0.25, label=label)
        panel.set_yscale("log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("released count of a cell")
        tidy(panel)
    panels[0].set_ylabel("share of the cells")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", fontsize=8)
    return to_png(figure)


def answers_png(answers: Mapping[str, AnyArray], noise: float) -> bytes:
    """Return a PNG of the answers to queries: sorted with their errors, and their distribution.

    Parameters
    ----------
    answers : mapping
        ``count`` and ``stderr`` of :meth:`RaceSketch.summary`, shape (nq,) each.
    noise : float
        ``count_noise`` of the sketch: the standard deviation of an answer where no record lies.
    """
    order = np.argsort(-answers["count"], kind="stable")
    count = answers["count"][order]
    error = answers["stderr"][order]
    figure = _figure(2, 4.0)
    sort, spread = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    rank = np.arange(1, len(count) + 1)
    label = "estimate ± 2 standard errors"
    if len(count) <= _FEW:
        sort.errorbar(rank, count, 2 * error, fmt=".", color=BLUE, elinewidth=1, label=label)
    else:
        sort.plot(rank, count, color=BLUE, label=label)
        sort.fill_between(rank, count - 2 * error, count + 2 * error, color=BLUE, alpha=0.2, lw=0)
    sort.set_xlabel("queries, by their estimate")
    sort.set_ylabel("records near the query")
    spread.hist(count, min(_BINS, max(5, len(count) // 5)), orientation="horizontal", color=BLUE)
    spread.set_xlabel("queries")
    for panel in (sort, spread):
        _noise_band(panel, noise)
        tidy(panel)
    sort.legend(frameon=False, fontsize=8)
    return to_png(figure)


def _noise_band(panel: Any, noise: float) -> None:
    label = "± 2 standard deviations of the noise\nwhere no record lies"
    panel.axhspan(-2 * noise, 2 * noise, color=BAND, alpha=0.25, label=label, lw=0)


def _figure(columns: int, height: float) -> Any:
    return new_figure(1.2 + _WIDTH * columns, height)
