#!/usr/bin/env bash
# qdrant-client 1.20.0 and qdrant-edge-py 0.9.0: where two lists differ, the one with the smaller weight decides.
#
# Both say of the weights of reciprocal rank fusion that a higher one has more influence. Row 1 is first in one list and
# row 2 in the other. With equal weights they tie; with weight 3 or 1000 on the first list, row 2 wins. The weight
# divides the rank, and does not multiply the share, so that a heavy list rates all its rows much the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qdrant-edge-py==0.9.0 qdrant-client==1.20.0 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import tempfile

import qdrant_edge as edge
from qdrant_client import QdrantClient, models

rows = {1: [3.0, 2.0], 2: [2.0, 3.0], 3: [1.0, 1.0]}
queries = [1.0, 0.0], [0.0, 1.0]
print("weights:", models.Rrf.model_fields["weights"].description.split(". ")[1])
client = QdrantClient(":memory:")
client.create_collection("rows", vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
client.upsert("rows", [models.PointStruct(id=k, vector=v) for k, v in rows.items()])
lists = [models.Prefetch(query=query, limit=3) for query in queries]
vectors = edge.EdgeVectorParams(size=2, distance=edge.Distance.Dot)
with tempfile.TemporaryDirectory() as folder:
    shard = edge.EdgeShard.create(f"{folder}/shard", edge.EdgeConfig(vectors=vectors))
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(id=k, vector=v) for k, v in rows.items()]))
    fetches = [edge.Prefetch(limit=3, query=edge.Query.Nearest(query)) for query in queries]
    for weights, first in (([1.0, 1.0], None), ([3.0, 1.0], 2), ([1000.0, 1.0], 2), ([1.0, 3.0], 1)):
        for k in (2, 60):
            fusion = models.RrfQuery(rrf=models.Rrf(k=k, weights=weights))
            local = client.query_points("rows", prefetch=lists, query=fusion, limit=3).points
            request = edge.QueryRequest(limit=3, query=edge.Fusion.Rrf(k, weights), prefetches=fetches)
            for name, found in (("local", local), ("edge ", shard.query(request))):
                scores = {point.id: round(point.score, 4) for point in found}
                print(name, "k", k, "weights", weights, "scores", scores)
                assert list(scores)[0] == first or (first is None and scores[1] == scores[2])
PY
