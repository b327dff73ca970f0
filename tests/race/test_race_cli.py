"""`dpindex race build` and `dpindex race query` as a user meets them."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from helpers.made_datasets import normal
from helpers.specs import attribute_spec
from helpers.streams import Seeded
from typer.testing import CliRunner

from dpindex.accounting.ledger import Ledger
from dpindex.base.errors import InputError
from dpindex.cli import app
from dpindex.race import PStable, RaceSketch, kernel_sum

BUILD = ("race", "build", "x.npy", "s.race", "--epsilon", "4")
HASH = ("--bandwidth", "1.5", "--hashes", "2", "--rows", "200", "--width", "100")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Call the commands in ``tmp_path``; what they raise is in the result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpindex.race.sketch.secret_stream", lambda: Seeded(1))
    x = normal(4000, 3).astype(np.float32)
    np.save("x.npy", x)
    np.save("q.npy", x[:5])
    np.save("narrow.npy", x[:, :2])
    scipy.sparse.save_npz("x.npz", scipy.sparse.csr_matrix(x))
    x[3999] = np.nan
    np.save("nan.npy", x)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def test_build_and_query(run):
    built = run(*BUILD, *HASH, "--seed", 5)
    assert built.exit_code == 0, built.output
    assert "200 × 100 counts" in built.output
    assert "epsilon = 4 (pure DP) under records(add-remove)" in built.output
    sketch = RaceSketch.open("s.race")
    assert sketch.spec.seed == 5
    x = np.load("x.npy")
    q = np.load("q.npy")
    table = run("race", "query", "s.race", "q.npy").output
    assert len(table.splitlines()) == 6
    assert "density" in table
    answers = json.loads(run("race", "query", "s.race", "q.npy", "--json").output)
    assert answers["guarantee"]["adjacency"]["neighbouring"] == "add-remove"
    assert answers["count"] == pytest.approx(sketch.count(q).tolist())
    truth = kernel_sum(PStable(1.5, 2), x, q)
    assert (np.abs(answers["count"] - truth) < 6 * np.array(answers["stderr"])).all()
    printed = run(
        "race",
        "query",
        "s.race",
        "q.npy",
        "--json",
        "--estimator",
        "median-of-means",
    )
    bounded = json.loads(printed.output)
    median = sketch.summary(q, failure=0.05)
    assert bounded["count"] == pytest.approx(median["count"].tolist())
    assert bounded["bound"] == pytest.approx(median["bound"].tolist())
    assert "bound" not in answers


def test_info(run):
    run(*BUILD, *HASH)
    sketch = RaceSketch.open("s.race")
    text = run("race", "info", "s.race").output
    for part in (str(sketch.guarantee), f"± {sketch.size_stderr:.0f}", "What is not protected"):
        assert part in text
    facts = json.loads(run("race", "info", "s.race", "--json").output)
    assert facts["spec"] == sketch.spec.to_dict()
    assert facts["does_not_protect"] == sketch.guarantee.does_not_protect(3)


def test_info_and_build_say_when_noise_drowns(run):
    np.save("far.npy", np.load("x.npy")[:3999] * 1000)
    for words in (
        run("race", "build", "far.npy", "s.race", "--epsilon", 4, *HASH).output,
        run("race", "info", "s.race").output,
    ):
        assert "Noise drowns the answers" in words
        assert "larger bandwidth" in words
    np.save("near.npy", np.load("x.npy")[:3999])
    built = run("race", "build", "near.npy", "t.race", "--epsilon", 4, *HASH).output
    shown = run("race", "info", "t.race").output
    assert "Noise" not in built + shown
    assert "near an average record; an answer has noise of ± 5.05" in shown


@pytest.mark.slow
def test_info_and_build_name_a_delta_above_one_over_n(run):
    """Half of the records could be published as they are."""
    built = run("race", "build", "x.npy", "s.race", "--epsilon", 4, "--delta", 0.5, *HASH).output
    for words in (built, run("race", "info", "s.race").output):
        assert "delta = 0.5 is more than one over the number of records, about 0.00025:" in words
    tight = run("race", "build", "x.npy", "t.race", "--epsilon", 4, "--delta", 1e-6, *HASH).output
    assert "more than one over" not in tight


def test_help_is_whole(run):
    """No summary of a command is cut off with dots, at the width of a terminal."""
    for group in ((), ("race",)):
        listed = run(*group, "--help").output
        assert "race" in listed
        assert "..." not in listed.split("Commands:")[1]


@pytest.mark.slow
def test_json_and_other_inputs(run):
    facts = json.loads(
        run(
            *("race", "build", "x.npz", "s.race", "--epsilon", 2, "--delta", 1e-6),
            *("--bits", 4, "--neighbouring", "replace", "--json"),
        ).output
    )
    assert facts["spec"]["hash"] == {"kind": "srp", "bits": 4}
    assert facts["bytes"] == Path("s.race").stat().st_size
    assert facts["guarantee"]["delta"] == 1e-6
    counted = run(
        *BUILD[:3],
        "t.race",
        *BUILD[4:],
        "--bandwidth",
        2,
        "--expected-count",
        100,
    )
    assert counted.exit_code == 0
    assert RaceSketch.open("t.race").spec.rows == 283


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((*BUILD,), "give --bandwidth for distances"),
        ((*BUILD, "--bits", "3", "--hashes", "2"), "or --bits for angles"),
        ((*BUILD, "--bandwidth", "1", "--bits", "2"), "or --bits for angles"),
        (("race", "info", "q.npy"), "not a RACE sketch"),
        ((*BUILD, "--bandwidth", "-1"), "bandwidth must be above 0"),
        ((*BUILD, *HASH, "--expected-count", "5"), "give --rows or --expected-count"),
        (("race", "build", "nan.npy", *BUILD[3:], *HASH), "nan.npy: row 3999, column 0 is NaN"),
        (("race", "build", "none.npy", *BUILD[3:], *HASH), "none.npy"),
        (("race", "query", "x.npy", "q.npy"), "not a RACE sketch"),
        (("race", "build", "x.npy", "x.npy", "--epsilon", "1", *HASH), "already exists"),
    ],
    ids=str,
)
def test_bad_input(run, arguments, message):
    result = run(*arguments)
    assert isinstance(result.exception, InputError), result.output
    assert message in str(result.exception)
    assert not Path("s.race").exists()


def test_bad_queries(run):
    run(*BUILD, *HASH)
    for name, message in (
        ("narrow.npy", "have 2 columns where 3 are expected"),
        ("nan.npy", "NaN"),
    ):
        result = run("race", "query", "s.race", name)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)
    assert run("race", "query", "s.race", "q.npy", "--estimator", "mode").exit_code == 2


def test_finding_10_the_ledger_counts_sketches(run):
    """Written down before the release; a record in a second sketch is refused, or adds up."""
    Path("ids.txt").write_text("".join(f"p{i}\n" for i in range(4000)))
    Path("few.txt").write_text("p1\np2\n")
    known = (*HASH, "--ledger", "ledger")
    for wrong, message in (
        ((*HASH, "--ids", "ids.txt"), "name the ledger"),
        ((*HASH, "--allow-rerelease"), "name the ledger"),
        (known, "give every vector an id"),
        ((*known, "--ids", "few.txt"), "2 ids for 4000"),
    ):
        refused = run(*BUILD, *wrong)
        assert isinstance(refused.exception, InputError), refused.output
        assert message in str(refused.exception)
        assert not Path("s.race").exists()
        assert not Path("ledger").exists()
    known = (*known, "--ids", "ids.txt")
    assert run(*BUILD, *known).exit_code == 0
    (total,) = Ledger("ledger").totals(["p7"])
    assert [str(promise) for promise in total.guarantees] == [
        "epsilon = 4 (pure DP) under records(add-remove)"
    ]
    second = (*BUILD[:3], "t.race", *BUILD[4:], *known)
    assert "was released before" in str(run(*second).exception)
    assert not Path("t.race").exists()
    again = run(*second, "--allow-rerelease")
    assert "4000 ids, 2 releases each: epsilon = 8 (pure DP)" in again.output
    shown = run("ledger", "ledger")
    assert "race: epsilon = 4 (pure DP) under records(add-remove)" in shown.output
    Ledger("ledger").record(
        attribute_spec("dp-oporp-staircase", 3, epsilon=1.0),
        ["p7"],
        allow_rerelease=True,
    )
    (both,) = Ledger("ledger").totals(["p7"])
    assert sorted(promise.epsilon for promise in both.guarantees) == [1.0, 8.0]
    (tight,) = Ledger("ledger").totals(["p8"], delta=1e-6)
    assert tight.guarantees[0].epsilon == 8.0


def test_finding_10_far_records_are_counted(run):
    x = np.load("x.npy")
    x[7] = 1e30
    np.save("x.npy", x)
    built = run(*BUILD, *HASH)
    assert built.exit_code == 0, built.output
    far = RaceSketch.open("s.race").size
    assert abs(far - len(x)) < 8 * RaceSketch.open("s.race").size_stderr
