"""`dpindex race build` and `dpindex race query` as a user meets them."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from helpers.common import Seeded, attribute_spec, fails, normal

from dpindex.accounting.ledger import Ledger
from dpindex.race import RaceSketch

BUILD = "race build x.npy s.race --epsilon 4"
HASH = "--bandwidth 1.5 --hashes 2 --rows 200 --width 100"


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch, known_noise):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpindex.race.sketch.secret_stream", lambda: Seeded(1))
    x = normal(4000, 3).astype(np.float32)
    np.save("x.npy", x)
    np.save("q.npy", x[:5])
    np.save("narrow.npy", x[:, :2])
    scipy.sparse.save_npz("x.npz", scipy.sparse.csr_matrix(x))
    x[3999] = np.nan
    np.save("nan.npy", x)


@pytest.fixture
def says(run):
    """Output and errors of a command that must succeed."""

    def call(line):
        code, output, error = run(line)
        assert code == 0, error
        return output + error

    return call


def test_build_and_query(prints):
    built = prints(f"{BUILD} {HASH} --seed 5")
    assert "200 × 100 counts" in built
    assert "epsilon = 4 (pure DP) under records(add-remove)" in built
    sketch = RaceSketch.open("s.race")
    assert sketch.spec.seed == 5
    q = np.load("q.npy")
    query = "race query s.race q.npy"
    table = prints(query)
    assert len(table.splitlines()) == 6
    assert "density" in table
    answers = json.loads(prints(f"{query} --json"))
    assert answers["guarantee"]["adjacency"]["neighbouring"] == "add-remove"
    assert answers["count"] == pytest.approx(sketch.count(q).tolist())
    bounded = json.loads(prints(f"{query} --json --estimator median-of-means"))
    median = sketch.summary(q, failure=0.05)
    for name in ("count", "bound"):
        assert bounded[name] == pytest.approx(median[name].tolist())
    assert "bound" not in answers


def test_info(prints):
    prints(f"{BUILD} {HASH}")
    sketch = RaceSketch.open("s.race")
    text = prints("race info s.race")
    for part in (str(sketch.guarantee), f"± {sketch.size_stderr:.0f}", "What is not protected"):
        assert part in text
    facts = json.loads(prints("race info s.race --json"))
    assert facts["spec"] == sketch.spec.to_dict()
    assert facts["does_not_protect"] == sketch.guarantee.does_not_protect(3)


def test_info_and_build_say_when_noise_drowns(says):
    np.save("far.npy", np.load("x.npy")[:3999] * 1000)
    for line in (f"race build far.npy s.race --epsilon 4 {HASH}", "race info s.race"):
        words = says(line)
        assert "Noise drowns the answers" in words
        assert "larger bandwidth" in words
    np.save("near.npy", np.load("x.npy")[:3999])
    built = says(f"race build near.npy t.race --epsilon 4 {HASH}")
    shown = says("race info t.race")
    assert "Noise" not in built + shown
    assert "near an average record; an answer has noise of ± 5.05" in shown


@pytest.mark.slow
def test_info_and_build_name_a_delta_above_one_over_n(says):
    """Half of the records could be published as they are."""
    for line in (f"{BUILD} --delta 0.5 {HASH}", "race info s.race"):
        words = says(line)
        assert "delta = 0.5 is more than one over the number of records, about 0.00025:" in words
    tight = says(f"race build x.npy t.race --epsilon 4 --delta 1e-6 {HASH}")
    assert "more than one over" not in tight


@pytest.mark.slow
def test_json_and_other_inputs(prints):
    line = "race build x.npz s.race --epsilon 2 --delta 1e-6 --bits 4 --neighbouring replace --json"
    facts = json.loads(prints(line))
    assert facts["spec"]["hash"] == {"kind": "srp", "bits": 4}
    assert facts["bytes"] == Path("s.race").stat().st_size
    assert facts["guarantee"]["delta"] == 1e-6
    prints("race build x.npy t.race --epsilon 4 --bandwidth 2 --expected-count 100")
    assert RaceSketch.open("t.race").spec.rows == 283


@pytest.mark.parametrize(
    "line, message",
    [
        (BUILD, "give --bandwidth for distances"),
        (f"{BUILD} --bits 3 --hashes 2", "or --bits for angles"),
        (f"{BUILD} --bandwidth 1 --bits 2", "or --bits for angles"),
        (f"{BUILD} --bandwidth -1", "bandwidth must be above 0"),
        (f"{BUILD} {HASH} --expected-count 5", "give --rows or --expected-count"),
        (f"race build nan.npy s.race --epsilon 4 {HASH}", "nan.npy: row 3999, column 0 is NaN"),
        (f"race build none.npy s.race --epsilon 4 {HASH}", "none.npy"),
        (f"race build x.npy x.npy --epsilon 1 {HASH}", "already exists"),
    ],
)
def test_bad_input(run, line, message):
    fails(run(line), message)
    assert not Path("s.race").exists()


def test_bad_queries(run, prints):
    prints(f"{BUILD} {HASH}")
    for words, message in {
        "narrow.npy": "have 2 columns where 3 are expected",
        "nan.npy": "NaN",
        "q.npy --estimator mode": "--estimator",
    }.items():
        fails(run(f"race query s.race {words}"), message)


def test_finding_10_the_ledger_counts_sketches(run, prints):
    """Written down before the release; a record in a second sketch is refused, or adds up."""
    ids = [f"p{row}\n" for row in range(4000)]
    Path("ids.txt").write_text("".join(ids))
    Path("few.txt").write_text("p1\np2\n")
    for wrong, message in {
        "--ids ids.txt": "name the ledger",
        "--allow-rerelease": "name the ledger",
        "--ledger ledger": "give every vector an id",
        "--ledger ledger --ids few.txt": "2 ids for 4000",
    }.items():
        fails(run(f"{BUILD} {HASH} {wrong}"), message)
        assert not Path("s.race").exists()
        assert not Path("ledger").exists()
    known = f"--epsilon 4 {HASH} --ledger ledger --ids ids.txt"
    prints(f"race build x.npy s.race {known}")
    (total,) = Ledger("ledger").totals(["p7"])
    assert [str(promise) for promise in total.guarantees] == [
        "epsilon = 4 (pure DP) under records(add-remove)"
    ]
    second = f"race build x.npy t.race {known}"
    fails(run(second), "was released before")
    assert not Path("t.race").exists()
    again = prints(f"{second} --allow-rerelease")
    assert "4000 ids, 2 releases each: epsilon = 8 (pure DP)" in again
    assert "race: epsilon = 4 (pure DP) under records(add-remove)" in prints("ledger ledger")
    spec = attribute_spec("dp-oporp-staircase", 3, epsilon=1.0)
    Ledger("ledger").record(spec, ["p7"], allow_rerelease=True)
    (both,) = Ledger("ledger").totals(["p7"])
    assert sorted(promise.epsilon for promise in both.alone) == [1.0, 8.0]
    (tight,) = Ledger("ledger").totals(["p8"], delta=1e-6)
    assert tight.guarantees[0].epsilon == 8.0


def test_finding_10_far_records_are_counted(prints):
    x = np.load("x.npy")
    x[7] = 1e30
    np.save("x.npy", x)
    prints(f"{BUILD} {HASH}")
    sketch = RaceSketch.open("s.race")
    assert abs(sketch.size - len(x)) < 8 * sketch.size_stderr
