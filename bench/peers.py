"""Record-level codes beside what people would pick instead: what is found, and what leaks.

    python bench/peers.py [--folder bench/peers] [--draw]

CLINC150 sentence embeddings as in ``bench/record.py``: 18 700 base vectors, 4000 public ones, 500
queries, all at norm 1; precision@10 counts the true 50 nearest. Encoding is processor time on one
thread. The attacks are made on 500 records: ``bench/peers_attack.py``. With ``--draw`` the picture
alone is made, of the table that is there.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from peers_attack import CANDIDATES, Attacker
from peers_schemes import (
    NEIGHBOURS,
    PURE,
    Array,
    MetricNoise,
    Ours,
    OwnNormNoise,
    Plain,
    PrivUnit,
    Rotation,
    ScaleAndPerturb,
    Scheme,
)
from record import BASE, PUBLIC, load

import dpindex as dpi
from dpindex.base.display import COLOURS, legend_below, new_figure, tidy, to_png

GREYS = ("#333333", "#777777")

TRUE = 50
DELTA = 1e-6
NOISES = (0.0, 0.1, 1.0, 2.5)
FACTORS = (0.6, 4.0, 10.0)
STATED = (1.0, 4.0, 10.0)
ATTRIBUTE_EPSILONS = (2.0, 6.0)
RATES = (5.0, 50.0, 100.0, 175.0)
EPSILONS = (8.0, 10.0, 12.0)
SUBSETS = {6.0: 16, 8.0: 4, 10.0: 1, 12.0: 1}


def schemes(dim: int, public: Array) -> Iterator[Scheme]:
    yield Plain()
    for noise in NOISES:
        yield Rotation(dim, noise)
    for factor in FACTORS:
        yield ScaleAndPerturb(dim, factor)
    for stated in STATED:
        yield OwnNormNoise(stated)
    for rate in RATES:
        yield MetricNoise(rate)
    for epsilon in EPSILONS:
        yield PrivUnit(dim, epsilon)
    yield from ours(dim, public)


def ours(dim: int, public: Array) -> Iterator[Scheme]:
    one = dpi.attribute(0.5)
    for epsilon in ATTRIBUTE_EPSILONS:
        spec = dpi.Spec("raw-staircase", dim, epsilon=epsilon, adjacency=one)
        promise = f"one attribute by 0.5, pure epsilon = {epsilon:g}; not the record"
        yield Ours("one attribute", f"{epsilon:g} an attribute", promise, spec)
    for epsilon in EPSILONS:
        spec = dpi.Spec("raw-gaussian", dim, epsilon=epsilon, delta=DELTA, adjacency=dpi.l2(2.0))
        yield Ours("Gaussian noise", f"delta {DELTA:g}", f"any two vectors, delta {DELTA:g}", spec)
    record: dict[str, Any] = {"adjacency": dpi.record()}
    for epsilon in EPSILONS:
        spec = dpi.Spec("record-cap", dim, k=128, epsilon=epsilon, **record)
        yield Ours("record-cap", "k=128", PURE, spec)
    book = dpi.Codebook(public)
    for epsilon, subset in SUBSETS.items():
        spec = dpi.Spec(
            "record-codebook", dim, epsilon=epsilon, codebook=book, subset=subset, **record
        )
        yield Ours("record-codebook", f"K={book.size} w={subset}", PURE, spec)


def line(scheme: Scheme, base: Array, public: Array, queries: Array, true: Array) -> dict[str, Any]:
    """Return the facts and figures of one scheme: a line of the table."""
    start = time.process_time()
    codes = scheme.encode(base)
    seconds = time.process_time() - start
    figures = {"encode us": 1e6 * seconds / len(base)}
    for mode in ("exact", "private"):
        rows = scheme.search(codes, queries, mode == "private").tolist()
        hits = [len(set(a) & set(b)) for a, b in zip(rows, true.tolist(), strict=True)]
        figures[mode] = float(np.mean(hits)) / NEIGHBOURS
    figures |= Attacker(scheme, codes, base, public, queries).figures()
    figures["bound"] = 1.0 / (1.0 + (CANDIDATES - 1) * math.exp(-scheme.epsilon))
    return {
        "scheme": scheme.family,
        "setting": scheme.setting,
        "epsilon": "none" if math.isinf(scheme.epsilon) else f"{scheme.epsilon:g}",
        "guarantee": scheme.guarantee,
        "bytes": scheme.size(codes),
    } | {name: round(value, 4) for name, value in figures.items()}


def measure(path: Path) -> None:
    corpus, queries = load()
    base, public, _ = np.split(corpus, [BASE, BASE + PUBLIC])
    true = np.argsort(-(queries @ base.T), axis=1)[:, :TRUE]
    lines = []
    for scheme in schemes(corpus.shape[1], public):
        lines.append(line(scheme, base, public, queries, true))
        print(*lines[-1].values(), sep=", ", flush=True)
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(lines)


STYLES = {
    "record-codebook": (COLOURS[1], "o"),
    "record-cap": (COLOURS[4], "s"),
    "PrivUnit": (COLOURS[0], "^"),
    "Gaussian noise": (COLOURS[5], "v"),
    "own-norm Gaussian": (COLOURS[3], "<"),
    "metric-DP noise": (COLOURS[6], "D"),
    "one attribute": (GREYS[1], "P"),
    "secret rotation": (COLOURS[2], "X"),
    "scale and perturb": ("#004D37", "p"),
    "no protection": (GREYS[0], "*"),
}
"""Colour and marker of each family."""
LABELS = {"record-codebook": (-8, 8), "PrivUnit": (4, -16), "metric-DP noise": (-6, 8)}
"""Where epsilon stands beside the markers of a family, in points."""
LEAST_LABELLED = 0.05
LEAST_ARROW = 0.05


def draw(table: Path) -> bytes:
    """Return a picture: precision of exact queries by the rate of the strongest attack."""
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    figure = new_figure(8.0, 6.4)
    axes = figure.subplots()
    for family, (colour, marker) in STYLES.items():
        rows = [row for row in lines if row["scheme"] == family]
        exact = [float(row["exact"]) for row in rows]
        best = [float(row["best"]) for row in rows]
        axes.plot(best, exact, color=colour, marker=marker, markersize=8)
        for row, x, y in zip(rows, best, exact, strict=True):
            if family in LABELS and y > LEAST_LABELLED:
                _label(axes, f"ε = {row['epsilon']}", (x, y), LABELS[family], colour)
            alone = float(row["picked"])
            if x - alone > LEAST_ARROW:
                axes.plot([alone, x], [y, y], ":", color=colour, linewidth=1.0)
                axes.plot(alone, y, marker, color=colour, fillstyle="none", markersize=8)
    axes.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.05),
        xlabel="true vector picked among 1000 by the strongest attack",
        ylabel="precision@10, exact queries",
    )
    axes.set_title("Filled: strongest attack. Hollow: without known pairs", fontsize=10)
    tidy(axes)
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=family)
        for family, (colour, marker) in STYLES.items()
    ]
    legend_below(figure, handles, list(STYLES))
    return to_png(figure)


def _label(axes: Any, text: str, point: Any, offset: tuple[int, int], colour: str) -> None:
    axes.annotate(
        text,
        point,
        offset,
        textcoords="offset points",
        fontsize=8,
        color=colour,
        ha="right" if offset[0] < 0 else "left",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench/peers"))
    parser.add_argument("--draw", action="store_true")
    chosen = parser.parse_args()
    table = chosen.folder / "clinc150.csv"
    if not chosen.draw:
        measure(table)
    (chosen.folder / "peers.png").write_bytes(draw(table))


if __name__ == "__main__":
    main()
