#!/usr/bin/env bash
# faiss-cpu 1.15.1: a range search in "IVF4,RaBitQfs" finds all 2000 rows where five lie within the radius.
#
# The distances it returns are below the radius and no distances, some of them negative. The nearest neighbours by
# search() of the same index have the right ones, and "IVF4,RaBitQ", the same code without the fast scan, finds the
# five. By inner product it finds none, or too few, or too many. The class offers the search and says nothing of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np

rows = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
query = rows[:1]
for metric, radii in ((faiss.METRIC_L2, (5.0, 15.0)), (faiss.METRIC_INNER_PRODUCT, (5.0, -5.0))):
    for factory in ("IVF4,RaBitQ", "IVF4,RaBitQfs"):
        index = faiss.index_factory(16, factory, metric)
        index.train(rows)
        index.add(rows)
        index.nprobe = 4
        scores = index.search(query, 2000)[0][0]
        for radius in radii:
            within = np.count_nonzero(scores < radius if metric == faiss.METRIC_L2 else scores > radius)
            _, distances, ids = index.range_search(query, radius)
            ends = f"from {distances.min():.1f} to {distances.max():.1f}" if len(ids) else ""
            name = "distance" if metric == faiss.METRIC_L2 else "product"
            print(f"{factory}, {name} {radius}: {within} within by search(), {len(ids)} found", ends)
            if factory == "IVF4,RaBitQ":
                assert len(ids) == within
            elif metric == faiss.METRIC_L2:
                assert len(ids) == 2000 and within < 300 and distances.min() < 0
            else:
                assert len(ids) == 0 and within > 100
PY
