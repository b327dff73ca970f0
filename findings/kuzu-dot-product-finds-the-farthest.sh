#!/usr/bin/env bash
# kuzu 0.11.3: a vector index with metric "dotproduct" finds the rows with the smallest products, the opposite of all.
#
# The column named distance is the product itself, and the smallest are taken as the nearest. Of a hundred rows on both
# sides of zero the five that are found have the most negative products, and no order of the answer brings the largest
# back. The metrics l2 and cosine are right. The documentation lists the metric and says no more of it. An order by
# array_dot_product over all rows finds the right ones, and rows of length one can be searched by cosine.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kuzu==0.11.3 numpy==2.2.6
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import kuzu
import numpy as np

rows = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
connection = kuzu.Connection(kuzu.Database(sys.argv[1] + "/data"))
connection.execute("CREATE NODE TABLE Item(id INT64, v FLOAT[4], PRIMARY KEY(id))")
for number, row in enumerate(rows):
    connection.execute("CREATE (:Item {id: $id, v: $v})", {"id": number, "v": row.tolist()})


def answer(statement, parameters=None):
    result = connection.execute(statement, parameters or {})
    return [result.get_next() for _ in range(result.get_num_tuples())]


query = rows[0]
products = rows @ query
expected = {
    "l2": np.argsort(((rows - query) ** 2).sum(axis=1)),
    "cosine": np.argsort(-products / np.linalg.norm(rows, axis=1)),
    "dotproduct": np.argsort(-products),
}
for metric, order in expected.items():
    connection.execute(f"CALL CREATE_VECTOR_INDEX('Item', 'by_{metric}', 'v', metric := '{metric}')")
    call = f"CALL QUERY_VECTOR_INDEX('Item', 'by_{metric}', $query, 5) RETURN node.id, distance ORDER BY distance"
    hits = answer(call, {"query": query.tolist()})
    ids = [hit[0] for hit in hits]
    print(f"{metric}: {ids} at {[round(hit[1], 2) for hit in hits]}; nearest {order[:5]}, farthest {order[:-6:-1]}")
    assert ids == list(order[:5] if metric != "dotproduct" else order[:-6:-1])
scan = "MATCH (i:Item) RETURN i.id ORDER BY array_dot_product(i.v, CAST($query, 'FLOAT[4]')) DESC LIMIT 5"
print("by array_dot_product:", [hit[0] for hit in answer(scan, {"query": query.tolist()})])
assert [hit[0] for hit in answer(scan, {"query": query.tolist()})] == list(expected["dotproduct"][:5])
PY
