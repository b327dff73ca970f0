"""The panel of attacks: its measures by brute force, its bounds, and a planted leak."""

import math
from itertools import combinations

import numpy as np
import pytest
from helpers.common import (
    ROOT,
    attribute_spec,
    codes_of,
    csv_lines,
    directions,
    known_noise,
    projected,
    record_spec,
    refuses,
    top,
)
from numpy.random import default_rng

from dpindex import Codebook, Privatizer
from dpindex.decode import decoder_of
from dpindex.mechanism.promises import max_inference_rate, max_top_k_rate, max_tpr
from dpindex.study import attacks as panel
from dpindex.study.attacks import Labels, attack_panel
from dpindex.study.matching import (
    TruePlaces,
    learned_map,
    rank_by_law,
    rank_by_scores,
    true_positive_rate,
)

pytestmark = known_noise

DIM = 16


def whole(method, epsilon, **terms):
    return record_spec(method, DIM, epsilon=epsilon, **terms)


def unit_rows(count, seed):
    return directions(count, DIM, seed)


def signs_of(epsilon, most):
    bounds = (-most, most)
    return attribute_spec("dp-signoporp-rr", DIM, k=DIM, epsilon=epsilon, bounds=bounds)


def rate_of(figures, setting):
    (rate,) = (figure.rate for figure in figures if figure.setting == setting)
    return rate


# Measures


def test_ranks_are_averaged_over_every_draw_of_candidates():
    """Five others, two of them better: all draws of three others, counted out."""
    ranking = TruePlaces(np.array([2]), 6)
    draws = list(combinations(range(5), 3))  # others 0 and 1 are better
    for places in (1, 2, 3):
        hits = [sum(other < 2 for other in draw) < places for draw in draws]
        assert ranking.found(4, places) == pytest.approx(np.mean(hits))


def test_half_of_the_ties_are_before_the_true_vector():
    scores = np.array([[1.0, 1.0, 1.0, 0.0, -1.0]])
    ranking = rank_by_scores(lambda codes: scores[codes], np.array([0]), 5)
    assert ranking.better.tolist() == [1]
    assert ranking.candidates == 5


def test_symbols_rank_candidates_by_their_exact_law():
    words = unit_rows(12, 1)
    candidates = unit_rows(40, 2)
    spec = whole("record-codebook", 3.0, codebook=Codebook(words), subset=3)
    symbols = np.array([4, 7, 4])
    own = np.array([0, 5, 9])
    codes = spec.format.codes(symbols[:, None].astype(np.uint8))
    cosine = candidates @ words.T
    expected = []
    for symbol, row in zip(symbols, own, strict=True):
        sets = top(cosine, 3)
        score = [(symbol in sets[i], cosine[i, symbol]) for i in range(40)]
        expected.append(sum(other > score[row] for other in score))
    ranking = rank_by_law(spec, codes, candidates, own)
    assert ranking.better.tolist() == expected
    assert ranking.candidates == 40


def test_candidates_far_beyond_the_law_are_ranked_without_a_warning():
    """Codes without noise have a law of one cell, and a vector lies 2^33 of its parts away."""
    x = default_rng(0).uniform(0, 1, (60, 784))
    x[0] = 1.0
    x[1] = np.eye(1, 784) / 1000
    spec = attribute_spec("none-oporp", 784, k=196)
    codes = codes_of(spec, x)
    places = rank_by_law(spec, codes, x, np.arange(60))
    assert places.found(60) == 1


def test_signs_are_ranked_by_their_likelihood():
    spec = signs_of(2.0, 1.0)
    x = unit_rows(60, 4)
    own = np.arange(60)
    codes = codes_of(spec, x)
    signs = np.sign(projected(spec, x))
    kept = 1 / (1 + math.exp(-2.0))
    same = codes.to_float()[:, None, :] == signs
    score = np.where(same, math.log(kept), math.log(1 - kept)).sum(axis=2)
    true = score[own, own][:, None]
    above = (score > true + 1e-9).sum(axis=1)
    ties = (np.abs(score - true) < 1e-9).sum(axis=1) - 1  # it ties with itself
    better = rank_by_law(spec, codes, x, own).better
    assert (above <= better).all()
    assert (better <= above + ties).all()


def test_the_learned_map_leaves_every_pair_out():
    rng = default_rng(1)
    x = rng.normal(size=(30, 6))
    y = x[:, :2] @ rng.normal(size=(2, 3)) + rng.normal(size=(30, 3))
    scale = np.square(np.linalg.svd(x - x.mean(axis=0), compute_uv=False)).mean()

    def ridge(x, y, penalty, new):
        centred = x - x.mean(axis=0)
        covariance = centred.T @ centred + penalty * np.eye(6)
        return y.mean(axis=0) + (new - x.mean(axis=0)) @ np.linalg.solve(
            covariance, centred.T @ (y - y.mean(axis=0))
        )

    def left_out(penalty):
        rest = [np.delete(np.arange(30), i) for i in range(30)]
        made = [ridge(x[rows], y[rows], penalty, x[i]) for i, rows in enumerate(rest)]
        return float(np.square(np.array(made) - y).sum())

    penalties = scale * 10.0 ** np.arange(-6, 5)
    best = min(penalties, key=left_out)
    new = rng.normal(size=(4, 6))
    assert learned_map(x, y)(new) == pytest.approx(ridge(x, y, best, new))


def test_membership_counts_false_positives():
    scores = default_rng(1).normal(size=700)
    members = scores[:500]
    others = scores[500:]
    for share in (0.01, 0.1):
        rate = true_positive_rate(members, others, share)
        threshold = np.quantile(others, 1 - share, method="higher")
        assert rate == pytest.approx((members > threshold).mean(), abs=0.01)
        assert (others > np.sort(others)[-1 - int(share * 200)]).mean() <= share


# Bounds


def test_the_bound_is_what_the_best_mechanism_reaches():
    """Randomized response among n names points at the true one as often as any may."""
    for n, epsilon in ((2, 1.0), (50, 3.0)):
        spec = whole("record-cap", epsilon)
        reached = math.exp(epsilon) / (math.exp(epsilon) + n - 1)
        assert max_top_k_rate(spec, n) == pytest.approx(reached)
        assert max_top_k_rate(spec, n, n) == 1.0
        assert max_inference_rate(spec, 1 / n) == pytest.approx(reached)
    assert max_tpr(whole("record-cap", 1.0), 0.01) == pytest.approx(0.01 * math.e)
    pixel = attribute_spec("raw-staircase", DIM, epsilon=1.0)
    for rate in (max_top_k_rate(pixel, 10), max_inference_rate(pixel, 0.5), max_tpr(pixel, 0.1)):
        assert rate is None


def test_no_attack_on_whole_records_beats_its_bound():
    base = unit_rows(2000, 1)
    public = unit_rows(600, 2)
    book = Codebook(unit_rows(64, 3))
    labels = Labels(np.sign(base[:, 0]), np.sign(public[:, 0]))
    specs = [
        whole("record-cap", 4.0),
        whole("record-codebook", 4.0, codebook=book, subset=2),
    ]
    specs += [spec.with_epsilon(1.0) for spec in specs]
    figures = attack_panel(base, specs, public, labels)
    names = {figure.name for figure in figures}
    assert names == {
        "reconstruction", "candidate ranking", "alignment", "membership", "attribute inference",
    }  # fmt: skip
    for figure in figures:
        if figure.bound is not None:
            # Five deviations of a share of 500, of which every attacked code is one.
            variance = max(figure.bound * (1 - figure.bound), 1e-3) / 500
            spread = 5 * math.sqrt(variance)
            assert figure.rate <= figure.bound + spread, figure


def response(leak):
    """How often 64 codewords are picked from their codes at epsilon = 3 and a leak of it."""
    words = unit_rows(64, 3)
    near = words + 1e-2 * unit_rows(64, 4)
    spec = whole(
        "record-codebook",
        3.0 * leak,
        codebook=Codebook(words),
        subset=1,
    )
    base = np.concatenate([near] * 30)
    figures = attack_panel(base, [spec], unit_rows(200, 5))
    return rate_of(figures, "top 1 of 10")


def test_a_planted_leak_is_seen():
    """An attack on the best mechanism comes near the bound; half the noise goes far beyond it."""
    bound = max_top_k_rate(whole("record-cap", 3.0), 10)
    honest = response(1.0)
    spread = 5 * math.sqrt(bound * (1 - bound) / 500)
    assert honest <= bound + spread
    assert response(2.0) > bound + spread


# The whole


def test_labels_are_told_by_codes_and_by_the_crowd():
    rng = default_rng(0)
    centres = 3 * unit_rows(4, 7)
    truth = rng.integers(0, 4, 3000)
    told = rng.integers(0, 4, 600)
    base = centres[truth] + unit_rows(3000, 8)
    public = centres[told] + unit_rows(600, 9)
    spec = signs_of(60.0, 8.0)
    figures = attack_panel(base, [spec], public, Labels(truth, told))
    rates = {f.setting: f for f in figures if f.name == "attribute inference"}
    assert rates["own code"].rate > 0.95
    assert rates["ten nearest others"].rate > 0.95
    assert rates["own code"].without == pytest.approx(0.25, abs=0.1)
    assert rate_of(figures, "top 1 of 10") > 0.8


def test_what_cannot_be_attacked_is_refused():
    base = unit_rows(50, 1)
    public = unit_rows(120, 2)
    spec = [whole("record-cap", 4.0)]
    with refuses("at least 100 public vectors"):
        attack_panel(base, spec, public[:20])
    with refuses("columns"):
        attack_panel(base, spec, public[:, :4])
    with refuses("give one for each vector"):
        attack_panel(base, spec, public, Labels(np.zeros(50), np.zeros(3)))


ROWS = {
    "candidate ranking: top 1 of 10": ("candidate ranking", "top 1 of 10"),
    "candidate ranking: top 1 of 1000": ("candidate ranking", "top 1 of 1000"),
    "candidate ranking: top 1 of 18 700": ("candidate ranking", "top 1 of 18700"),
    "candidate ranking: top 1 of 20 000": ("candidate ranking", "top 1 of 20000"),
    "alignment: 1000 known pairs, cosine": ("alignment", "1000 pairs, cosine"),
    "reconstruction: cosine": ("reconstruction", "cosine"),
    "membership: true positives at 1 % false ones": (
        "membership", "exact query, 1.0% false positives",
    ),
    "intent (of 151) told from the code": ("attribute inference", "own code"),
    "intent told from the ten nearest others": ("attribute inference", "ten nearest others"),
    "digit told from the code": ("attribute inference", "own code"),
    "digit told from the ten nearest others": ("attribute inference", "ten nearest others"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name, method, epsilons",
    [
        ("clinc150", "record-codebook", (4, 6, 8, 10, 12)),
        ("mnist", "raw-square-wave", (1, 2, 3, 5)),
    ],
)
def test_the_page_says_what_was_measured(name, method, epsilons):
    measured = csv_lines(ROOT / "bench" / "inversion" / f"{name}.csv")
    lines = [line for line in measured if line["method"] == method]
    text = (ROOT / "docs" / "inversion.md").read_text(encoding="utf-8")
    tables = [part for part in text.split("\n\n") if part.startswith("| attack")]
    place = 0 if name == "clinc150" else 1
    _, _, *table = tables[place].splitlines()
    assert len(table) > 5
    for row in table:
        title, _, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        attack, setting = ROWS[title]
        chosen = {
            float(line["epsilon"]): line
            for line in lines
            if (line["attack"], line["setting"]) == (attack, setting)
        }
        for epsilon, cell in zip(epsilons, cells, strict=False):
            line = chosen[epsilon]
            for said, column in zip(cell.split("≤"), ("rate", "bound"), strict=False):
                assert float(said) == pytest.approx(float(line[column]), abs=0.0051), row


@pytest.mark.slow
def test_the_command_writes_a_table_and_a_section(prints, tmp_path, monkeypatch):
    monkeypatch.setattr(panel, "ATTACKED_ROWS", 50)
    files = {"x": unit_rows(300, 1), "q": unit_rows(5, 3), "p": unit_rows(150, 2)}
    for name, x in files.items():
        np.save(tmp_path / f"{name}.npy", x)
    np.save(tmp_path / "lx.npy", np.arange(300) % 2)
    np.save(tmp_path / "lp.npy", np.arange(150) % 2)
    measured = "--record --runs 1 --epsilons 4,8"
    prints(f"evaluate x.npy q.npy --report r {measured} --public p.npy --labels lx.npy lp.npy")
    lines = csv_lines(tmp_path / "r" / "attacks.csv")
    assert {line["attack"] for line in lines} >= {"candidate ranking", "attribute inference"}
    assert "A panel of attacks" in (tmp_path / "r" / "report.html").read_text("utf-8")


def uniform(rows, seed):
    return default_rng(seed).uniform(0, 1, (rows, 24))


STRONG = attribute_spec("raw-square-wave", 24, epsilon=2.0, bounds=(0.0, 1.0))


def test_candidates_are_ranked_by_the_likelihood():
    """The odds point at 86 in 100 among 800, cosines at 50; five deviations are 8."""
    base = uniform(800, 1)
    figures = attack_panel(base, [STRONG], uniform(300, 2))
    rate = rate_of(figures, "top 1 of 800")
    privatizer = Privatizer(STRONG)
    own = np.arange(0, 800, 2)
    likelihoods = decoder_of(STRONG).likelihoods(privatizer, base)
    logs = likelihoods.logs(privatizer.privatize(base[own]))
    alone = float((logs[:800].argmax(axis=0) == own).mean())
    assert rate >= alone - 0.09


def test_members_are_told_by_the_odds():
    """By the odds at 1 % false positives half of them, by cosines a sixth."""
    figures = attack_panel(uniform(800, 1), [STRONG], uniform(3000, 2))
    assert rate_of(figures, "exact query, 1.0% false positives") >= 0.3
