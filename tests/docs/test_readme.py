"""What the README says is what happens: its blocks run, its commands work, its names exist."""

import re

import pytest
from helpers.documents import ROOT, blocks, inline_code, paste, prose

import dpindex as dpi

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
COMMANDS = [command for block in BLOCKS for command in block.commands()]


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 120


@pytest.mark.slow
def test_every_block_runs(call, tmp_path):
    """From top to bottom, in one folder."""
    printed = paste(TEXT, tmp_path, call)
    assert "epsilon = 8 (pure DP) under record (any two vectors)" in printed
    assert "Chosen: record-codebook with" in printed
    assert "1920 vectors" in printed
    assert "my invoice" in printed
    assert re.search(r"from the code alone: cosine 0\.\d\d ± 0\.\d\d", printed)
    assert "What is protected" in printed
    assert "What is not protected" in printed
    index = dpi.PrivateIndex.open(tmp_path / "vectors-index")
    assert len(index) == 4990
    assert len(call("dpindex query my-index public.parquet --query private").splitlines()) > 5


def test_every_command_and_option_named_exists(call):
    code = [*inline_code(TEXT), *COMMANDS]
    names = set(re.findall(r"\bdpindex ([a-z]+)\b", "\n".join(code)))
    assert {"build", "query", "info", "audit"} <= names
    helps = {name: call(f"dpindex {name} --help") for name in names}
    for line in code:
        named = re.search(r"\bdpindex ([a-z]+)\b", line)
        texts = [helps[named[1]]] if named else list(helps.values())
        for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", line):
            assert any(option in text for text in texts), f"{option} in {line!r}"


def test_every_method_named_exists():
    names = {method.name for method in dpi.methods()}
    code = "\n".join([*inline_code(TEXT), *(block.text for block in BLOCKS)])
    named = set(re.findall(r"\b(?:dp|idp|raw|none|record|row)-(?:[a-z]+-?)+\b", code))
    assert named
    assert named <= names


def test_every_file_named_exists():
    for code in inline_code(TEXT):
        is_path = re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:py|toml|md)", code)
        if is_path and not code.startswith("dpindex-demo/"):  # which the demo writes
            assert (ROOT / code).exists(), code
    for target in re.findall(r"\]\(([^)#:]+)", prose(TEXT)):
        assert (ROOT / target).exists(), target


def test_the_license():
    assert "Apache" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_ci_finds_the_test_command():
    """CI runs what stands below the mark, so there is one such block."""
    (command,) = re.findall(r"^<!-- tests -->\n```sh\n(.*)\n```$", TEXT, re.MULTILINE)
    assert "pytest" in command
