#!/usr/bin/env bash
# pure-ldp 1.2.0: FastLHClient(3, 8, 500) and FastLHServer(3, 8, 500) do not fit, and 10 000 people are counted as 400.
#
# Both take the epsilon, the number of items and that of hash functions. By default the client hashes items to two
# values and the server to twenty-one, for use_olh is False in the one and True in the other. Nothing is said: reports
# are counted against other hashes. With the same use_olh in both, the estimate is right. LHClient and LHServer agree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pure-ldp==1.2.0 xxhash==3.5.0 numpy==2.2.6 scipy==1.15.3 scikit-learn==1.6.1 \
  statsmodels==0.15.0
"$folder/venv/bin/python" -W error - <<'PY'
import random

import numpy as np
from pure_ldp.frequency_oracles.local_hashing import FastLHClient, FastLHServer

random.seed(0)
np.random.seed(0)
items = [1] * 10_000 + [2 + number % 7 for number in range(10_000)]
for named in ({}, {"use_olh": True}, {"use_olh": False}):
    client, server = FastLHClient(3, 8, 500, **named), FastLHServer(3, 8, 500, **named)
    for item in items:
        server.aggregate(client.privatise(item))
    estimate = server.estimate(1, suppress_warnings=True)
    print(f"{named or 'defaults'}: hashed to {client.g} and {server.g} values, {estimate:.0f} for 10000")
    assert (client.g == server.g) == bool(named)
    assert abs(estimate - 10_000) < 1500 if named else estimate < 2000
PY
