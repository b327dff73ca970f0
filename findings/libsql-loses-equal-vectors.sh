#!/usr/bin/env bash
# libsql 0.1.11: of 200 rows with the same vector its index finds eleven, and it does not find the one row with another.
#
# vector_top_k is asked for the 201 nearest of 201 rows. A graph on disk links each row to a few others, which are here
# all at distance 0, so that a search ends among eleven of them. Ten vectors that each occur a hundred times do it too:
# dozens of 1000 rows are found. Where all rows differ, all are. The index is called approximate, and no page gives this
# case; that equal rows are lost was reported in 2025. An order by vector_distance_cos finds all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet libsql==0.1.11
"$folder/venv/bin/python" - <<'PY'
import random

import libsql


def found(vectors, query):
    database = libsql.connect(":memory:")
    database.execute(f"create table rows (id integer primary key, v F32_BLOB({len(query)}))")
    database.execute("create index nearest on rows (libsql_vector_idx(v))")
    for vector in vectors:
        database.execute("insert into rows (v) values (vector32(?))", (str(vector),))
    asked = (str(query), len(vectors))
    by_index = database.execute("select id from vector_top_k('nearest', vector32(?), ?)", asked).fetchall()
    by_order = database.execute("select id from rows order by vector_distance_cos(v, vector32(?)) limit ?", asked)
    return [row[0] for row in by_index], len(by_order.fetchall())


equal = [1.0, 2.0, 3.0, 4.0]
other = [1.0, 2.0, 3.0, 5.0]
by_index, by_order = found([equal] * 200 + [other], equal)
print(f"{len(by_index)} of 201 by the index, {by_order} by order; the other row is found: {201 in by_index}")
assert len(set(by_index)) < 30 and 201 not in by_index and by_order == 201
values = random.Random(0)
ten = [[values.gauss(0, 1) for _ in range(16)] for _ in range(10)]
distinct = [[values.gauss(0, 1) for _ in range(4)] for _ in range(150)]
by_index, _ = found(distinct, distinct[0])
print(f"{len(by_index)} of 150 where all are different")
assert len(by_index) == 150
counts = [len(found(ten * 100, vector)[0]) for vector in ten[:3]]
print("of ten vectors that occur a hundred times each, of 1000 rows:", counts)
assert max(counts) < 200
PY
