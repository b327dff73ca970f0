#!/usr/bin/env bash
# safetensors 0.8.0: a transposed array, or every second row, comes back with other values in its cells.
#
# The file gets the shape of the array and the memory that it lies in, row by row or not. A matrix of embeddings that a
# framework gives column by column is read as another matrix of the same shape, and nothing is said.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet safetensors==0.8.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from safetensors.numpy import load, save

whole = np.arange(12, dtype=np.float32).reshape(4, 3)
for name, array in {"rows": whole, "transposed": whole.T, "every second row": whole[::2]}.items():
    read = load(save({"vectors": array}))["vectors"]
    print(f"{name}: saved {array.tolist()}, read {read.tolist()}")
    assert read.shape == array.shape
    assert np.array_equal(read, array) == (name == "rows")
PY
