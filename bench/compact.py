"""Few bytes a vector after denoising: MNIST at epsilon 5, precision@10 by index type.

    python bench/compact.py [--index-types f32 ROT64,PQ32 …]

60 000 digits, 500 queries, the true 50 by cosine; raw-square-wave codes under the denoiser that
their codes choose. Bytes are those of the search structure, which the codes can rebuild.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from denoise import load, nearest

from dpindex import PrivateIndex, Privatizer, Spec, attribute

INDEX_TYPES = {
    "f32": 3136, "SQ8": 784, "ROT64,SQ4": 32, "ROT64,PQ32": 32, "ROT128,PQ32": 32,
    "ROT128,OPQ32,PQ32": 32, "ROT64,PQ16": 16,
}  # fmt: skip
COLUMNS = ("index type", "bytes", "private", "exact", "recall", "build seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--index-types", nargs="*", default=list(INDEX_TYPES), choices=list(INDEX_TYPES)
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(""))
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    base, queries, facts = load("mnist")
    true = nearest(base, queries)
    spec = Spec(method="raw-square-wave", dim=784, epsilon=5.0, adjacency=attribute(1.0), **facts)
    privatizer = Privatizer(spec)
    codes, asked = privatizer.privatize(base), privatizer.privatize(queries)
    learned = PrivateIndex(spec)  # the denoiser is learned once for all
    learned.add_codes(codes)
    learned.fit_denoiser()
    rows = []
    for index_type in chosen.index_types:
        index = PrivateIndex(spec, index_type=index_type)
        index.add_codes(codes)
        index._rank_with(learned.denoiser)
        start = time.process_time()
        index.search(asked.take(slice(0, 1)))
        seconds = time.process_time() - start
        found = [index.search(q, k=10).ids for q in (asked, queries)]
        private, exact = (
            float(np.mean([np.isin(a, b).mean() for a, b in zip(ids, true, strict=True)]))
            for ids in found
        )
        measured = index.index_recall
        recall = "" if measured is None else round(measured, 3)
        row = (index_type, INDEX_TYPES[index_type], private, exact, recall, round(seconds, 1))
        rows.append(row)
        print(dict(zip(COLUMNS, row, strict=True)), flush=True)
        with (chosen.output / "mnist-5.csv").open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
