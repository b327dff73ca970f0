#!/usr/bin/env bash
# zvec 0.8.0: a condition whose number is beyond the type of the column finds nothing, though every row meets it.
#
# Each n is an INT32 and below 3 000 000 000. That condition is no error and leaves no row, nor does one that n be above
# the opposite, or that an unsigned column be above -1. A document whose n is that large is refused with an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zvec==0.8.0 numpy==2.2.6
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

from zvec import CollectionSchema, DataType, Doc, FieldSchema, Query, VectorSchema, create_and_open

fields = [FieldSchema("n", DataType.INT32), FieldSchema("size", DataType.UINT64)]
place = VectorSchema("place", DataType.VECTOR_FP32, 2)
schema = CollectionSchema("rows", fields=fields, vectors=place)
collection = create_and_open(f"{sys.argv[1]}/rows", schema)
for number in range(3):
    vectors, values = {"place": [number, 1]}, {"n": number, "size": number}
    assert collection.insert(Doc(str(number), vectors=vectors, fields=values)).ok()


def found(condition):
    hits = collection.query(Query("place", vector=[1, 1]), topk=9, filter=condition)
    return sorted(hit.id for hit in hits)


everyone, no_one = ("n < 2000000000", "n > -1"), ("n < 3000000000", "n > -3000000000", "size > -1")
for condition in everyone + no_one:
    print(condition, found(condition))
assert all(found(condition) == ["0", "1", "2"] for condition in everyone)
assert all(found(condition) == [] for condition in no_one)
PY
