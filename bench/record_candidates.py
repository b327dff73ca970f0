"""Recall of whole-record codes after reranking, chosen by ``plan``: promised and found.

``python bench/record_candidates.py`` prints ``bench/record/candidates.csv``. CLINC150's corpus is
permuted; the first 18 700 sentences are private, the next 4000 public, and queries are 500 others.
Recall is the share of the true ten nearest among the first R answers of the codes.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np

import dpindex as dpi
from dpindex.index.queries import QueryMode

DATA = Path(os.environ.get("DPINDEX_DATA", "../shared/data"))
PRIVATE = 18_700
PUBLIC = 4000
QUERIES = 500
BUILDS = 3
NEIGHBOURS = 10
CASES = (
    (6.0, 1000, "exact"), (8.0, 500, "exact"), (8.0, 1000, "exact"), (8.0, 1000, "private"),
    (10.0, 200, "exact"), (10.0, 1000, "exact"), (10.0, 1000, "private"),
)  # fmt: skip


def sentences() -> tuple[Any, Any, Any]:
    """Return the private vectors, the public ones and the queries."""
    with np.load(DATA / "clinc150_minilm.npz") as data:
        vectors = data["E"].astype(np.float32)
        corpus = data["corpus_idx"]
        queries = data["query_idx"][:QUERIES]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = corpus[np.random.default_rng(0).permutation(len(corpus))]
    private, public = np.split(vectors[order[: PRIVATE + PUBLIC]], [PRIVATE])
    return private, public, vectors[queries]


def main() -> None:
    private, public, queries = sentences()
    nearest = np.argsort(-(queries @ private.T), axis=1)[:, :NEIGHBOURS]
    writer = csv.writer(sys.stdout)
    writer.writerow(("epsilon", "candidates", "planned_for", "code", "query", "promised", "found"))
    for epsilon, candidates, planned_for in CASES:
        best = dpi.plan(
            dim=private.shape[1],
            n=PRIVATE,
            epsilon=epsilon,
            candidates=candidates,
            query=planned_for,
            public_sample=public,
            adjacency=dpi.record(),
            methods=["record-codebook"],
        ).best
        found: dict[QueryMode, list[float]] = {mode: [] for mode in get_args(QueryMode)}
        for _ in range(BUILDS):
            index = dpi.PrivateIndex(best.spec)
            index.add(private)
            for mode, recalls in found.items():
                ids = index.search(queries, k=candidates, query=mode).ids
                hits = [np.isin(true, row).mean() for true, row in zip(nearest, ids, strict=True)]
                recalls.append(float(np.mean(hits)))
        for mode, recalls in found.items():
            promised = best.found(mode).recall_within(candidates)
            row = (epsilon, candidates, planned_for, best.size, mode)
            writer.writerow((*row, f"{promised:.3f}", f"{np.mean(recalls):.3f}"))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
