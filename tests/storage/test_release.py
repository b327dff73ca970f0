"""Runs the contract of a release in processes of their own.

The contract forks. A child of a worker that has used the threads of a search library hangs, so the
parent must be a process that has done nothing else.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

CONTRACT = Path(__file__).with_name("contract_targets.py")
FAULTS = "system_call or power or at_any"
SECONDS = 1500


def contract(folder, chosen):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    environment["OMP_NUM_THREADS"] = "1"
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a small process forks faster
    done = subprocess.run(
        [*command, "-k", chosen, f"--basetemp={folder}/contract", str(CONTRACT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_but_faults(tmp_path):
    contract(tmp_path, f"not ({FAULTS})")


@pytest.mark.parametrize("target", ["TestBuiltFolder", "TestGrown", "TestReplaced", "the others"])
def test_faults(target, tmp_path):
    """Kills, interruptions, errors and full disks at steps that touch a disk, and lost power (F2).

    Each run injects a part of them: see ``helpers/faults.py``.
    """
    others = "not TestBuiltFolder and not TestGrown and not TestReplaced and not TestStored"
    chosen = others if target == "the others" else target
    contract(tmp_path, f"({chosen}) and ({FAULTS})")


@pytest.mark.extra
@pytest.mark.skipif(find_spec("obstore") is None, reason="no obstore")
def test_faults_of_a_store(tmp_path):
    contract(tmp_path, f"TestStored and ({FAULTS})")
