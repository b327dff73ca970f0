#!/usr/bin/env bash
# qdrant-client 1.20.0, local mode: a point whose score equals score_threshold is left out.
#
# The threshold is a stored score, 8 by dot product. The same point is found without a threshold, and
# with the next smaller float.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qdrant-client==1.20.0
"$folder/venv/bin/python" - <<'PY'
import math

from qdrant_client import QdrantClient, models

client = QdrantClient(":memory:")
dot = models.VectorParams(size=8, distance=models.Distance.DOT)
client.create_collection("points", vectors_config=dot)
client.upsert("points", [models.PointStruct(id=1, vector=[1.0] * 8)])

def found(threshold):
    answer = client.query_points("points", query=[1.0] * 8, score_threshold=threshold)
    return [point.score for point in answer.points]

counts = found(None), found(8.0), found(math.nextafter(8.0, 0.0))
print("no threshold:", counts[0], " 8:", counts[1], " just below 8:", counts[2])
assert counts == ([8.0], [], [8.0])
PY
