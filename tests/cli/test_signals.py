"""SIGTERM ends a command in order: nothing temporary stays."""

import os
import signal
import subprocess
import sys

import pytest
from helpers.processes import needs_posix

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
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert "temporary folder" in process.stdout.readline()
        assert len(list(tmp_path.glob("dpindex-*"))) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
