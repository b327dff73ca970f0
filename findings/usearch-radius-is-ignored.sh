#!/usr/bin/env bash
# usearch 2.26.6: Index.search(queries, count, radius=…) returns neighbours beyond the radius.
#
# Twelve vectors lie at squared distance 8 of the query. A search for those within 7.9 gives all
# twelve, each with its distance of 8, so whoever wants a radius has to filter the answer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet usearch==2.26.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from usearch.index import Index

index = Index(ndim=8, metric="l2sq", dtype="f32")
index.add(np.arange(12), np.ones((12, 8), np.float32))
found = index.search(np.zeros(8, np.float32), 20, radius=7.9)
print(len(found), "found; distances", sorted(set(found.distances.tolist())))
assert len(found) == 12
assert set(found.distances.tolist()) == {8.0}
PY
