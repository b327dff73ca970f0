"""The exact audit and the attack see weaknesses: those that the campaign plants.

``bench/mutants.py`` runs all of them, and ``bench/mutations.md`` says what noticed each. Here every
check of the audit meets one that it refuted then, and every kind of finding one that it shows.
"""

import json
from importlib import import_module
from pathlib import Path

import pytest
from helpers.common import ROOT, csv_lines, python

BENCH = ROOT / "bench"
if not (BENCH / "mutants.csv").is_file():
    pytest.skip("the benchmarks are not here", allow_module_level=True)

OPPOSITE = "a record and its opposite, "
SEEN = {
    "Gaussian sigma × 0.95": ("if the noise is normal", 1_000_000),
    "ratio of the staircase e^{1.05 ε}": ("across zero, pool", 1_000_000),
    "flip thresholds × 0.9": ("across zero, pool", 100_000),
    "one key and counter for a hundred draws": ("the same noise twice", 100_000),
    "last sign of a cap code without noise": (f"{OPPOSITE}each coordinate by itself", 100_000),
    "cap for 1.05 ε": (f"{OPPOSITE}the score of a code", 500_000),
    "codebook for 1.05 ε": (f"{OPPOSITE}the score of a code", 500_000),
}
"""What the attack finds, and by how many trials: chance would hide what is narrower."""


def few_that_refute_all():
    """For every check a weakness that it refuted, of as few as a greedy choice takes."""
    proofs = {row["name"]: row["proof"] for row in csv_lines(BENCH / "mutants.csv")}
    refuted = {name: set(filter(None, proof.split("; "))) for name, proof in proofs.items()}
    found = {}
    every = set().union(*refuted.values())
    while left := every - set(found):
        most = max(refuted, key=lambda name: len(refuted[name] & left))
        found |= dict.fromkeys(refuted[most] & left, most)
    return found


OF_CHECK = few_that_refute_all()


@pytest.fixture(scope="module")
def campaign():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield import_module("mutants")


@pytest.mark.slow
def test_every_check_refutes_a_weakness_and_the_attack_finds_some():
    """All in one process, which imports for longer than it proves."""
    audited = dict.fromkeys(OF_CHECK.values())
    attacked = {name: trials for name, (_, trials) in SEEN.items()}
    asked = [*((name, 0) for name in audited), *attacked.items()]
    program = Path(__file__).with_name("seen_weaknesses.py")
    asked = json.dumps(asked)
    answers = json.loads(python("-W", "ignore", program, asked))
    seen = [answer["seen"] for answer in answers]
    failed = dict(zip(audited, seen, strict=False))
    found = dict(zip(attacked, seen[len(audited) :], strict=True))
    for check, name in OF_CHECK.items():
        assert check in failed[name], name
    for name, (finding, _) in SEEN.items():
        assert any(above.startswith(finding) for above in found[name]), name


def test_every_weakness_has_a_seam_and_tests(campaign):
    """What it replaces is there, and so are the tests that must fail."""
    planted = campaign.MUTANTS
    assert len(planted) >= 213
    assert len({mutant.name for mutant in planted}) == len(planted)
    places = campaign.places()
    for mutant in planted:
        named = {name.partition("[")[0] for name in mutant.tests}
        assert named <= set(places), mutant.name
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)


def test_the_campaign_missed_nothing_and_its_table_is_up_to_date(campaign):
    """As it last ran: ``python bench/mutants.py`` runs it again."""
    results = campaign.read_results()
    names = [result.name for result in results]
    assert names == [mutant.name for mutant in campaign.MUTANTS]
    assert not [result.name for result in results if result.missed]
    _, _, after = campaign.PAGE.read_text().partition(campaign.BEGIN)
    page, _, _ = after.partition(campaign.END)
    assert page == campaign.table(results)
