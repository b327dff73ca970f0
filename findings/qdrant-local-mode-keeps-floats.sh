#!/usr/bin/env bash
# qdrant-client 1.20.0 and qdrant-edge-py 0.9.0: in a collection of bytes, local mode keeps and compares floats.
#
# VectorParams(datatype=UINT8) says how vectors are stored, and that values shall be from 0 to 255. Qdrant's own engine,
# here as edge, keeps 1.9 as 1. Local mode takes the same setting and keeps 1.9, so that a test with it finds another
# nearest row, and tells rows apart that are one to the engine. Its documentation says that it can do everything that the
# server can, and not that types are left out. Round vectors before they are stored, and both agree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qdrant-client==1.20.0 qdrant-edge-py==0.9.0
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import qdrant_edge as edge
from qdrant_client import QdrantClient, models

rows = {1: [1.9, 0.0], 2: [1.0, 0.4], 3: [254.9, 0.0], 4: [254.0, 0.0]}
client = QdrantClient(":memory:")
vectors = models.VectorParams(size=2, distance=models.Distance.EUCLID, datatype=models.Datatype.UINT8)
client.create_collection("rows", vectors_config=vectors)
client.upsert("rows", [models.PointStruct(id=row, vector=vector) for row, vector in rows.items()])
points, _ = client.scroll("rows", with_vectors=True)
local = {point.id: point.vector for point in points}

vectors = edge.EdgeVectorParams(size=2, distance=edge.Distance.Euclid, datatype=edge.VectorStorageDatatype.Uint8)
shard = edge.EdgeShard.create(sys.argv[1] + "/shard", edge.EdgeConfig(vectors=vectors))
shard.update(edge.UpdateOperation.upsert_points([edge.Point(id=k, vector=v, payload={}) for k, v in rows.items()]))
kept = {point.id: point.vector for point in shard.scroll(edge.ScrollRequest(limit=9, with_vector=True))[0]}

print("local mode:", local)
print("edge:", kept)
assert [round(local[row][0], 3) for row in rows] == [1.9, 1, 254.9, 254]
assert list(kept.values()) == [[1, 0], [1, 0], [254, 0], [254, 0]]
nearest = [(hit.id, round(hit.score, 3)) for hit in client.query_points("rows", query=[2.0, 0.0], limit=2).points]
request = edge.SearchRequest(query=edge.Query.Nearest([2.0, 0.0]), limit=2)
engine = [(hit.id, round(hit.score, 3)) for hit in shard.search(request)]
print("nearest to 2, 0 in local mode:", nearest, "and in edge:", engine)
assert nearest == [(1, 0.1), (2, 1.077)]
assert sorted(engine) == [(1, 1.0), (2, 1.0)]
PY
