"""The documents: their code runs, their commands and links exist, their numbers are right."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer.testing

import dpindex as dpi
from dpindex.cli import app
from dpindex.mechanism.projections import base

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
COOKBOOK = "docs/cookbook.md"
COMMANDS = (
    *("build", "privatize", "add", "denoise", "query", "info", "methods", "spec", "codebook"),
    *("publish", "plan", "evaluate", "explore", "demo", "audit", "ledger", "serve"),
    *("race build", "race query", "race info"),
)


def _anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        assert place.exists(), target
        assert not anchor or anchor in _anchors(place.read_text(encoding="utf-8")), target


def _blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_python_runs() -> None:
    said = ""
    for block in _blocks("".join(TEXT[name] for name in TEXT if name != COOKBOOK)):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert "epsilon = 2 (pure DP) under attribute(beta=255)" in said
    assert "with 88% at most" in said
    assert re.search(r"true 0\.\d\d, stated 0\.\d\d ± 0\.\d\d", said)


RECIPES = dict(re.findall(r"^## (.*?)$(.*?)(?=^## |\Z)", TEXT[COOKBOOK], re.MULTILINE | re.DOTALL))


@pytest.mark.slow
@pytest.mark.usefixtures("known_noise")
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_run(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each by itself, as it is pasted, and it shows something."""
    (block,) = _blocks(RECIPES[recipe])
    exec(compile(block, recipe, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


@cache
def _help(command: str) -> str:
    return typer.testing.CliRunner().invoke(app, [*command.split(), "--help"]).output


@pytest.mark.parametrize("name", TEXT)
def test_methods_commands_and_options_exist(name: str) -> None:
    known = {row.name for row in dpi.methods()}
    helps = "".join(map(_help, COMMANDS))
    for code in re.findall(r"`([^`\n]+)`", TEXT[name]):
        for method in re.findall(r"\b(?:dp|row|raw)-[a-z]+(?:-[a-z]+)*\b", code):
            assert method in known or f"{method}-" in " ".join(known), method
        for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", code):
            assert option in helps, option
        if command := re.match(r"dpindex ([a-z]+)", code):
            assert command[1] in _help(""), code


def test_the_table_of_certainties() -> None:
    rows = [line for line in TEXT["docs/choosing.md"].splitlines() if line.startswith("| ")]
    epsilons = next(row for row in rows if row.startswith("| epsilon | 0.1"))
    most = next(row for row in rows if row.startswith("| at most"))
    for epsilon, percent in zip(epsilons.split("|")[2:-1], most.split("|")[2:-1], strict=True):
        sure = 100 / (1 + math.exp(-float(epsilon)))
        shown = percent.strip().removesuffix(" %")
        digits = len(shown.partition(".")[2])
        assert float(shown) == round(sure, digits)


def test_every_private_method_has_a_statement() -> None:
    text = TEXT["docs/guarantees.md"]
    for row in dpi.methods():
        assert f"`{row.name}`" in text or row.name.startswith(("idp-", "none-")), row.name


def test_the_limits_that_are_stated() -> None:
    from dpindex.base import checks
    from dpindex.race import sketch
    from dpindex.storage import manifest
    from dpindex.vectors import source

    text = TEXT["docs/threat-model.md"]
    assert base._MAX_BYTES == 2**30
    assert "1 GB (2^30 bytes)" in text
    assert checks.MAX_TEXT == 64 << 10
    assert manifest.MAX_MANIFEST_BYTES == 16 << 20
    assert sketch.MAX_BYTES == 2**30
    assert f"{source.MAX_RATIO} times" in text
