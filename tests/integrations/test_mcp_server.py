"""The example of an MCP server, asked by the client of its own package."""

import asyncio
import json

import pytest
from helpers.common import filled_index, uniform

import dpindex as dpi

mcp = pytest.importorskip(
    "mcp",
    reason="needs pip install mcp",
    exc_type=ImportError,
)


@pytest.mark.extra
def test_an_agent_searches_and_reads_what_is_protected(monkeypatch):
    from mcp_server import make_server

    vectors = uniform(50, 16)
    spec = dpi.Spec(
        "dp-oporp-staircase",
        16,
        k=16,
        epsilon=64.0,
        adjacency=dpi.attribute(0.1),
    )
    index = filled_index(spec, vectors, [f"row {i}" for i in range(50)])
    asked = []
    search = index.search

    def watched(*args, **options):
        asked.append(options["query"])
        return search(*args, **options)

    monkeypatch.setattr(index, "search", watched)
    server = make_server(index, lambda text: vectors[int(text)])

    async def ask():
        async with mcp.Client(server) as client:
            offered = await client.list_tools()
            found = await client.call_tool("search", {"text": "7", "k": 3})
            facts = await client.call_tool("describe", {})
        tools = {tool.name: tool.description for tool in offered.tools}
        assert set(tools) == {"search", "describe"}
        assert str(spec.guarantee) in tools["search"]
        hits = found.structured_content["result"]
        assert hits[0]["id"] == "row 7"
        assert len(hits) == 3
        assert json.loads(facts.content[0].text)["records"] == 50
        for answer, hit in zip(found.content, hits, strict=True):
            assert json.loads(answer.text, parse_constant=pytest.fail) == hit
        json.dumps(found.structured_content, allow_nan=False)

    asyncio.run(ask())
    assert asked == ["private"]
