#!/usr/bin/env bash
# diffprivlib 0.6.6 and scikit-learn 1.6.1: a histogram with weights gets the noise of one without, whatever they are.
#
# At epsilon 1 a person of weight 1000 moves a count by 1000, and the noise is of scale 1. Whether that person is there
# is told from every one of 2000 releases, where epsilon 1 allows 73 % at most. No warning, and a budget of 1 is spent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" -W error - <<'PY'
from math import e

import numpy as np
from diffprivlib import BudgetAccountant
from diffprivlib.tools import histogram

without = [0.5] * 10
beside = [*without, 0.5]
one_count = {}
for weight in (1, 1000):
    weights = [weight] * 10
    releases = [
        [histogram(people, 1, bins=2, range=(0, 2), weights=given)[0][0] for _ in range(2000)]
        for people, given in ((without, weights), (beside, [*weights, weight]))
    ]
    middle = 10.5 * weight
    right = (np.mean(np.array(releases[0]) < middle) + np.mean(np.array(releases[1]) > middle)) / 2
    one_count[weight] = right
    print(f"weight {weight}: width of the noise {np.std(releases[0]):.2f}, told apart in {right:.1%} of cases")
accountant = BudgetAccountant()
histogram(without, 1, bins=2, range=(0, 2), weights=[1000] * 10, accountant=accountant)
print("spent:", accountant.total(), f"which allows {e / (1 + e):.1%}")
assert accountant.total() == (1, 0)
assert one_count[1] < 0.8
assert one_count[1000] > 0.99
PY
