#!/usr/bin/env bash
# DuckDB 2.0.1: a row of zeros comes first when rows are ordered by cosine similarity, and last by cosine distance.
#
# Both are NaN of a row of zeros, and NaN is above all numbers. array_cosine_distance is one less the similarity, so the
# two orders are taken for the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1
"$folder/venv/bin/python" - <<'PY'
import duckdb

rows = "(values ('the query', [1, 0]::float[2]), ('zeros', [0, 0]::float[2]), ('other', [1, 1]::float[2])) rows(name, v)"
query = "[1, 0]::float[2]"
orders = {}
for order in (f"array_cosine_similarity(v, {query}) desc", f"array_cosine_distance(v, {query})"):
    orders[order] = [name for (name,) in duckdb.sql(f"select name from {rows} order by {order}").fetchall()]
    print(f"order by {order}: {orders[order]}")
assert [*orders.values()] == [["zeros", "the query", "other"], ["the query", "other", "zeros"]]
PY
