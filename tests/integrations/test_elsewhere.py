"""Codes in a store that dpindex has no adapter for: the page runs as it is typed."""

import re

import numpy as np
import pytest
from helpers.common import known_noise
from helpers.documents import section

PAGE = section("databases.md", "## Any other store")


@pytest.mark.slow
@known_noise
@pytest.mark.extra
def test_the_page_runs_as_it_is_typed():
    pytest.importorskip("qdrant_client", reason="needs pip install qdrant-client")
    names = {}
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
    exact = names["exact"]
    assert exact.ids[0, 0] == 7
    np.testing.assert_array_equal(exact.stderr, 0)
    truth = names["vectors"][names["hits"].ids[0]] @ names["query"][0]
    truth /= np.linalg.norm(names["vectors"][names["hits"].ids[0]], axis=1)
    truth /= np.linalg.norm(names["query"])
    error = names["hits"].unbiased[0] - truth
    assert (np.abs(error[:1]) < 5 * names["hits"].unbiased_stderr[0, :1]).all()
