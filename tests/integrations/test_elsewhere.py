"""Codes in a store that dpindex has no adapter for: the page runs as it is typed."""

import numpy as np
import pytest
from helpers.common import known_noise, unit
from helpers.documents import code_blocks, section

PAGE = section("databases.md", "## Any other store")


@pytest.mark.slow
@known_noise
@pytest.mark.extra
def test_the_page_runs_as_it_is_typed():
    pytest.importorskip("qdrant_client", reason="needs pip install qdrant-client")
    names = {}
    blocks = code_blocks(PAGE, "py")
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
    exact = names["exact"]
    assert exact.ids[0, 0] == 7
    np.testing.assert_array_equal(exact.stderr, 0)
    hits = names["hits"]
    found = unit(names["vectors"][hits.ids[0, :1]])
    truth = found @ unit(names["query"])[0]
    error = hits.unbiased[0, :1] - truth
    assert (np.abs(error) < 5 * hits.unbiased_stderr[0, :1]).all()
