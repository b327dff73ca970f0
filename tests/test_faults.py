"""A short run of bench/faults.py: kills, full and read-only disks, writers at once, clocks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "bench" / "faults.py"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="needs fork and flock")
def test_a_few_of_each_fault_are_survived() -> None:
    """Left out: Ctrl-C, as where it strikes decides how other libraries put it into words, and what
    tests of the command line, of the index and of the secret stream cover at fixed places.
    """
    command = [sys.executable, str(SCRIPT), "--kills", "3", "--times", "1", "--stride", "29"]
    # In memory where that can be had: a disk spends its time on a thousand fsyncs.
    memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}
    done = subprocess.run(
        [*command, "--without", "interrupts", "threads", "forks"],
        env={**os.environ, **memory},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ +3  kill$", done.stdout, re.MULTILINE)
    assert re.search(r"^[0-9]+ faults survived, 0 not;", done.stdout, re.MULTILINE), done.stdout
