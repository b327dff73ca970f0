#!/usr/bin/env bash
# ngt 2.8.0.post1: a search by cosine misses the query's own vector behind a row of zeros.
#
# Three vectors are found by their cosine with the first of them. After a row of zeros the same search
# misses the first, which is the query itself; a linear search of that index finds all three.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ngt==2.8.0.post1 numpy==2.2.6
FOLDER=$folder "$folder/venv/bin/python" - <<'PY'
import os

import ngtpy
import numpy as np


def found(name, rows):
    path = os.path.join(os.environ["FOLDER"], name)
    ngtpy.create(path, 2, distance_type="Cosine")
    index = ngtpy.Index(path)
    index.batch_insert(np.array(rows, np.float32), num_threads=1)
    searches = (index.search, index.linear_search)
    return [[id_ for id_, _ in search([3, 4], 3)] for search in searches]


three = [[3, 4], [4, 3], [1, 0]]
without, _ = found("without", three)
behind, linear = found("behind", [[0, 0], *three])
print("without a row of zeros", without, "| behind one", behind, "| linear", linear)
assert without == [0, 1, 2]
assert 1 not in behind
assert linear == [1, 2, 3]
PY
