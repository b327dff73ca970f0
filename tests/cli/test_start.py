"""What a command loads before it answers: what it has no need of would be waited for."""

import os
import signal

import numpy as np
import pytest
from helpers.common import attribute_spec, filled_index, python, uniform

from dpindex import __main__ as start

HEAVY = {
    "dpindex.audit", "dpindex.cli.race_commands", "dpindex.race", "cryptography", "dp_accounting",
    "faiss", "jinja2", "matplotlib", "mpmath", "numpy.ma", "numpy.testing", "obstore", "pandas",
    "PIL", "pyarrow", "pydantic", "rich", "scipy.linalg", "scipy.optimize", "scipy.sparse",
    "scipy.spatial", "scipy.special", "scipy.stats", "sklearn", "sqlite3",
}  # fmt: skip
"""What takes long to import, and other commands; numpy and typer no command can do without."""

SCRIPT = f"""
import sys
from dpindex.__main__ import main
try:
    main()
finally:
    print(*sorted({HEAVY} & sys.modules.keys()))
"""
BLAS = "OPENBLAS_THREAD_TIMEOUT"
SPEC = attribute_spec("dp-oporp-staircase", 24, k=8, epsilon=2.0)
X = uniform(9, 24)


@pytest.fixture
def folder(tmp_path):
    """An index, vectors and a spec."""
    index = filled_index(SPEC, X)
    index.save(tmp_path / "index")
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "spec.json").write_text(SPEC.to_json())
    return tmp_path


def loaded_by(command, folder):
    """Which of these modules a command has imported when it ends."""
    said = python("-c", SCRIPT, *command.split(), cwd=folder)
    return said.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, loaded",
    [
        ("--help", ""),
        ("info index", "mpmath"),
        ("privatize x.npy x.codes --spec spec.json", "cryptography mpmath"),
        ("spec --method dp-oporp-staircase --epsilon 2 --beta 1 --dim 24", "mpmath"),
    ],
)
def test_a_command_loads_what_it_needs(folder, command, loaded):
    assert loaded_by(command, folder) == loaded


@pytest.mark.slow
def test_a_query_loads_no_noise_engine_and_no_tables(folder):
    loaded = set(loaded_by("query index x.npy --json", folder).split())
    assert "faiss" in loaded
    assert not loaded & {"cryptography", "rich", "pyarrow", "dp_accounting"}
    assert not loaded & {"scipy.linalg", "scipy.optimize", "scipy.sparse"}


@pytest.mark.parametrize("stated, used", [(None, "20"), ("26", "26")])
def test_idle_threads_of_blas_sleep_soon(monkeypatch, stated, used):
    """What the user says holds."""
    seen = []

    def main():
        seen.append(os.environ[BLAS])

    monkeypatch.setattr("dpindex.cli.main", main)
    monkeypatch.setenv(BLAS, stated or "")
    if stated is None:
        monkeypatch.delenv(BLAS)
    before = signal.getsignal(signal.SIGINT)
    try:
        start.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [used]
