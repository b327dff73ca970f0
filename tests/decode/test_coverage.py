"""Coverage: codes of vectors unlike the codebook crowd on few codewords, and the user is told."""

import numpy as np
import pytest
from helpers.common import codes_of, known_noise, normal, record_spec, true_cosines, unit
from numpy.random import default_rng

from dpindex import Codebook, PrivateIndex, Privatizer
from dpindex.decode.symbols import crowding

pytestmark = known_noise

DIM = 16
CENTRES = normal(40, DIM)


def topics(rows, seed, first=0, last=40):
    """Vectors about some of forty centres."""
    rng = default_rng(seed)
    centres = CENTRES[rng.integers(first, last, rows)]
    x = centres + 0.4 * rng.normal(size=(rows, DIM))
    return unit(x).astype(np.float32)


def spec(epsilon, subset, words):
    book = Codebook(words)
    return record_spec(
        "record-codebook", DIM, epsilon=epsilon, codebook=book,
        subset=subset,
    )  # fmt: skip


@pytest.mark.parametrize("epsilon, subset", [(6.0, 10), (9.0, 3), (14.0, 1)])
def test_what_resembles_the_codebook_does_not_crowd(epsilon, subset):
    made = spec(epsilon, subset, topics(800, 1))
    privatizer = Privatizer(made)
    own = privatizer.privatize(topics(4000, 2))
    assert crowding(own, made.law) < 1.0
    others = privatizer.privatize(topics(4000, 3, last=12))
    assert crowding(others, made.law) > 1.3


def test_few_codewords_tell_own_topics_from_others():
    """A plan recommends some hundred centroids, and their halves hold few pairs to compare with."""
    for seed in range(8):
        made = spec(8.0, 2, topics(150, 100 + seed))
        privatizer = Privatizer(made)
        own = privatizer.privatize(topics(4000, 200 + seed))
        others = privatizer.privatize(topics(4000, 300 + seed, last=20))
        assert crowding(own, made.law) < 1.0
        assert crowding(others, made.law) > 1.15


@pytest.mark.slow
def test_the_noise_is_taken_out():
    """Codes with noise and codes without it crowd alike; the codes themselves do not."""
    words = topics(600, 1)
    vectors = topics(200_000, 2, last=10)
    loud = spec(5.0, 3, words)
    silent = spec(40.0, 3, words)
    of_loud, of_silent = (crowding(codes_of(one, vectors), one.law) for one in (loud, silent))
    assert of_loud == pytest.approx(of_silent, rel=0.1)
    assert loud.law.chance_inside < 0.5


@pytest.mark.parametrize("kind", ["own", "foreign collection", "foreign queries"])
def test_errors_hold_for_what_is_unlike_the_codebook(kind):
    """Few similarities lie outside of two of their errors."""
    own = {"last": 20}
    foreign = {"first": 10}
    words = topics(500, 1, **own)
    index = PrivateIndex(spec(10.0, 2, words))
    base = topics(4000, 2, **(foreign if kind == "foreign collection" else own))
    queries = topics(300, 3, **(foreign if kind == "foreign queries" else own))
    index.add(base)
    for mode in ("exact", "private"):
        hits = index.search(queries, k=10, query=mode)
        stated = np.isfinite(hits.stderr)
        assert stated.all() or "errors would be above 0.15" in hits.unstated
        if mode == "private" or kind == "foreign collection":  # nobody knows how far they are
            assert not stated.any()
            continue
        assert stated.mean() > (0.8 if kind == "own" else 0.3)
        off = hits.similarity - true_cosines(hits, base, queries)
        within = np.abs(off) <= 2 * hits.stderr
        assert within[stated].mean() > 0.85
        if kind == "own":
            wanted = hits.unbiased_stderr[stated]
            np.testing.assert_allclose(hits.stderr[stated], wanted, atol=0.03)


def test_the_holder_is_told(run, prints, tmp_path):
    files = {
        "own": topics(3000, 2, last=10),
        "other": topics(3000, 3, first=10),
        "public": topics(500, 1, last=10),
    }
    for name, x in files.items():
        np.save(tmp_path / f"{name}.npy", x)
    terms = "--record --method record-codebook --codebook public.npy --epsilon 8"
    for name, told in (("own", False), ("other", True)):
        code, _, error = run(f"build {name}.npy ix-{name} {terms}")
        assert code == 0
        assert ("the codebook does not cover this collection" in error) == told
        first, *_ = prints(f"info ix-{name}").splitlines()
        assert first.startswith("Warning: the codebook does not cover") == told
