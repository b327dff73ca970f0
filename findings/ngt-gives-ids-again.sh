#!/usr/bin/env bash
# ngt 2.8.0.post1: the id of a removed row is given to the next one that is inserted.
#
# Row 2 of five is removed, and another is inserted. It gets the id 2, so that what was kept
# elsewhere under that id now belongs to another vector.
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
ngtpy.create(path, 2, distance_type="L2")
index = ngtpy.Index(path)
index.batch_insert(np.array([[number, 0] for number in range(5)], np.float32), num_threads=1)
index.remove(2)
index.insert([9, 9])
index.build_index()
nearest = index.search([9, 9], 1)
print("nearest to the new row:", nearest)
assert nearest == [(2, 0.0)]
PY
