"""Builds that a plan chose: `dpindex build --public`, a saved plan, and the same in Python."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.common import fails, refuses, topics

import dpindex as dpi
from dpindex import PrivateIndex, Spec, build, record
from dpindex.study.plan_result import SavedPlan

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("known_noise", "few_queries")]
DIM = 16
PRIVATE = "build vectors.npy my-index"
RECORD = f"{PRIVATE} --record --epsilon 8 --public public.npy"


def collection(rows, seed):
    return topics(rows, DIM, seed, 40).astype(np.float32)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("public.npy", collection(600, 1))
    np.save("vectors.npy", collection(700, 2))
    np.save("queries.npy", collection(3, 3))


@pytest.mark.parametrize(
    "vectors",
    [
        "vectors.npy",
        "vectors.parquet:vector --id-column name",
        "vectors.parquet:vector --ids vectors.parquet:name",
        "folder --id-column name",
        "folder --ids folder:name",
    ],
)
def test_one_command_plans_and_builds(prints, vectors):
    rows = list(np.load("vectors.npy"))
    names = [f"n{row}" for row in range(len(rows))]
    Path("folder").mkdir()
    for file in ("vectors.parquet", "folder/part.parquet"):
        pd.DataFrame({"vector": rows, "name": names}).to_parquet(file)
    said = prints(RECORD.replace("vectors.npy", vectors))
    assert "Chosen: record-codebook with" in said
    assert "an exact query should find" in said
    assert not Path("my-index.plan").exists()
    spec = dpi.open("my-index").spec
    assert spec.epsilon == 8
    assert spec.codebook is not None
    search = said.rpartition("Search it: dpindex ")[2].replace("QUERIES", "queries.npy")
    hits = json.loads(prints(f"{search} --json"))
    assert np.array(hits["exact"]).all()


@pytest.mark.parametrize(
    "methods, promise",
    [
        ("record-codebook", "--record --epsilon 6"),
        ("dp-designed-laplace,dp-oporp-staircase", "--beta 1 --epsilon 2"),
        ("codebook-softmax", "--beta 1 --record-epsilon 6 --epsilon 2"),
        ("raw-staircase", "--beta 0.5 --epsilon 8 --metric l2 --query private"),
    ],
)
def test_a_saved_plan_builds_what_was_planned(prints, methods, promise):
    line = f"plan --public public.npy --n 700 --methods {methods} {promise} --save my.plan --json"
    planned = json.loads(prints(line))
    said = prints(f"{PRIVATE} --plan my.plan")
    built = dpi.open("my-index")
    assert built.spec == Spec.from_dict(planned["recommended"]["spec"])
    assert built.metric == planned["metric"]
    if built.spec.codebook is not None:  # what devices of a published index read
        assert dpi.Codebook.read("my-index/codebook/000001.vectors") == built.spec.codebook
    assert ("--query private" in said) == (planned["query"] == "private")


def test_an_unfinished_build_keeps_its_plan(run, prints, monkeypatch):
    """A plan that is made anew might choose another spec, which cannot finish the build."""

    def crashed(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("dpindex.storage.targets.IndexTarget.publish", crashed)
        assert run(RECORD)[0] == 2
    kept = SavedPlan.read("my-index.plan")
    other = RECORD.replace("--epsilon 8", "--epsilon 7")
    fails(run(other), "begun with another epsilon (8.0)")

    def planned_again(*_, **__):
        raise AssertionError

    monkeypatch.setattr("dpindex.study.planner.plan", planned_again)
    assert "(0 privatized now)" in prints(RECORD)
    assert dpi.open("my-index").spec == kept.spec
    assert not Path("my-index.plan").exists()


def test_a_refused_build_leaves_no_plan(run):
    np.save("vectors.npy", np.full((700, DIM), np.nan))
    code, _, error = run(RECORD)
    assert code == 2
    assert "dpindex: vectors.npy: row 0, column 0 is NaN" in error
    assert not Path("my-index.plan").exists()


def test_a_public_file_as_long_as_the_vectors_has_to_be_allowed(run, prints):
    np.save("public.npy", collection(700, 1))
    fails(run(RECORD), "--skip-leak-check")
    prints(f"{RECORD} --skip-leak-check")


@pytest.mark.parametrize(
    "options, words",
    [
        ("--record --epsilon 8", "one of --public, --plan and --method"),
        ("--record --epsilon 8 --public public.npy --method record-cap", "one of --public"),
        ("--record --epsilon 8 --public public.npy --subset 4", "the plan chooses --subset"),
        ("--record --public public.npy", "--epsilon 8"),
        ("--record --epsilon 8 --public narrow.npy", "has 3 columns"),
        ("--plan my.plan --epsilon 8", "the plan chooses --epsilon"),
        ("--plan vectors.npy", "vectors.npy"),
    ],
)
def test_what_a_plan_cannot_build_is_said(run, options, words):
    np.save("narrow.npy", np.ones((600, 3)))
    fails(run(f"{PRIVATE} {options}"), words)


def test_python_takes_a_plan(tmp_path):
    plan = dpi.plan(collection(600, 1), n=700, epsilon=8.0, adjacency=record())
    assert plan.spec == plan.best.spec
    assert "Recommended: record-codebook" in str(plan)
    index = PrivateIndex(plan)
    assert index.spec == plan.spec
    assert index.metric == plan.metric
    assert build("vectors.npy", tmp_path / "my-index", plan).drawn == 700
    assert dpi.open(tmp_path / "my-index").spec == plan.spec
    with refuses("a Spec or a plan"):
        PrivateIndex(index)
