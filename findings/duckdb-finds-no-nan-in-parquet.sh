#!/usr/bin/env bash
# DuckDB 2.0.1: isnan(x) is false of a NaN in a Parquet file, and x <= 2 is true of it.
#
# Statistics of a Parquet file leave NaN out. DuckDB takes them for the range of all values and decides comparisons by it,
# so that a condition means one thing over a file and another over a table of the same rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

pq.write_table(pa.table({"x": [1.0, 2.0, float("nan")]}), "x.parquet")
duckdb.sql("create table rows as from 'x.parquet'")
of_nan = {}
for place in ("'x.parquet'", "rows"):
    for condition in ("isnan(x)", "x <= 2", "x = 'nan'::double"):
        of_nan[place, condition] = duckdb.sql(f"select {condition} from {place}").fetchall()[2][0]
        print(f"from {place}: {condition} is {of_nan[place, condition]} of NaN")
assert list(of_nan.values()) == [False, True, False, True, False, True]
PY
