#!/usr/bin/env bash
# sqliteai-vector 1.1.2: a second vector_init with another distance succeeds, and searches go on by the first.
#
# A table was searched by L2. vector_init with distance=COSINE gives no error, and the next search returns L2 distances
# and the rows nearest by them. Another type or dimension is refused. A new connection takes the distance that it is
# given. The reference says that each connection must call vector_init, and nothing of a second call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sqliteai-vector==1.1.2 pysqlite3-binary==0.5.4.post2
"$folder/venv/bin/python" - "$folder" <<'PY'
import struct
import sys
from importlib.resources import files

from pysqlite3 import dbapi2 as sqlite3


def connect():
    database = sqlite3.connect(sys.argv[1] + "/data")
    database.enable_load_extension(True)
    database.load_extension(str(files("sqlite_vector.binaries") / "vector"))
    return database


def search(database, distance):
    database.execute(f"select vector_init('t', 'v', 'type=FLOAT32,dimension=2,distance={distance}')").fetchall()
    query = struct.pack("2f", 1, 0)
    hits = database.execute("select rowid, distance from vector_full_scan('t', 'v', ?, 3)", (query,)).fetchall()
    return [(row, round(value, 3)) for row, value in hits]


database = connect()
database.execute("create table t (id integer primary key, v blob)")
for row in ((1, 1), (5, 0), (0, 1)):
    database.execute("insert into t (v) values (?)", (struct.pack("2f", *row),))
database.commit()
by_distance = search(database, "L2")
again = search(database, "COSINE")
anew = search(connect(), "COSINE")
print("L2:", by_distance)
print("COSINE, in the same connection:", again)
print("COSINE, in a new one:", anew)
assert by_distance == again == [(1, 1.0), (3, 1.414), (2, 4.0)]
assert anew == [(2, 0.0), (1, 0.293), (3, 1.0)]
PY
