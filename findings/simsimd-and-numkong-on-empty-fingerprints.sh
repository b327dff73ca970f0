#!/usr/bin/env bash
# simsimd 6.5.16 and numkong 7.8.6: two fingerprints without a bit are far apart in the one and equal in the other.
#
# Both are by one author and have much the same functions. On other pairs their Jaccard distances of packed bits agree.
# Who moves from one to the other gets empty fingerprints as the nearest neighbours of each other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet simsimd==6.5.16 numkong==7.8.6 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numkong
import numpy as np
import simsimd

empty = np.zeros(4, np.uint8)
full = np.array([1, 2, 4, 8], np.uint8)
half = np.array([1, 2, 0, 0], np.uint8)
pairs = {"full and half": (full, half), "full and empty": (full, empty), "empty and empty": (empty, empty)}
found = {}
for name, (one, other) in pairs.items():
    found[name] = simsimd.jaccard(one, other, "bin8"), numkong.jaccard(one, other, dtype="uint1")
    print(name, "| simsimd", found[name][0], "| numkong", found[name][1])
assert found["full and half"] == (0.5, 0.5)
assert found["full and empty"] == (1.0, 1.0)
assert found["empty and empty"] == (1.0, 0.0)
PY
