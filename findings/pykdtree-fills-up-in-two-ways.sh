#!/usr/bin/env bash
# pykdtree 1.4.3: neighbours that do not exist come as index 4294967295 at a distance of 1.8e19.
#
# With a bound on the distance they come as SciPy gives them, as the number of rows at infinity.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pykdtree==1.4.3 scipy==1.15.3 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from pykdtree.kdtree import KDTree
from scipy.spatial import KDTree as OfSciPy

rows = np.array([[0, 0], [1, 0], [2, 0]], np.float32)
query = rows[:1]
found = {
    "pykdtree": KDTree(rows).query(query, k=4),
    "pykdtree, bound": KDTree(rows).query(query, k=4, distance_upper_bound=9.0),
    "SciPy": OfSciPy(rows).query(query, k=4),
}
fourth = {name: (float(d[0, 3]), int(i[0, 3])) for name, (d, i) in found.items()}
for name, (distance, index) in fourth.items():
    print(f"{name}: the fourth of three rows is {index}, at {distance}")
assert fourth["pykdtree, bound"] == fourth["SciPy"] == (float("inf"), 3)
assert fourth["pykdtree"][1] == 2**32 - 1 and 1.8e19 < fourth["pykdtree"][0] < 1.9e19
PY
