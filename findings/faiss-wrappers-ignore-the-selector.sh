#!/usr/bin/env bash
# faiss-cpu 1.15.1: a selector of ids in the search parameters of a refined or transformed index is not applied.
#
# SearchParameters.sel is described as the only ids that are considered. SearchParametersPreTransform and
# IndexRefineSearchParameters have it too, take it, and find rows outside of it. Put into the parameters of the index
# inside, the same selector is applied. No error and no page says that it has to be there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet faiss-cpu==1.15.1 numpy==2.2.6
"$folder/venv/bin/python" - <<'PY'
import faiss
import numpy as np

rows = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
print("sel:", faiss.SearchParameters.sel.__doc__)
first = faiss.IDSelectorRange(0, 100)
inner = faiss.SearchParameters(sel=first)
cases = {
    "PCA8,Flat": (
        faiss.SearchParametersPreTransform(sel=first),
        faiss.SearchParametersPreTransform(index_params=inner),
    ),
    "SQ8,RFlat": (
        faiss.IndexRefineSearchParameters(sel=first, k_factor=4),
        faiss.IndexRefineSearchParameters(base_index_params=inner, k_factor=4),
    ),
}
for factory, parameters in cases.items():
    index = faiss.index_factory(16, factory)
    index.train(rows)
    index.add(rows)
    free = index.search(rows[500:505], 5)[1]
    outer, inside = (index.search(rows[500:505], 5, params=given)[1] for given in parameters)
    print(f"{factory}: with ids below 100 selected, the largest is {outer.max()}; selected inside, {inside.max()}")
    assert np.array_equal(outer, free) and outer.max() >= 500
    assert 0 <= inside.min() and inside.max() < 100
PY
