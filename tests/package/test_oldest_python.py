"""The package uses only what the oldest Python that it states has, whatever Python runs this."""

import ast
import re
import sys

import pytest
import yaml
from helpers.common import ROOT, finished
from test_layers import modules

from dpindex.version import __version__

PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
(OLDEST,) = re.findall(r'^requires-python = ">=(3\.\d+)"$', PROJECT, re.MULTILINE)


def test_the_syntax_is_that_of_the_oldest_python():
    major, minor = map(int, OLDEST.split("."))
    for path in modules().values():
        ast.parse(path.read_text("utf-8"), feature_version=(major, minor))


@pytest.mark.slow
@pytest.mark.extra
def test_names_of_the_standard_library_are_in_the_oldest_python(tmp_path):
    """``typing.Self`` once kept all commands from Python 3.10."""
    pytest.importorskip("mypy", reason="needs pip install mypy")
    lines = set()
    for path in modules().values():
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            module = getattr(node, "module", None)
            if isinstance(node, ast.ImportFrom) and module in sys.stdlib_module_names:
                lines |= {f"from {module} import {name.name}" for name in node.names}
    file = tmp_path / "names.py"
    file.write_text("\n".join(sorted(lines)) + "\nfrom typing import Self\n")
    options = ["--no-incremental", "--config-file=", f"--python-version={OLDEST}"]
    command = (sys.executable, "-m", "mypy", *options, file)
    done = finished(*command, cwd=tmp_path)
    missing = re.findall(r'error: Module "(\w+)" has no attribute "(\w+)"', done.stdout)
    assert missing == [("typing", "Self")], done.stdout


# Workflows and forms parse, and call only what exists


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
            for step in job["steps"]:
                assert step.keys() & {"run", "uses", "env"}


def test_what_is_cited_is_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == __version__
