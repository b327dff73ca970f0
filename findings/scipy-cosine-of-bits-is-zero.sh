#!/usr/bin/env bash
# scipy 1.17.1: the cosine distance of two fingerprints of bits is 0 as soon as they share one bit.
#
# cosine(a, b) multiplies booleans as booleans, so that every product is True. cdist(..., "cosine"), pdist and cosine of
# the same bits as numbers are right. The documentation asks for floats, and its own examples are whole numbers. Nothing
# is said, and jaccard and hamming, beside it, do take booleans.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scipy==1.17.1 numpy==2.4.6
"$folder/venv/bin/python" -W error - <<'PY'
import numpy as np
from scipy.spatial.distance import cdist, cosine, jaccard

bits = np.random.default_rng(0).random((4, 256)) < 0.2
bits[3] = ~bits[0]
for row in bits:
    found = cosine(bits[0], row), cosine(bits[0] * 1.0, row * 1.0), cdist(bits[:1], [row], "cosine")[0, 0]
    common = np.count_nonzero(bits[0] & row)
    names = "as bits", "as numbers", "by cdist"
    print(common, "bits in common:", {name: round(float(distance), 3) for name, distance in zip(names, found)})
    assert found[0] == (common == 0)
    assert np.isclose(found[1], found[2])
    assert abs(jaccard(bits[0], row) - cdist(bits[:1], [row], "jaccard")[0, 0]) < 1e-12
assert cdist(bits[:1], bits[1:3], "cosine").min() > 0.7
PY
