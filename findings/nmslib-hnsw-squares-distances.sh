#!/usr/bin/env bash
# nmslib 2.1.2: in the space "l2", a search in an hnsw index gives squared distances, and all other ways plain ones.
#
# A limit of 9 on the distance keeps rows up to 9 away by one method of search and up to 3 away by the other. The same
# index gives 5 for a pair of rows by getDistance and 25 by knnQuery.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nmslib==2.1.2 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import nmslib
import numpy as np

rows = np.array([[0, 0], [3, 4], [6, 8]], np.float32)
found = {}
for method in ("brute_force", "seq_search", "sw-graph", "hnsw"):
    index = nmslib.init(method=method, space="l2")
    index.addDataPointBatch(rows)
    index.createIndex()
    ids, distances = index.knnQuery(rows[0], k=3)
    found[method] = dict(zip(ids.tolist(), distances.tolist(), strict=True))
    print(method, found[method], "| getDistance(0, 1):", index.getDistance(0, 1))
    assert index.getDistance(0, 1) == 5.0
hnsw = found.pop("hnsw")
assert hnsw == {0: 0.0, 1: 25.0, 2: 100.0}
assert all(each == {0: 0.0, 1: 5.0, 2: 10.0} for each in found.values())
PY
