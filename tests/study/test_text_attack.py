"""Public texts beside what an attacker rebuilds, and record-level curves on one picture."""

import numpy as np
import pytest
from helpers.common import csv_lines, fails, known_noise, normal, refuses, unit
from numpy.random import default_rng

from dpindex import Codebook, Spec, l2, record
from dpindex.study import evaluate, spec_grid, text_attack
from dpindex.study.examples import read_texts

pytestmark = known_noise

DIM = 24
RNG = default_rng(0)
CENTRES = RNG.normal(size=(10, DIM))


def rows(count, seed):
    x = CENTRES[np.arange(count) % 10] + 0.2 * normal(count, DIM, seed)
    return (unit(x)).astype(np.float32)


PUBLIC = rows(100, 1)
BASE = rows(300, 2)
PUBLIC_TEXTS = [f"topic {i % 10}, text {i}" for i in range(100)]
TEXTS = [f"<b>private</b> {i % 10}" for i in range(300)]


def specs(*epsilons):
    names = ["record-cap", "record-codebook", "raw-gaussian"]
    terms = {"adjacency": record(), "codebook": Codebook(PUBLIC)}
    return spec_grid(DIM, names, epsilons, **terms).specs


@pytest.mark.slow
def test_the_gaussian_hides_any_two_vectors_of_norm_1_for_contrast():
    found = {spec.method: spec for spec in specs(8.0)}
    assert found["raw-gaussian"].adjacency == l2(2)
    assert found["record-cap"].adjacency == record()
    (curve,) = evaluate(
        2 * BASE,
        rows(10, 3),
        found.values(),
        runs=1,
    )  # brought to norm 1
    assert curve.adjacency == "ε under record (any two vectors)"
    labels = {point.label for point in curve.points}
    assert "record-codebook, K = 100" in labels
    assert "raw-gaussian, k = 24, any two vectors of norm 1, δ = 1e-06" in labels
    with refuses("codewords are private vectors too"):
        evaluate(PUBLIC, rows(10, 3), [found["record-codebook"]], runs=1)
    other = Spec(
        "raw-gaussian",
        DIM,
        epsilon=8.0,
        delta=1e-6,
        adjacency=l2(1.0),
    )
    curves = evaluate(BASE, rows(10, 3), [found["record-cap"], other], runs=1)
    assert [curve.adjacency for curve in curves] == [
        "ε under record (any two vectors)", "ε under l2(radius=1)",
    ]  # fmt: skip


@pytest.mark.slow
def test_topics_come_back_with_epsilon():
    attack = text_attack(
        BASE,
        specs(1, 4, 8, 20),
        PUBLIC,
        PUBLIC_TEXTS,
        TEXTS,
        records=20,
    )
    assert attack[0].record == TEXTS[0]
    assert len(attack) == 9 * 20  # three epsilons of each method
    hits = {}
    for guess in attack:
        guessed = guess.text.split()[1][:-1]
        mine = hits.setdefault((guess.spec.method, guess.spec.epsilon), [])
        mine.append(guessed == guess.record.split()[1])
    right = {key: np.mean(mine) for key, mine in hits.items()}
    assert len(right) == 9
    assert right["record-codebook", 20.0] == 1.0
    assert right["record-codebook", 1.0] < 0.5
    assert right["record-cap", 20.0] > 0.6
    assert right["raw-gaussian", 4.0] < 0.5
    unnamed = text_attack(BASE, specs(8), PUBLIC, PUBLIC_TEXTS, records=2)
    assert list(dict.fromkeys(guess.record for guess in unnamed)) == ["row 0", "row 299"]
    with refuses("300 vectors, and there are 299 texts"):
        text_attack(BASE, specs(8), PUBLIC, PUBLIC_TEXTS, TEXTS[1:])


def test_texts_are_lines(tmp_path):
    (tmp_path / "t").write_bytes("ä\r\nb\u2028c\n\nd".encode())
    assert read_texts(tmp_path / "t") == ["ä", "b\u2028c", "", "d"]
    (tmp_path / "t").write_bytes(b"\xff\xfe")
    with refuses("not UTF-8"):
        read_texts(tmp_path / "t")


@pytest.mark.slow
def test_command_line(run, prints, tmp_path):
    for name, x in (("x", BASE), ("q", rows(5, 3)), ("public", PUBLIC)):
        np.save(tmp_path / f"{name}.npy", x)
    (tmp_path / "public.txt").write_text("\n".join(PUBLIC_TEXTS) + "\n")
    (tmp_path / "x.txt").write_text("\n".join(TEXTS) + "\n")
    terms = "evaluate x.npy q.npy --report r --record --runs 1"
    texts = "--public-texts public.txt --base-texts x.txt"
    for wrong, words in {
        texts: "--public FILE",
        "--labels x.txt": "'--labels' requires 2 arguments",
        "--labels x.txt public.txt": "--labels needs --public",
    }.items():
        fails(run(f"{terms} {wrong}"), words)
    output = prints(f"{terms} {texts} --codebook public.npy --epsilons 4,8,12")
    assert "any two vectors" in output
    page = (tmp_path / "r" / "report.html").read_text()
    assert "&lt;b&gt;private&lt;/b&gt;" in page
    assert "reconstructed at ε = 8" in page
    lines = csv_lines(tmp_path / "r" / "texts.csv")
    assert len(lines) == 3 * 3 * 5
    measured = csv_lines(tmp_path / "r" / "curve.csv")
    sizes = {(line["method"], line["codewords"]) for line in measured}
    assert ("record-codebook", "100") in sizes
