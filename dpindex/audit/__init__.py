"""Audit of guarantees: an exact verifier of the integers that run, and an attack on releases."""

from dpindex.audit.attack import AttackReport, Finding, attack, attack_png, attack_releases
from dpindex.audit.exact import (
    default_specs,
    not_covered,
    read_claim,
    read_subject,
    verify,
    verify_default,
)
from dpindex.audit.pairs import Pair, ScoredPair
from dpindex.audit.released_codes import CodesReport, examine
from dpindex.audit.self_test import self_test
from dpindex.audit.verdict import Check, ExactReport

__all__ = [
    "AttackReport", "Check", "CodesReport", "ExactReport", "Finding", "Pair", "ScoredPair",
    "attack", "attack_png", "attack_releases", "default_specs", "examine", "not_covered",
    "read_claim", "read_subject", "self_test", "verify", "verify_default",
]  # fmt: skip
