#!/usr/bin/env bash
# zvec 0.8.0: a radius of zero or less is no radius, so that no such bound on inner products can be asked for.
#
# By inner product the radius is the least score. With 1 the rows at 25 and 50 are found, and with -1, which should add
# the one at 0, the one at -25 comes too. By Euclidean distance a radius of 0 gives all rows, not the equal one.
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
    HnswIndexParam,
    HnswQueryParam,
    MetricType,
    Query,
    VectorSchema,
    create_and_open,
)


def filled(metric):
    index = HnswIndexParam(metric_type=metric)
    place = VectorSchema("place", DataType.VECTOR_FP32, 2, index_param=index)
    schema = CollectionSchema(metric.name, vectors=place)
    collection = create_and_open(f"{sys.argv[1]}/{metric.name}", schema)
    for number, vector in enumerate([[3, 4], [6, 8], [0, 0], [-3, -4]]):
        assert collection.insert(Doc(str(number), vectors={"place": vector})).ok()
    return collection


def scores(collection, radius):
    query = Query("place", vector=[3, 4], param=HnswQueryParam(radius=radius))
    return sorted(hit.score for hit in collection.query(query, topk=9))


products, distances = filled(MetricType.IP), filled(MetricType.L2)
for radius in (30.0, 1.0, -1.0):
    print("inner products from", radius, scores(products, radius))
for radius in (30.0, 1.0, 0.0):
    print("squared distances up to", radius, scores(distances, radius))
assert scores(products, 30.0) == [50.0]
assert scores(products, 1.0) == [25.0, 50.0]
assert scores(products, -1.0) == [-25.0, 0.0, 25.0, 50.0]
assert scores(distances, 30.0) == [0.0, 25.0, 25.0]
assert scores(distances, 1.0) == [0.0]
assert scores(distances, 0.0) == [0.0, 25.0, 25.0, 100.0]
PY
