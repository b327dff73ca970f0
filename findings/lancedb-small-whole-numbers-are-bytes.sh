#!/usr/bin/env bash
# lancedb 0.40.0: a list of whole numbers becomes bytes compared by Hamming distance if none is above 255.
#
# One value of 256 makes the column float, compared by L2. So the type and the metric of a table of counts depend on the
# largest count in its first batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lancedb==0.40.0
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import lancedb

place = lancedb.connect(f"{sys.argv[1]}/tables")


def table(name, vectors):
    rows = [{"id": row, "vector": vector} for row, vector in enumerate(vectors)]
    return place.create_table(name, rows)


def answers(table):
    return [(hit["id"], hit["_distance"]) for hit in table.search([3, 4]).limit(3).to_list()]


small = table("small", [[3, 4], [7, 7], [2, 4]])
large = table("large", [[3, 4], [7, 7], [2, 4], [256, 0]])
for each in (small, large):
    print(each.schema.field("vector").type, answers(each))
assert str(small.schema.field("vector").type).startswith("fixed_size_list<item: uint8>")
assert str(large.schema.field("vector").type).startswith("fixed_size_list<item: float>")
assert sorted(answers(small)) == [(0, 0.0), (1, 3.0), (2, 1.0)]  # bits that differ
assert sorted(answers(large)) == [(0, 0.0), (1, 25.0), (2, 1.0)]  # squared Euclidean distances
PY
