#!/usr/bin/env bash
# pynndescent 0.7.0: metric="dot" finds neighbours by cosine, and not by the product that it is named after.
#
# The rows are divided by their lengths without a word. [1, 0, 0] is its own first answer, at distance 0. The row
# [9, 3, 0], whose product with it is nine times as large, is behind 50 others. Its "inner_product" finds that row.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pynndescent==0.7.0 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from pynndescent import NNDescent

angles = np.linspace(0, 0.3, 50)
near = np.stack([np.cos(angles), np.sin(angles), np.zeros(50)], 1)
far = np.random.default_rng(0).normal(size=(100, 3)) - [2, 0, 0]
rows = np.concatenate([near, [[9, 3, 0]], far]).astype(np.float32)
query = rows[:1]
products = rows @ query[0]
cosines = products / np.linalg.norm(rows, axis=1)
found, distances = NNDescent(rows, metric="dot", n_neighbors=20, random_state=1).query(query, k=10, epsilon=0.5)
print("largest products:", np.argsort(-products)[:3].tolist(), (-np.sort(-products)[:3]).round(3).tolist())
print("found:", found[0].tolist(), distances[0].round(4).tolist())
print("1 - cosine of these:", (1 - cosines[found[0]]).round(4).tolist())
assert np.argmax(products) == 50
assert found[0][0] == 0 and 50 not in found[0]
assert np.allclose(distances[0], 1 - cosines[found[0]], atol=1e-5)
PY
