#!/usr/bin/env bash
# nanopq 0.2.2: PQ.fit seeds the generator of numpy.random, and what is drawn afterwards is the same in every run.
#
# The seed of fit is 123 unless another is given, and it is set for the whole process. Laplace noise that is drawn after
# the training is the same whether the program had seeded the generator with one number, another, or from the system.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nanopq==0.2.2 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from nanopq import PQ

rows = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)


def noise(seed, train):
    np.random.seed(seed)
    if train:
        PQ(M=2, Ks=16, verbose=False).fit(rows)
    return np.random.laplace(size=3).round(3).tolist()


for seed in (1, 2, None):
    print("seed", seed, "| without training", noise(seed, False), "| after it", noise(seed, True))
assert noise(1, False) != noise(2, False)
assert noise(None, False) != noise(None, False)
assert noise(1, True) == noise(2, True) == noise(None, True)
PY
