#!/usr/bin/env bash
# ranx 0.3.21: fuse(method="condorcet") gives another ranking in every run, and puts a document below one that it beats.
#
# Three lists rank different documents, so that a is above b in the one list that holds them. The other two, which hold
# neither, count for whichever of the pair is asked about second. The candidates come out of a set of strings, whose
# order is another whenever Python starts. The documentation names the paper, and not that the result depends on chance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet ranx==0.3.21 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import os
import subprocess
import sys

program = """
from ranx import Run, fuse

lists = {"a": 3.0, "b": 2.0, "c": 1.0}, {"d": 2.0, "e": 1.0}, {"f": 2.0, "g": 1.0}
fused = fuse([Run({"query": scores}) for scores in lists], norm=None, method="condorcet")
print("".join(fused.run["query"]))
"""
rankings = []
wrong = []
for seed in ("0", "1", "2"):
    # The rankings are the same with Numba's compilation, which takes a minute.
    environment = {**os.environ, "PYTHONHASHSEED": seed, "NUMBA_DISABLE_JIT": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    ranking = ended.stdout.strip()
    rankings.append(ranking)
    pairs = [f"{low} above {high}" for high, low in ("ab", "ac", "bc", "de", "fg")]
    against = [pair for pair in pairs if ranking.index(pair[0]) < ranking.index(pair[-1])]
    wrong.append(against)
    print("fused:", ranking, "| against every list that has both:", ", ".join(against) or "none")
    assert sorted(ranking) == list("abcdefg")
assert len(set(rankings)) > 1
assert any(wrong)
PY
