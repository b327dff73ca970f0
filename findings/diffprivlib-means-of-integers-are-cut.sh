#!/usr/bin/env bash
# diffprivlib 0.6.6 and scikit-learn 1.6.1: with an axis, the mean of 1000 zeros and ones is 0, whatever they are.
#
# Its documentation has float64 as the type of a mean of integers, as NumPy's. mean, var, std and their kin write what
# they release for each column into an array of the type of the input, so that whole numbers cut it to whole numbers.
# Without an axis, or with the same numbers as floats, it is right. The budget is spent all the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" -W error - <<'PY'
import numpy as np
from diffprivlib import BudgetAccountant, tools

accountant = BudgetAccountant()
bits = np.random.default_rng(0).integers(0, 2, (1000, 3))
asked = {"epsilon": 100, "bounds": (0, 1), "accountant": accountant}
for name, expected, released in (
    ("mean of integers", 0, tools.mean(bits, axis=0, **asked)),
    ("mean of floats", 0.5, tools.mean(bits.astype(float), axis=0, **asked)),
    ("mean of all integers", 0.5, tools.mean(bits, **asked)),
    ("std of integers", 0, tools.std(bits, axis=0, **asked)),
    ("std of floats", 0.5, tools.std(bits.astype(float), axis=0, **asked)),
):
    print(f"{name}: {np.round(released, 3)}")
    assert np.allclose(released, expected, atol=0.1)
print("without noise:", bits.mean(axis=0), "spent:", accountant.total()[0])
counts = bits * 9
print("counts of 0 and 9:", tools.mean(counts, epsilon=100, bounds=(0, 9), axis=0), "for", counts.mean(axis=0))
assert tools.mean(counts, epsilon=100, bounds=(0, 9), axis=0).dtype == counts.dtype
assert accountant.total()[0] > 499
PY
