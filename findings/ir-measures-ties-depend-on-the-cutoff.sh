#!/usr/bin/env bash
# ir-measures 0.4.3: RR and RR@10 break ties the opposite way, so that RR@10 may be twice RR, in one call.
#
# Two documents have the same score and one is relevant. trec_eval, which computes RR, puts the later name first, and
# the code for RR@10 the earlier one. If the relevant one is "a", RR is 1/2 and RR@10 is 1; if it is "b", the reverse.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ir-measures==0.4.3 pytrec-eval-terrier==0.5.11 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import ir_measures
from ir_measures import RR, P

run = {"query": {"a": 1.0, "b": 1.0}}
for relevant, values in (("a", (0.5, 1)), ("b", (1, 0.5))):
    found = ir_measures.calc_aggregate([RR, RR @ 10, P @ 1], {"query": {relevant: 1}}, run)
    print("relevant:", relevant, {str(measure): value for measure, value in found.items()})
    assert (found[RR], found[RR @ 10]) == values
    assert found[P @ 1] == (relevant == "b")
alone = ir_measures.calc_aggregate([RR, RR @ 10], {"query": {"a": 1}}, {"query": {"a": 1.0, "b": 0.5}})
assert alone[RR] == alone[RR @ 10] == 1
PY
