"""The demo end to end, in small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest

from dpindex import PrivateIndex
from dpindex.errors import InputError
from dpindex.evaluate import run_demo

pytest.importorskip("sklearn")
DEMO = import_module("dpindex.evaluate.demo")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DEMO, "_EPSILONS", (3.0, 10.0))


@pytest.mark.usefixtures("short")
def test_the_demo_leaves_an_index_and_a_report(tmp_path):
    result = run_demo(tmp_path / "demo", repetitions=1)
    files = {path.name for path in (tmp_path / "demo").iterdir()}
    assert files == {
        "index",
        "curve.csv",
        "runs.csv",
        "curve.png",
        "inversion.png",
        "report.html",
    }
    assert result.report.read_text(encoding="utf-8").count("data:image/png") == 4
    index = PrivateIndex.open(result.index)
    assert len(index) == 1600
    assert index.spec == result.spec
    assert str(result.spec.guarantee) == "epsilon = 5 (pure DP) under attribute(beta=1)"
    # Of 1970 answers, 0.79 to 0.83 over many runs: the bounds are beyond 7 deviations. Chance: 0.1.
    assert 0.7 < result.same_digit < 0.95
    best = result.curve.series("private")["raw-square-wave, k = 64"][-1]
    assert best.mean["precision@10"] > 0.85

    before = (result.index / "manifest.json").read_bytes()
    again = run_demo(tmp_path / "demo", repetitions=1)
    assert (again.index / "manifest.json").read_bytes() == before


@pytest.mark.usefixtures("short")
def test_another_index_in_its_place_is_left_alone(tmp_path):
    other = PrivateIndex(DEMO._INDEX.with_epsilon(1.0))
    other.add(DEMO._load_digits()[0][:5])
    other.save(tmp_path / "index")
    with pytest.raises(InputError, match="another index than the demo's"):
        run_demo(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_missing_scikit_learn_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"pip install 'dpindex\[eval\]'"):
        run_demo(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals of this kind are POSIX")
def test_ctrl_c_ends_it_promptly_and_leaves_no_report(tmp_path):
    code = (
        "import sys; from dpindex.evaluate import run_demo\n"
        "run_demo(sys.argv[1], progress=lambda done, *_: print(done, flush=True))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert time.monotonic() - start < 5
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
