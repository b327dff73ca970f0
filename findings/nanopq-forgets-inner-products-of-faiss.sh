#!/usr/bin/env bash
# nanopq 0.2.2 and faiss-cpu 1.15.1: faiss_to_nanopq turns an index by inner product into one by Euclidean distance.
#
# The other way the metric is kept: a PQ by inner product becomes an index by inner product, and that one, taken back,
# is by Euclidean distance. The nearest row is another one, and no option says which metric is meant.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nanopq==0.2.2 faiss-cpu==1.15.1 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import faiss
import nanopq
import numpy as np

rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
query = rows[0] / 2
before = nanopq.PQ(M=2, Ks=256, metric="dot", verbose=False).fit(rows)
index = nanopq.nanopq_to_faiss(before)
index.add(rows)
after, codes = nanopq.faiss_to_nanopq(index)
found = index.search(query[None], 1)[1][0, 0]
dots = before.dtable(query).adist(codes)
scores = after.dtable(query).adist(codes)
squares = ((after.decode(codes) - query) ** 2).sum(axis=1)
print("before:", before.metric, "| faiss:", index.metric_type == faiss.METRIC_INNER_PRODUCT and "inner product")
print("after:", after.metric, "| best row in faiss", found, "| smallest score after", scores.argmin())
assert index.metric_type == faiss.METRIC_INNER_PRODUCT
assert (before.metric, after.metric) == ("dot", "l2")
assert dots[found] == dots.max()
assert np.allclose(scores, squares, atol=1e-4)
assert found not in (scores.argmin(), scores.argmax())
PY
