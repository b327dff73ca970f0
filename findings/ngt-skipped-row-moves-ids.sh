#!/usr/bin/env bash
# ngt 2.8.0.post1: a row of zeros is skipped, and the rows behind it get other ids.
#
# batch_insert of a row of zeros and three vectors into an index of "Normalized Cosine" writes a
# warning and goes on. The vector in place 1 has the id 0, so whoever takes ids for places in the
# array reads the wrong one from then on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ngt==2.8.0.post1 numpy==2.2.6
FOLDER=$folder "$folder/venv/bin/python" - <<'PY'
import os

import ngtpy
import numpy as np

path = os.path.join(os.environ["FOLDER"], "index")
ngtpy.create(path, 2, distance_type="Normalized Cosine")
index = ngtpy.Index(path)
rows = np.array([[0, 0], [3, 4], [4, 3], [1, 0]], np.float32)
index.batch_insert(rows, num_threads=1)
nearest = [id_ for id_, _ in index.search(rows[1], 1)]
print(index.get_num_of_objects(), "rows; nearest to the row in place 1:", nearest)
assert index.get_num_of_objects() == 3
assert nearest == [0]
PY
