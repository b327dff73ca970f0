#!/usr/bin/env bash
# voyager 2.2.3: storage as Float8 cuts towards zero, and does not round.
#
# Values are kept in steps of 1/127. One that lies at 12.7 steps is kept as 12, and one at 126.9 steps
# as 126, on both sides of zero, so that every vector is kept a little shorter than it is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet voyager==2.2.3 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from voyager import Index, Space, StorageDataType

vector = np.array([0.999, 0.5, 0.1, -0.1, -0.5, -0.999], np.float32)
index = Index(Space.Euclidean, 6, storage_data_type=StorageDataType.Float8)
index.add_item(vector, 0)
steps = np.rint(index.get_vector(0) * 127).astype(int).tolist()
print("at", (vector * 127).round(1).tolist(), "steps, kept as", steps)
assert steps == [126, 63, 12, -12, -63, -126]
PY
