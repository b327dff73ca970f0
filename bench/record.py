"""Hiding the whole record: what is found of CLINC150 sentence embeddings, by method and epsilon.

    python bench/record.py [--runs 5] [--output bench/record/clinc150.csv]

Base vectors are the first rows of ``corpus_idx``, queries the first 500 of ``query_idx``, all at
norm 1; precision@10 counts the true 50 nearest (Li & Li 2023, Sec. 5.1). Codebooks are made of the
4000 corpus rows that are not in the base: the first 2000 of them, centroids, all, or all and points
between them. Encoding is timed on one thread, search against a flat float index of the same vectors
in the same run.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np

import dpindex as dpi

BASE, PUBLIC, QUERIES = 18_700, 4000, 500
CAP_BASE = 20_700
FIRST = ((6.0, 8), (8.0, 2), (10.0, 1), (12.0, 1))
CODEBOOKS = {
    1000: ((6.0, 2), (6.0, 3), (8.0, 1)),
    2000: ((6.0, 4), (8.0, 2), (10.0, 1)),
    2500: ((6.0, 6), (6.0, 7)),
    4000: ((6.0, 8), (6.0, 16), (8.0, 4), (10.0, 1), (10.0, 2), (12.0, 1)),
    6000: ((8.0, 4), (10.0, 2), (12.0, 1)),
    8000: ((12.0, 1),),
}
"""Size, and the pairs of epsilon and subset that are measured."""

CAPS = (
    *((128, epsilon) for epsilon in (8.0, 12.0, 16.0)),
    *((k, 12.0) for k in (64, 256, 384)),
    (384, 16.0),
)


def load() -> tuple[Any, Any]:
    """Corpus and queries, float32, norm 1."""
    folder = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "clinc150_minilm.npz"
    if not path.is_file():
        raise SystemExit(f"skipped: {path} is not there; set DPINDEX_DATA")
    data = np.load(path)
    vectors = data["E"].astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[data["corpus_idx"]], vectors[data["query_idx"][:QUERIES]]


def specs(corpus: Any) -> list[tuple[str, int, dpi.Spec]]:
    """Label, rows of the base, spec."""
    common: dict[str, Any] = {"dim": corpus.shape[1], "adjacency": dpi.record()}
    rows = []
    public = corpus[BASE : BASE + PUBLIC]
    for name, book in (
        ("first 2000", dpi.Codebook(public[:2000])),
        *((f"{size} of 4000", dpi.fit_codebook(public, size)) for size in CODEBOOKS),
    ):
        for epsilon, subset in FIRST if name == "first 2000" else CODEBOOKS[book.size]:
            spec = dpi.Spec(
                method="record-codebook", epsilon=epsilon, codebook=book, subset=subset, **common
            )
            rows.append((f"codebook {name} w={subset}", BASE, spec))
    for k, epsilon in CAPS:
        spec = dpi.Spec(method="record-cap", epsilon=epsilon, k=k, **common)
        rows.append((f"cap k={k}", CAP_BASE, spec))
    gaussian: dict[str, Any] = {"method": "row-rp-g-opt", "delta": 1e-6, "adjacency": dpi.l2(2.0)}
    for epsilon in (8.0, 16.0):
        spec = dpi.Spec(dim=corpus.shape[1], k=256, epsilon=epsilon, **gaussian)
        rows.append(("Gaussian l2(2) k=256", BASE, spec))
    return rows


def measure(spec: dpi.Spec, base: Any, queries: Any, true: Any) -> dict[str, float]:
    privatizer = dpi.Privatizer(spec)
    privatizer.privatize(base[:256], threads=1)  # tables are made once
    start = time.perf_counter()
    codes = privatizer.privatize(base, threads=1)
    seconds = time.perf_counter() - start
    index = dpi.PrivateIndex(spec)
    index.add_codes(codes)
    found = {}
    for mode in ("exact", "private"):
        ids = index.search(queries, k=10, query=mode).ids
        hits = [len(set(a) & set(b)) for a, b in zip(ids.tolist(), true.tolist(), strict=True)]
        found[mode] = float(np.mean(hits)) / 10
    return {**found, "vectors/s": len(base) / seconds, "bytes": float(codes.stored[0].nbytes)}


def speed() -> None:
    """A million symbols against a million float vectors: queries a second, and the ratio."""
    rng = np.random.default_rng(0)
    dim, size, count = 384, 4096, 1_000_000
    book = dpi.Codebook(rng.normal(size=(size, dim)))
    spec = dpi.Spec(
        method="record-codebook", dim=dim, epsilon=10.0, adjacency=dpi.record(), codebook=book
    )
    index = dpi.PrivateIndex(spec)
    symbols = rng.integers(0, size, (count, 1)).astype(np.uint16)
    index.add_codes(spec.format.codes(symbols))
    queries = rng.normal(size=(256, dim)).astype(np.float32)
    flat = faiss.IndexFlatIP(dim)
    flat.add(rng.normal(size=(count, dim)).astype(np.float32))
    index.search(queries[:1])
    ratios = []
    for _ in range(3):
        start = time.perf_counter()
        index.search(queries, k=10)
        ours = time.perf_counter() - start
        start = time.perf_counter()
        flat.search(queries, 10)
        ratios.append((time.perf_counter() - start) / ours)
    print(f"search of a million codes: {np.median(ratios):.1f} times as fast as flat float search")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("bench/record/clinc150.csv"))
    chosen = parser.parse_args()
    corpus, queries = load()
    rows = []
    for label, count, spec in specs(corpus):
        base = corpus[:count]
        true = np.argsort(-(queries @ base.T), axis=1)[:, :50]
        runs = [measure(spec, base, queries, true) for _ in range(chosen.runs)]
        mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        spread = float(np.std([run["exact"] for run in runs]))
        epsilon = spec.epsilon or math.inf
        rows.append((label, epsilon, *(round(mean[n], 4) for n in ("exact", "private")),
                     round(spread, 4), round(mean["vectors/s"]), int(mean["bytes"])))  # fmt: skip
        print(*rows[-1], flush=True)
    chosen.output.parent.mkdir(exist_ok=True)
    with chosen.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["method", "epsilon", "exact", "private", "std exact", "vectors/s", "bytes"]
        )
        writer.writerows(rows)
    speed()


if __name__ == "__main__":
    main()
