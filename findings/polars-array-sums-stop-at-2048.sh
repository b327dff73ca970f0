#!/usr/bin/env bash
# polars 2.1.0: arr.sum of 5000 ones in half floats is 2048, and the sum of the same numbers as a column is 5000.
#
# Both give a Float16. A column is summed in a wider type, an array or list of one row number by number in half floats,
# in which 2048 + 1 is 2048. The squared norm of an embedding of 1536 half floats comes out some 2 % too small. Float32
# is off in the fifth digit for 100 000 numbers. The documentation of Series.sum says that small integers are widened,
# that of arr.sum and list.sum says nothing. A cast to Float32 or Float64 before the sum helps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet polars==2.1.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import polars as pl

ones = [1.0] * 5000
for kind, expected in ((pl.Float16, 2048), (pl.Float32, 5000)):
    sums = {
        "column": pl.Series(ones).cast(kind).sum(),
        "arr.sum": pl.Series([ones]).cast(pl.Array(kind, 5000)).arr.sum().item(),
        "list.sum": pl.Series([ones]).cast(pl.List(kind)).list.sum().item(),
    }
    print(f"{kind}:", sums)
    assert sums == {"column": 5000, "arr.sum": expected, "list.sum": expected}

rows = np.random.default_rng(0).normal(size=(5, 1536)).astype(np.float16)
right = (rows.astype(np.float64) ** 2).sum(axis=1)
half = pl.Series(rows.tolist(), dtype=pl.Array(pl.Float16, 1536))
single = half.cast(pl.Array(pl.Float32, 1536))
for name, values in (("Float16", half), ("Float32", single)):
    share = (values * values).arr.sum().to_numpy().astype(np.float64) / right
    print(f"squared norms of five rows in {name}, as a share of the right ones: {np.round(share, 4)}")
    assert (share.max() < 0.985) if name == "Float16" else np.allclose(share, 1, atol=1e-4)
PY
