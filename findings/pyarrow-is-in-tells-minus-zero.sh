#!/usr/bin/env bash
# pyarrow 26.0.1: is_in does not find -0.0 among [0.0], and finds NaN among [NaN]; equal says the opposite of both.
#
# A filter "x in [0]" leaves rows out that "x == 0" keeps. Products with zero are often -0.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PY'
import pyarrow as pa
import pyarrow.compute as pc

nan = float("nan")
for value, wanted in ((-0.0, 0.0), (nan, nan)):
    among = pc.is_in(pa.array([value]), pa.array([wanted]))[0].as_py()
    equal = pc.equal(pa.scalar(value), pa.scalar(wanted)).as_py()
    print(f"{value} in [{wanted}]: {among}, {value} == {wanted}: {equal}")
    assert (among, equal) == ((False, True) if value == 0 else (True, False))
PY
