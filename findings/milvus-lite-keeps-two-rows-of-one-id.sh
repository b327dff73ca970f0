#!/usr/bin/env bash
# milvus-lite 2.5.1: an insert of a primary key that is there keeps both rows, and a search loses a hit.
#
# The second insert succeeds. The collection then counts four rows of three ids. A search for the three
# nearest returns two ids: the second row of the same id takes the place of the third.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet milvus-lite==2.5.1 pymilvus==2.5.18 'setuptools<82'
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
from pymilvus import DataType, MilvusClient

client = MilvusClient("t.db")
schema = client.create_schema()
schema.add_field("id", DataType.INT64, is_primary=True)
schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
params = client.prepare_index_params()
params.add_index("v", index_type="FLAT", metric_type="L2")
client.create_collection("t", schema=schema, index_params=params, consistency_level="Strong")
client.insert("t", [{"id": i, "v": [float(i), 0.0]} for i in range(3)])
client.insert("t", [{"id": 1, "v": [9.0, 9.0]}])
rows = client.query("t", filter="", output_fields=["count(*)"])[0]["count(*)"]
hits = client.search("t", [[9.0, 9.0]], limit=3)[0]
found = {hit["id"]: hit["distance"] for hit in hits}
print("rows:", rows, " the three nearest of three ids:", found)
assert rows == 4
assert sorted(found) == [1, 2]
PY
