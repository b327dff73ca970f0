"""100 000 embeddings of 1536 numbers: what the commands of docs/hundred-thousand.md take and find.

    python bench/hundred_thousand.py [--output bench/hundred_thousand.csv]

Made vectors of norm 1: 400 topics whose sizes fall like 1/rank, in 48 dimensions, mapped to 1536.
4000 others are public, 200 others are queries. The commands of the page run. Seconds are of
processor time, of ``dpindex codebook`` and ``dpindex build`` together and of 200 queries, megabytes
the peak of a command. ``found`` is recall@10 of the true 10 after 1000 and 5000 candidates were
re-ranked.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from processes import finished

ROWS, PUBLIC, QUERIES, DIM, LATENT, TOPICS, K = 100_000, 4000, 200, 1536, 48, 400, 10
COMMAND = "from dpindex.cli import main; main()"
EPSILONS = (8.0, 1.0, 10.0)
CANDIDATES = (1000, 5000)
CODEWORDS = 200


def vectors() -> Any:
    """Return all vectors, float32, norm 1."""
    rng = np.random.default_rng(0)
    shares = 1.0 / np.arange(1, TOPICS + 1)
    topic = rng.choice(TOPICS, ROWS + PUBLIC + QUERIES, p=shares / shares.sum())
    centres = rng.normal(size=(TOPICS, LATENT)).astype(np.float32)
    latent = centres[topic]
    latent += 0.7 * rng.normal(size=latent.shape).astype(np.float32)
    made = latent @ rng.normal(size=(LATENT, DIM)).astype(np.float32)
    made += 0.5 * rng.standard_normal(made.shape, dtype=np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


def run(line: str, folder: Path) -> tuple[str, float, float]:
    """Return what a command prints, its processor seconds and its peak megabytes."""
    words = [sys.executable, "-c", COMMAND, *shlex.split(line)[1:]]
    return finished(words, cwd=folder)


def measured(epsilon: float, nearest: Any, folder: Path) -> dict[str, Any]:
    """Build and search at an epsilon; return a line of the table."""
    index = f"index-{epsilon:g}"
    method = "--method record-codebook --codebook public.codebook --subset 1"
    _, built, memory = run(
        f"dpindex build vectors.npy {index} --record --epsilon {epsilon:g} {method}", folder
    )
    size = sum(file.stat().st_size for file in (folder / index).rglob("*") if file.is_file())
    line = {
        "epsilon": epsilon,
        "build_seconds": round(built, 1),
        "build_MB": round(memory),
        "index_MB": round(size / 1e6, 2),
    }
    for candidates in CANDIDATES:
        ask = f"dpindex query {index} queries.npy --candidates {candidates} --rerank vectors.npy"
        answers, searched, searching = run(f"{ask} --json", folder)
        ids = np.array(json.loads(answers)["ids"])
        found = (ids[:, :, None] == nearest[:, None, :]).any(axis=1).mean()
        line[f"found_{candidates}"] = round(float(found), 3)
        line[f"query_seconds_{candidates}"] = round(searched, 1)
        line[f"query_MB_{candidates}"] = round(searching)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("bench/hundred_thousand.csv"))
    options = parser.parse_args()
    made = vectors()
    private, public, queries = np.split(made, [ROWS, ROWS + PUBLIC])
    nearest = np.argpartition(-(queries @ private.T), K, axis=1)[:, :K]
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, rows in (("vectors", private), ("public", public), ("queries", queries)):
            np.save(folder / f"{part}.npy", rows)
        del made, private
        size = f"--size {CODEWORDS} --centroids"
        _, fitted, _ = run(f"dpindex codebook public.npy public.codebook {size}", folder)
        print(f"codebook: {fitted:.1f} s", flush=True)
        for epsilon in EPSILONS:
            lines.append(measured(epsilon, nearest, folder))
            print(lines[-1], flush=True)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
