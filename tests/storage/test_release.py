"""Runs the contract of a release in a process of its own.

The contract forks. A child of a worker that has used the threads of a search library hangs, so the
parent must be a process that has done nothing else.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

CONTRACT = Path(__file__).with_name("contract_targets.py")
TARGETS = (
    "TestBuiltFolder",
    pytest.param(
        "TestStored",
        marks=[
            pytest.mark.extra,
            pytest.mark.skipif(find_spec("obstore") is None, reason="no obstore"),
        ],
    ),
    "TestGrown",
    "TestReplaced",
    pytest.param(
        "not TestBuiltFolder and not TestStored and not TestGrown and not TestReplaced",
        id="the others",
    ),
)
"""Targets that run beside each other; the others take as long together."""

SECONDS = 1500


def contract(folder, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    environment["OMP_NUM_THREADS"] = "1"
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a small process forks faster
    done = subprocess.run(
        [*command, *options, f"--basetemp={folder}/contract", str(CONTRACT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_all_but_faults(tmp_path):
    """Those at some calls are among those at every one, below."""
    contract(tmp_path, "-m", "not slow", "-k", "not power and not system_call and not at_any")


@pytest.mark.slow
def test_some_losses_of_power(tmp_path):
    contract(tmp_path, "-m", "not slow", "-k", "power")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_fault(target, tmp_path):
    """And a kill at every step that touches a disk (F2)."""
    contract(tmp_path, "-m", "slow", "-k", f"({target}) and not power")
