"""What `info` and `build` say of the noise, against what is found: copies of queries, neighbours.

    python bench/visibility.py [--rows 10000]

For every setting one index is built of the first rows of a data set, in which each of 50 queries
has ten copies. Printed and written to ``visibility/found.csv``: the predicted share of ten copies
among the ten best hits and the measured one, by query mode, and the share of the ten true
neighbours that an index without copies finds. Attributes may change by 1 (``beta``) after scaling.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import dpindex as dpi
from dpindex.exposure.standing_out import COPIES
from dpindex.exposure.visibility import rows_to_sample, visibility

DATA = Path(os.environ.get("DPINDEX_DATA", Path(__file__).parents[2] / "shared" / "data"))
QUERIES = 50
SETTINGS: dict[str, tuple[tuple[str, int | None], ...]] = {
    "mnist": (
        ("raw-staircase", None), ("dp-oporp-staircase", 128), ("dp-signoporp-rr", 128),
    ),
    "cifar10_gray": (
        ("raw-staircase", None), ("dp-oporp-staircase", 128), ("dp-signoporp-geometric", 256),
    ),
    "clinc150_minilm": (
        ("raw-staircase", None), ("dp-oporp-staircase", 192), ("dp-signoporp-geometric", 384),
    ),
    "news20_chartri_csr": (("dp-oporp-staircase", 512), ("dp-signoporp-rr", 1024)),
}  # fmt: skip
EPSILONS = (0.5, 1.0, 3.0, 8.0)
COLUMNS = (
    "data", "method", "k", "epsilon", "query", "predicted", "copies_found", "neighbours_found",
)  # fmt: skip


def load(name: str, rows: int) -> tuple[Any, Any, dict[str, Any]]:
    """Base, queries and the public facts that stand in a spec."""
    path = DATA / f"{name}.npz"
    if not path.is_file():
        sys.exit(f"{path} is not there: set DPINDEX_DATA to the directory that holds it.")
    if name.endswith("_csr"):
        x = scipy.sparse.load_npz(path).tocsr()[: rows + QUERIES].astype(np.float32)
        x = x.multiply(1 / np.maximum(x.max(axis=1).toarray(), 1)).tocsr()
        return x[:rows], x[rows:], {"bounds": (0.0, 1.0)}
    with np.load(path) as archive:
        if "E" in archive:
            x = archive["E"][: rows + QUERIES].astype(np.float32)
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            x = np.random.default_rng(0).permutation(x)
            return x[:rows], x[rows:], {"bounds": (-0.5, 0.5), "clip": True, "norm": 1.0}
        facts: dict[str, Any] = {"scale": 255.0, "bounds": (0.0, 1.0)}
        return archive["X_train"][:rows], archive["X_test"][:QUERIES], facts


def neighbours(base: Any, queries: Any) -> Any:
    """The ten rows of largest cosine to each query."""
    if scipy.sparse.issparse(base):
        lengths = np.sqrt(base.multiply(base).sum(axis=1).A1)
        scores = (queries @ base.T).toarray() / np.maximum(lengths, 1e-30)
    else:
        base, queries = base.astype(np.float32), queries.astype(np.float32)
        scores = queries @ base.T / np.maximum(np.linalg.norm(base, axis=1), 1e-30)
    return np.argsort(-scores, axis=1)[:, :10]


def stacked(base: Any, queries: Any) -> Any:
    """The base and ten copies of every query."""
    if scipy.sparse.issparse(base):
        return scipy.sparse.vstack([base, *[queries] * COPIES]).tocsr()
    return np.concatenate([base, np.tile(queries, (COPIES, 1))])


def share(found: Any, wanted: Any) -> float:
    pairs = zip(found, wanted, strict=True)
    return float(np.mean([np.isin(w, f).mean() for f, w in pairs]))


def measure(spec: dpi.Spec, base: Any, queries: Any) -> list[dict[str, Any]]:
    rows, wanted = base.shape[0], neighbours(base, queries)
    with_copies, plain = dpi.PrivateIndex(spec), dpi.PrivateIndex(spec)
    with_copies.add(stacked(base, queries))
    plain.add(base)
    codes = plain.codes
    said = visibility(codes.take(rows_to_sample(rows, codes.k)), spec, rows)
    copies = rows + np.arange(QUERIES)[:, None] + QUERIES * np.arange(COPIES)
    cells = []
    for mode in ("exact", "private"):
        found = [index.search(queries, 10, mode).ids for index in (with_copies, plain)]
        cells.append(
            {
                "query": mode,
                "predicted": getattr(said, mode),
                "copies_found": share(found[0], copies),
                "neighbours_found": share(found[1], wanted),
            }
        )
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    table = Path(__file__).with_suffix("") / "found.csv"
    table.parent.mkdir(exist_ok=True)
    with table.open("w", newline="") as file:
        out = csv.DictWriter(file, COLUMNS)
        out.writeheader()
        for name, methods in SETTINGS.items():
            base, queries, facts = load(name, rows)
            for method, k in methods:
                for epsilon in EPSILONS:
                    spec = dpi.Spec(method, base.shape[1], k, epsilon, **facts)
                    for cell in measure(spec, base, queries):
                        stated = (name, method, spec.code_length, epsilon)
                        cell |= dict(zip(COLUMNS, stated, strict=False))
                        numbers = {c: f"{v:.3f}" for c, v in cell.items() if isinstance(v, float)}
                        out.writerow({**cell, **numbers})
                        print(*(str({**cell, **numbers}[c]) for c in COLUMNS), flush=True)


if __name__ == "__main__":
    main()
