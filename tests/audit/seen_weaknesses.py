"""What the audit and the attack see of planted weaknesses: a program of ``test_mutations.py``.

A process of its own has made no law yet, whose tables would hide a weakness from forked children.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import mutants  # which finds the folder of tests
import pytest
from helpers.streams import seed_noise
from self_test.second_reading import refuted

from dpindex.audit import attack


def seen(name, trials):
    """Checks that fail under a weakness, or findings of an attack of so many trials above ε."""
    mutant = next(mutant for mutant in mutants.MUTANTS if mutant.name == name)

    def work(found):
        spec = mutants.spec_of(mutant.proof)
        if not trials:
            found["seen"] = refuted(spec)
            return
        if mutant.part != "stream":  # of narrow ones chance would hide one in some hundred
            seed_noise(pytest.MonkeyPatch())
        report = attack(spec, trials=trials)
        findings = [one for one in report.findings if one.lower_bound > spec.budget]
        found["seen"] = [finding.name for finding in findings]

    return mutants.in_child(mutant, work)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps([seen(name, trials) for name, trials in asked]))
