"""One command, one release: vectors that are added again are known again, and refused."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy
from helpers.common import (
    all_bytes,
    attribute_spec,
    build,
    counted,
    fails,
    filled_index,
    needs_posix,
    normal,
    refuses,
    reopened,
    uniform,
)

import dpindex as dpi
from dpindex.data import open_dataset
from dpindex.storage.code_store import CodeStore
from dpindex.storage.history import History, released_path
from dpindex.storage.manifest import Settings

DIM = 8
SPEC = attribute_spec(
    "dp-oporp-staircase",
    DIM,
    k=8,
    epsilon=3.0,
    bounds=(-1, 1),
)
INDEX = Settings(SPEC, "ip")
"""Nothing is learned for inner products, so these tests are fast."""

VECTORS = uniform(600, DIM).astype(np.float32)
OTHERS = uniform(600, DIM, seed=1).astype(np.float32)
AGAIN = "were released into this index before"
METHOD = "--method dp-oporp-staircase --epsilon 3 --beta 1 --bounds -1 1 --metric ip"


@pytest.fixture
def index(tmp_path):
    """An index of the vectors."""
    build(tmp_path / "ix", INDEX, VECTORS)
    return tmp_path / "ix"


def added(path, vectors, ids=None, **terms):
    with dpi.PrivateIndex.changing(path) as index:
        index.add(vectors, ids, **terms)
        index.save(path)
    return len(index)


def test_one_command_run_twice_releases_once(run, prints, tmp_path):
    np.save("v.npy", VECTORS)
    np.save("w.npy", OTHERS)
    prints(f"build v.npy ix {METHOD}")
    fails(
        run("add ix v.npy"),
        f"600 of these 600 vectors {AGAIN}",
        "--allow-rerelease",
    )
    prints("add ix w.npy")
    fails(run("add ix w.npy"), AGAIN, "(--allow-rerelease, --ids, --ledger)")
    fails(run("add ix w.npy --allow-rerelease"), "name the ledger")
    assert len(dpi.open("ix")) == 1200
    ids = "\n".join(map(str, range(2000, 2600)))
    Path("ids.txt").write_text(ids)
    prints("add ix w.npy --allow-rerelease --ledger book --ids ids.txt")
    fails(run("add ix v.npy"), "counted in the ledger", "(--ledger)")
    assert len(dpi.open("ix")) == 1800


ERRORS = 1 + 1e-6 * np.sin(np.arange(VECTORS.size)).reshape(VECTORS.shape)
"""What another order of additions may do to each number."""

FORMS = {
    "computed again": lambda x: x * ERRORS,
    "in another order": lambda x: x[::-1],
    "as doubles": lambda x: x.astype(np.float64),
    "with five digits": lambda x: x.round(5),
    "as a sparse matrix": scipy.sparse.csr_matrix,
    "a tenth of them": lambda x: x[::10],
    "among as many others": lambda x: np.vstack([x, OTHERS]),
    "a few among many others": lambda x: np.vstack([x[:30], OTHERS]),
    "as a list": lambda x: x.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_vectors_are_known_in_any_form(index, form):
    with refuses(AGAIN):
        added(index, FORMS[form](VECTORS))
    assert len(dpi.open(index)) == 600


def test_it_is_known_whoever_added_it_first(tmp_path):
    """From memory, from a dataset, after a removal, into a copy that was saved elsewhere."""
    place = tmp_path / "ix"
    index = filled_index(SPEC, VECTORS, metric="ip")
    index.save(place)
    added(place, OTHERS)
    index = dpi.open(place)
    index.remove(index.ids)
    index.save(place)
    index.save(tmp_path / "copy")
    for path in (place, tmp_path / "copy"):
        for vectors in (VECTORS, OTHERS):
            with refuses(AGAIN):
                added(path, vectors)


def test_releases_that_nothing_asked_about_are_known_one_by_one(tmp_path):
    """Their tags wait to be sorted in; a few vectors are known by the release that they came in."""
    index = filled_index(SPEC, VECTORS, metric="ip")
    few = np.split(OTHERS[:210], 70)
    for vectors in few:
        index.add(vectors)
    index.save(tmp_path / "ix")
    for vectors in few:
        with refuses(AGAIN):
            index.add(vectors)


def test_what_was_not_saved_yet_is_known_from_a_file_and_beside_a_ledger(tmp_path):
    index = dpi.PrivateIndex(SPEC, metric="ip")
    index.save(tmp_path / "ix")
    index.add(VECTORS)
    np.save(tmp_path / "half.npy", VECTORS[:300])
    with open_dataset(tmp_path / "half.npy") as dataset, refuses(AGAIN):
        index.add(dataset)
    ledger = dpi.Ledger(tmp_path / "ledger")
    index.add(OTHERS, np.arange(1000, 1600), ledger=ledger)
    with refuses(AGAIN):
        index.add(VECTORS[:300], range(2000, 2300), ledger=ledger)


def test_others_are_added_without_a_word(index):
    assert added(index, OTHERS) == 1200
    moved = VECTORS.copy()
    moved[:, 0] = -moved[:, 0]
    assert added(index, moved) == 1800


def repeated_texts(random, rows):
    """Some that people repeat, and many that few do."""
    which = random.zipf(1.3, rows).clip(1, 3000)
    return normal(3000, 8, 7)[which - 1]


CHANCE = {
    "answers of few kinds": lambda random, rows: random.integers(0, 3, (rows, 6)) / 2,
    "one of twelve": lambda random, rows: np.eye(12)[random.integers(0, 12, rows)],
    "a number each": lambda random, rows: random.uniform(0, 1, (rows, 1)),
    "counts, some large": lambda random, rows: random.zipf(1.5, (rows, 2)).clip(0, 1000) / 1.0,
    "few things bought": lambda random, rows: (random.random((rows, 200)) < 0.01) / 1.0,
    "texts that people repeat": repeated_texts,
}


@pytest.mark.parametrize("kind", CHANCE)
def test_what_is_equal_by_chance_is_added(kind):
    """Other people have the same answers: ten times four batches of 9 to 3000 of them."""
    random = np.random.default_rng(11)
    for _ in range(10):
        known = History()
        for rows in random.integers(9, 3000, 4):
            tags = known.tags(CHANCE[kind](random, int(rows)))
            known.refuse_again(tags, named=False)
            known = known.with_rows(tags)


def test_a_few_equal_vectors_are_other_peoples_unless_all_came_together(index):
    assert added(index, VECTORS[:5]) == 605
    with refuses("5 of these 5"):
        added(index, VECTORS[:5])
    nobody = np.zeros((1, DIM))
    with_one_of_nobody = np.vstack([OTHERS[:4], nobody])
    assert added(index, with_one_of_nobody) == 610
    with refuses(AGAIN):
        added(index, with_one_of_nobody)
    assert added(index, np.zeros((3, DIM))) == 613
    assert added(index, np.zeros((3, DIM))) == 616


def test_ids_say_who_a_few_equal_vectors_are(index):
    """Two people with the same vector are two; a whole file under new ids is the file again."""
    assert added(index, VECTORS[:3], [7001, 7002, 7003]) == 603
    with refuses(AGAIN):
        added(index, VECTORS, range(8000, 8600))


def test_the_ledger_of_an_index_is_named_or_nothing_is_added(tmp_path):
    ledger = dpi.Ledger(tmp_path / "private" / "ledger")
    ledger.path.parent.mkdir()
    ids = [f"id-{row}" for row in range(600)]
    build(tmp_path / "ix", INDEX, VECTORS, ids=ids, ledger=ledger)
    for other in (None, dpi.Ledger(tmp_path / "other")):
        with refuses(r"counted in the ledger .*private/ledger; name it"):
            added(tmp_path / "ix", OTHERS[:5], list("abcde"), ledger=other)
    assert not (tmp_path / "other").exists()
    shutil.move(ledger.path.parent, tmp_path / "moved")
    moved = dpi.Ledger(tmp_path / "moved" / "ledger")
    assert added(tmp_path / "ix", OTHERS[:5], list("abcde"), ledger=moved) == 605
    with refuses("moved/ledger; name it"):
        added(tmp_path / "ix", OTHERS[5:9], list("fghi"))
    assert counted(moved) == [(605, 1)]


def test_an_index_that_grew_with_a_ledger_knows_it(index, tmp_path):
    ledger = dpi.Ledger(tmp_path / "ledger")
    ids = range(2000, 2600)
    with refuses(AGAIN):
        added(index, VECTORS, ids, ledger=ledger)
    assert not ledger.path.exists()
    assert added(index, OTHERS, ids, ledger=ledger) == 1200
    with refuses("counted in the ledger"):
        added(index, OTHERS)


def test_nothing_of_it_is_published_and_others_cannot_read_it(index):
    added(index, OTHERS)
    kept = released_path(index)
    assert kept.parent == index.parent
    known = History.read(index)
    assert len(known.rows) == 1200
    assert kept.stat().st_size < 8 * 1200 + 1000
    published = all_bytes(index)
    tag = known.rows.array[5:6].tobytes()
    for secret in (known.key, known.key.hex().encode(), tag):
        assert secret not in published
    if os.name == "posix":
        assert kept.stat().st_mode & 0o777 == 0o600


def test_keys_differ_so_tags_of_two_indexes_do_too(tmp_path):
    for name in ("a", "b"):
        build(tmp_path / name, INDEX, VECTORS)
    one = History.read(tmp_path / "a")
    other = History.read(tmp_path / "b")
    assert one.key != other.key
    assert not np.isin(one.rows, other.rows).any()


def test_what_is_lost_or_damaged_is_not_known(index, tmp_path):
    kept = released_path(index)
    kept.write_bytes(kept.read_bytes()[:-8])
    with refuses("damaged; restore it, or move it away"):
        added(index, OTHERS)
    kept.unlink()
    assert added(index, VECTORS) == 1200
    kept.rename(tmp_path / "elsewhere")
    (tmp_path / "new.released").write_text("a file of mine")
    (tmp_path / "new.released").chmod(0o600)
    with refuses("damaged; restore it, or move it away"):
        build(tmp_path / "new", INDEX, VECTORS)
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "new.released").read_text() == "a file of mine"


@needs_posix
def test_who_may_not_read_it_searches_and_saves_but_does_not_add(index, tmp_path):
    released_path(index).chmod(0o640)
    opened = dpi.open(index)
    for _ in range(2):
        with refuses("can be read by others; run chmod 600"):
            opened.add(OTHERS)
    assert len(reopened(opened, tmp_path / "copy")) == 600


def test_a_place_that_was_cleared_begins_anew(index):
    shutil.rmtree(index)
    build(index, INDEX, OTHERS)
    assert added(index, VECTORS) == 1200


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_ctrl_c_leaves_in_an_index_is_known_again(index, monkeypatch, when):
    grown = CodeStore.grown

    def cut(*arguments, **options):
        if when == "after":
            grown(*arguments, **options)
        raise KeyboardInterrupt

    opened = dpi.open(index)
    with monkeypatch.context() as patch:
        patch.setattr(CodeStore, "grown", cut)
        with pytest.raises(KeyboardInterrupt):
            opened.add(OTHERS)
    assert len(opened) == 600
    with refuses(AGAIN):
        opened.add(OTHERS)
