"""The recipes of the documents, pasted: what is promised, found and used.

    python bench/recipes.py [--only embeddings,pictures,counts,sparse,table] [--folder FOLDER]

For each kind of data, at the epsilon of its page and at 1: ``dpindex plan`` with a public sample of
2000 vectors that are not in the collection, ``dpindex build`` of that plan, and the query line that
it prints, with 500 exact queries. ``promised`` and
``found`` are the share of the ten answers that are among the true 50 nearest (precision) or, where
the owner orders candidates, of the true ten that are among the answers (recall). Seconds and peak
memory are those of the slowest and the largest command. Kinds that ``recipes.csv`` of the folder
holds are not run again. The data are in DPINDEX_DATA.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from processes import finished
from scipy import sparse

from dpindex.storage.statement import summarize
from dpindex.study import ground_truth

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
QUERIES, SAMPLE, NEIGHBOURS, FOUND = 500, 2000, 50, 10
COMMAND = "from dpindex.cli import main; main()"
PRECISION = f"precision@{FOUND} of the true {NEIGHBOURS}"
COLUMNS = (
    "data", "epsilon", "method", "k", "denoiser", "measure", "promised", "found", "seconds", "MB",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """A kind of data, options of ``dpindex plan`` that say what is secret in it, and an epsilon."""

    vectors: Callable[[], Any]
    options: str
    epsilon: float


def embeddings() -> Any:
    with np.load(DATA / "clinc150_minilm.npz") as stored:
        return stored["E"].astype(np.float32)


def pictures() -> Any:
    with np.load(DATA / "mnist.npz") as stored:
        return stored["X_train"]


def trigrams() -> sparse.csr_matrix:
    """Which trigrams of characters a message has, 2^24 columns of 0 and 1."""
    with np.load(DATA / "news20_chartri_csr.npz") as stored:
        parts = (stored["data"] > 0, stored["indices"], stored["indptr"])
        x = sparse.csr_matrix(parts, shape=tuple(stored["shape"]), dtype=np.uint8)
    x.eliminate_zeros()
    return x[np.diff(x.indptr) > 0]


def counts() -> Any:
    """How often each of the 300 most frequent trigrams occurs in a message, at most 10."""
    with np.load(DATA / "news20_chartri_csr.npz") as stored:
        parts = (stored["data"], stored["indices"], stored["indptr"])
        x = sparse.csc_matrix(sparse.csr_matrix(parts, shape=tuple(stored["shape"])))
    frequent = np.argsort(-np.diff(x.indptr), kind="stable")[:300]
    return np.minimum(x[:, frequent].toarray(), 10)


def table() -> Any:
    """Five sensors of an office, each from 0 to 1 over its range in the first thousand rows."""
    with np.load(DATA / "tab_occupancy.npz") as stored:
        x = stored["X"]
    low, high = x[:1000].min(axis=0), x[:1000].max(axis=0)
    return np.clip((x - low) / (high - low), 0, 1).astype(np.float32)


RECIPES = {
    "embeddings": Recipe(embeddings, "--record", 8),
    "pictures": Recipe(pictures, "--scale 255 --bounds 0 1 --beta 1", 2),
    "counts": Recipe(counts, "--scale 10 --bounds 0 1 --beta 1", 3),
    "sparse": Recipe(trigrams, "--bounds 0 1 --beta 1", 3),
    "table": Recipe(table, "--bounds 0 1 --beta 0.1", 5),
}


def save(path: Path, vectors: Any) -> None:
    if sparse.issparse(vectors):
        sparse.save_npz(path.with_suffix(".npz"), vectors)
    else:
        np.save(path.with_suffix(".npy"), vectors)


def run(line: str, folder: Path) -> tuple[str, float, float]:
    """What a command prints, its seconds and its peak megabytes."""
    start = time.perf_counter()
    words = [sys.executable, "-c", COMMAND, *shlex.split(line)[1:]]
    said, _, megabytes = finished(words, cwd=folder)
    return said, time.perf_counter() - start, megabytes


def measured(recipe: Recipe, epsilon: float, folder: Path) -> tuple[Any, ...]:
    """Make the files, paste the recipe, and compare the answers with the truth."""
    vectors = recipe.vectors()
    order = np.random.default_rng(0).permutation(vectors.shape[0])
    cuts = order[:QUERIES], order[QUERIES : QUERIES + SAMPLE], order[QUERIES + SAMPLE :]
    queries, public, base = (vectors[rows] for rows in cuts)
    for name, rows in (("queries", queries), ("public", public), ("vectors", base)):
        save(folder / name, rows)
    suffix = next(folder.glob("public.*")).suffix
    count = base.shape[0]
    stated = f"{recipe.options} --epsilon {epsilon:g} --public public{suffix}"
    plan_line = f"dpindex plan {stated} --n {count} --save my.plan"
    build_line = f"dpindex build vectors{suffix} my-index --plan my.plan"
    uses = []
    said = ""
    plan: dict[str, Any] = {}
    for line in (f"{plan_line} --json", build_line):
        print(line, flush=True)
        said, *use = run(line, folder)
        uses.append(use)
        plan = plan or json.loads(said)
    print(said, flush=True)
    measure = PRECISION
    promised = plan["rows"][0]["exact"]["precision"]
    if plan["candidates"] > plan["at"]:
        measure = f"recall@{FOUND} of {plan['candidates']} reranked"
        promised = plan["rows"][0]["exact"]["recall"][str(plan["candidates"])]
    query_line = said.rpartition("Search it: ")[2].strip().replace("QUERIES", f"queries{suffix}")
    print(query_line, flush=True)
    said, *use = run(f"{query_line} --json", folder)
    uses.append(use)
    ids = np.array(json.loads(said)["ids"])
    truth = ground_truth(base, queries, NEIGHBOURS)
    if measure == PRECISION:
        found = truth.precision(ids, FOUND, NEIGHBOURS)
    else:
        found = truth.recall(ids, FOUND, FOUND)
    about = summarize(folder / "my-index")
    spec, denoiser = about.settings.spec, about.denoiser
    size = spec.code_length if spec.codebook is None else len(spec.codebook)
    named = (spec.budget, spec.method, size, denoiser and denoiser.kind, measure)
    seconds, memory = map(max, zip(*uses, strict=True))
    return (*named, promised, float(found.mean()), round(seconds), round(memory))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(RECIPES), help="kinds of data")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "recipes")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    path = options.folder / "recipes.csv"
    done = []
    if path.exists():
        with path.open(newline="") as file:
            done = [(row["data"], float(row["epsilon"])) for row in csv.DictReader(file)]
    kinds = options.only.split(",")
    for kind, epsilon in [(one, e) for one in kinds for e in (RECIPES[one].epsilon, 1.0)]:
        if (kind, epsilon) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = (kind, *measured(RECIPES[kind], epsilon, Path(folder)))
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(COLUMNS)
            writer.writerow(f"{v:.3f}" if isinstance(v, float) else v for v in row)
        print(dict(zip(COLUMNS, row, strict=True)), flush=True)


if __name__ == "__main__":
    main()
