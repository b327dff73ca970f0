"""The runs of a report: kept as they end, resumed, and never mixed with another evaluation's."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from helpers.common import refuses

from dpindex import attribute
from dpindex.study import evaluate, spec_grid, write_report
from dpindex.study.runs_file import RUNS_FILE as NAME
from dpindex.study.runs_file import csv_bytes, kept_in, read_runs

DIM = 8
BASE = np.random.default_rng(1).random((80, DIM))
METHODS = ["dp-oporp-staircase", "none-oporp"]
SPECS = spec_grid(DIM, METHODS, [1.0, 4.0], [4], adjacency=attribute(1.0)).specs


def measure(folder, specs=SPECS, base=BASE, **terms):
    stated = {"runs": 2, "neighbours": 10, "report": folder, **terms}
    (curve,) = evaluate(base, BASE[:4], specs, **stated)
    return curve


class Interrupted:
    """Progress that is interrupted before the build of that number."""

    def __init__(self, build):
        self.build = build

    def __call__(self, done, total, task):
        if done == self.build:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_evaluation_goes_on(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, progress=Interrupted(3))
    before = (tmp_path / NAME).read_bytes()
    assert len(read_runs(tmp_path)) == 3 * 2  # two query modes each
    module = import_module("dpindex.study.evaluation")
    built = []
    trial = module.Trial

    def counted(*arguments, **terms):
        built.append(1)
        return trial(*arguments, **terms)

    monkeypatch.setattr(module, "Trial", counted)
    curve = measure(tmp_path)
    assert len(built) == 3
    assert (tmp_path / NAME).read_bytes().startswith(before)
    assert len(curve.runs) == 3 * 2 * 2
    write_report(tmp_path, [curve])
    assert measure(tmp_path).runs == curve.runs
    assert len(built) == 3
    more = measure(tmp_path, runs=3)
    assert len(built) == 6
    assert all(run in more.runs for run in curve.runs)
    write_report(tmp_path, [more])


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    measure(tmp_path, SPECS[:1], runs=1)
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[:-20])
    assert len(read_runs(tmp_path)) == 1
    curve = measure(tmp_path, SPECS[:1], runs=1)
    assert len(curve.runs) == 2
    assert len(read_runs(tmp_path)) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"specs": SPECS[1:]},
        {"specs": [replace(spec, seed=7) for spec in SPECS]},
        {"runs": 1},
        {"neighbours": 12},
        {"metric": "l2"},
        {"denoise": "linear"},
        {"base": BASE[::-1]},
        {"query_modes": ["exact"]},
        {"query_epsilon": 9.0},
    ],
)
def test_another_evaluation_is_refused_before_any_work(tmp_path, changes):
    measure(tmp_path)
    before = (tmp_path / NAME).read_bytes()
    told = []
    with refuses("runs of another evaluation"):
        measure(tmp_path, **changes, progress=lambda done, *_: told.append(done))
    assert told == []
    assert (tmp_path / NAME).read_bytes() == before
    measure(tmp_path, **changes, replace_report=True)
    assert (tmp_path / NAME).read_bytes() != before


def test_low_the_keys_of_runs_confirm_no_guess_of_the_vectors(tmp_path, monkeypatch):
    """A reader of the file who guesses all vectors rightly, elsewhere, sees other keys."""
    measure(tmp_path / "holder", SPECS[:1])
    keys = {line["run"] for line in read_runs(tmp_path / "holder")}
    for guess in (BASE, BASE[::-1]):
        monkeypatch.setenv("DPINDEX_STATE", str(tmp_path / "reader"))
        again = {run.key for run in measure(None, SPECS[:1], guess).runs}
        assert len(again) == len(keys)
        assert not again & keys


def test_a_report_without_runs_is_another_one(tmp_path):
    (tmp_path / "report.html").write_text("mine")
    with refuses("holds another report"):
        measure(tmp_path)


def test_bad_input_leaves_no_file(tmp_path):
    with refuses():
        measure(tmp_path / "report", base=5 * BASE)
    assert not (tmp_path / "report" / NAME).exists()


def test_two_evaluations_do_not_write_one_report(tmp_path):
    key = {"run": "a", "x": 1}
    with kept_in(tmp_path, {"a"}) as kept:
        kept.append([key])
        with refuses("another process"), kept_in(tmp_path, {"a"}):
            pass
    assert (tmp_path / NAME).read_bytes() == csv_bytes([key])


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with refuses("choose another directory"):
        measure(tmp_path / "file")
