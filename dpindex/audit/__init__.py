"""Is the guarantee kept? An exact verifier of the integers that ship, and an attack on them."""

from dpindex.audit.attack import AttackReport, attack
from dpindex.audit.checks import Check, ExactReport
from dpindex.audit.exact import default_specs, not_covered, verify
from dpindex.audit.plot import attack_png
from dpindex.audit.trials import Finding

__all__ = [
    "AttackReport",
    "Check",
    "ExactReport",
    "Finding",
    "attack",
    "attack_png",
    "default_specs",
    "not_covered",
    "verify",
]
