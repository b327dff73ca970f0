#!/usr/bin/env bash
# fastparquet 2026.9.0: a column of half floats comes back as pairs of bytes.
#
# Half floats are a type of Parquet since 2023, in which embeddings are often kept. The other readers of pandas give
# numbers; this one an object column of bytes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fastparquet==2026.9.0 pandas==2.3.3 pyarrow==26.0.1 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import pandas as pd

pd.DataFrame({"x": np.array([1.5, 2.0], np.float16)}).to_parquet("x.parquet", engine="pyarrow")
read = {engine: pd.read_parquet("x.parquet", engine=engine)["x"] for engine in ("pyarrow", "fastparquet")}
for engine, column in read.items():
    print(f"{engine}: {column.dtype} {column.tolist()}")
assert read["pyarrow"].tolist() == [1.5, 2.0]
assert read["fastparquet"].tolist() == [np.float16(1.5).tobytes(), np.float16(2.0).tobytes()]
PY
