#!/usr/bin/env bash
# pure-ldp 1.2.0: its RAPPOR turns no bit of a person's own item off, so that most reports leave one item possible.
#
# RAPPOR sends each bit of a Bloom filter as it is or at random. This client sets zeros to ones at random, and leaves
# every one as it is: an item with a zero among its bits is not the person's. The server states epsilon 4.39 for f = 0.5
# and two hash functions, by which no report may rule an item out. Among eight items, two thirds of the reports rule out
# all but the right one. Only the README names the protocol, and no page says that this one is another.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pure-ldp==1.2.0 xxhash==3.5.0 numpy==2.2.6 scipy==1.15.3 scikit-learn==1.6.1 \
  statsmodels==0.15.0
"$folder/venv/bin/python" -W ignore - <<'PY'
import random

from pure_ldp.frequency_oracles.rappor import RAPPORClient, RAPPORServer

random.seed(0)
server = RAPPORServer(f=0.5, m=64, k=2, d=8, num_of_cohorts=4)
families = server.get_hash_funcs()
client = RAPPORClient(f=0.5, m=64, hash_funcs=families, num_of_cohorts=4)
item, reports = 3, 10_000
possible, alone = [0] * 8, 0
for _ in range(reports):
    bits, cohort = client.privatise(item)
    # Items count from 1, and what is hashed is their index from 0.
    left = [number for number in range(8) if all(bits[hashed(str(number))] for hashed in families[cohort])]
    alone += left == [item - 1]
    for number in left:
        possible[number] += 1
print(f"epsilon as stated: {server.epsilon:.2f}")
print(f"of {reports} reports of item {item}, those that have all bits of each item:", possible)
print(f"reports that leave that item alone: {alone / reports:.0%}")
assert possible[item - 1] == reports
assert sum(count < reports / 4 for count in possible) == 7
assert alone > reports / 2
PY
