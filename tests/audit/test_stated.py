"""Numbers that are printed for a user: each knows the side of its bound, and none is beaten.

| number | printed by | side | tested by |
|---|---|---|---|
| epsilon, delta, totals | ``info``, statement, ledger, page | at most | texts; ``audit`` |
| beta, radius | the same | at least | texts |
| several changes | ``group``, ``info``, statement, ``plan`` | at most | three moved attributes |
| odds of a 50:50 guess | ``info``, statement, ``plan`` | at most | the law of two neighbours |
| linkage of records | ``info`` | at most | ``mechanism/test_promises.py``; else none (E1) |
| bits of a code | ``info``, ``plan`` | at most | mutual information, counted |
| what epsilon allows | report of ``evaluate`` | at most | ``study/test_panel.py`` |
| linkage, reconstruction | ``plan``, report, page | estimate | vectors that are kept back |
| reconstruction | the same | at least | the guess without a code |
| odds of a chosen epsilon | page | at most | all 201 positions: ``study/test_page_numbers.py`` |
| similarity and its error | ``query``, ``Hits`` | two errors hold 9 in 10, or none | every method |
| count of a sketch and its error | ``race query`` | two errors hold 9 in 10 | kernel sums |
| total of several releases | ``ledger`` | at most, of what it counts | ``privacy/test_ledger.py`` |
"""

import math
import re
from dataclasses import replace
from functools import cache
from itertools import cycle

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    example,
    filled_index,
    known_noise,
    normal,
    record_spec,
    refuses,
    true_cosines,
    unit,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

import dpindex as dpi
from dpindex import Codebook, PrivateIndex, Privatizer, Spec, attribute, design
from dpindex.base.display import LowerBound, UpperBound
from dpindex.decode import decoder_of
from dpindex.mechanism.method_table import TABLE
from dpindex.mechanism.promises import (
    exposure_line,
    information_lines,
    max_bits,
    max_linkage_rate,
)
from dpindex.privacy import Guarantee
from dpindex.race import SRP, PairedSRP, PStable, RaceSketch, SketchSpec
from dpindex.race.hashes import kernel_sum
from dpindex.storage.statement import statement_of, summarize
from dpindex.study.attacks import Labels, attack_panel
from dpindex.study.reconstruction import Reconstructor, dense_units, reconstructor_of
from dpindex.study.row import AttackFigures
from dpindex.study.trial import Trial

pytestmark = known_noise

BOOK = Codebook(normal(40, 6, 7))
BOTH = Spec(
    "codebook-softmax", 6, codebook=BOOK, epsilon=2.0, adjacency=attribute(0.5),
    record_epsilon=8.0,
)  # fmt: skip


# The text of a number lies on the safe side of it


@given(st.floats(1e-30, 1e6), st.sampled_from(["g", ".3g", ".2f", ".0%", ".1%", ".15g"]))
def test_bounds_are_rounded_to_their_side(number, form):
    factor = 0.01 if form.endswith("%") else 1.0
    upper = float(f"{UpperBound(number):{form}}".rstrip("%")) * factor
    lower = float(f"{LowerBound(number):{form}}".rstrip("%")) * factor
    rounding = 1e-15 * number  # of the product with 0.01
    assert lower - rounding <= number <= upper + rounding
    plain = f"{number:{form}}"
    assert plain in (f"{UpperBound(number):{form}}", f"{LowerBound(number):{form}}")
    # What a text states exactly stays as it is.
    stated = float(f"{number:.6g}")
    for kind in (UpperBound, LowerBound):
        assert f"{kind(stated):g}" == f"{stated:g}"


@given(st.floats(1e-3, 64.0), st.floats(1e-12, 0.1), st.floats(1e-3, 1e3))
def test_no_text_states_a_better_promise(epsilon, delta, beta):
    promise = Guarantee(epsilon, delta, "DP", attribute(beta))
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
        right = (growth + delta) / (growth + 1)
        assert float(sure[1]) / 100 >= right - 1e-12


# A statement names every promise


def test_a_statement_of_two_promises_gives_both_epsilons(tmp_path):
    """It gave the smaller one beside both units, and for a private query."""
    index = PrivateIndex(BOTH)
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


# What epsilon allows


def test_what_labels_can_be_inferred_does_not_rest_on_the_public_ones():
    """Public vectors are mostly cats, private ones dogs: who always answers dog is right."""
    rng = default_rng(0)
    base = rng.normal(size=(400, 8))
    public = rng.normal(size=(300, 8))
    own = np.where(np.arange(400) % 10 > 0, "dog", "cat")
    told = np.where(np.arange(300) % 10 == 0, "dog", "cat")
    labels = Labels(own, told)
    spec = record_spec("record-cap", 8, epsilon=0.5)
    for figure in attack_panel(base, [spec], public, labels):
        if figure.setting == "own code":
            assert figure.bound >= 0.9
            assert figure.without == pytest.approx(0.1, abs=0.01)


# Attacks on data from the premise of a figure, and on data of recipes

DIM = 24
CENTRES = default_rng(9).uniform(0.1, 0.9, (12, DIM))
TASTES = default_rng(8).dirichlet(np.full(DIM, 0.3), 6)


def uniform(rows, seed):
    """Independent attributes, uniform over the bounds: what `info` assumed (E1)."""
    return default_rng(seed).uniform(0, 1, (rows, DIM))


def clustered(rows, seed):
    rng = default_rng(seed)
    centres = CENTRES[rng.integers(12, size=rows)]
    near = centres + 0.1 * rng.normal(size=(rows, DIM))
    return near.clip(0, 1)


def counts(rows, seed):
    """Of persons whose activity is lognormal: norms vary much (E2)."""
    rng = default_rng(seed)
    activity = np.exp(rng.normal(size=(rows, 1)) - 1)
    rate = DIM / 4 * activity * TASTES[rng.integers(6, size=rows)]
    return np.clip(rate * rng.gamma(1.0, 1.0, (rows, DIM)), 0, 1)


RECIPES = (uniform, clustered, counts)
METHODS = [row for row in TABLE.values() if row.private]
LAWS = {row.calibration: row for row in reversed(METHODS)}.values()
OF_LAWS = [
    pytest.param(row, recipe, id=f"{row.name}-{recipe.__name__}", marks=pytest.mark.slow)
    for row, recipe in zip(LAWS, cycle(RECIPES[:2]), strict=False)
]
OF_METHODS = pytest.mark.parametrize(
    "row, recipe",
    [
        *(pytest.param(row, counts, id=f"{row.name}-counts") for row in METHODS),
        *OF_LAWS,
    ],
)
"""Every method on vectors whose norms vary most, and every law on one of the other two kinds."""


@cache
def public_part(kind, recipe, delta):
    """A codebook or a design of public vectors of the recipe."""
    vectors = recipe(600, 3)
    if kind is Codebook:
        return Codebook(vectors[:100])
    return design(vectors, epsilon=3.0, code_length=12, delta=delta)


def spec_of(row, recipe, epsilon=3.0):
    terms = {"epsilon": epsilon}
    if row.calibration.rounded:
        terms["bounds"] = (0.0, 1.0)
    if row.family.public is not None:
        delta = 1e-6 if row.needs_delta else 0.0
        part = public_part(row.family.public, recipe, delta)
        terms["codebook" if row.family.public is Codebook else "design"] = part
    return example(row, DIM, **terms)


def neighbours(spec):
    """Two vectors that differ by as much as the adjacency allows."""
    pair = np.zeros((2, DIM))
    pair[:, 1:] = 0.5
    if isinstance(spec.adjacency, dpi.privacy.Record):
        pair[0] = default_rng(3).normal(size=DIM)
        pair[1] = -pair[0]
    elif isinstance(spec.adjacency, dpi.privacy.L2):
        length = 0.999 * spec.adjacency.radius
        pair[1] += np.tile([1, -1], DIM // 2) * length / math.sqrt(DIM)
        pair += 0.25
    else:
        pair[1, 0] = spec.adjacency.size
    return pair


def right_guesses(spec, pair, rows):
    """How often the likelier of two vectors is the one behind a code, ties by a coin."""
    privatizer = Privatizer(spec)
    likelihoods = decoder_of(spec).likelihoods(privatizer, pair)
    codes = privatizer.privatize(np.repeat(pair, rows, axis=0))
    logs = likelihoods.logs(codes)
    lead = (logs[0] - logs[1]).astype(np.float64)
    lead[rows:] *= -1
    ties = lead == 0
    return float(((lead > 0) + 0.5 * ties).mean())


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.name)
def test_no_guess_between_neighbours_is_as_often_right_as_stated(row):
    """By the likelihoods of 6000 codes; five deviations of a share of them are 0.033."""
    spec = spec_of(row, uniform)
    stated = re.search(r"at most ([\d.]+) % sure", spec.guarantee.odds())
    right = right_guesses(spec, neighbours(spec), 3000)
    assert right <= float(stated[1]) / 100 + 0.033


def test_no_guess_between_groups_is_as_often_right_as_stated():
    """Three attributes move by one beta each; for iDP, where nothing is stated, codes tell all."""
    for row in METHODS:
        spec = spec_of(row, uniform)
        if not isinstance(spec.adjacency, dpi.privacy.Attribute):
            continue
        if spec.guarantee.weakness:
            with refuses("says nothing about"):
                spec.guarantee.group(3)
            continue
        pair = neighbours(spec)
        pair[:, :3] = pair[:, :1]
        stated = re.search(r"at most ([\d.]+) % sure", spec.guarantee.group(3).odds())
        if stated is not None:  # else practically 100 %
            right = right_guesses(spec, pair, 2000)
            assert right <= float(stated[1]) / 100 + 0.04, row.name


@pytest.mark.parametrize("method", ["idp-signrp-rr", "idp-signoporp-rr"])
def test_two_attributes_can_cost_an_infinite_loss_under_idp(method):
    """A sign that no neighbour can change is bare; two steps away it is not."""
    spec = attribute_spec(method, DIM, 8, 1.0, bounds=(-4.0, 4.0))
    privatizer = Privatizer(spec)
    random = default_rng(0)
    for _ in range(60):
        start = random.uniform(-2, 2, DIM)
        moved = start.copy()
        moved[:2] += random.choice([-1.0, 1.0], 2)
        both = np.repeat([start, moved], 400, axis=0)
        codes = privatizer.privatize(both).to_float()
        before, after = (codes > 0).reshape(2, 400, -1).mean(axis=1)
        bare = (before == 1) | (before == 0)
        differs = np.abs(before - after) > 0.2
        if (bare & differs).any():
            break
    else:
        pytest.fail("no such pair was found")
    assert "m ×" not in " ".join(spec.guarantee.does_not_protect(DIM))


E1 = [
    ("raw-staircase", 16, None, 3.0, 10_000),
    ("raw-square-wave", 16, None, 2.0, 10_000),
    ("dp-oporp-staircase", 32, 8, 1.0, 3000),
]


@pytest.mark.parametrize("method, dim, k, epsilon, n", E1)
def test_e1_no_share_is_stated_where_attributes_are_hidden(method, dim, k, epsilon, n):
    """`info` said 3 to 49 % where a known vector was found in 24 to 75 %, and .65 of .44."""
    spec = attribute_spec(method, dim, k, epsilon, bounds=(0.0, 1.0))
    assert max_linkage_rate(spec, n) is None
    assert "%" not in exposure_line(spec, n)
    text = " ".join([exposure_line(spec, n), *information_lines(spec, n)])
    assert not re.search(r"error|cosine|0\.\d", text)  # no figure of a reconstruction either


@OF_METHODS
def test_figures_of_attacks_hold_for_vectors_that_were_kept_back(row, recipe):
    """What `plan` states is found in public vectors; here by attacks on others of the kind.

    A share of 250 known vectors has a deviation of at most 0.032, so two differ by less than 0.16
    (five deviations), and by less where few are found. Errors of 500 vectors are means of 12 000
    numbers. Beside our own reconstruction there is the mean of public vectors, each as likely as
    the code says, written out once more.
    """
    spec = spec_of(row, recipe)
    public = recipe(1200, 1)
    kept = recipe(1200, 2)
    stated = AttackFigures.of(Trial(spec, public))
    trial = Trial(spec, kept)
    share = trial.linkage().share
    variance = max(stated.linked, 0.01) / 250
    assert share <= stated.linked + 0.01 + 7 * math.sqrt(variance)
    text = " ".join(stated.lines())
    assert f"{stated.codes}" in text
    assert stated.reconstruction_cosine >= stated.guess_cosine  # who does worse than that guesses
    assert f"An attacker with {stated.others} similar public vectors" in text
    assert "With more of them it comes nearer" in text
    assert stated.others == 1200 - 500
    attacked = trial.index.codes.take(slice(500))
    attacker = Reconstructor(spec, recipe(3000, 3))
    larger = attacker.exposure(kept[:500], attacked)
    assert larger["reconstruction_cosine"] <= stated.highest_cosine + 0.03
    assert f"up to {math.ceil(100 * stated.highest_cosine) / 100:.2f} at most" in text
    attacker = reconstructor_of(spec, public, trial.index.codes)
    own = attacker.exposure(kept, trial.index.codes)
    assert stated.reconstruction_error <= 1.07 * own["reconstruction_error"] + 0.02
    truth = dense_units(spec, kept)
    guess = dense_units(spec, public).mean(axis=0)
    base = float(np.square(truth - guess).mean())
    some = public[::2]  # as many as the stated attack had
    likelihoods = decoder_of(spec).likelihoods(Privatizer(spec), some)
    logs = likelihoods.logs(trial.index.codes)[:-1]
    weights = np.exp((logs - logs.max(axis=0)).astype(np.float64))
    shares = weights / weights.sum(axis=0)
    estimate = shares.T @ dense_units(spec, some)
    left = np.square(estimate - truth).mean() / base
    assert stated.reconstruction_error <= 1.07 * left + 0.02


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("hash", [PStable(1.0), SRP(4), PairedSRP(4)], ids=str)
def test_errors_of_counts_of_a_sketch_hold(hash, recipe):
    """Against kernel sums of the records themselves, over 20 sketches."""
    records = recipe(800, 1)
    asked = recipe(40, 4)
    true = kernel_sum(hash, records, asked)
    held = []
    bounded = []
    for seed in range(20):
        spec = SketchSpec(
            dim=DIM,
            rows=200,
            width=100,
            hash=hash,
            epsilon=5.0,
            seed=seed,
        )
        sketch = RaceSketch(spec).fit(records).release()
        said = sketch.summary(asked)
        off = np.abs(said["count"] - true)
        held.append(np.mean(off <= 2 * said["stderr"]))
        said = sketch.summary(asked, failure=0.05)
        off = np.abs(said["count"] - true)
        bounded.append(np.mean(off <= said["bound"]))
    assert np.mean(held) >= 0.8
    assert np.mean(bounded) >= 0.99


OF_DECLARED_NORM = [f"dp-sign{p}{flips}" for p in ("rp", "oporp") for flips in (
    "-rr-smooth", "-geometric")]  # fmt: skip


@OF_METHODS
def test_e2_errors_of_hits_hold_or_are_not_stated(row, recipe):
    """Of calibrated indexes the truth lies within two errors 8 times in 10, at 16 coordinates."""
    lengths = row.family.lengths
    fixed = row.family.keeps_all or row.family.public is not None or lengths
    spec = spec_of(row, recipe)
    if not fixed:
        spec = replace(spec, k=16)
    base = recipe(700, 1)
    asked = recipe(80, 4)
    if row.name in OF_DECLARED_NORM:  # else they state nothing
        base, asked = (unit(x) for x in (base, asked))
        spec = replace(spec, norm=1.0)
    index = filled_index(spec, base)
    modes = ("exact", "private")
    for mode in modes:
        hits = index.search(asked, k=10, query=mode)
        stated = np.isfinite(hits.stderr)
        if stated.any():
            off = np.abs(hits.similarity - true_cosines(hits, base, asked))
            within = off[stated] <= 2 * hits.stderr[stated]
            assert within.mean() >= 0.8, mode


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "method, k",
    [
        ("dp-signoporp-rr", 8),
        ("dp-signoporp-rr", 24),
        ("dp-signrp-rr", 8),
        ("dp-signrp-rr", 64),
    ],
)
def test_e2_signs_of_few_positive_attributes_state_nothing(method, k, seed, recipe):
    """Signs agree whatever the attributes are, or flips hide them. They stated .99 ± .08 of .75."""
    base = recipe(700, 10 * seed + 1)
    asked = recipe(80, 10 * seed + 4)
    spec = attribute_spec(
        method, DIM, k, 3.0, bounds=(0.0, 1.0), seed=seed
    )  # fmt: skip
    index = filled_index(spec, base)
    for mode in ("exact", "private"):
        hits = index.search(asked, k=10, query=mode)
        assert np.isnan(hits.similarity).all(), mode
        assert "errors would be above 0.15" in hits.unstated


def test_bits_of_codes_are_no_fewer_than_they_carry():
    """Mutual information of codes and vectors, counted from the law itself."""
    book = Codebook(normal(64, 8))
    vectors = normal(300, 8, 1)
    for epsilon in (1.0, 3.0, 6.0):
        for subset in (1, 4, 12):
            spec = record_spec(
                "record-codebook", 8, epsilon=epsilon, codebook=book, subset=subset,
            )  # fmt: skip
            known = decoder_of(spec).likelihoods(Privatizer(spec), vectors)
            symbols = spec.format.codes(np.arange(64, dtype=np.uint8)[:, None])
            logs = known.logs(symbols)[:-1]
            chances = np.exp(logs.astype(np.float64))
            bits = chances * np.log2(chances / chances.mean(axis=0))
            carried = float(bits.sum(axis=1).mean())
            (line,) = information_lines(spec, 1000)
            most, own = map(float, re.findall(r"(?:than|carries) (\d+\.\d+)", line))
            assert carried <= own <= most + 0.01
            assert max_bits(epsilon) <= most
