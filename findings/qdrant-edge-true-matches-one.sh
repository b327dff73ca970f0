#!/usr/bin/env bash
# qdrant-edge-py 0.9.0 and qdrant-client 1.20.0: MatchValue(True) finds the rows that hold 1, and none that holds True.
#
# The type of its value is given as str, int or bool. True becomes the whole number 1, and False becomes 0, so that no
# filter on a bool finds anything, and must_not leaves nothing out. The local mode of qdrant-client tells the two apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qdrant-edge-py==0.9.0 qdrant-client==1.20.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import tempfile

import qdrant_edge as edge
from qdrant_client import QdrantClient, models

values = [True, False, 1, 0]
client = QdrantClient(":memory:")
client.create_collection("rows", vectors_config=models.VectorParams(size=1, distance=models.Distance.DOT))
client.upsert("rows", [models.PointStruct(id=k, vector=[1.0], payload={"v": v}) for k, v in enumerate(values)])
vectors = edge.EdgeVectorParams(size=1, distance=edge.Distance.Dot)
with tempfile.TemporaryDirectory() as folder:
    shard = edge.EdgeShard.create(f"{folder}/shard", edge.EdgeConfig(vectors=vectors))
    points = [edge.Point(id=k, vector=[1.0], payload={"v": v}) for k, v in enumerate(values)]
    shard.update(edge.UpdateOperation.upsert_points(points))
    for value in values:
        wanted = models.FieldCondition(key="v", match=models.MatchValue(value=value))
        local, _ = client.scroll("rows", models.Filter(must=[wanted]))
        condition = edge.FieldCondition("v", match=edge.MatchValue(value))
        found = {}
        for word in ("must", "must_not"):
            request = edge.ScrollRequest(limit=9, filter=edge.Filter(**{word: [condition]}))
            found[word] = [point.payload["v"] for point in shard.scroll(request)[0]]
        print(value, "finds", found["must"], "and not", found["must_not"], "| local mode", local[0].payload["v"])
        assert [point.payload["v"] is value for point in local] == [True]
        assert len(found["must"]) == 1 and type(found["must"][0]) is int and found["must"][0] == int(value)
        assert len(found["must_not"]) == 3
PY
