#!/usr/bin/env bash
# vicinity 0.4.6: Euclidean distances of int8 vectors wrap around, and the wrong one is nearest.
#
# [100, 100] is at a distance of 200 from [100, -100], and [-100, 50] at 250. As float32 they are
# found so; as int8 the second comes first, at 6, and the first follows at 8.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vicinity==0.4.6 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from vicinity import Backend, Metric, Vicinity


def found(dtype):
    index = Vicinity.from_vectors_and_items(
        vectors=np.array([[100, 100], [-100, 50]], dtype),
        items=["near", "far"],
        backend_type=Backend.BASIC,
        metric=Metric.EUCLIDEAN,
    )
    (hits,) = index.query(np.array([100, -100], dtype), k=2)
    return [(item, float(distance)) for item, distance in hits]


print("float32", found(np.float32), "| int8", found(np.int8))
assert found(np.float32) == [("near", 200.0), ("far", 250.0)]
assert found(np.int8) == [("far", 6.0), ("near", 8.0)]
PY
