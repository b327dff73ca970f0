#!/usr/bin/env bash
# vectorlite-py 0.2.0: a row whose insertion was rolled back is found, and one whose removal was rolled back is lost.
#
# The table is a table of SQLite, but its index takes no part in transactions: after ROLLBACK the inserted row is still
# among the nearest, and the deleted one is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet vectorlite-py==0.2.0 apsw==3.50.4.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import apsw
import numpy as np
import vectorlite_py

database = apsw.Connection(":memory:")
database.enable_load_extension(True)
database.load_extension(vectorlite_py.vectorlite_path())
database.execute("create virtual table t using vectorlite(v float32[2] l2, hnsw(max_elements=10))")


def blob(x, y):
    return np.array([x, y], np.float32).tobytes()


def found():
    nearest = "select rowid from t where knn_search(v, knn_param(?, 3))"
    return [row for (row,) in database.execute(nearest, (blob(0, 0),))]


insert = "insert into t(rowid, v) values (?, ?)"
for row in (1, 2):
    database.execute(insert, (row, blob(row, 0)))
before = found()
database.execute("begin")
database.execute(insert, (77, blob(0, 0)))
database.execute("delete from t where rowid = 1")
database.execute("rollback")
after = found()
print("before", before, "| after a rollback", after)
assert before == [1, 2]
assert after == [77, 2]
PY
