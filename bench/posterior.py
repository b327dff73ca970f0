"""Stated against true cosines of the ten best hits of 300 queries: posterior and unbiased ones.

    python bench/posterior.py [--data mnist …] [--epsilons 1 3 5] [--rows N]

Every cell of the table is one build with fresh noise, all vectors of the data set, and 300 queries
that are not among them. The goal: the mean estimate within 0.03 of the mean truth, and 90 to 99 %
of the truths within two stated errors. Cells that are in ``posterior/cells.csv`` are not measured
again; ``posterior/table.md`` is written from that file. Attributes may change by 1 (``beta``).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dpindex import PrivateIndex, Spec, attribute

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
QUERIES, FOUND = 300, 10
METHODS: dict[str, tuple[tuple[str, int | None, bool], ...]] = {
    "clinc150_minilm": (
        ("dp-signoporp-geometric", 384, False),
        ("dp-oporp-staircase", 192, False),
        ("raw-staircase", None, False),
    ),
    "mnist": (
        ("dp-signoporp-rr", 64, False),
        ("dp-signoporp-rr", 128, False),
        ("dp-oporp-staircase", 392, False),
        ("raw-staircase", None, False),
        ("raw-staircase", None, True),
    ),
}
"""For each data set: method, code length, whether a denoiser ranks."""
COLUMNS = (
    "data", "method", "k", "denoised", "epsilon", "query", "truth", "similarity", "covered",
    "stderr", "unbiased", "unbiased_covered", "falls", "first_search_seconds",
)  # fmt: skip


def load(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Base, queries and the public facts that stand in a spec."""
    path = DATA / f"{name}.npz"
    if not path.is_file():
        sys.exit(f"{path} is not there: set DPINDEX_DATA to the directory that holds it.")
    with np.load(path) as archive:
        if "X_train" in archive:
            facts: dict[str, Any] = {"scale": 255.0, "bounds": (0.0, 1.0)}
            return archive["X_train"], archive["X_test"][:QUERIES], facts
        x = archive["E"].astype(np.float32)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        facts = {"bounds": (-0.5, 0.5), "clip": True, "norm": 1.0}
        return x[archive["corpus_idx"]], x[archive["query_idx"][:QUERIES]], facts


def true_cosines(base: Any, queries: Any, ids: Any) -> Any:
    found = base[ids].astype(np.float32)
    asked = queries.astype(np.float32)
    sizes = np.linalg.norm(found, axis=2) * np.linalg.norm(asked, axis=1)[:, None]
    return np.einsum("qkd,qd->qk", found, asked) / sizes


def measure(spec: Spec, base: Any, queries: Any, denoised: bool) -> Iterator[dict[str, Any]]:
    index = PrivateIndex(spec)
    index.add(base)
    if denoised:
        index.fit_denoiser()
    for mode in ("exact", "private"):
        start = time.process_time()
        index.search(queries[:1], k=1)
        first = time.process_time() - start
        hits = index.search(queries, k=FOUND, query=mode)  # type: ignore[arg-type]
        truth = true_cosines(base, queries, hits.ids)
        row: dict[str, Any] = {"query": mode, "truth": truth.mean(), "stderr": hits.stderr.mean()}
        for name, value, error in (
            ("", hits.similarity, hits.stderr),
            ("unbiased_", hits.unbiased, hits.unbiased_stderr),
        ):
            row[name.rstrip("_") or "similarity"] = value.mean()
            row[f"{name}covered"] = np.mean(np.abs(truth - value) <= 2 * error)
        row["falls"] = np.mean(np.diff(hits.similarity, axis=1) <= 1e-9)
        row["first_search_seconds"] = first
        yield row


def write_table(cells: list[dict[str, str]], path: Path) -> None:
    lines = [
        "# Stated and true cosines of the ten best",
        "",
        "Made by `python bench/posterior.py`. *Covered*: truths within two stated errors. *Falls*:",
        "hits that are stated no higher than the one before. A cell holds if the mean is within",
        "0.03 of the truth and 90 to 99 % are covered.",
        "",
        "| data | method | k | denoised | ε | query | truth | similarity | covered | falls "
        "| holds | unbiased | covered |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        gap = abs(float(cell["similarity"]) - float(cell["truth"]))
        holds = gap <= 0.03 and 0.9 <= float(cell["covered"]) <= 0.99
        words = [cell[c] for c in ("data", "method", "k", "denoised", "epsilon", "query")]
        words += [f"{float(cell[c]):.3f}" for c in ("truth", "similarity", "covered", "falls")]
        words += ["yes" if holds else "**no**"]
        words += [f"{float(cell[c]):.3f}" for c in ("unbiased", "unbiased_covered")]
        lines.append("| " + " | ".join(words) + " |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 3.0, 5.0])
    parser.add_argument("--rows", type=int, help="Vectors of each data set; default all.")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(""))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    table = chosen.output / "cells.csv"
    if not table.exists():
        table.write_text(",".join(COLUMNS) + "\n")

    def cells() -> list[dict[str, str]]:
        with table.open(newline="") as file:
            return list(csv.DictReader(file))

    done = {tuple(cell[c] for c in COLUMNS[:5]) for cell in cells()}
    for data in chosen.data:
        base, queries, facts = load(data)
        for method, k, denoised in METHODS[data]:
            for epsilon in chosen.epsilons:
                spec = Spec(
                    method, base.shape[1], k=k, epsilon=epsilon, adjacency=attribute(1.0), **facts
                )
                words = "yes" if denoised else "no"
                key = (data, method, str(spec.code_length), words, f"{epsilon:g}")
                if key in done:
                    continue
                for row in measure(spec, base[: chosen.rows], queries, denoised):
                    row |= dict(zip(COLUMNS, key, strict=False))
                    with table.open("a", newline="") as file:
                        csv.DictWriter(file, COLUMNS).writerow(
                            {c: v if isinstance(v, str) else f"{v:.4f}" for c, v in row.items()}
                        )
    write_table(cells(), chosen.output / "table.md")


if __name__ == "__main__":
    main()
