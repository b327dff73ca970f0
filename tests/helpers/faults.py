"""Which faults a run injects: a tenth of a fixed plan, so that ten runs cover every system call.

``DPINDEX_FAULTS`` is the number of the run, or ``all``; else that of a workflow is taken, else the
number of commits.
"""

import os
import subprocess
from pathlib import Path

PARTS = 10


def _commits():
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):  # an archive without its history
        return 0
    return int(done.stdout)


NUMBER = os.environ.get("DPINDEX_FAULTS") or os.environ.get("GITHUB_RUN_NUMBER") or str(_commits())
os.environ["DPINDEX_FAULTS"] = NUMBER  # processes that tests start take the same part

STRIDE = 1 if NUMBER == "all" else PARTS
FIRST = 0 if NUMBER == "all" else int(NUMBER) % PARTS
"""System calls whose number leaves this rest, divided by the stride, have a fault."""


def plan(first=0, stride=1):
    """Numbers of the calls of this run among ``first``, ``first + stride``, …

    The stride shares no factor with the number of parts, so each of these has its turn.
    """
    start = next(at for at in range(first, first + stride * PARTS, stride) if at % STRIDE == FIRST)
    return range(start or stride * STRIDE, 10_000, stride * STRIDE)


def described():
    """Say which faults these are, in a line for a log."""
    if NUMBER == "all":
        return "faults at every system call"
    return f"faults at each {PARTS}th system call, part {FIRST} (all: DPINDEX_FAULTS=all)"
