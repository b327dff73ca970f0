#!/usr/bin/env bash
# kannolo 0.15.1: the sparse indexes of fixed-point numbers keep every value above 4, or above 8, as that.
#
# No page says what the range is, and no error tells that it was left. Against a query of 1, rows with the one value 3,
# 5, 9 and 20 score 3, 4, 4 and 4 with eight bits and 3, 5, 8 and 8 with sixteen. The plain index gives them as they
# are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kannolo==0.15.1 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import kannolo
import numpy as np

values = np.array([3, 5, 9, 20], np.float32)
components = np.zeros(4, np.int32)
offsets = np.arange(5, dtype=np.int64)
found = {}
for name in ("SparsePlainHNSW", "SparseFixedU8HNSW", "SparseFixedU16HNSW", "SparseDotPacking8HNSW"):
    index = getattr(kannolo, name).build_from_arrays(components, values, offsets)
    scores, ids = index.search(np.zeros(1, np.int32), np.ones(1, np.float32), k=4)
    found[name] = [score for _, score in sorted(zip(ids.tolist(), scores.tolist(), strict=True))]
    print(name, np.round(found[name], 2).tolist())
assert found["SparsePlainHNSW"] == values.tolist()
assert np.allclose(found["SparseFixedU16HNSW"], [3, 5, 8, 8], atol=0.01)
for name in ("SparseFixedU8HNSW", "SparseDotPacking8HNSW"):
    assert np.allclose(found[name], [3, 4, 4, 4], atol=0.05)
    assert found[name][1] == found[name][2] == found[name][3]
PY
