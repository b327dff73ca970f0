"""What a plan promises for tables, and what is found, by cosine and by distance.

    python bench/tables.py [--only occupancy,naval,skin] [--output bench/plan/tables.csv]

A quarter of the rows, drawn at random, is public; 300 rows are queries; the others are the
collection. Columns are scaled to [-1, 1] by the public extremes or by the first and the last
percentile. A tenth of the range of one column is hidden at epsilon 5. The recommended spec is built
once. Precision is the share of the first ten answers among the true 50 nearest, of which ``found``
is counted by the package and ``strict`` in double precision, without tolerance. The data are in
DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from recipes import DATA

import dpindex as dpi
from dpindex.index.queries import QueryMode
from dpindex.similarity.similarity import Metric
from dpindex.study.evaluate import ground_truth

TABLES = ("occupancy", "naval", "skin")
TAILS = {"extremes": (0, 100), "percentiles": (1, 99)}
METRICS: tuple[Metric, ...] = ("cosine", "l2")
MODES: tuple[QueryMode, ...] = ("exact", "private")
QUERIES, FOUND, NEIGHBOURS, EPSILON, BETA = 300, 10, 50, 5.0, 0.2
COLUMNS = ("table", "scaled by", "metric", "method", "query", "promised", "found", "strict")


def scaled(table: Any, tails: tuple[int, int]) -> Any:
    """Return columns in [-1, 1], without those of one value."""
    public = table[: len(table) // 4]
    low, high = np.percentile(public, tails, axis=0)
    varies = high > low
    clipped = np.clip(table, low, high)[:, varies]
    return 2 * (clipped - low[varies]) / (high - low)[varies] - 1


def strict_precision(ids: Any, base: Any, queries: Any, metric: Metric) -> float:
    """Return the precision by squared distances in double precision; exact ties are hits."""
    if metric == "cosine":
        base = base / np.linalg.norm(base, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    shares = []
    for found, query in zip(ids, queries, strict=True):
        distance = ((base - query) ** 2).sum(axis=1)
        last = np.partition(distance, NEIGHBOURS - 1)[NEIGHBOURS - 1]
        shares.append((distance[found] <= last * (1 + 1e-12)).mean())
    return float(np.mean(shares))


def lines(name: str, tails: str, metric: Metric) -> list[tuple[Any, ...]]:
    """Return a line for each query mode."""
    with np.load(DATA / f"tab_{name}.npz") as stored:
        table = stored["X"].astype(np.float64)
    table = scaled(table[np.random.default_rng(0).permutation(len(table))], TAILS[tails])
    public, queries, base = np.split(table, [len(table) // 4, len(table) // 4 + QUERIES])
    best = dpi.plan(
        dim=table.shape[1],
        n=len(base),
        epsilon=EPSILON,
        adjacency=dpi.attribute(BETA),
        public_sample=public,
        metric=metric,
    ).best
    index = dpi.PrivateIndex(best.spec, metric=metric)
    index.add(base)
    if best.denoiser is not None:
        index.fit_denoiser(best.denoiser)
    truth = ground_truth(base, queries, NEIGHBOURS, metric)
    made = []
    for mode in MODES:
        ids = index.search(queries, FOUND, query=mode).ids
        found = float(truth.precision(ids, FOUND, NEIGHBOURS).mean())
        values = (best.found(mode).precision, found, strict_precision(ids, base, queries, metric))
        rounded = [round(value, 3) for value in values]
        made.append((name, tails, metric, best.method, mode, *rounded))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = [
        line
        for name in options.only.split(",")
        for tails in TAILS
        for metric in METRICS
        for line in lines(name, tails, metric)
    ]
    for row in rows:
        print(*row)
    if options.output is not None:
        with options.output.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
