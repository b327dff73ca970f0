#!/usr/bin/env bash
# vicinity 0.4.6: query_threshold returns more than max_k hits with the exact backend.
#
# Thirteen of twenty points lie within the threshold. With max_k = 3 all thirteen are returned.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vicinity==0.4.6 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from vicinity import Backend, Metric, Vicinity

index = Vicinity.from_vectors_and_items(
    vectors=np.array([[number, 0] for number in range(20)], np.float32),
    items=list(range(20)),
    backend_type=Backend.BASIC,
    metric=Metric.EUCLIDEAN,
)
(hits,) = index.query_threshold(np.zeros(2, np.float32), threshold=12.0, max_k=3)
print(len(hits), "hits with max_k=3")
assert len(hits) == 13
PY
