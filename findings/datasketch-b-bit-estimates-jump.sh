#!/usr/bin/env bash
# datasketch 2.0.0: bBitMinHash estimates less than nothing as soon as its ratio r is above zero.
#
# With r = 0 two disjoint sets are estimated at 0.00. The estimator for an r of one in a billion should tend to the
# same. With eight bits it gives -0.06, for the chance that unlike values agree is taken as 1/16, and not as 1/256. The
# formula has been put right in the repository after this release.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasketch==2.0.0 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
from datasketch import MinHash, bBitMinHash


def sketch(numbers):
    minhash = MinHash(num_perm=4096, seed=1)
    minhash.update_batch([str(number).encode() for number in numbers])
    return minhash


one, other = sketch(range(1000)), sketch(range(5000, 6000))


def estimate(bits, ratio):
    return bBitMinHash(one, bits, ratio).jaccard(bBitMinHash(other, bits, ratio))


for bits in (1, 2, 4, 8):
    print(bits, "bits | r = 0:", round(estimate(bits, 0.0), 3), "| r = 1e-9:", round(estimate(bits, 1e-9), 3))
for bits in (1, 2):
    assert abs(estimate(bits, 1e-9) - estimate(bits, 0.0)) < 1e-6
for bits in (4, 8):
    assert abs(estimate(bits, 0.0)) < 0.02
    assert estimate(bits, 1e-9) < -0.05
PY
