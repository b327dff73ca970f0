#!/usr/bin/env bash
# ranx 0.3.21: rank-biased precision comes out at 2.9 where documents have grades up to 3.
#
# Its documentation has a document count as 0 or 1. The code counts its grade, so that a measure between 0 and 1 depends
# on the scale of the judgments: the same ones as 0 and 1 give 0.97, as does RBP(rel=1) of ir-measures by cwl-eval for
# either. Precision and average precision of ranx count 0 or 1. Give it judgments of 0 and 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ranx==0.3.21 ir-measures==0.4.3 cwl-eval==1.0.12 numpy==2.2.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import ir_measures
from ir_measures import RBP
from ranx import Qrels, Run, evaluate

ranking = {"q": {f"d{place}": 100.0 - place for place in range(16)}}
for grade in (1, 3):
    judgments = {"q": {f"d{place}": grade for place in range(16)}}
    by_ranx = evaluate(Qrels(judgments), Run(ranking), ["rbp.80", "precision@10", "map"])
    other = ir_measures.calc_aggregate([RBP(p=0.8, rel=1)], judgments, ranking)[RBP(p=0.8, rel=1)]
    print(f"grades of {grade}:", {name: float(value) for name, value in by_ranx.items()}, "cwl-eval:", other)
    assert abs(by_ranx["rbp.80"] - grade * (1 - 0.8**16)) < 1e-9
    assert by_ranx["precision@10"] == by_ranx["map"] == 1
    assert abs(other - (1 - 0.8**16)) < 1e-6
PY
