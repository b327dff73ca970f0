"""Ctrl-C before a command has begun: one sentence and exit code 130, wherever it strikes."""

import os
import signal
import subprocess
import sys
from importlib import import_module

import pytest
from helpers.common import ROOT, finished, needs_posix, python

pytestmark = needs_posix

STRIKE = """
import importlib.abc, signal, sys

class Strike(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Strike())
sys.argv = ["dpindex", "methods"]
from dpindex.__main__ import main
main()
"""


SENTENCE = "dpindex: interrupted; what was committed is kept. Run it again.\n"


def struck(name, handler="default_int_handler"):
    """``dpindex methods``, to which Ctrl-C is sent when it begins to import that module."""
    program = STRIKE.format(name=name, handler=handler)
    return finished(sys.executable, "-c", program)


@pytest.mark.parametrize(
    "name",
    [
        "dpindex.cli",
        "typer",
        pytest.param("dpindex.mechanism.method_table", marks=pytest.mark.slow),
    ],
)
def test_while_modules_are_imported(name):
    done = struck(name)
    assert done.stderr == SENTENCE
    assert done.returncode == 130
    assert done.stdout == ""


def test_little_is_imported_before_it_can_be_answered():
    script = (
        "import sys; before = set(sys.modules); import dpindex.__main__\n"
        "print(*sorted(name for name in set(sys.modules) - before))"
    )
    new = python("-c", script).split()
    own = [name for name in new if name.startswith("dpindex")]
    assert own == ["dpindex", "dpindex.__main__", "dpindex.version"]
    assert not {"typing", "re", "numpy", "typer"} & set(new)


@pytest.mark.slow
def test_a_background_job_ignores_it():
    done = struck("dpindex.cli", "SIG_IGN")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "dp-oporp" in done.stdout


def test_the_command_begins_where_it_is_caught():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert '\n[project.scripts]\ndpindex = "dpindex.__main__:main"\n' in project


def test_around_the_command(monkeypatch, capfd):
    """Before ``main`` can catch it, and after: then there is nothing left to interrupt."""
    entry = import_module("dpindex.__main__")
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setattr("dpindex.cli.main", lambda: signal.raise_signal(signal.SIGINT))
        entry.main()
        assert left == [130]
        signal.raise_signal(signal.SIGINT)
        assert left == [130]
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == SENTENCE


# SIGTERM ends a command in order: nothing temporary stays


PROGRAM = """
import tempfile, time
from dpindex import __main__, cli

def command():
    with tempfile.TemporaryDirectory(prefix="dpindex-"):
        print("it has a temporary folder", flush=True)
        time.sleep(600)

cli.main = command
__main__.main()
"""


@pytest.mark.slow
@needs_posix
def test_a_command_that_is_ended_leaves_no_temporary_folder(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert "temporary folder" in process.stdout.readline()
        assert len(list(tmp_path.glob("dpindex-*"))) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
