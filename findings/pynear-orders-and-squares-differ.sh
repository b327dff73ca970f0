#!/usr/bin/env bash
# pynear 2.6.0: tree and graph give the farthest of the k nearest first, IVFFlatL2Index the nearest, with squared distances.
#
# Its page says that a search is sorted from the nearest. Whoever takes the first answer gets the k-th one of a VPTree or
# HNSW index, and distances of one class are not those of another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pynear==2.6.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import pynear

rows = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
true = np.sort(np.linalg.norm(rows - rows[0], axis=1))[:3]
for name in ("VPTreeL2Index", "HNSWL2Index", "IVFFlatL2Index"):
    index = getattr(pynear, name)()
    index.set(rows)
    ids, distances = index.searchKNN(rows[:1], 3)
    print(name, "ids:", [int(row) for row in ids[0]], "distances:", np.round(distances[0], 3).tolist())
    wanted = true**2 if name == "IVFFlatL2Index" else true[::-1]
    assert np.allclose(distances[0], wanted, atol=1e-4)
PY
