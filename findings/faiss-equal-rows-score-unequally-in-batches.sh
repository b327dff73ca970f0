#!/usr/bin/env bash
# faiss-cpu 1.15.1: rows that are equal get scores that differ in the last digit, in a batch of queries.
#
# From some batch size on, IndexFlatIP multiplies matrices, and a product depends on the place of a
# row. One query alone is compared row by row, and gives equal rows equal scores. So the order of ties
# depends on how many queries are asked at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np

rng = np.random.default_rng(0)
kinds = rng.normal(size=(40, 63)).astype(np.float32)
rows = np.repeat(kinds, 25, axis=0)
queries = rng.normal(size=(3000, 63)).astype(np.float32)
index = faiss.IndexFlatIP(63)
index.add(rows)


def unequal(scores, ids):
    """Share of groups of equal rows that have several scores."""
    kind = ids // 25
    return np.mean([
        len(set(scores[q][kind[q] == k].tolist())) > 1 for q in range(len(ids)) for k in range(40)
    ])


together = unequal(*index.search(queries, len(rows)))
alone = unequal(*map(np.concatenate, zip(*[index.search(q[None], len(rows)) for q in queries[:50]])))
print(f"groups of equal rows with unequal scores: {together:.3f} together, {alone:.3f} alone")
assert alone == 0 < together
PY
