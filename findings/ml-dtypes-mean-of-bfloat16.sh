#!/usr/bin/env bash
# ml-dtypes 0.6.0 and numpy 2.4.6: the mean of a thousand ones in bfloat16 is 0.256.
#
# Embeddings are often kept in bfloat16, and ml-dtypes is how NumPy reads them. sum() adds in bfloat16 and stays at 256
# from there on, for 256 + 1 is 256 again. NumPy widens float16 for a mean, and does not widen this type. A product of
# matrices is right, so that a vector's squared norm is 1000 by a @ a and 256 by (a * a).sum(). Neither documentation
# says so; astype(float32) before any sum is what helps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ml-dtypes==0.6.0 numpy==2.4.6
"$folder/venv/bin/python" -W error - <<'PY'
import ml_dtypes
import numpy as np

for kind, mean in ((np.float32, 1), (np.float16, 1), (ml_dtypes.bfloat16, 0.256)):
    ones = np.ones(1000, kind)
    squared = float((ones * ones).sum()), float(ones @ ones)
    print(f"{np.dtype(kind)}: mean {ones.mean()}, squared norm {squared[0]:g} and {squared[1]:g}")
    assert abs(float(ones.mean()) - mean) < 0.001
    assert squared == (1000 * round(mean, 3), 1000)

rows = np.random.default_rng(0).gamma(2, size=(20, 2000)).astype(ml_dtypes.bfloat16)
share = rows.mean(axis=1).astype(float) / rows.astype(np.float64).mean(axis=1)
print(f"means of 20 rows of 2000 positive numbers: {share.min():.2f} to {share.max():.2f} of the right ones")
assert share.max() < 0.6
PY
