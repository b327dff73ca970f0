#!/usr/bin/env bash
# faiss-cpu 1.15.1: IndexHNSWFlat(d, 32, METRIC_Lp) gives every row the distance d, whatever power is set.
#
# The power p is set as index.metric_arg, by the documentation. IndexFlat and IndexIVFFlat obey it. HNSW keeps it beside
# its vectors, which are compared with p = 0: all rows are equally far, a row from itself too, and any of them are the
# nearest. index.storage.metric_arg is obeyed. It was reported in 2025, and a constructor was changed, not this one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np

rows = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
metric = faiss.METRIC_Lp
kinds = {
    "Flat": faiss.IndexFlat(16, metric),
    "IVFFlat": faiss.IndexIVFFlat(faiss.IndexFlat(16, metric), 16, 4, metric),
    "HNSWFlat": faiss.IndexHNSWFlat(16, 32, metric),
    "HNSWFlat, its storage too": faiss.IndexHNSWFlat(16, 32, metric),
}
exact = np.sort((np.abs(rows - rows[7]) ** 3).sum(1))[:3]
for name, index in kinds.items():
    index.metric_arg = 3
    if name.endswith("too"):
        index.storage.metric_arg = 3
    index.train(rows)
    index.add(rows)
    if name == "IVFFlat":
        index.nprobe = 4
    distances, ids = index.search(rows[7:8], 3)
    print(f"{name}: rows {ids[0].tolist()}, distances {distances[0].round(2).tolist()}")
    if name == "HNSWFlat":
        assert distances[0].tolist() == [16, 16, 16]
    else:
        assert ids[0, 0] == 7 and np.allclose(distances[0], exact, rtol=1e-4)
PY
