"""Every command that reads an index answers for one without codes, and with one or few codes."""

import numpy as np
import pytest
from helpers.specs import example

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
def test_info_and_query(run, tmp_path, kind, count):
    index = dpi.PrivateIndex(example(find_method(KINDS[kind])))
    vectors = np.random.default_rng(0).uniform(0, 1, (5, 24))
    if count:
        index.add(vectors[:count])
    index.save(tmp_path / "index")
    np.save(tmp_path / "queries.npy", vectors)
    for command in (
        ["info", "index"],
        ["info", "index", "--statement"],
        ["info", "index", "--json"],
    ):
        assert run(*command)[0] == 0
    answer = run("query", "index", "queries.npy", "-k", 2, "--query", "exact")
    if count:
        assert answer[0] == 0
    else:
        code, _, error = answer
        assert code == 2
        assert "the index is empty" in error
