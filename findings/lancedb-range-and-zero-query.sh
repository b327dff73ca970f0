#!/usr/bin/env bash
# lancedb 0.40.0: upper_bound of distance_range is exclusive and lower_bound is inclusive, and a zero
# query by cosine finds nothing at all.
#
# Rows at a distance of exactly 8 are outside [0, 8] and inside [8, ∞). The cosine distance of a zero
# query is no number, and rows whose distance is none are left out without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lancedb==0.40.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import lancedb

table = lancedb.connect("db").create_table("t", [{"id": i, "vector": [1.0] * 8} for i in range(5)])
query = table.search([0.0] * 8).distance_type("l2")
below = query.distance_range(upper_bound=8.0).limit(9).to_list()
query = table.search([0.0] * 8).distance_type("l2")
above = query.distance_range(lower_bound=8.0).limit(9).to_list()
cosine = table.search([0.0] * 8).distance_type("cosine").limit(9).to_list()
print("up to 8:", len(below), " from 8:", len(above), " zero query by cosine:", len(cosine))
assert (len(below), len(above), len(cosine)) == (0, 5, 0)
assert {row["_distance"] for row in above} == {8.0}
PY
