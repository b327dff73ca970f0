"""A short run of bench/faults.py: kills, full disks, writers at once, clocks, forks, threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "bench" / "faults.py"


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="needs fork and flock")
def test_a_few_of_each_fault_are_survived() -> None:
    """Ctrl-C is left out: where it strikes decides how other libraries put it into words, and the
    tests of the command line and of the index cover it at fixed places.
    """
    command = [sys.executable, str(SCRIPT), "--kills", "3", "--times", "1"]
    done = subprocess.run(
        [*command, "--without", "interrupts", "threads"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ +3  kill$", done.stdout, re.MULTILINE)
    assert re.search(r"^1[0-9] faults survived, 0 not;", done.stdout, re.MULTILINE), done.stdout
