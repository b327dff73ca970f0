#!/usr/bin/env bash
# nano-vectordb 0.0.4.3: upsert removes the vectors from the rows that it is given.
#
# The caller's dictionaries have no "__vector__" afterwards, so the same rows cannot go into a second
# database, nor be upserted again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nano-vectordb==0.0.4.3 numpy==2.2.6
cd "$folder"
"$folder/venv/bin/python" - 2>&1 <<'PY'
import numpy as np
from nano_vectordb import NanoVectorDB

rows = [{"__id__": "a", "__vector__": np.array([3.0, 4.0]), "title": "first"}]
NanoVectorDB(2, storage_file="one.json").upsert(rows)
print("the caller's row after upsert:", rows[0])
assert rows == [{"__id__": "a", "title": "first"}]
try:
    NanoVectorDB(2, storage_file="two.json").upsert(rows)
except KeyError as error:
    print("into a second database: KeyError", error)
else:
    raise AssertionError("the second database took the rows")
PY
