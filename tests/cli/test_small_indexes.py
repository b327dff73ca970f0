"""Every command that reads an index answers for one without codes, and with one or few codes."""

import numpy as np
import pytest
from helpers.common import example, uniform

import dpindex as dpi
from dpindex.mechanism.method_table import find_method

KINDS = {
    "numbers": "dp-oporp-staircase",
    "signs": "dp-signoporp-geometric",
    "symbols": "record-codebook",
    "softmax": "codebook-softmax",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_info_and_query(run, prints, tmp_path, kind, count):
    index = dpi.PrivateIndex(example(find_method(KINDS[kind])))
    vectors = uniform(5, 24)
    if count:
        index.add(vectors[:count])
    index.save(tmp_path / "index")
    np.save(tmp_path / "queries.npy", vectors)
    for option in ("", "--statement", "--json"):
        prints(f"info index {option}")
    query = "query index queries.npy -k 2 --query exact"
    if count:
        prints(query)
    else:
        code, _, error = run(query)
        assert code == 2
        assert "the index is empty" in error
