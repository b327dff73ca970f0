#!/usr/bin/env bash
# pyarrow 26.0.1: a cast from list_view to list succeeds and gives an array that is not valid.
#
# The cast raises nothing. Only validate(full=True) says that the buffer of offsets is too short.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PY'
import pyarrow as pa

views = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_view(pa.float32()))
views.validate(full=True)
lists = views.cast(pa.list_(pa.float32()))
try:
    lists.validate(full=True)
except pa.ArrowException as error:
    print(error)
    assert "ffsets buffer size" in str(error)
else:
    raise SystemExit("the cast is valid now")
PY
