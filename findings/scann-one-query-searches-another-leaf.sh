#!/usr/bin/env bash
# scann 1.4.2: a query alone is looked up in another leaf of the tree than in a batch, and misses its own row.
#
# Each of 1000 rows is searched for, in one of 100 leaves by Euclidean distance. search_batched finds every row itself at
# distance 0. search, of the same index with the same settings, misses about three in ten. Where a leaf holds fewer
# rows than are asked for, search gives what there is, and a batch fills up with row 0, at a distance of NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scann==1.4.2 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY' 2> "$folder/log" || { tail -3 "$folder/log"; exit 1; }
import numpy as np
import scann

rows = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
tree = scann.scann_ops_pybind.builder(rows, 30, "squared_l2").tree(100, 1, training_sample_size=1000)
searcher = tree.score_brute_force().build()
together, distances = searcher.search_batched(rows)
real = ~np.isnan(distances)
alone = [searcher.search(row)[0] for row in rows]
found_together = np.mean([row in ids for row, ids in enumerate(together)])
found_alone = np.mean([row in ids for row, ids in enumerate(alone)])
same = np.mean([set(one) == set(ids[known]) for one, ids, known in zip(alone, together, real)])
print(f"own row found: {found_together:.1%} in a batch, {found_alone:.1%} alone; the same rows in {same:.1%} of cases")
print("places without a neighbour in the batch:", np.sum(~real), "with ids", set(together[~real].tolist()))
assert found_together > 0.99
assert found_alone < 0.9
assert np.sum(~real) > 1000 and set(together[~real].tolist()) == {0}
assert max(map(len, alone)) <= 30 and min(map(len, alone)) < 30
PY
