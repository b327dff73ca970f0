"""A softmax codebook from the command line to hits: build, info, query, ledger, open."""

import numpy as np
import pytest
from helpers.common import filled_index, known_noise, normal, picked, unit

import dpindex as dpi
from dpindex.decode.symbols import crowding

DIM = 24
CENTRES = normal(30, DIM)


def kind(count, seed):
    rng = np.random.default_rng(seed)
    x = CENTRES[rng.integers(0, 30, count)] + 0.5 * rng.normal(size=(count, DIM))
    return unit(x).astype(np.float32)


def spec(**terms):
    book = dpi.Codebook(kind(200, 1))
    ordinary = {"epsilon": 3.0, "adjacency": dpi.attribute(0.25), "codebook": book}
    return dpi.Spec("codebook-softmax", DIM, **{**ordinary, **terms})


@known_noise
@pytest.mark.parametrize("query", ["exact", "private"])
@pytest.mark.parametrize("record", [None, 9.0])
def test_neighbours_are_found_and_similarities_are_true(query, record):
    base = kind(3000, 2)
    asked = kind(100, 3)
    index = filled_index(spec(record_epsilon=record), base)
    hits = index.search(asked, k=50, query=query)
    cosines = asked @ base.T
    true = picked(cosines, hits.ids)
    usual = float(cosines.mean())
    assert true.mean() > usual + 0.3
    # Estimates are those of public vectors of the kind, and do not favour what was chosen.
    assert hits.unbiased.mean() == pytest.approx(true.mean(), abs=0.1)
    every = index.search(asked, k=len(base), query=query)  # nothing is chosen
    errors = every.unbiased - picked(cosines, every.ids)
    assert 0.5 < np.std(errors / every.unbiased_stderr) < 1.5


@known_noise
def test_a_collection_of_another_kind_is_noticed():
    made = spec(epsilon=8.0)
    like = dpi.Privatizer(made).privatize(kind(4000, 5))
    assert crowding(like, made.law) < 1.5
    unlike = dpi.Privatizer(made).privatize(np.tile(kind(1, 6), (4000, 1)))
    assert crowding(unlike, made.law) > 3


@known_noise
def test_likelihoods_are_the_chances_of_symbols():
    from dpindex.decode import decoder_of

    made = spec()
    privatizer = dpi.Privatizer(made)
    known = kind(40, 7)
    codes = privatizer.privatize(kind(30, 8))
    logs = decoder_of(made).likelihoods(privatizer, known).logs(codes)
    chances = made.law.chances(privatizer.project(known))
    np.testing.assert_allclose(
        np.exp(logs[:-1]),
        chances[:, codes.stored.ravel()],
        rtol=1e-4,
    )


def test_from_files_to_hits(tmp_path, prints):
    files = {"base": kind(800, 2), "public": kind(100, 1), "asked": kind(4, 3)}
    for name, x in files.items():
        np.save(tmp_path / f"{name}.npy", x)
    words = "--method codebook-softmax --codebook public.npy --epsilon 2 --beta 0.5"
    words += " --record-epsilon 8 --ledger ledger"
    ids = "\n".join(map(str, range(800)))
    (tmp_path / "ids.txt").write_text(ids)
    prints(f"build base.npy index {words} --ids ids.txt")
    out = prints("info index")
    assert "epsilon = 2" in out
    assert "epsilon = 8" in out
    assert "any two vectors" in out
    assert "scores of all codewords" in out
    index = dpi.open(tmp_path / "index")
    assert index.spec.record_epsilon == 8.0
    assert index.spec.guarantee.also[0].epsilon == 8.0
    prints("query index asked.npy --query private -k 3")
    out = prints("ledger ledger")
    assert "and epsilon = 8" in out
