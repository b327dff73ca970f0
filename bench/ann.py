"""Sublinear search on denoised codes: queries a second against recall, beside flat search.

    python bench/ann.py [--rows 1000000] [--index-types IVF1024,Flat IVF1024,SQ8 …]

The vectors are synthetic, in [0, 1]: a thousand loose clusters in twelve dimensions, spread over
64 attributes by a smooth map with a little noise of their own. They get square-wave noise at
epsilon 3 and a linear denoiser. Queries are further vectors of the same kind, used exactly. Seconds
are of the processor, with one thread, so that they compare on a busy machine; searching includes
estimating similarities, as users have it. ``share of flat`` is precision@10 over that of flat
search of the same denoised codes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpindex import PrivateIndex, Privatizer, Spec, attribute

DIM, INNER, CLUSTERS, QUERIES, TRUE = 64, 12, 1000, 512, 50
INDEX_TYPES = ("f32", "f16", "int8", "IVF1024,Flat", "IVF1024,SQ8")
COLUMNS = ("index type", "rows", "precision@10", "share of flat", "recall", "build seconds",
           "queries/s", "times flat")  # fmt: skip


def vectors(count: int, seed: int) -> Any:
    """Points about cluster centres, through a fixed map into [0, 1]^DIM."""
    shape = np.random.default_rng(7)
    centres = shape.normal(size=(CLUSTERS, INNER)).astype(np.float32)
    spread = shape.normal(size=(INNER, DIM)).astype(np.float32) / np.sqrt(INNER)
    rng = np.random.default_rng(seed)
    x = centres[rng.integers(0, CLUSTERS, count)]
    x = x + np.float32(0.35) * rng.standard_normal((count, INNER), dtype=np.float32)
    y = np.tanh(x @ spread) + np.float32(0.03) * rng.standard_normal((count, DIM), dtype=np.float32)
    return np.clip((y + 1) / 2, 0, 1)


def nearest(base: Any, queries: Any) -> Any:
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    scores = np.concatenate(
        [
            unit @ (part / np.linalg.norm(part, axis=1, keepdims=True)).T
            for part in np.array_split(base, max(1, len(base) // 50_000))
        ],
        axis=1,
    )
    return np.argpartition(-scores, TRUE, axis=1)[:, :TRUE]


def searched(index: PrivateIndex, queries: Any) -> tuple[float, Any]:
    index.search(queries[:1])
    seconds = []
    for _ in range(3):
        start = time.process_time()
        hits = index.search(queries)
        seconds.append(time.process_time() - start)
    return len(queries) / min(seconds), hits.ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--index-types", nargs="*", default=list(INDEX_TYPES))
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(""))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    base, queries = vectors(chosen.rows, 1), vectors(QUERIES, 2)
    true = nearest(base, queries)
    spec = Spec(
        method="raw-square-wave", dim=DIM, epsilon=3.0, bounds=(0, 1), adjacency=attribute(1.0)
    )
    codes = Privatizer(spec).privatize(base)
    del base
    rows: list[dict[str, Any]] = []
    for index_type in chosen.index_types:
        index = PrivateIndex(spec, index_type=index_type)
        index.add_codes(codes)
        start = time.process_time()
        index.fit_denoiser("linear")
        index.search(queries[:1])
        built = time.process_time() - start
        speed, found = searched(index, queries)
        precision = float(np.mean([np.isin(a, b).mean() for a, b in zip(found, true, strict=True)]))
        first = rows[0] if rows else {"precision@10": precision, "queries/s": speed}
        measured = index.index_recall
        values = (
            index_type, chosen.rows, round(precision, 4),
            round(precision / first["precision@10"], 4),
            "" if measured is None else round(measured, 4), round(built, 1), round(speed, 1),
            round(speed / first["queries/s"], 2),
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(rows[-1], flush=True)
        with (chosen.output / f"ann-{chosen.rows}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    draw(rows, chosen.output / f"ann-{chosen.rows}.png")


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    panel = figure.subplots()
    for row in rows:
        panel.plot(row["share of flat"], row["queries/s"], "o", ms=8, color="#0072B2")
        words = {"f32": "flat (f32)"}.get(row["index type"], row["index type"])
        place = row["share of flat"], row["queries/s"]
        panel.annotate(words, place, xytext=(7, 5), textcoords="offset points", fontsize=9)
    panel.axhline(20 * rows[0]["queries/s"], ls=":", color="#777777", lw=1)
    panel.axvline(0.98, ls=":", color="#777777", lw=1)
    panel.set(yscale="log", xlabel="share of flat search's precision@10", ylabel="queries a second")
    panel.set_xlim(min(0.97, *(row["share of flat"] - 0.02 for row in rows)), 1.02)
    panel.set_title(f"{rows[0]['rows']:,} denoised codes; dotted: 20 x flat, and 0.98", fontsize=10)
    panel.grid(alpha=0.25)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
