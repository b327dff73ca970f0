#!/usr/bin/env bash
# sqlite-vec 0.1.9: vec_quantize_int8 rounds down, so that a vector and its opposite differ.
#
# 1 becomes 126 and -1 becomes -128, a half becomes 63 and its opposite -64, and .007 becomes 0 where
# -.007 becomes -1. Every value is half a step too low on average, which adds up in inner products.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sqlite-vec==0.1.9 pysqlite3-binary==0.5.4.post2
"$folder/venv/bin/python" - <<'PY'
import sqlite_vec
from pysqlite3 import dbapi2 as sqlite3

database = sqlite3.connect(":memory:")
database.enable_load_extension(True)
sqlite_vec.load(database)
import json

values = [1.0, 0.5, 0.007, 0.0, -0.007, -0.5, -1.0]
quantize = "select vec_to_json(vec_quantize_int8(?, 'unit'))"
((text,),) = database.execute(quantize, (json.dumps(values),))
print(dict(zip(values, json.loads(text), strict=True)))
assert json.loads(text) == [126, 63, 0, 0, -1, -64, -128]
PY
