"""An index that ranks with what it learned from its own codes."""

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    filled_index,
    known_noise,
    low_rank,
    names_in,
    overlap,
    photographs,
    picked,
    refuses,
    reopened,
    top,
    unit,
)

from dpindex import PrivateIndex, Spec, attribute
from dpindex.decode import fit as fitting

DIM = 24


pytestmark = known_noise


def spec_of(method="raw-staircase", epsilon=3.0, **more):
    terms = {"adjacency": attribute(1.0), "bounds": (0, 1), "seed": 5, **more}
    return Spec(method, DIM, epsilon=epsilon, **terms)


def filled(spec=None, **options):
    """An index and its vectors."""
    base = low_rank(2000)
    return filled_index(spec or spec_of(), base, **options), base


def precision(hits, base, queries):
    """Share of the ten found among the true fifty by cosine."""
    true = top(unit(queries) @ unit(base).T, 50)
    return overlap(hits.ids, true)


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_finds_more(metric):
    """More true neighbours at the same epsilon; nothing about the codes changes."""
    index, base = filled(metric=metric)
    asked = base[:200]

    def hits():
        return [index.search(asked, query=query) for query in ("exact", "private")]

    before = hits()
    codes = index.codes
    assert index.denoiser is None
    denoiser = index.fit_denoiser()
    after = hits()
    assert index.denoiser is denoiser
    assert np.array_equal(index.codes.stored, codes.stored)
    for plain, denoised in zip(before, after, strict=True):
        if metric == "cosine":
            gained = precision(denoised, base, asked) - precision(plain, base, asked)
            assert gained > 0.03
        assert (np.diff(denoised.scores, axis=1) <= 1e-6).all()


def test_few_columns_get_the_linear_filter():
    """Three columns say little about each other, and neither kind gains or loses much."""
    rng = np.random.default_rng(3)
    kinds = rng.random((2, 3))[rng.integers(2, size=6000)]
    base = np.clip(kinds + rng.normal(0, 0.15, (6000, 3)), 0, 1)
    terms = {"adjacency": attribute(0.2), "bounds": (0, 1), "seed": 5}
    spec = Spec("raw-staircase", 3, epsilon=5.0, **terms)
    index = filled_index(spec, base)
    asked = base[:200]

    def found():
        return precision(index.search(asked), base, asked)

    plain = found()
    assert index.fit_denoiser().kind == "linear"
    assert found() > plain - 0.04
    index.fit_denoiser("score")
    assert found() > plain - 0.04


@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["f32", "f16"])
def test_ranks_by_what_is_uncertain_too(index_type, monkeypatch):
    """Where sizes are told apart: found and scored as by hand."""
    monkeypatch.setattr(
        fitting,
        "MIN_Z_OF_PRIORS",
        {"scales": -1e9, "mixture": 1e9},
    )
    spec = attribute_spec(
        "raw-square-wave",
        96,
        epsilon=4.0,
        bounds=(0, 1),
        seed=5,
    )
    index = PrivateIndex(spec, index_type=index_type)
    index.add(photographs(6000, 0))
    denoiser = index.fit_denoiser("score")
    assert denoiser.error_variance.size
    asked = photographs(50, 1)
    scores = unit(asked) @ denoiser.to_rank(index.codes).T
    hits = index.search(asked, query="exact")
    tolerance = {"f32": 1e-5, "f16": 1e-3}[index_type]
    best = -np.sort(-scores, axis=1)[:, :10]
    assert hits.scores == pytest.approx(best, abs=tolerance)
    found = picked(scores, hits.ids.astype(np.intp))
    assert found == pytest.approx(best, abs=2 * tolerance)


def test_later_codes_removal_and_another_query_budget():
    index, base = filled(query_epsilon=6.0)
    index.fit_denoiser()
    index.search(base[:3])
    late = low_rank(10, seed=8)
    index.add(late, ids=np.arange(5000, 5010))
    near = index.search(late, k=200).ids
    own = np.arange(5000, 5010)[:, None]
    assert (near == own).any(axis=1).mean() >= 0.8
    private = index.search(base[:3], query="private")
    assert private.ids.shape == (3, 10)
    index.remove(np.arange(100))
    assert index.denoiser is not None
    left = index.search(base[:3], k=50).ids
    assert not np.isin(left, np.arange(100)).any()
    found = index.range_search(base[:2], 0.9)
    for hits in found:
        assert (hits.similarity >= 0.9).all()


def test_declines_and_stays_as_it_was():
    index = filled_index(spec_of(), low_rank(100))
    with refuses("too few to learn"):
        index.fit_denoiser()
    assert index.denoiser is None
    hits = index.search(low_rank(1))
    assert hits.ids.shape == (1, 10)


class TestOnDisk:
    def test_fitted_after_saving_and_again(self, tmp_path):
        index, _ = filled()
        index.save(tmp_path / "index")
        assert not (tmp_path / "index" / "denoiser").exists()
        names = []
        for kind in ("linear", "score"):
            index.fit_denoiser(kind)
            index.save(tmp_path / "index")
            (model,) = (tmp_path / "index" / "denoiser").iterdir()
            names.append(model.name)
            opened = PrivateIndex.open(tmp_path / "index")
            assert opened.denoiser.kind == kind
        assert len(set(names)) == 2
        opened.add(low_rank(3, seed=2))
        opened.save(tmp_path / "index")
        assert names_in(tmp_path / "index" / "denoiser") == names[1:]
        again = PrivateIndex.open(tmp_path / "index")
        assert again.denoiser is not None
        assert len(again) == 2003
        again.remove([0])
        assert reopened(again, tmp_path / "index").denoiser is not None
