#!/usr/bin/env bash
# hnswlib 0.8.0: by cosine, the exact index divides rows by their length and not the query, so distances are below zero.
#
# Index and BFIndex hold the same three rows. For a query five long the first gives 0, 0.4 and 2, and the second
# -4, -2 and 6. The order is right. A limit on the distance, or a recall that compares distances, is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet hnswlib==0.8.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import hnswlib
import numpy as np

rows = np.array([[3, 4], [5, 0], [-6, -8]], np.float32)
distances = {}
for kind in (hnswlib.Index, hnswlib.BFIndex):
    index = kind("cosine", 2)
    index.init_index(3)
    index.add_items(rows, [0, 1, 2])
    for query in ([0.6, 0.8], [3, 4]):
        labels, found = index.knn_query(np.array([query], np.float32), k=3)
        print(kind.__name__, query, "rows", labels[0].tolist(), "at", np.round(found[0], 3).tolist())
        assert labels[0].tolist() == [0, 1, 2]
        distances[kind, query[0]] = found[0]
for query in (0.6, 3):
    assert np.allclose(distances[hnswlib.Index, query], [0, 0.4, 2], atol=1e-5)
assert np.allclose(distances[hnswlib.BFIndex, 0.6], [0, 0.4, 2], atol=1e-5)
assert np.allclose(distances[hnswlib.BFIndex, 3], [-4, -2, 6], atol=1e-5)
PY
