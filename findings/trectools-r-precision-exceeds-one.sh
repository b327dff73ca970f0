#!/usr/bin/env bash
# trectools 0.0.50 and pandas 3.1.1: R-precision comes out above 1, without a word.
#
# pip installs the two together. Since pandas 3 the groups of a grouped table come without their key, so that rows lose
# their query, and documents are looked up in those of every query. Ten queries over the same documents give 2.5 where
# trec_eval gives 0.23. With pandas 2.2.3 it gives 0.23 as well. Precision and average precision are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet trectools==0.0.50 pandas==3.1.1 pytrec-eval-terrier==0.5.11 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import tempfile
import warnings

warnings.simplefilter("ignore")
import numpy as np
import pytrec_eval
from trectools import TrecEval, TrecQrel, TrecRun

rng = np.random.default_rng(0)
names = [f"d{number}" for number in range(30)]
qrels = {f"q{query}": {name: int(rng.random() < 0.3) for name in names} for query in range(10)}
run = {query: dict(zip(rng.permutation(names).tolist(), range(30, 0, -1))) for query in qrels}
with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/qrels", "w") as file:
        for query, grades in qrels.items():
            file.writelines(f"{query} 0 {name} {grade}\n" for name, grade in grades.items())
    with open(f"{folder}/run", "w") as file:
        for query, scores in run.items():
            file.writelines(f"{query} Q0 {name} {31 - score} {score} tag\n" for name, score in scores.items())
    tools = TrecEval(TrecRun(f"{folder}/run"), TrecQrel(f"{folder}/qrels"))
    found = {"Rprec": tools.get_rprec(), "map": tools.get_map(), "P_10": tools.get_precision(depth=10)}
floats = {query: {name: float(score) for name, score in scores.items()} for query, scores in run.items()}
every = pytrec_eval.RelevanceEvaluator(qrels, {"Rprec", "map", "P.10"}).evaluate(floats)
right = {name: np.mean([values[name] for values in every.values()]) for name in found}
for name in found:
    print(f"{name}: trectools {found[name]:.4f}, trec_eval {right[name]:.4f}")
    assert np.isclose(found[name], right[name]) == (name != "Rprec")
assert found["Rprec"] > 1 > right["Rprec"]
PY
