"""Few bytes a vector after denoising: MNIST at epsilon 5, precision@10 by storage.

    python bench/compact.py [--storages f32 ROT64,PQ32 …]

60 000 digits, 500 queries, the true 50 by cosine; raw-square-wave codes under the denoiser that
their codes choose. Bytes are those of the search structure, which the codes can rebuild.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
from denoise import load, nearest

from dpindex import PrivateIndex, Privatizer, Spec

STORAGES = {
    "f32": 3136, "SQ8": 784, "ROT64,SQ4": 32, "ROT64,PQ32": 32, "ROT128,PQ32": 32,
    "ROT128,OPQ32,PQ32": 32, "ROT64,PQ16": 16,
}  # fmt: skip
COLUMNS = ("storage", "bytes", "private", "exact", "storage recall", "build seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--storages", nargs="*", default=list(STORAGES), choices=list(STORAGES))
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(""))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    base, queries, facts = load("mnist")
    true = nearest(base, queries)
    spec = Spec(method="raw-square-wave", dim=784, epsilon=5.0, **facts)
    privatizer = Privatizer(spec)
    codes, asked = privatizer.privatize(base), privatizer.privatize(queries)
    denoiser: Any = None
    rows = []
    for storage in chosen.storages:
        index = PrivateIndex(spec, storage=storage)
        index.add_codes(codes)
        if denoiser is None:
            denoiser = index.fit_denoiser()
        index._denoiser = denoiser  # learned once for all
        index._scorer = index._new_scorer()
        start = time.process_time()
        index.search(asked.take(slice(0, 1)))
        seconds = time.process_time() - start
        found = [index.search(q, k=10).ids for q in (asked, queries)]
        private, exact = (
            float(np.mean([np.isin(a, b).mean() for a, b in zip(ids, true, strict=True)]))
            for ids in found
        )
        measured = index.storage_recall
        recall = "" if measured is None else round(measured, 3)
        row = (storage, STORAGES[storage], private, exact, recall, round(seconds, 1))
        rows.append(row)
        print(dict(zip(COLUMNS, row, strict=True)), flush=True)
        with (chosen.output / "mnist-5.csv").open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
