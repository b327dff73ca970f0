#!/usr/bin/env bash
# milvus-lite 2.5.1: `not (n > 1)` and `not (n in [1])` are refused, `n not in [1]` is not.
#
# A filter that negates a comparison parses, and fails as an unsupported node of the plan. The same
# condition written without `not` before a bracket works.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet milvus-lite==2.5.1 pymilvus==2.5.18 'setuptools<82'
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

client = MilvusClient("t.db")
schema = client.create_schema()
schema.add_field("id", DataType.INT64, is_primary=True)
schema.add_field("n", DataType.INT64)
schema.add_field("v", DataType.FLOAT_VECTOR, dim=2)
params = client.prepare_index_params()
params.add_index("v", index_type="FLAT", metric_type="L2")
client.create_collection("t", schema=schema, index_params=params, consistency_level="Strong")
client.insert("t", [{"id": i, "n": i, "v": [float(i), 0.0]} for i in range(3)])


def answer(text):
    try:
        return sorted(row["id"] for row in client.query("t", filter=text, output_fields=["id"]))
    except MilvusException:
        return "refused"


said = {text: answer(text) for text in ("n <= 1", "n not in [1]", "not (n > 1)", "not (n in [1])")}
print(said)
assert said == {
    "n <= 1": [0, 1], "n not in [1]": [0, 2], "not (n > 1)": "refused", "not (n in [1])": "refused",
}
PY
