#!/usr/bin/env bash
# nanopq 0.2.2: OPQ(metric="dot") searches by Euclidean distance once it is trained.
#
# Training puts a quantizer of its own in the place of the one that was made with the metric. The distance table of a PQ
# gives inner products with the query, that of an OPQ squared distances, so that the largest value is the farthest row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nanopq==0.2.2 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from nanopq import OPQ, PQ

rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
query = rows[0]
for kind in (PQ, OPQ):
    quantizer = kind(M=2, Ks=16, metric="dot", verbose=False).fit(rows)
    codes = quantizer.encode(rows)
    kept = quantizer.decode(codes)
    scores = quantizer.dtable(query).adist(codes)
    dots = np.allclose(scores, kept @ query, atol=1e-4)
    squares = np.allclose(scores, ((kept - query) ** 2).sum(axis=1), atol=1e-4)
    print(kind.__name__, "gives inner products:", dots, "| squared distances:", squares)
    assert dots == (kind is PQ)
    assert squares == (kind is OPQ)
PY
