#!/usr/bin/env bash
# faiss-cpu 1.15.1: a range search for inner products above -20 finds none of 2000 rows that are all above -13.
#
# In "IVF4,PQ8x4fs" the bound is turned into the steps of its tables. Above -15 it finds all rows. At some bound below
# all scores it turns into one above all of them, and by distance at some bound above. The same codes without the fast
# scan, in "IVF4,PQ8x4", give all rows for any such bound. No page says that a bound has a range.
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
bounds = {faiss.METRIC_INNER_PRODUCT: (-10.0, -15.0, -20.0, -100.0), faiss.METRIC_L2: (50.0, 100.0, 1e9, 1e30)}
for metric, radii in bounds.items():
    for factory in ("IVF4,PQ8x4", "IVF4,PQ8x4fs"):
        index = faiss.index_factory(16, factory, metric)
        index.train(rows)
        index.add(rows)
        index.nprobe = 4
        scores = index.search(query, 2000)[0][0]
        found = {radius: len(index.range_search(query, radius)[2]) for radius in radii}
        print(factory, f"scores from {scores.min():.1f} to {scores.max():.1f}, found by bound:", found)
        counts = list(found.values())
        assert counts[0] > 1900 and counts[1] == 2000
        assert counts[2:] == ([0, 0] if factory.endswith("fs") else [2000, 2000])
PY
