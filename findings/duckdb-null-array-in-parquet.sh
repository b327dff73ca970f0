#!/usr/bin/env bash
# duckdb 2.0.1 and pyarrow 26.0.1: a Parquet file with a FLOAT[2] column and a NULL row is read by
# DuckDB and refused by pyarrow.
#
# DuckDB writes two values for three rows that are there. Its schema says fixed lists of two, and
# pyarrow counts values by the rows.
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

duckdb.sql(
    "COPY (SELECT CASE WHEN i = 2 THEN NULL ELSE [i, 2]::FLOAT[2] END AS v FROM range(4) r(i)) "
    "TO 'x.parquet'"
)
print("duckdb:", duckdb.sql("SELECT v FROM 'x.parquet'").fetchall())
assert len(duckdb.sql("SELECT v FROM 'x.parquet'").fetchall()) == 4
try:
    print("pyarrow:", pq.read_table("x.parquet"))
except pa.ArrowException as error:
    print("pyarrow:", error)
    assert "larger than values array" in str(error)
else:
    raise SystemExit("pyarrow reads it now")
PY
