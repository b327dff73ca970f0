#!/usr/bin/env bash
# numkong 7.8.6: the angular distance of a row of zeros is 1 alone, and another value in a matrix of distances.
#
# Alone it is 1 to any row and 0 to itself. In cdist and in the packed form it is not 1: no number with the kernels for
# AVX2 or AVX-512, and 0, as if the two were alike, with the plain ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numkong==7.8.6 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numkong
import numpy as np

rows = np.array([[3, 4, 0, 0], [0, 0, 0, 0], [4, 3, 0, 0]], np.float32)


def matrices():
    packed = numkong.angulars_packed(rows, numkong.dots_pack(rows, "float32"))
    return np.array(numkong.cdist(rows, rows, "angular")), np.array(packed)


alone = [[float(numkong.angular(one, other)) for other in rows] for one in rows]
print("alone: row 0", np.round(alone[0], 3), "row 1", alone[1])
assert alone[0][1] == alone[1][0] == 1.0
everything = [name for name, there in numkong.get_capabilities().items() if there and name != "serial"]
for capability in (None, *reversed(everything)):
    if capability is not None:
        numkong.disable_capability(capability)
    for matrix in matrices():
        assert abs(matrix[0, 2] - alone[0][2]) < 1e-3
        assert not (matrix[0, 1] > 0) and not (matrix[1, 0] > 0)
    print("without", capability, "in a matrix: row 0", matrix[0].round(3), "row 1", matrix[1])
PY
