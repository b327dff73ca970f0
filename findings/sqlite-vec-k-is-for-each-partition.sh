#!/usr/bin/env bash
# sqlite-vec 0.1.9: k counts for each partition that is named, and the answer is not in order.
#
# Twenty rows lie in two partitions. Three neighbours are asked for with k = 3, and three are found.
# With "half in (0, 1)", which is true of every row, six come back: three of one partition and then
# three of the other, so that the second nearest row of all stands in fourth place.
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
    "create virtual table items using vec0"
    "(id integer primary key, place float[2], half integer partition key)"
)
for number in range(20):
    database.execute("insert into items values (?, ?, ?)", (number, f"[{number}, 0]", number % 2))
nearest = "select id from items where place match '[0, 0]' and k = 3"
everywhere = [row[0] for row in database.execute(nearest)]
in_both = [row[0] for row in database.execute(nearest + " and half in (0, 1)")]
print("no condition", everywhere, "| half in (0, 1)", in_both)
assert everywhere == [0, 1, 2]
assert in_both == [0, 2, 4, 1, 3, 5]
PY
