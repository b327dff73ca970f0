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


LARGE = ["TestGrown", "TestReplaced or TestBuiltFolder"]


@pytest.mark.parametrize("targets", LARGE)
def test_faults(targets, tmp_path):
    """Kills, interruptions, errors and full disks at steps that touch a disk, and lost power (F2).

    Each run injects a part of them: see ``helpers/faults.py``.
    """
    contract(tmp_path, f"({targets}) and ({FAULTS})")


def test_all_else(tmp_path):
    large = " or ".join(LARGE)
    contract(tmp_path, f"not TestStored and not (({large}) and ({FAULTS}))")


@pytest.mark.extra
@pytest.mark.skipif(find_spec("obstore") is None, reason="no obstore")
@pytest.mark.parametrize("chosen", [FAULTS, f"not ({FAULTS})"], ids=["faults", "the rest"])
def test_a_store(chosen, tmp_path):
    """Apart: in the rest its library starts threads, after which no child can use it."""
    contract(tmp_path, f"TestStored and ({chosen})")
