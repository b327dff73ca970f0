#!/usr/bin/env bash
# pure-ldp 1.2.0: the private count sketch estimates 4600 of 10 000 people at epsilon 1, and 7600 at epsilon 2.
#
# A report keeps its sign with a chance of e^ε / (1 + e^ε). The server adds the signs up and divides by nothing, so that
# every estimate is (e^ε - 1) / (e^ε + 1) of what it should be. The count-mean sketch of the same package divides. The
# documentation calls both estimates of a frequency. Dividing by that factor helps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pure-ldp==1.2.0 xxhash==3.5.0 numpy==2.2.6 scipy==1.15.3 scikit-learn==1.6.1 \
  statsmodels==0.15.0
"$folder/venv/bin/python" -W error -W ignore::DeprecationWarning - <<'PY'
import random
from math import exp

import numpy as np
from pure_ldp.frequency_oracles.priv_count_sketch import PCSClient, PCSServer

random.seed(0)
np.random.seed(0)
for epsilon in (1, 2, 6):
    server = PCSServer(epsilon, 16, 64, use_median=False)
    client = PCSClient(epsilon, 16, 64, server.get_hash_funcs())
    for number in range(20_000):
        server.aggregate(client.privatise("common" if number < 10_000 else f"rare {number}"))
    estimate = server.estimate("common", suppress_warnings=True)
    factor = (exp(epsilon) - 1) / (exp(epsilon) + 1)
    print(f"epsilon {epsilon}: {estimate:.0f} for 10000, which is {estimate / factor:.0f} if divided by {factor:.2f}")
    assert abs(estimate - 10_000 * factor) < 1000
PY
