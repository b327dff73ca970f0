"""What the experiments share: data, tables and pictures."""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[3] / "shared" / "data"))
RESULTS = Path(__file__).parent / "results"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B4A9E", "#555555")
MARKERS = "osD^vPX*"
Array = npt.NDArray[np.float64]
Row = Mapping[str, object]
DELTA = 1e-6
"""Li & Li's: beta = 1 and this delta throughout."""


def load(name: str) -> dict[str, Any]:
    """The arrays of one data set; says how to find it where it is absent."""
    path = DATA / f"{name}.npz"
    if not path.is_file():
        sys.exit(f"{path} is not there: set DPINDEX_DATA to the directory that holds it.")
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def arguments(purpose: str, **options: Any) -> argparse.Namespace:
    """Options of one script, each with its default and the type of that."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--redraw", action="store_true", help="draw from the CSV that is there")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    RESULTS.mkdir(exist_ok=True)
    return parser.parse_args()


def write_csv(name: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Write a table, floats to six digits, and return what a reader of it gets."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)
    return read_csv(name)


def read_csv(name: str) -> list[dict[str, Any]]:
    """The rows of a table, numbers as numbers; none if it is not there yet."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{key: _read(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def _read(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def means(
    runs: Sequence[Mapping[str, Any]], by: Sequence[str], of: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for all runs that agree in ``by``: their number, and mean and deviation of each ``of``.

    Rows are sorted by the last of ``by``, the x axis, and otherwise come in the order of the runs.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run[name] for name in by), []).append(run)
    table = []
    for key in sorted(groups, key=lambda key: key[-1]):
        row: dict[str, Any] = {**dict(zip(by, key, strict=True)), "runs": len(groups[key])}
        for name in of:
            values = [run[name] for run in groups[key]]
            row[name] = statistics.fmean(values)
            row[f"std of {name}"] = statistics.stdev(values) if len(values) > 1 else 0.0
        table.append(row)
    return table


def show(rows: Sequence[Row]) -> None:
    """A table on the terminal."""
    names = list(rows[0])
    cells = [[str(_short(row[name])) for name in names] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(names, *cells, strict=True)]
    for line in [names, *cells]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def draw(
    path: str | Path,
    titles: Sequence[str],
    fill: Callable[[int, Any], None],
    xlabel: str | Sequence[str],
    ylabel: str | Sequence[str],
    columns: int | None = None,
    legend_columns: int = 3,
) -> None:
    """One panel a title; ``fill(i, axes)`` draws; one legend under all. Paths are in ``results``
    unless absolute."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = columns or len(titles)
    lines = -(-len(titles) // columns)
    figure = Figure(figsize=(max(6.4, 4.6 * columns), 3.5 * lines + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for i, (title, axes) in enumerate(zip(titles, panels, strict=False)):
        fill(i, axes)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(xlabel if isinstance(xlabel, str) else xlabel[i])
        axes.grid(alpha=0.3)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if isinstance(ylabel, str):
            if i % columns == 0:
                axes.set_ylabel(ylabel)
        else:
            axes.set_ylabel(ylabel[i])
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    for axes in panels[len(titles) :]:
        axes.remove()
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(legend_columns, len(handles)),
        fontsize=9,
        frameon=False,
    )
    figure.savefig(RESULTS / path, dpi=120)
    print(f"wrote {RESULTS / path}")


def style(i: int, **changes: Any) -> dict[str, Any]:
    """The i-th line: colour and marker."""
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[i % len(MARKERS)],
        "markersize": 4.5,
        **changes,
    }


def epsilon_axis(axes: Any, epsilons: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
