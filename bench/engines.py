"""A published index on Milvus Lite, or at another address, against the same index in Faiss.

    python bench/engines.py [--rows 100000] [--queries 50] [--uri FOLDER.lance] [--csv FILE]

Hits, similarities and times are compared; rows are appended to the CSV.

"ids" is the share of hits that both find. Where ids at a rank differ, "off" is the largest
difference of their scores, relative to the best score: below 1e-6 the codes tie. "similarity" is
the largest difference of similarities and errors where ids are equal. "ratio" is the time of a
search there over its time here.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpindex as dpi

K, DIM = 10, 128


def seconds(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    answer = action()
    return time.perf_counter() - start, answer


def vectors(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors near a subspace of 16 dimensions, as embeddings are."""
    base = rng.normal(size=(rows, 16)) @ rng.normal(size=(16, DIM)) / 4
    base += 0.3 * rng.normal(size=base.shape)
    return base / np.linalg.norm(base, axis=1, keepdims=True)


def cases(book: np.ndarray) -> dict[str, tuple[dpi.Spec, str, bool]]:
    """Spec, metric, and whether it is denoised."""
    signs = dpi.Spec(
        "dp-signrp-rr", DIM, k=1024, epsilon=30.0, norm=1.0, adjacency=dpi.attribute(1.0)
    )
    numbers = dpi.Spec(
        "dp-oporp-staircase", DIM, k=64, epsilon=20.0, norm=1.0, adjacency=dpi.attribute(1.0)
    )
    terms: dict[str, Any] = {"adjacency": dpi.record(), "codebook": dpi.Codebook(book)}
    symbols = dpi.Spec("record-codebook", DIM, epsilon=8.0, **terms)
    return {
        "signs, 128 bytes": (signs, "cosine", False),
        "numbers, cosine": (numbers, "cosine", False),
        "numbers, inner product": (numbers, "ip", False),
        "numbers, squared distance": (numbers, "l2", False),
        "denoised numbers": (numbers, "cosine", True),
        "symbols": (symbols, "cosine", False),
    }


def compare(here: dpi.Hits, there: dpi.Hits) -> dict[str, float]:
    """Where two searches differ."""
    best = np.abs(here.scores).max(axis=1, keepdims=True)
    off = (np.abs(here.scores - there.scores) / best)[here.ids != there.ids]
    same = here.ids == there.ids
    common = [len(np.intersect1d(a, b)) for a, b in zip(here.ids, there.ids, strict=True)]
    names = ("similarity", "stderr", "unbiased", "unbiased_stderr")
    pairs = [(getattr(here, name)[same], getattr(there, name)[same]) for name in names]
    return {
        "ids": sum(common) / here.ids.size,
        "off": float(off.max(initial=0.0)),
        "similarity": max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--uri")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    base = vectors(options.rows + options.queries + 512, rng)
    base, queries, book = np.split(base, [options.rows, options.rows + options.queries])
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        uri = options.uri or f"{folder}/codes.db"
        for number, (name, (spec, metric, denoised)) in enumerate(cases(book).items()):
            index = dpi.PrivateIndex(spec, metric=metric)
            index.add(base)
            if denoised:
                index.fit_denoiser()
            took, _ = seconds(lambda i=index, n=number: dpi.publish(i, uri, f"case_{n}"))
            served = dpi.open(uri, f"case_{number}")
            codes = dpi.Privatizer(spec).privatize(queries)
            for kind, asked in (("exact", queries), ("private", codes)):
                index.search(asked[:1] if kind == "exact" else codes.take(slice(1)), K)
                served.search(asked[:1] if kind == "exact" else codes.take(slice(1)), K, "exact")
                a, here = seconds(lambda q=asked, i=index: i.search(q, K))
                b, there = seconds(lambda q=asked, s=served: s.search(q, K, "exact"))
                about = {"place": Path(uri).name, "codes": name, "queries": kind}
                facts = {**about, **compare(here, there)}
                found.append({**facts, "publish seconds": took, "ratio": b / a})
                print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else str(v)
                                for k, v in found[-1].items()), flush=True)  # fmt: skip
            served.close()
    if options.csv:
        with options.csv.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            if not file.tell():
                writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
