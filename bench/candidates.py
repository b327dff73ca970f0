"""Candidates from the codes, answers from the vectors: what is found, and how fast.

    python bench/candidates.py quality [--output bench/candidates/clinc150.csv]
    python bench/candidates.py picture
    python bench/candidates.py speed [--rows 1000000] [--databases milvus,lance] [--work FOLDER]

``quality``: recall@10 of the true 10 neighbours of CLINC150 sentence embeddings (norm 1; corpus
permuted by ``default_rng(0)``, the first 18 700 private, the next 4000 public, the first 500
queries), whole records hidden, by what a plan from the public vectors chooses for R = 5 % of the
records; mean of three builds. R = 10 is the search without reranking.

``picture``: draws that file as ``docs/candidates.png``.

``speed``: 100 queries of 384 numbers among so many vectors in a memory map, codebook codes; the
plain search, reranking R = 1000, and reading the rows of the same candidates from the file, mapped
anew. The ratio is that of reranking, less reading, to the plain search. Peak memory is that of a
process that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dpindex as dpi
from dpindex.data import open_dataset
from dpindex.index.search import QueryMode

PRIVATE, PUBLIC, QUERIES, BUILDS, K = 18_700, 4000, 500, 3, 10
DRAWN = {1.0: "#999999", 6.0: "#56B4E9", 8.0: "#0072B2", 10.0: "#D55E00"}
"""Epsilons, each with the colour of its line."""

MODES: tuple[QueryMode, ...] = ("exact", "private")
CANDIDATES = (10, 100, 200, 500, 935)
DIM, CODEWORDS, ASKED, SPEED_CANDIDATES = 384, 4000, 100, 1000
SUFFIXES = {"milvus": "index.db", "lance": "index.lance"}


def sentences() -> tuple[Any, Any, Any]:
    """Private vectors, public vectors and queries of norm 1."""
    folder = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "clinc150_minilm.npz"
    if not path.is_file():
        raise SystemExit(f"skipped: {path} is not there; set DPINDEX_DATA")
    with np.load(path) as stored:
        vectors = stored["E"].astype(np.float32)
        corpus_rows = stored["corpus_idx"]
        query_rows = stored["query_idx"][:QUERIES]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus = vectors[np.random.default_rng(0).permutation(corpus_rows)]
    return corpus[:PRIVATE], corpus[PRIVATE : PRIVATE + PUBLIC], vectors[query_rows]


def recall(ids: Any, truth: Any) -> float:
    """Share of the true neighbours among the ids that were found."""
    found = (ids[:, :, None] == truth[:, None, :]).any(axis=1)
    return float(found.mean())


def quality(output: Path) -> None:
    """Write recall@10 by epsilon, codewords, kind of query and number of candidates."""
    private, public, queries = sentences()
    truth = np.argsort(-(queries @ private.T), axis=1)[:, :K]
    lines = []
    for epsilon in DRAWN:
        terms = {"epsilon": epsilon, "adjacency": dpi.record(), "candidates": CANDIDATES[-1]}
        spec = dpi.plan(public, n=PRIVATE, **terms).spec
        assert spec.codebook is not None
        found: dict[tuple[str, int], list[float]] = {}
        for _ in range(BUILDS):
            index = dpi.PrivateIndex(spec)
            index.add(private)
            for mode in MODES:
                ranked = index.search(queries, CANDIDATES[-1], mode).ids
                for candidates in CANDIDATES:
                    # Exact order puts the true neighbours among the candidates first.
                    share = recall(ranked[:, :candidates], truth)
                    found.setdefault((mode, candidates), []).append(share)
        reranked = index.search(queries, K, candidates=CANDIDATES[-1], rerank=private)
        assert recall(reranked.ids, truth) == found["exact", CANDIDATES[-1]][-1]
        for (mode, candidates), values in found.items():
            codes = [epsilon, len(spec.codebook), spec.subset]
            line = [*codes, mode, candidates, round(float(np.mean(values)), 3)]
            lines.append(line)
            print(*line, flush=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["epsilon", "codewords", "subset", "query", "candidates", "recall_at_10"])
        writer.writerows(lines)


def picture(table: Path, output: Path) -> None:
    """Draw recall@10 against the number of candidates, a line for each epsilon."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    recall: dict[tuple[str, float], dict[int, float]] = {}
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            line = recall.setdefault((row["query"], float(row["epsilon"])), {})
            line[int(row["candidates"])] = float(row["recall_at_10"])
    plt.rcParams["font.size"] = 15
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True)
    for mode, axes in zip(MODES, panels, strict=True):
        for epsilon, colour in DRAWN.items():
            line = recall[mode, epsilon]
            style: dict[str, Any] = {"color": colour, "label": f"ε = {epsilon:g}"}
            axes.plot(*zip(*line.items(), strict=True), "o-", lw=3, ms=6, **style)
        axes.set_title(f"{mode} queries", fontsize=16)
        axes.set_xscale("log")
        axes.set_xlim(8, 1250)
        axes.set_xticks((10, 100, 935), ("10", "100", "935\n5 % of all"))
        axes.minorticks_off()
        axes.set_ylim(0, 1)
        axes.grid(color="0.92")
        axes.set_xlabel("candidates re-ranked by you")
    panels[0].set_ylabel("share of the true ten nearest")
    panels[0].legend(loc="upper left", frameon=False, reverse=True)
    figure.tight_layout()
    figure.savefig(output, dpi=120)
    plt.close(figure)


def clustered(path: Path, rows: int) -> None:
    """Write vectors of norm 1 around 200 centres."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, DIM)).astype(np.float32)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (rows, DIM))
    for first in range(0, rows, 50_000):
        part = file[first : first + 50_000]
        part[:] = centres[rng.integers(200, size=len(part))]
        part += rng.normal(size=part.shape).astype(np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    file.flush()


def made(work: Path, rows: int) -> tuple[Path, Path]:
    """Vectors and an index of their codes; those that are there already are used."""
    vectors = work / f"{rows}.npy"
    index = work / f"{rows}.index"
    if not vectors.exists():
        clustered(vectors, rows)
    if not index.exists():
        rng = np.random.default_rng(1)
        rough = np.load(vectors, mmap_mode="r")[:CODEWORDS] + rng.normal(size=(CODEWORDS, DIM)) / 50
        book = dpi.Codebook(rough)
        spec = dpi.Spec("record-codebook", DIM, epsilon=8.0, adjacency=dpi.record(), codebook=book)
        with open_dataset(vectors, in_process=True) as dataset:
            private = dpi.PrivateIndex(spec)
            private.add(dataset, skip_leak_check=True)
        private.save(index)
    return vectors, index


def fastest(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the best of three runs, and what it returned."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        result = action()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def peak_gigabytes() -> float:
    """Return the peak memory of this program; getrusage keeps that of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def timed(name: str, opened: Any, vectors: Path) -> None:
    """Print the figures of one index."""
    rng = np.random.default_rng(2)
    stored = np.load(vectors, mmap_mode="r")
    queries = stored[:ASKED] + rng.normal(size=(ASKED, DIM)).astype(np.float32) / 50
    opened.search(queries, K, "exact")  # builds and learns what later searches use
    plain, _ = fastest(lambda: opened.search(queries, K, "exact"))
    originals = dpi.Originals(stored, ids=np.arange(len(stored)))
    reranked, hits = fastest(
        lambda: opened.search(queries, K, "exact", candidates=SPEED_CANDIDATES, rerank=originals)
    )
    peak = peak_gigabytes()
    candidates = opened.search(queries, SPEED_CANDIDATES, "exact").ids

    def read() -> None:
        mapped = np.load(vectors, mmap_mode="r")
        for rows in np.sort(candidates, axis=1):
            mapped[rows]

    reading, _ = fastest(read)
    ratio = (reranked - reading) / plain
    print(
        f"{name}, {len(stored)} vectors: plain {plain:.3f} s, reranked {reranked:.3f} s, reading "
        f"{reading:.3f} s, ratio {ratio:.1f}, peak {peak:.2f} GB, exact {hits.exact.mean():.2f}",
        flush=True,
    )


def speed(work: Path, rows: int, databases: list[str]) -> None:
    """Time each index in a process of its own."""
    vectors, index = made(work, rows)
    places = [str(index)]
    for name in databases:
        place = work / f"{rows}.{SUFFIXES[name]}"
        if not place.exists():
            dpi.publish(dpi.PrivateIndex.open(index), place)
        places.append(str(place))
    for place in places:
        command = [sys.executable, "-W", "ignore", __file__, "time", place, str(vectors)]
        subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("quality")
    measured.add_argument("--output", type=Path, default=Path("bench/candidates/clinc150.csv"))
    commands.add_parser("picture")
    timing = commands.add_parser("speed")
    timing.add_argument("--rows", type=int, default=1_000_000)
    timing.add_argument("--databases", default="")
    timing.add_argument("--work", type=Path)
    one = commands.add_parser("time")
    one.add_argument("place")
    one.add_argument("vectors", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "quality":
        quality(chosen.output)
    elif chosen.command == "picture":
        here = Path(__file__)
        picture(here.parent / "candidates/clinc150.csv", here.parents[1] / "docs/candidates.png")
    elif chosen.command == "time":
        is_saved = chosen.place.endswith(".index")
        opened: Any = dpi.PrivateIndex.open(chosen.place) if is_saved else dpi.open(chosen.place)
        timed(Path(chosen.place).name, opened, chosen.vectors)
    else:
        databases = [name for name in chosen.databases.split(",") if name]
        with tempfile.TemporaryDirectory() as folder:
            speed(chosen.work or Path(folder), chosen.rows, databases)


if __name__ == "__main__":
    main()
