#!/usr/bin/env bash
# numkong 7.8.6: jaccard of sorted arrays of ids compares them place by place, and not as sets.
#
# Its documentation has it divide the ids in common by all ids. The ids 1 to 20 and 11 to 30 have a third in common, and
# the answer is 1.0, since no place holds the same id in both. Arrays with one id of seven in common give 0.75.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numkong==7.8.6 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import numkong
import numpy as np

pairs = [
    (range(1, 21), range(11, 31)),
    ([1, 2, 3, 4], [1, 5, 6, 7]),
    ([1, 2, 3, 4], [0, 1, 2, 3]),
]
answers = []
for one, other in pairs:
    answer = numkong.jaccard(np.array(one, np.uint32), np.array(other, np.uint32))
    share = len(set(one) & set(other)) / len(set(one) | set(other))
    places = sum(a != b for a, b in zip(one, other, strict=True)) / len(one)
    answers.append(answer)
    print(f"answer {answer} | in common {share:.3f} | places that differ {places}")
    assert answer == places
    assert min(abs(answer - share), abs(answer - (1 - share))) > 0.1
assert answers == [1.0, 0.75, 1.0]
PY
