"""Numbers that are stated beside codes: none may be smaller than a second computation gives."""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from dpindex.accounting import compose
from dpindex.accounting.ledger import Ledger
from dpindex.audit.verdict import Check
from dpindex.mechanism.spec import Spec
from dpindex.privacy import Record, attribute, l2
from dpindex.privacy.adjacency import L2, Attribute

__all__ = ["stated_numbers_check"]

_CLOSE = 1e-9
_TIGHT = 0.995
_STEPS = (2, 3, 5)
_DELTA = 1e-5


def stated_numbers_check(spec):
    """Group privacy, totals, and the ledger's totals of two sizes of change."""
    wrong = {
        "group": _wrong_groups(spec),
        "tight total": _wrong_tight_totals(spec),
        "ledger": _wrong_ledger(),
    }
    named = [name for name, fault in wrong.items() if fault]
    return Check(
        "path: stated numbers",
        f"too small: {', '.join(named)}" if named else f"{len(wrong)} kinds are not too small",
        "at least what sums over single changes and releases give",
        "Dwork & Roth 2014, Thms 2.2 and 3.16; Gaussian noise of m changes is that of m² releases",
        not named,
    )


def _of_steps(spec, steps):
    """A change that takes so many neighbours; None where there is none, or no promise about it."""
    promise = spec.guarantee
    if promise.definition != "DP" or promise.delta_over == "projection":
        return None
    if isinstance(promise.adjacency, Attribute):
        return attribute(steps * promise.adjacency.beta)
    if isinstance(promise.adjacency, L2):
        return l2(steps * promise.adjacency.radius)
    return None


def _wrong_groups(spec):
    """Delta grows by e^ε from one neighbour to the next: δ·Σ e^{iε}."""
    one = spec.guarantee
    for steps in _STEPS:
        change = _of_steps(spec, steps)
        if change is None:
            return False
        stated = one.at(change)
        delta = one.delta * sum(math.exp(i * one.epsilon) for i in range(steps))
        # A promise about whole records bounds any change.
        whole = [other.epsilon for other in one.also if isinstance(other.adjacency, Record)]
        epsilon = min([steps * one.epsilon, *whole])
        if stated.epsilon < epsilon or stated.delta < min(1.0, delta) * (1 - _CLOSE):
            return True
    return False


def _wrong_tight_totals(spec):
    """A Gaussian release at m changes loses as much as m² releases at one."""
    change = _of_steps(spec, 2)
    gaussian = spec.delta > 0 and spec.method_row.calibration.deviation is not None
    if change is None or not gaussian:
        return False
    stated = compose([spec], _DELTA, change).epsilon
    return stated < _TIGHT * compose([spec] * 4, _DELTA).epsilon


def _wrong_ledger():
    """Half a beta twice makes one beta: the total at one beta counts that release twice."""
    whole = Spec("dp-oporp-staircase", dim=8, k=4, epsilon=1.0, adjacency=attribute(1.0))
    half = replace(whole, adjacency=attribute(0.5))
    with TemporaryDirectory(prefix="dpindex-audit-") as name:
        ledger = Ledger(Path(name) / "ledger")
        for spec in (whole, half):
            ledger.record(spec, [1], allow_rerelease=True)
        (found,) = ledger.totals()
    stated = {g.adjacency: g.epsilon for g in found.guarantees}
    return stated.get(attribute(1.0), 0.0) < 3.0 or stated.get(attribute(0.5), 0.0) < 2.0
