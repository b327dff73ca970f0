#!/usr/bin/env bash
# voyager 2.2.3: get_distance of two vectors depends on what is in an index of inner products.
#
# Of [1, 0] and [2, 0] it is -1 in an empty index, which is one less the inner product, as in a
# search. After a vector of length 3 was added it is -5, and after one of length 5 it is -17.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet voyager==2.2.3 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
from voyager import Index, Space

index = Index(Space.InnerProduct, 2)
distances = [index.get_distance([1, 0], [2, 0])]
for length in (3, 5):
    index.add_item([length, 0])
    distances.append(index.get_distance([1, 0], [2, 0]))
print(distances)
assert distances == [-1.0, -5.0, -17.0]
PY
