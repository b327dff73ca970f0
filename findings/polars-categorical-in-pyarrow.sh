#!/usr/bin/env bash
# polars 2.1.0 and pyarrow 26.0.1: a Categorical of polars becomes an Arrow dictionary that pyarrow cannot
# decode.
#
# polars hands its categories over as string views, for which pyarrow has no kernel that takes rows.
# Categories cast to strings in polars first are read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet polars==2.1.0 pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PY'
import polars as pl
import pyarrow as pa

series = pl.Series(["x", "y", "x"], dtype=pl.Categorical)
array = pa.chunked_array(series)
print(array.type)
try:
    print(array.chunk(0).dictionary_decode())
except pa.ArrowException as error:
    print(str(error)[:90])
    assert "string_view" in str(error)
else:
    raise SystemExit("pyarrow decodes it now")
assert pa.chunked_array(series.cast(pl.String)).to_pylist() == ["x", "y", "x"]
PY
