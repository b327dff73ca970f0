#!/usr/bin/env bash
# nanopq 0.2.2 and faiss-cpu 1.15.1: of an index with codes of four bits, faiss_to_nanopq gives half the rows.
#
# Faiss keeps two such codes in a byte. The bytes are taken for codes, so that 300 rows become 150, and codes that
# should be below 16 go up to 255. With eight bits all 300 rows are there.
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


def converted(bits):
    index = faiss.IndexPQ(4, 2, bits)
    index.pq.cp.min_points_per_centroid = 1
    index.train(rows)
    index.add(rows)
    quantizer, codes = nanopq.faiss_to_nanopq(index)
    print(f"{bits} bits: {len(codes)} rows of {len(rows)}, Ks {quantizer.Ks}, largest code {codes.max()}")
    return quantizer, codes


quantizer, codes = converted(8)
assert codes.shape == (300, 2)
quantizer, codes = converted(4)
assert codes.shape == (150, 2)
assert quantizer.Ks == 16 <= codes.max()
PY
