#!/usr/bin/env bash
# npy-append-array 0.9.19: appended rows become the type of the first ones, whatever is lost.
#
# A file that begins with bytes keeps an appended 300 as 44 and -1 as 255, and one that begins with
# single precision keeps 1e300 as infinity, without an error. numpy.concatenate would widen the type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet npy-append-array==0.9.19 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from npy_append_array import NpyAppendArray

kept = {}
for name, first, more in (
    ("uint8", np.array([[1, 2]], np.uint8), np.array([[300, -1]])),
    ("float32", np.array([[1, 2]], np.float32), np.array([[1e300, 0.5]])),
):
    with NpyAppendArray(f"{name}.npy") as file:
        file.append(first)
        file.append(more)
    kept[name] = np.load(f"{name}.npy")[1].tolist()
    print(f"{more[0].tolist()} appended to {name} is kept as {kept[name]}")
assert kept == {"uint8": [44, 255], "float32": [float("inf"), 0.5]}
PY
