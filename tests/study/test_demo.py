"""The demo from end to end, at a smaller size."""

import sys
from importlib import import_module

import numpy as np
import pytest
from helpers.common import attribute_spec, finished, known_noise, names_in, needs_posix, refuses

from dpindex import PrivateIndex
from dpindex.study import run_demo

pytestmark = known_noise

pytest.importorskip("jinja2")


@pytest.mark.slow
def test_the_demo_leaves_an_index_and_a_report(tmp_path, monkeypatch):
    demo = import_module("dpindex.study.demo")
    monkeypatch.setattr(demo, "EPSILONS", (3.0, 10.0))
    monkeypatch.setattr(demo, "RECORD_EPSILONS", (6.0, 16.0))
    result = run_demo(tmp_path / "demo", runs=1)
    assert names_in(tmp_path / "demo") == [
        "curve.csv",
        "index",
        "index.released",  # what the folder knows of its releases
        "report.html",
        "runs.csv",
    ]
    assert 50_000 < result.report.stat().st_size < 5_000_000
    # One sheet of examples: the page draws its charts itself.
    assert result.report.read_text(encoding="utf-8").count("data:image/png") == 1
    index = PrivateIndex.open(result.index)
    assert len(index) == 1600
    assert index.spec == result.spec
    assert str(result.spec.guarantee) == "epsilon = 5 (pure DP) under attribute(beta=16)"
    # Of 1970 answers, 0.79 to 0.83 over many runs: the bounds are beyond 7 deviations. Chance: 0.1.
    assert 0.7 < result.same_digit < 0.95
    best = result.curve.series("private")["raw-square-wave, k = 64"][-1]
    # 0.943 with a standard deviation of 0.005 over 20 runs.
    assert best.mean["precision@10"] > 0.85

    before = (result.index / "manifest.json").read_bytes()

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # when the first spec is measured again
        run_demo(tmp_path / "demo", runs=1, progress=stop)
    assert (result.index / "manifest.json").read_bytes() == before


@pytest.mark.slow
def test_another_index_in_its_place_is_left_alone(tmp_path):
    other = PrivateIndex(attribute_spec("dp-oporp-staircase", 64, epsilon=1.0))
    other.add(np.zeros((5, 64)))
    other.save(tmp_path / "index")
    with refuses("another index than the demo's"):
        run_demo(tmp_path)
    assert names_in(tmp_path) == ["index", "index.released"]


@pytest.mark.slow
@needs_posix
def test_ctrl_c_leaves_the_index_and_no_report(tmp_path):
    """Interrupted when the first spec is measured."""
    code = (
        "import signal, sys\n"
        "from dpindex import cli, study\n"
        "demo = study.run_demo\n"
        "def report(*_): signal.raise_signal(signal.SIGINT)\n"
        "study.run_demo = lambda folder, progress: demo(folder, progress=report)\n"
        "sys.argv = ['dpindex', 'demo', sys.argv[1]]\n"
        "cli.main()\n"
    )
    done = finished(sys.executable, "-c", code, tmp_path)
    assert done.returncode == 130
    assert done.stderr == "dpindex: interrupted; what was committed is kept. Run it again.\n"
    assert names_in(tmp_path) == ["index", "index.released"]
