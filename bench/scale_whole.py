"""A whole build and search of generated vectors as ``record-codebook`` codes, two bytes each.

Vectors are made of their row numbers when they are read, so that 10^8 of them fill no disk and any
of them can be made again to order candidates.
"""

from __future__ import annotations

import csv
import resource
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np

import dpindex as dpi
from dpindex.base.arrays import AnyArray, Doubles, Singles, unit
from dpindex.index.build import build_index
from dpindex.index.owners import Candidates, Owner
from dpindex.similarity.similarity import Metric
from dpindex.vectors.dataset import Dataset, InMemoryPart, Part
from dpindex.vectors.source import VectorSource

DIM, TOPICS, EPSILON = 16, 5000, 8.0
SHARD, QUERIES, NEIGHBOURS, CANDIDATES = 1 << 17, 64, 10, 10_000
SPLITMIX = tuple(
    (np.uint64(shift), np.uint64(factor))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
)
PUBLIC = 1 << 60
"""Number of the first public vector, beyond those of all rows; queries come before it."""


def vectors(numbers: AnyArray) -> Singles:
    """Return the vectors of these numbers: a topic's direction and uniform noise, of norm 1."""
    word = np.arange(DIM // 4, dtype=np.uint64)
    words = numbers.astype(np.uint64)[:, None] * np.uint64(DIM // 4) + word
    for shift, factor in SPLITMIX:
        words = (words ^ (words >> shift)) * factor
    noise = words.view(np.int16).reshape(len(numbers), DIM)
    topic = words[:, 0] % np.uint64(TOPICS)
    made = _topics()[topic] + noise.astype(np.float32) / np.float32(1 << 16)
    return unit(made)


@cache
def _topics() -> Singles:
    directions = np.random.default_rng(0).normal(size=(TOPICS, DIM)).astype(np.float32)
    return unit(directions)


class GeneratedPart(Part):
    """Consecutive numbers, whose vectors are made when they are asked for."""

    def __init__(self, start: int, rows: int) -> None:
        self.name = f"generated vectors from {start}"
        self.start = start
        self.rows = rows

    def vectors(self) -> VectorSource:
        made = vectors(np.arange(self.start, self.start + self.rows))
        return InMemoryPart(self.name, made).vectors()


class Generator(Owner):
    """Makes the vectors of candidates again."""

    def similarities(self, queries: Doubles, candidates: Candidates, metric: Metric) -> Doubles:
        pairs = zip(queries, candidates.ids, strict=True)
        return np.stack([vectors(ids) @ query for query, ids in pairs])


def true_neighbours(queries: Singles, rows: int) -> AnyArray:
    """Return the ids of the nearest vectors, shape (nq, 10)."""
    heap = faiss.ResultHeap(len(queries), NEIGHBOURS, keep_max=True)
    for start in range(0, rows, SHARD):
        made = vectors(np.arange(start, min(rows, start + SHARD)))
        near, ids = faiss.knn(queries, made, NEIGHBOURS, metric=faiss.METRIC_INNER_PRODUCT)
        heap.add_result(near, ids + start)
    heap.finalize()
    return np.asarray(heap.I)


def memory() -> float:
    """Return the most memory that the process had so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def measured(rows: int, codewords: int, folder: Path) -> dict[str, float]:
    """Build, open and search an index of so many vectors; processor seconds of all threads."""
    facts: dict[str, float] = {"vectors": rows, "dim": DIM, "codewords": codewords}
    book = dpi.Codebook(vectors(np.arange(PUBLIC, PUBLIC + codewords)))
    spec = dpi.Spec("record-codebook", DIM, epsilon=EPSILON, adjacency=dpi.record(), codebook=book)
    parts = tuple(GeneratedPart(start, min(SHARD, rows - start)) for start in range(0, rows, SHARD))
    start = time.process_time()
    for part in parts:
        part.vectors()
    facts["generate_seconds"] = time.process_time() - start
    start = time.process_time()
    build_index(Dataset("generated vectors", DIM, SHARD, parts), folder / "index", spec)
    facts["build_seconds"] = time.process_time() - start  # the vectors are made twice in it
    facts["build_memory_gb"] = memory()
    facts["codes_a_second"] = rows / (facts["build_seconds"] - 2 * facts["generate_seconds"])
    facts["core_hours_of_1e9"] = 1e9 / facts["codes_a_second"] / 3600
    start = time.process_time()
    index = dpi.PrivateIndex.open(folder / "index")
    queries = vectors(np.arange(PUBLIC - QUERIES, PUBLIC))
    terms: dict[str, Any] = {"candidates": CANDIDATES, "rerank": Generator()}
    index.search(queries[:1], NEIGHBOURS, **terms)
    facts["open_seconds"] = time.process_time() - start
    start = time.process_time()
    index.nearest(queries, CANDIDATES)
    facts["candidates_ms_a_query"] = (time.process_time() - start) / QUERIES * 1e3
    start = time.process_time()
    found = index.search(queries, NEIGHBOURS, **terms).ids
    facts["reranked_ms_a_query"] = (time.process_time() - start) / QUERIES * 1e3
    facts["memory_gb"] = memory()
    pairs = zip(true_neighbours(queries, rows), found, strict=True)
    facts["recall"] = float(np.mean([np.isin(true, ids).mean() for true, ids in pairs]))
    facts["index_bytes_a_vector"] = (
        sum(file.stat().st_size for file in (folder / "index").rglob("*") if file.is_file()) / rows
    )
    return facts


def run(rows: int, codewords: int, price: float, out: Path) -> None:
    """Measure, print, and append a line to a table; ``price`` is that of a core-hour."""
    with tempfile.TemporaryDirectory() as folder:
        facts = measured(rows, codewords, Path(folder))
    for name, value in facts.items():
        print(f"{name:24} {value:.4g}")
    hours = facts["core_hours_of_1e9"]
    print(f"a build of 10^9: {hours:.3g} core-hours x {price:g} = {hours * price:.3g}")
    with open(out, "a", newline="") as file:
        writer = csv.DictWriter(file, facts)
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow({name: f"{value:.4g}" for name, value in facts.items()})
