#!/usr/bin/env bash
# zvec 0.8.0: with an index on a column of floats, a row whose value is no number is above every limit.
#
# Without the index that row meets neither "price > 1000" nor "price < 1000". With it, the row meets the first, so an
# index that is there for speed changes what is found.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zvec==0.8.0 numpy==2.2.6
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

from zvec import (
    CollectionSchema,
    DataType,
    Doc,
    FieldSchema,
    InvertIndexParam,
    Query,
    VectorSchema,
    create_and_open,
)


def filled(name, **options):
    price = FieldSchema("price", DataType.FLOAT, **options)
    place = VectorSchema("place", DataType.VECTOR_FP32, 2)
    schema = CollectionSchema(name, fields=[price], vectors=place)
    collection = create_and_open(f"{sys.argv[1]}/{name}", schema)
    for name, value in (("cheap", 1.0), ("dear", 2000.0), ("unknown", float("nan"))):
        document = Doc(name, vectors={"place": [1, 1]}, fields={"price": value})
        assert collection.insert(document).ok()
    return collection


def found(collection, condition):
    hits = collection.query(Query("place", vector=[1, 1]), topk=9, filter=condition)
    return sorted(hit.id for hit in hits)


plain = filled("plain")
indexed = filled("indexed", index_param=InvertIndexParam(enable_range_optimization=True))
for condition in ("price > 1000", "price >= 1000", "price < 1000"):
    print(condition, "| no index", found(plain, condition), "| index", found(indexed, condition))
assert found(plain, "price > 1000") == found(plain, "price >= 1000") == ["dear"]
assert found(indexed, "price > 1000") == found(indexed, "price >= 1000") == ["dear", "unknown"]
assert found(plain, "price < 1000") == found(indexed, "price < 1000") == ["cheap"]
PY
