#!/usr/bin/env bash
# rii 0.2.12 and nanopq 0.2.2: an index over a quantizer by inner product searches by Euclidean distance.
#
# A PQ(metric="dot") is taken without a word. The row with the largest inner product, [10, 0], is the last of all, and
# the distances are squares, as over a PQ by Euclidean distance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rii==0.2.12 nanopq==0.2.2 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from nanopq import PQ
from rii import Rii

rows = np.array([[1, 0], [10, 0], [0, 2], [3, 4]], np.float32)
query = np.array([1, 0], np.float32)


def found(metric):
    quantizer = PQ(M=1, Ks=4, metric=metric, verbose=False)
    quantizer.fit(np.vstack([rows, rows]), minit="++", iter=100)
    index = Rii(quantizer).add_configure(rows, nlist=1)
    assert np.allclose(quantizer.decode(index.codes), rows)
    ids, distances = index.query(query, topk=4, method="linear")
    best = quantizer.dtable(query).adist(index.codes).argmax()
    return ids.tolist(), distances.tolist(), int(best)


print("by l2 ", found("l2")[:2])
print("by dot", found("dot")[:2], "| the largest inner product is of row", found("dot")[2])
assert found("dot")[2] == 1
assert found("dot")[:2] == found("l2")[:2] == ([0, 2, 3, 1], [0.0, 5.0, 20.0, 81.0])
PY
