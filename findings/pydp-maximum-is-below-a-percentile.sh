#!/usr/bin/env bash
# python-dp 1.1.5: the largest of the numbers from 0 to 100 is given as 86, and the 99th percentile as 99.
#
# It is no noise: epsilon is a million, and every run gives the same. The least number, which is 0, comes as 14. With
# ten thousand numbers over the same range the largest comes as 99.56.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet python-dp==1.1.5
"$folder/venv/bin/python" - <<'PY'
from pydp.algorithms.laplacian import Max, Min, Percentile

numbers = [float(number) for number in range(101)]
options = {"epsilon": 1e6, "lower_bound": 0, "upper_bound": 100, "dtype": "float"}
for _ in range(3):
    largest, least = Max(**options).quick_result(numbers), Min(**options).quick_result(numbers)
    high = Percentile(percentile=0.99, **options).quick_result(numbers)
    top = Percentile(percentile=1.0, **options).quick_result(numbers)
    print(f"largest {largest:.2f}, least {least:.2f}, percentile 0.99 {high:.2f}, percentile 1 {top:.2f}")
    assert 85 < largest < 88 and 85 < top < 88
    assert 12 < least < 15
    assert high > 98
many = [number / 100 for number in range(10_001)]
print(f"largest of ten thousand {Max(**options).quick_result(many):.2f}")
assert Max(**options).quick_result(many) > 99
PY
