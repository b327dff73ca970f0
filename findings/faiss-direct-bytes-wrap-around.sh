#!/usr/bin/env bash
# faiss-cpu 1.15.1: SQ8_direct keeps 256 as 0 and 1.5 as 1, and says nothing; SQ8 clamps.
#
# SQ8_direct is for vectors that are bytes already. A value beyond the range of bytes comes back from the other end of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np


def kept(factory):
    index = faiss.index_factory(4, factory)
    index.train(np.array([[0, 0, 0, 0], [255, 255, 255, 255]], "float32"))
    index.add(np.array([[1.5, 255, 256, 257]], "float32"))
    return index.reconstruct(0)


direct, trained = kept("SQ8_direct"), kept("SQ8")
print("SQ8_direct", direct)
print("SQ8", trained)
assert direct.tolist() == [1, 255, 0, 1]
assert np.allclose(trained[1:], 255.5, atol=0.51)
PY
