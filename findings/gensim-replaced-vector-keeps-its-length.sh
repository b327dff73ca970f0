#!/usr/bin/env bash
# gensim 4.4.0: after a vector was replaced, its cosine similarity is 10.
#
# KeyedVectors keeps the lengths of its vectors from the first search on. A vector that is assigned to a key afterwards is
# divided by the length of the one before, so that (10, 0) has the cosine 10 with (1, 0) and comes before (1, 0) itself.
# similarity() of the two keys computes lengths anew and says 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet gensim==4.4.0 numpy==2.2.6 scipy==1.15.3
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from gensim.models import KeyedVectors

query = np.array([1, 0], np.float32)
words = KeyedVectors(2)
words.add_vectors(["east", "north"], np.array([[1, 0], [0, 1]], np.float32))
print("before:", words.most_similar([query]))
words["north"] = np.array([10, 0], np.float32)
after = words.most_similar([query])
print("after: ", after, "and similarity() says", float(words.similarity("east", "north")))
assert after == [("north", 10.0), ("east", 1.0)]
assert words.similarity("east", "north") == 1
PY
