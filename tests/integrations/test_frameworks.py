"""The page on LlamaIndex and Haystack runs as it is typed."""

import numpy as np
import pytest
from helpers.documents import code_blocks, section

PAGE = section("databases.md", "## LlamaIndex and Haystack")
BLOCKS = code_blocks(PAGE, "py")


def embed(texts):
    """A vector for each text, the same each time."""
    seeds = [list(text.encode()) for text in texts]
    return [np.random.default_rng(seed).normal(size=384).tolist() for seed in seeds]


def run(number):
    """Names after the shared block and another one."""
    names = {"embed": embed}
    for block in (BLOCKS[0], BLOCKS[number]):
        exec(block, names)
    return names


def test_the_shared_part():
    names = {"embed": embed}
    exec(BLOCKS[0], names)
    (vector,) = embed(["Bob plays chess."])
    ((id, cosine),) = names["nearest"](vector, 1)
    assert id == "2"
    assert cosine == pytest.approx(1.0)


@pytest.mark.extra
def test_llama_index():
    pytest.importorskip("llama_index.core", reason="needs pip install llama-index-core")
    nodes = run(1)["nodes"]
    assert nodes[0].text == "Bob plays chess."
    assert nodes[0].score == pytest.approx(1.0)


@pytest.mark.extra
def test_haystack():
    pytest.importorskip("haystack", reason="needs pip install haystack-ai")
    documents = run(2)["documents"]
    assert documents[0].content == "Bob plays chess."
    assert len(documents) == 2
