#!/usr/bin/env bash
# Milvus Lite 2.5.1: a row whose number is NaN is "in" every list, and == finds it equal to none of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet milvus-lite==2.5.1 pymilvus==3.0.2 "setuptools<81"
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
from pymilvus import DataType, MilvusClient

client = MilvusClient("rows.db", timeout=120)
schema = client.create_schema(auto_id=False)
schema.add_field("id", DataType.INT64, is_primary=True)
schema.add_field("price", DataType.DOUBLE)
schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
parameters = client.prepare_index_params()
parameters.add_index("vector", metric_type="L2", index_type="FLAT")
client.create_collection("rows", schema=schema, index_params=parameters)
prices = [0.5, 1.5, float("nan")]
client.insert("rows", [{"id": row, "price": price, "vector": [1, row]} for row, price in enumerate(prices)])
found = {}
for condition in ("price in [0.5]", "price == 0.5", "price in [7.0]", "price not in [0.5]"):
    rows = client.query("rows", filter=condition, output_fields=["id"])
    found[condition] = sorted(row["id"] for row in rows)
    print(f"{condition}: rows {found[condition]}")
assert [*found.values()] == [[0, 2], [0], [2], [1]]
PY
