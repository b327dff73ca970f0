"""Processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

needs_posix = pytest.mark.skipif(
    os.name != "posix", reason="needs signals, modes or links of POSIX"
)


def finished(
    *command: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    given: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, with variables beside those of this process, however it ends."""
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def succeeds(*command: str | Path, **how: Any) -> str:
    """As ``finished``, of a command that must succeed: returns what it printed."""
    done = finished(*command, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(*words: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run Python with these arguments; return what it printed."""
    return succeeds(sys.executable, *words, cwd=cwd, env=environment)


def typed(page: str, folder: Path) -> list[str]:
    """Run each block of a page as a reader types it; return what they print."""
    said = []
    for kind, block in re.findall(r"^```(sh|py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        text = re.sub(r"^pip .*$", "", block, flags=re.MULTILINE)
        text = re.sub(
            r"^dpindex ",
            f"'{sys.executable}' -m dpindex ",
            text,
            flags=re.MULTILINE,
        )
        text = text.replace("python -c", f"'{sys.executable}' -c")
        command = ("sh", "-ec", text) if kind == "sh" else (sys.executable, "-c", text)
        said.append(succeeds(*command, cwd=folder, env={"PYTHONWARNINGS": "ignore"}))
    return said
