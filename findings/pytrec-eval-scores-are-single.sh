#!/usr/bin/env bash
# pytrec-eval-terrier 0.5.11 and ranx 0.3.21: trec_eval ranks by single precision, so one run has two values of MRR.
#
# Scores that differ by one part in a hundred million, or whole numbers above 16 777 216, are equal to it. It then puts
# the later name first. ranx ranks the numbers that it is given: MRR is 1 by the one and 1/2 by the other.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pytrec-eval-terrier==0.5.11 ranx==0.3.21 numpy==2.2.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import pytrec_eval
import ranx

judged = {"query": {"a": 1}}


def values(best, second):
    run = {"query": {"a": best, "b": second}}
    by_trec = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank"}).evaluate(run)["query"]["recip_rank"]
    by_ranx = float(ranx.evaluate(ranx.Qrels(judged), ranx.Run(run), "mrr"))
    print("scores", best, "and", second, "| trec_eval:", by_trec, "| ranx:", by_ranx)
    return by_trec, by_ranx


assert values(0.9, 0.8) == (1, 1)
for best, second in ((0.99999999, 0.99999998), (16777217.0, 16777216.0), (-16777216.0, -16777217.0)):
    assert values(best, second) == (0.5, 1)
PY
