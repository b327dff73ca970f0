"""Audit of guarantees: an exact verifier of the integers that run, and an attack on releases."""

from dpindex.audit.attack import AttackReport, Finding, attack, attack_releases
from dpindex.audit.exact import (
    default_specs,
    not_covered,
    read_claim,
    verify,
    verify_each,
)
from dpindex.audit.outcomes import CodesReport, examine, self_test
from dpindex.audit.pairs import Pair
from dpindex.audit.verdict import Check, ExactReport, Report

__all__ = [
    "AttackReport", "Check", "CodesReport", "ExactReport", "Finding", "Pair", "Report",
    "attack", "attack_releases", "default_specs", "examine", "not_covered",
    "read_claim", "self_test", "verify", "verify_each",
]  # fmt: skip
