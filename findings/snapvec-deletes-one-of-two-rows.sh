#!/usr/bin/env bash
# snapvec 0.11.1: a row that was added again under its id is still found after the id was deleted.
#
# add() with an id that is there keeps both rows. delete() removes the later one and says True; the earlier one stays, is
# found under the deleted id, and a second delete() says False, so that no call removes it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet snapvec==0.11.1 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from snapvec import SnapIndex

old, new = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
index = SnapIndex(64, bits=4)
index.add("page", old)
index.add("page", new)
rows = len(index)
first, second = index.delete("page"), index.delete("page")
found = index.search(old, k=1)
print(rows, "rows of one id; deleted:", first, "and again:", second, "| found:", found)
assert (rows, first, second, len(index)) == (2, True, False, 1)
assert found[0][0] == "page"
assert found[0][1] > 0.9
PY
