#!/usr/bin/env bash
# faiss-cpu 1.15.1: a scalar quantizer of half floats keeps numbers above 65 504 as infinity.
#
# No error is raised when the vector is added. Its squared distance to itself is no number, so a
# search for it returns no row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np

index = faiss.index_factory(4, "SQfp16")
vectors = np.array([[70_000, 1, 1, 1], [60_000, 1, 1, 1]], np.float32)
index.train(vectors)
index.add(vectors)
print("kept:", index.reconstruct(0), index.reconstruct(1))
distances, rows = index.search(vectors[:1], 2)
print("search for row 0:", rows, distances)
assert np.isposinf(index.reconstruct(0)[0])
assert index.reconstruct(1)[0] == 60_000
assert 0 not in rows or not np.isfinite(distances[rows == 0]).any()
PY
