"""Workflows and forms parse, and call only what exists."""

import re
from pathlib import Path

import pytest
import yaml

from dpindex.version import __version__

ROOT = Path(__file__).parents[2]
FILES = sorted(
    [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_parses_and_names_what_exists(file):
    text = file.read_text("utf-8")
    assert isinstance(yaml.safe_load(text), dict)
    for name in re.findall(r"(?:\.ci|tests|requirements|dpindex)/[\w./]+", text):
        assert (ROOT / name).exists(), name


def test_each_job_has_steps_that_run_or_use_something():
    for file in ROOT.glob(".github/workflows/*.yml"):
        jobs = yaml.safe_load(file.read_text("utf-8"))["jobs"]
        for job in jobs.values():
            assert all("run" in step or "uses" in step or "env" in step for step in job["steps"])


def test_what_is_cited_is_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == __version__
