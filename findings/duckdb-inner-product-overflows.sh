#!/usr/bin/env bash
# duckdb 2.0.1: array_inner_product of FLOAT arrays is computed in single precision, and overflows to
# infinity without an error.
#
# Both factors are ordinary floats and DOUBLE holds the product. The same numbers cast to DOUBLE give it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1
"$folder/venv/bin/python" - <<'PY'
import math

import duckdb

one = "[1e20, 0]"
rows = duckdb.sql(
    f"SELECT array_inner_product({one}::FLOAT[2], {one}::FLOAT[2]),"
    f" array_inner_product({one}::DOUBLE[2], {one}::DOUBLE[2])"
).fetchall()
print("FLOAT, DOUBLE:", rows)
single, double = rows[0]
assert math.isinf(single)
assert math.isclose(double, 1e40)
PY
