#!/usr/bin/env bash
# voyager 2.2.3: an item without an id replaces one that was given that id.
#
# Three items are added with the ids 0, 1 and 2, and a fourth without one. It gets the id 0: the index
# holds three items still, and the first is gone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet voyager==2.2.3 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
from voyager import Index, Space

index = Index(Space.Euclidean, 2)
for number in range(3):
    index.add_item([number, 0], number)
new = index.add_item([50, 50])
kept = {id_: index.get_vector(id_).tolist() for id_ in sorted(index.ids)}
print("the new id is", new, "| kept:", kept)
assert new == 0
assert kept == {0: [50.0, 50.0], 1: [1.0, 0.0], 2: [2.0, 0.0]}
PY
