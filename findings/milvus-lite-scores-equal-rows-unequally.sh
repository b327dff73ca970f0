#!/usr/bin/env bash
# milvus-lite 3.2.2: under IP, rows that are equal get scores that differ in the last digit.
#
# It multiplies matrices, and an entry of a product depends on the place of its row: by the kernels for
# AVX2, which are taken here, and not by those for AVX-512. So a search does not find the lowest ids of
# those that tie. Milvus Lite 2.5.1 does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet milvus-lite==3.2.2 pymilvus==3.0.2 numpy==2.4.6
cd "$folder"
OPENBLAS_CORETYPE=Haswell "$folder/venv/bin/python" - <<'PY'
import numpy as np
from pymilvus import DataType, MilvusClient

rng = np.random.default_rng(0)
kinds = rng.choice([-1.0, 1.0], (40, 63)).astype(np.float32)
rows = np.repeat(kinds, 25, axis=0)
queries = rng.normal(size=(26, 63)).astype(np.float32)
client = MilvusClient("t.db")
schema = client.create_schema()
schema.add_field("id", DataType.INT64, is_primary=True)
schema.add_field("v", DataType.FLOAT_VECTOR, dim=63)
params = client.prepare_index_params()
params.add_index("v", index_type="FLAT", metric_type="IP")
client.create_collection("t", schema=schema, index_params=params, consistency_level="Strong")
client.insert("t", [{"id": i, "v": row.tolist()} for i, row in enumerate(rows)])
scores = {}
for number, hits in enumerate(client.search("t", queries.tolist(), limit=1000)):
    for hit in hits:
        scores.setdefault((number, hit["id"] // 25), set()).add(hit["distance"])
unequal = sum(len(each) > 1 for each in scores.values())
print(f"groups of 25 equal rows with unequal scores: {unequal} of {len(scores)}")
assert 0 < unequal < len(scores)
PY
