"""What the experiments share: data, sketches to compare with, tables and pictures."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.mechanism.noise.moments import NoiseMoments
from dpindex.race import Hash, RaceSketch, SketchSpec

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from independent.oracle import secret_counts

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[3] / "shared" / "data"))
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#5B4A9E")
MARKERS = "osD^vP"
Array = npt.NDArray[np.float64]
Row = Mapping[str, object]


def load(name: str) -> dict[str, Any]:
    """The arrays of one data set; says how to find it where it is absent."""
    path = DATA / f"{name}.npz"
    if not path.is_file():
        sys.exit(f"{path} is not there: set DPINDEX_DATA to the directory that holds it.")
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def arguments(purpose: str, repetitions: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--output", type=Path, default=Path("race-results"), help="directory")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    return chosen


def split(count: int, held_out: int, seed: int) -> tuple[npt.NDArray[np.intp], ...]:
    """Rows to sketch and rows held out."""
    order = np.random.default_rng(seed).permutation(count)
    return order[held_out:], order[:held_out]


class _Silence:
    """No noise at all: what the ceiling is released with, here and nowhere else."""

    offset = 0.0
    moments = NoiseMoments.additive(0.0, 0.0)

    def sample(self, count: int, stream: object) -> npt.NDArray[np.int32]:
        return np.zeros(count, dtype=np.int32)

    @property
    def source(self) -> _Silence:
        return self


def silenced(sketch: RaceSketch) -> RaceSketch:
    """The same sketch, *not private*: its release adds nothing. A ceiling to compare with."""
    silence: Any = _Silence()
    sketch.law = silence
    return sketch


@dataclass(frozen=True)
class Filled:
    """Exact counts of one data set under one hash: hashed once, released many times to compare."""

    spec: SketchSpec
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, x: Array, rows: int, width: int | None, hash: Hash, seed: int) -> Filled:
        spec = SketchSpec(x.shape[1], rows, width, hash, epsilon=1.0, seed=seed)
        return cls(spec, secret_counts(RaceSketch(spec).fit(x)))

    def release(self, epsilon: float | None, **options: Any) -> RaceSketch:
        """A release under epsilon, or the ceiling for None."""
        sketch = RaceSketch(replace(self.spec, epsilon=epsilon or 1.0, **options))
        secret_counts(sketch)[:] = self.counts
        return (sketch if epsilon is not None else silenced(sketch)).release()


def peer(name: str) -> Any:
    """A model class of diffprivlib, or None where it is not installed."""
    try:
        return getattr(import_module("diffprivlib.models"), name)
    except ImportError:
        return None


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {path}")


def show(rows: Sequence[Row]) -> None:
    """A table on the terminal."""
    names = list(rows[0])
    cells = [[_text(row[name]) for name in names] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(names, *cells, strict=True)]
    for line in [names, *cells]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw(
    path: Path,
    titles: Sequence[str],
    fill: Callable[[int, Any], None],
    xlabel: str,
    ylabel: str,
) -> None:
    """One panel a title; ``fill(i, axes)`` draws; one legend under all of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(titles), 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(titles), squeeze=False)[0]
    handles: dict[str, Any] = {}
    for i, (title, axes) in enumerate(zip(titles, panels, strict=True)):
        fill(i, axes)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(xlabel)
        axes.grid(alpha=0.3)
        handles.update(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    panels[0].set_ylabel(ylabel)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=3, fontsize=9
    )
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


def line(axes: Any, rows: Sequence[Row], x: str, method: str, i: int, y: str = "mean") -> None:
    """The mean of one method by ``x`` with one standard deviation, in the i-th style."""
    mine = [row for row in rows if row["method"] == method]
    at = np.array([row[x] for row in mine], dtype=float)
    mean = np.array([row[y] for row in mine], dtype=float)
    spread = np.array([row["spread"] for row in mine], dtype=float)
    axes.plot(at, mean, color=COLOURS[i], marker=MARKERS[i], markersize=4, label=method)
    axes.fill_between(
        at, np.maximum(mean - spread, mean / 3), mean + spread, color=COLOURS[i], alpha=0.15
    )


def percent(axes: Any) -> None:
    """A logarithmic y axis in per cent, with readable labels where it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0, 7.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def ceiling(
    axes: Any, value: float, label: str, style: str = "--", colour: str = "#333333"
) -> None:
    axes.axhline(value, color=colour, linestyle=style, linewidth=1.2, label=label)
