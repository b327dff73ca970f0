#!/usr/bin/env bash
# kannolo 0.15.1: the exhaustive index, made for exact neighbours, keeps float32 vectors as half floats.
#
# Its reference for Python asks for float32 and does not say so. 2049 and 4095 are kept as other whole numbers, and a
# search for either finds no row at a distance of zero.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kannolo==0.15.1 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from kannolo import DenseFlatIndex

rows = np.array([[2048, 0], [2049, 0], [2050, 0], [4095, 0]], np.float32)
np.save("rows.npy", rows)
indexes = {
    "array": DenseFlatIndex.build_from_array(rows.flatten(), dim=2, metric="euclidean"),
    "file": DenseFlatIndex.build_from_file("rows.npy", metric="euclidean"),
}
for name, index in indexes.items():
    distances = {
        float(row[0]): index.search(row, k=1)[0].tolist()[0] for row in rows
    }
    print(f"from {name}, squared distance of a row to the nearest:", distances)
    assert distances == {2048.0: 0.0, 2049.0: 1.0, 2050.0: 0.0, 4095.0: 1.0}
PY
