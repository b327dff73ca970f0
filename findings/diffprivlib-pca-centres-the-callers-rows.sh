#!/usr/bin/env bash
# diffprivlib 0.6.6 and scikit-learn 1.6.1: PCA subtracts its mean from the caller's array, and then once more.
#
# copy=True is the default, and its documentation says that only copy=False overwrites the data. Rows of floats are
# centred in place all the same. fit_transform projects these, less the mean again, so that all its coordinates are
# shifted. The same whole numbers as integers stay as they are and are projected rightly.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" -W error - <<'PY'
import numpy as np
from diffprivlib.models import PCA

whole = np.random.default_rng(0).integers(0, 7, (1000, 3))
for rows in (whole, whole.astype(float)):
    model = PCA(2, epsilon=10, data_norm=12, bounds=(0, 6), copy=True)
    found = model.fit_transform(rows)
    right = (whole - model.mean_) @ model.components_.T
    shift = np.abs(found - right).max()
    print(f"{rows.dtype}: mean {whole.mean(0).round(2)} before, {rows.mean(0).round(2) + 0} after;", end=" ")
    print("mean of the coordinates", found.mean(0).round(2) + 0, f"off by {shift:.2f}")
    if rows is whole:
        assert shift < 1e-9
    else:
        assert np.abs(rows.mean(0)).max() < 0.1
        assert np.allclose(found, (whole - 2 * model.mean_) @ model.components_.T)
        assert shift > 1
PY
