"""Processes of their own."""

import os
import pickle
import re
import socket
import subprocess
import sys

import pytest

needs_posix = pytest.mark.skipif(
    os.name != "posix", reason="needs signals, modes or links of POSIX"
)


def finished(
    *command,
    cwd=None,
    env=None,
    given=None,
):
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


def succeeds(*command, **how):
    """As ``finished``, of a command that must succeed: returns what it printed."""
    done = finished(*command, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(*words, cwd=None, **environment):
    """Run Python with these arguments; return what it printed."""
    return succeeds(sys.executable, *words, cwd=cwd, env=environment)


def travelled(value):
    """What another process makes of a pickle of it."""
    return pickle.loads(pickle.dumps(value))


def free_port():
    """A port of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def typed(page, folder):
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
