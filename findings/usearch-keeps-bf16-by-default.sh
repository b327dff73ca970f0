#!/usr/bin/env bash
# usearch 2.26.6: Index(ndim=…) keeps bfloat16 by default, so vectors that differ by 2⁻¹² are at distance 0.
#
# float32 vectors come in and float32 distances go out; between them eight bits of a number are kept.
# With dtype="f32" the two vectors are told apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet usearch==2.26.6 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from usearch.index import Index

rows = np.zeros((2, 8), np.float32)
rows[:, 0] = 1.0, 1.0 + 2.0**-12


def distances(**options):
    index = Index(ndim=8, metric="l2sq", **options)
    index.add(np.arange(2), rows)
    return sorted(index.search(rows[0], 2, exact=True).distances.tolist())


print("default:", distances(), " f32:", distances(dtype="f32"))
assert distances() == [0.0, 0.0]
assert distances(dtype="f32")[1] > 0
PY
