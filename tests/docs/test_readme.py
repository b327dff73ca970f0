"""What the README says is what happens: its blocks run, its commands work, its names exist."""

import re

import pytest
from helpers.common import ROOT, few_queries
from helpers.documents import inline_code, paste

import dpindex as dpi

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 120


@pytest.mark.slow
@few_queries
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
    index = dpi.open(tmp_path / "vectors-index")
    assert len(index) == 4990
    said = call("dpindex query my-index public.parquet --query private")
    assert len(said.splitlines()) > 5


def test_every_file_named_exists():
    for code in inline_code(TEXT):
        is_path = re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:py|toml|md)", code)
        if is_path and not code.startswith("dpindex-demo/"):  # which the demo writes
            assert (ROOT / code).exists(), code


def test_the_license():
    assert "Apache" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_ci_finds_the_test_command():
    """CI runs what stands below the mark, so there is one such block."""
    (command,) = re.findall(r"^<!-- tests -->\n```sh\n(.*)\n```$", TEXT, re.MULTILINE)
    assert "pytest" in command
