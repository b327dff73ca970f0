#!/usr/bin/env bash
# sqlite-vec 0.1.9: a row whose insert was refused is in the table all the same.
#
# A whole number for a metadata column of floats is refused with an error. The row is kept, with a
# price of zero, and searches find it.
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
    "create virtual table items using vec0(id integer primary key, place float[2], price float)"
)
try:
    database.execute("insert into items values (7, '[9, 9]', 1)")
except sqlite3.OperationalError as error:
    print("refused:", error)
else:
    raise SystemExit("it was taken")
rows = database.execute("select id, vec_to_json(place), price from items").fetchall()
print("rows:", rows)
assert rows == [(7, "[9.000000,9.000000]", 0.0)]
again = "select id from items where place match '[9, 9]' and k = 1"
assert database.execute(again).fetchall() == [(7,)]
PY
