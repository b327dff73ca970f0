#!/usr/bin/env bash
# kannolo 0.15.1: an index by Euclidean distance that is saved and loaded searches by inner product.
#
# The file does not hold the metric, and load takes an optional one. For the exhaustive index the documentation says
# that nothing but the path is needed. The nearest row was the query's own vector before; it is the third after.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kannolo==0.15.1 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from kannolo import DenseFlatIndex, DensePlainHNSW

rows = np.array([[1, 0], [10, 0], [0, 1], [3, 4]], np.float32)
query = np.array([1, 0], np.float32)


def found(index):
    distances, ids = index.search(query, k=4)
    return ids.tolist(), distances.tolist()


for kind in (DenseFlatIndex, DensePlainHNSW):
    index = kind.build_from_array(rows.flatten(), dim=2, metric="euclidean")
    index.save("saved")
    before, after = found(index), found(kind.load("saved"))
    named = found(kind.load("saved", metric="euclidean"))
    print(kind.__name__, "before", before, "| after", after)
    assert before == named == ([0, 2, 3, 1], [0.0, 2.0, 20.0, 81.0])
    assert after == ([1, 3, 0, 2], [10.0, 3.0, 1.0, 0.0])
PY
