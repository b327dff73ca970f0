"""Numbers that are printed for a user: each knows the side of its bound, and none is beaten.

| number | printed by | side | tested by |
|---|---|---|---|
| epsilon, delta, totals | ``info``, statement, ledger, page | at most | texts; ``audit`` |
| beta, radius | the same | at least | texts |
| odds of a 50:50 guess | ``info``, statement, ``plan`` | at most | the law of two neighbours |
| linkage of records | ``info`` | at most | ``Linkage``; of attributes none is stated (E1) |
| bits of a code | ``info``, ``plan`` | at most | mutual information, counted |
| what epsilon allows | report of ``evaluate`` | at most | the panel of attacks |
| linkage, reconstruction | ``plan``, report, page | estimate | vectors that are kept back |
| similarity and its error | ``query``, ``Hits`` | two errors hold 9 in 10 | every method |
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpindex as dpi
from dpindex.base.bounds import LowerBound, UpperBound
from dpindex.privacy import Guarantee
from dpindex.storage.statement import statement_of, summarize
from dpindex.study.attacks import Labels, attack_panel

pytestmark = pytest.mark.usefixtures("known_noise")

BOOK = dpi.Codebook(np.random.default_rng(7).normal(size=(40, 6)))
BOTH = dpi.Spec(
    "codebook-softmax", 6, codebook=BOOK, epsilon=2.0, adjacency=dpi.attribute(0.5),
    record_epsilon=8.0,
)  # fmt: skip


# The text of a number lies on the safe side of it


@given(st.floats(1e-30, 1e6), st.sampled_from(["g", ".3g", ".2f", ".0%", ".1%", ".15g"]))
def test_bounds_are_rounded_to_their_side(number: float, form: str) -> None:
    factor = 0.01 if form.endswith("%") else 1.0
    upper, lower = (
        float(f"{kind(number):{form}}".rstrip("%")) * factor for kind in (UpperBound, LowerBound)
    )
    rounding = 1e-15 * number  # of the product with 0.01
    assert lower - rounding <= number <= upper + rounding
    plain = f"{number:{form}}"
    assert plain in (f"{UpperBound(number):{form}}", f"{LowerBound(number):{form}}")
    # What a text states exactly stays as it is.
    stated = float(f"{number:.6g}")
    assert f"{UpperBound(stated):g}" == f"{LowerBound(stated):g}" == f"{stated:g}"


@given(st.floats(1e-3, 64.0), st.floats(1e-12, 0.1), st.floats(1e-3, 1e3))
def test_no_text_states_a_better_promise(epsilon: float, delta: float, beta: float) -> None:
    promise = Guarantee(epsilon, delta, "DP", dpi.attribute(beta))
    text = " ".join([str(promise), promise.protects(), *promise.does_not_protect(7)])
    for pattern, truth in (
        (r"epsilon = ([\d.e+-]+\d)", epsilon),
        (r"exp\(([\d.e+-]+)\)", epsilon),
        (r"delta = ([\d.e+-]+\d)", delta),
        (r"m × ([\d.e+-]+\d)", epsilon),
        (r"up to ([\d.e+-]+\d)", 7 * epsilon),
    ):
        for found in re.findall(pattern, text):
            assert float(found) >= truth, (pattern, found)
    for pattern in (r"beta=([\d.e+-]+\d)", r"changed by at most ([\d.e+-]+\d)"):
        for found in re.findall(pattern, text):
            assert float(found) <= beta
    sure = re.search(r"at most ([\d.]+) % sure", promise.odds())
    if sure is not None:
        growth = math.exp(epsilon)
        assert float(sure[1]) / 100 >= (growth + delta) / (growth + 1) - 1e-12


# A statement names every promise


def test_a_statement_of_two_promises_gives_both_epsilons(tmp_path: Path) -> None:
    """It gave the smaller one beside both units, and for a private query."""
    index = dpi.PrivateIndex(BOTH)
    index.add(np.zeros((3, 6)))
    index.save(tmp_path / "index")
    stated = statement_of(summarize(tmp_path / "index"))
    assert stated["epsilon"] == [
        "2 for one attribute (coordinate) of one vector, changed by at most 0.5 in the units of "
        "the data",
        "8 for one whole vector, replaced by any other (any two vectors)",
    ]
    queries = stated["composition"]
    assert isinstance(queries, list)
    assert str(BOTH.guarantee) in queries[1]


def test_a_shuffled_statement_says_what_the_collector_may_learn(tmp_path: Path) -> None:
    """It said epsilon = 2, that of an attribute, where a record has 8."""
    index = dpi.PrivateIndex(BOTH)
    codes = dpi.Privatizer(BOTH).privatize(np.random.default_rng(1).uniform(-1, 1, (3000, 6)))
    index.add_shuffled(codes, 1e-6)
    index.save(tmp_path / "index")
    stated = statement_of(summarize(tmp_path / "index"))
    assert str(BOTH.guarantee) in str(stated["trust model"])
    assert "epsilon = 8 (pure DP) under record" in str(stated["trust model"])


# What epsilon allows


def test_what_labels_can_be_inferred_does_not_rest_on_the_public_ones() -> None:
    """Public vectors are mostly cats, private ones dogs: who always answers dog is right."""
    rng = np.random.default_rng(0)
    base, public = rng.normal(size=(400, 8)), rng.normal(size=(300, 8))
    names = np.array(["cat", "dog"])
    labels = Labels(names[(np.arange(400) % 10 > 0) * 1], names[(np.arange(300) % 10 == 0) * 1])
    spec = dpi.Spec("record-cap", 8, epsilon=0.5, adjacency=dpi.record())
    for figure in attack_panel(base, [spec], public, labels):
        if figure.setting == "own code":
            assert figure.bound is not None
            assert figure.bound >= 0.9
            assert figure.without == pytest.approx(0.1, abs=0.01)
