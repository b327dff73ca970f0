#!/usr/bin/env bash
# sqlite-vec 0.1.9: a condition that is written another way is applied after the search.
#
# Ten of twenty rows have year >= 10, none of them among the three nearest. With k = 3 and
# "year >= 10" three rows are found; with "not year < 10", which says the same, none is, and
# nothing tells that the condition was left until the three nearest rows were taken.
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
    "create virtual table items using vec0(id integer primary key, place float[2], year integer)"
)
for number in range(20):
    database.execute("insert into items values (?, ?, ?)", (number, f"[{number}, 0]", number))


def found(condition):
    search = f"select id from items where place match '[0, 0]' and k = 3 and {condition}"
    return [row[0] for row in database.execute(search)]


for condition in ("year >= 10", "not year < 10", "year + 0 >= 10"):
    print(condition, found(condition))
assert found("year >= 10") == [10, 11, 12]
assert found("not year < 10") == []
assert found("year + 0 >= 10") == []
PY
