#!/usr/bin/env bash
# sqlite-vec 0.1.9: by cosine, a row of zeros may come before the query's own vector.
#
# A row of zeros has no direction, and its distance is NULL. The table holds it first and the query's
# own vector after it; the one nearest neighbour is the row of zeros, at a distance of NULL.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sqlite-vec==0.1.9 pysqlite3-binary==0.5.4.post2
"$folder/venv/bin/python" - <<'PY'
import sqlite_vec
from pysqlite3 import dbapi2 as sqlite3

database = sqlite3.connect(":memory:")
database.enable_load_extension(True)
sqlite_vec.load(database)
database.execute(
    "create virtual table items"
    " using vec0(id integer primary key, place float[2] distance_metric=cosine)"
)
for number, place in enumerate(["[0, 0]", "[3, 4]", "[4, 3]"]):
    database.execute("insert into items values (?, ?)", (number, place))
nearest = "select id, distance from items where place match '[3, 4]' and k = 1"
found = database.execute(nearest).fetchall()
print("nearest to [3, 4]:", found)
assert found == [(0, None)]
PY
