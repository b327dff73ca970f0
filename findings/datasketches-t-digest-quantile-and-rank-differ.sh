#!/usr/bin/env bash
# datasketches 5.2.0: a t-digest gives 48 221 as the median of 0 to 99 999, and the right rank for 50 000.
#
# get_quantile() and get_rank() read the same centroids, and one is the inverse of the other. At the default k = 200 and
# below get_rank is right to a few parts in ten thousand, while get_quantile is off by up to two parts in a hundred: the
# rank of what it gives for 0.5 is 0.482.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasketches==5.2.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import datasketches
import numpy as np

for k in (100, 200):
    digest = datasketches.tdigest_double(k)
    for value in np.random.default_rng(0).permutation(100_000):
        digest.update(float(value))
    median = digest.get_quantile(0.5)
    ranks = digest.get_rank(median), digest.get_rank(50_000.0)
    print(f"k = {k}: median {median:.0f}, its rank {ranks[0]:.4f}; the rank of 50000 {ranks[1]:.4f}")
    assert abs(ranks[1] - 0.5) < 0.0005
    assert 0.48 < ranks[0] < 0.49
PY
