"""A command in a process of its own: what it prints, what it takes, and its peak memory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Any


def finished(words: list[str], **settings: Any) -> tuple[str, float, float]:
    """Return what a command prints, its processor seconds and its peak megabytes.

    ``settings`` are those of :class:`subprocess.Popen`. If it fails, this process ends too.
    """
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **settings) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{shlex.join(words)}: exit code {process.returncode}")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return said, used.ru_utime + used.ru_stime, used.ru_maxrss / unit
