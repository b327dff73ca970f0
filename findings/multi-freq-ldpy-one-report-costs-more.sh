#!/usr/bin/env bash
# multi-freq-ldpy 0.2.5: RS+FD with three attributes at epsilon 1 tells two people apart as only epsilon 1.8 allows.
#
# A person sends one attribute by randomized response, and fakes for the others. As nobody is told which one it was, the
# client takes the larger epsilon log(3 (e - 1) + 1) for it, as if people had been sampled. Two people who differ in all
# attributes are told apart by any of them: "0, 0, 0" is 6.1 times as likely from one as from the other, and e = 2.7 is
# the most. The documentation calls epsilon the privacy guarantee of a user's tuple. For people who differ in one
# attribute it holds. For whole tuples, ask for log(1 + (exp(epsilon) - 1) / attributes) instead of epsilon.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet multi-freq-ldpy==0.2.5 numba==0.68.1 numpy==2.2.6 scipy==1.15.3 xxhash==3.5.0
"$folder/venv/bin/python" -W error - <<'PY'
from math import e, exp, log

import numpy as np
from multi_freq_ldpy.mdim_freq_est.RSpFD_solution import RSpFD_GRR_Client

np.random.seed(0)
attributes, epsilon, reports = 3, 1.0, 100_000
likelihood = {}
for person in ((0, 0, 0), (0, 0, 1), (1, 1, 1)):
    sent = [tuple(RSpFD_GRR_Client(person, [2] * attributes, attributes, epsilon)) for _ in range(reports)]
    likelihood[person] = sent.count((0, 0, 0)) / reports
    print(f"{person} sends 0, 0, 0 in {likelihood[person]:.2%} of {reports} reports")
taken = log(attributes * (exp(epsilon) - 1) + 1)
ratios = [likelihood[0, 0, 0] / likelihood[other] for other in ((0, 0, 1), (1, 1, 1))]
print(f"ratios {ratios[0]:.2f} and {ratios[1]:.2f}; e = {e:.2f}, and exp({taken:.2f}) = {exp(taken):.2f}")
assert ratios[0] < e
# 3.4 % of 100 000 reports is known to .06 %, so that a ratio of e is forty standard deviations away.
assert 5.5 < ratios[1] < 7
PY
