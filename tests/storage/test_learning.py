"""A release learns what similarities mean as it publishes, whatever it publishes to."""

import json
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from helpers.common import (
    attribute_spec,
    bucket_at,
    codes_of,
    dataset_of,
    filled_index,
    interrupt,
    interrupted_at,
    known_noise,
    reopened,
    travelled,
    uniform,
)
from numpy.testing import assert_array_equal

import dpindex as dpi
from dpindex.decode import learned
from dpindex.integrations.collector import Collector, Submission
from dpindex.storage.history import Terms
from dpindex.storage.targets import IndexOptions, build_index

pytestmark = known_noise

DIM = 24
SPEC = attribute_spec("dp-oporp-staircase", DIM, epsilon=6.0, bounds=(-1, 1))
CENTRES = uniform(12, DIM)
IDS = [f"id-{row}" for row in range(600)]


def vectors(rows=600, seed=1):
    rng = np.random.default_rng(seed)
    centres = CENTRES[rng.integers(12, size=rows)]
    near = centres + 0.2 * rng.normal(size=(rows, DIM))
    return near.clip(-1, 1)


def labelled():
    return dataset_of(vectors(), ids=IDS, rows=70)


def in_memory(folder, monkeypatch):
    return filled_index(SPEC, vectors())


def in_a_folder(folder, monkeypatch):
    build_index(labelled(), folder / "index", SPEC)
    return dpi.PrivateIndex.open(folder / "index")


def in_a_store(folder, monkeypatch):
    url = bucket_at(folder / "store", monkeypatch)
    options = IndexOptions(private=folder / "private.unpublished")
    build_index(labelled(), url, SPEC, options)
    return dpi.PrivateIndex.open(url)


def grown_with_a_ledger(folder, monkeypatch):
    index = dpi.PrivateIndex(SPEC)
    index.save(folder / "index")
    ledger = dpi.Ledger(folder / "ledger")
    index.add(vectors(), IDS, ledger=ledger)
    assert index.calibration is not None
    return dpi.PrivateIndex.open(folder / "index")


def collected(folder, monkeypatch):
    index = dpi.PrivateIndex(SPEC)
    place = folder / "index"
    index.save(place)
    submission = Submission(codes_of(SPEC, vectors()), np.array(IDS))
    with Collector(index, folder / "log", lambda: index.save(place)) as collector:
        collector.submit(submission).result()
    return dpi.PrivateIndex.open(place)


PLACES = [
    in_memory,
    in_a_folder,
    pytest.param(in_a_store, marks=pytest.mark.extra),
    grown_with_a_ledger,
    collected,
]


@pytest.mark.parametrize("place", PLACES)
def test_hits_of_every_index_have_errors_without_a_word(place, tmp_path, monkeypatch):
    """`add` in Python, collected and stored indexes stated 1.000 ± NaN, where truth was .05."""
    index = place(tmp_path, monkeypatch)
    assert index.calibration is not None
    found = index.calibration.to_bytes()
    again = index.calibrate()
    assert again is not None
    assert again.to_bytes() == found  # a release samples the codes that the index samples
    asked = vectors(30, 2)
    for mode in ("exact", "private"):
        hits = index.search(asked, k=10, query=mode)
        assert (hits.stderr > 0).all()
        assert json.dumps(hits.to_list(), allow_nan=False, default=str)


@pytest.fixture
def lessons(monkeypatch):
    """The rows of every collection that was learned from, in that order."""
    rows = []

    def counted(decoder, take, count):
        rows.append(count)
        return learned(decoder, take, count)

    monkeypatch.setattr("dpindex.index.ranking.learned", counted)
    return rows


def stated(hits):
    return np.array([hits.similarity, hits.stderr])


def test_what_is_added_in_batches_is_learned_from_once_when_similarities_are_read(lessons):
    index = dpi.PrivateIndex(SPEC)
    for batch in np.split(vectors(), 12):
        index.add(batch)
        assert len(index.search(vectors(2, 3)).ids) == 2
    assert lessons == []
    asked = vectors(20, 2)
    before = index.search(asked)
    unread = index.search(asked)
    index.add(vectors(200, 4))
    assert (stated(index.search(asked)) > -1).all()
    assert lessons == [550]  # no search since was among so many more that half of them were new
    index.add(vectors(100, 5))
    later = index.search(asked)
    index.remove(index.ids[:20])
    assert_array_equal(stated(unread), stated(before))
    assert lessons == [550]
    assert (stated(later) > -1).all()
    assert lessons == [550, 900]


def test_a_search_is_answered_by_the_rows_of_its_time_whenever_it_is_read():
    index = filled_index(SPEC, vectors())
    twin = dpi.PrivateIndex(SPEC)
    twin.add_codes(index.codes)
    asked = vectors(20, 2)
    early = index.search(asked)
    index.add(vectors(2000, 4))
    index.fit_denoiser("linear")
    late = index.search(asked)
    assert_array_equal(stated(early), stated(twin.search(asked)))
    twin.add_codes(index.codes.take(slice(600, None)))
    twin.fit_denoiser("linear")
    assert_array_equal(stated(late), stated(twin.search(asked)))


def test_what_is_saved_was_learned_once_and_is_read_again(lessons, tmp_path):
    index = filled_index(SPEC, vectors())
    asked = vectors(20, 2)
    unread = index.search(asked)
    opened = reopened(index, tmp_path / "index")
    again = stated(opened.search(asked))
    assert_array_equal(stated(unread), again)
    opened.add(vectors(290, 4))  # less than half
    index.save(tmp_path / "index")
    assert_array_equal(stated(index.search(asked)), again)
    assert opened.calibration.to_bytes() == index.calibration.to_bytes()
    assert lessons == [600]
    opened.add(vectors(20, 5))
    opened.save(tmp_path / "other")
    assert lessons == [600, 910]


def test_threads_that_read_similarities_wait_for_one_that_learns(lessons):
    index = filled_index(SPEC, vectors())
    asked = vectors(20, 2)
    begin = threading.Barrier(5)

    def read(row):
        begin.wait()
        return stated(index.search(asked[: row + 1]))

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(read, row) for row in range(4)]
        begin.wait()
        index.add(vectors(10, 4))  # beside them
        shapes = [task.result().shape for task in found]
    expected = [(2, row + 1, 10) for row in range(4)]
    assert shapes == expected
    assert len(lessons) == 1


def test_who_is_interrupted_while_learning_learns_when_asked_again(monkeypatch):
    index = filled_index(SPEC, vectors())
    hits = index.search(vectors(20, 2))
    with monkeypatch.context() as patched:
        patched.setattr("dpindex.decode.base.Decoder.learned", interrupt)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                assert hits.similarity.shape
    assert (stated(hits) > -1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_that_forks_learns_what_its_child_learns():
    index = filled_index(SPEC, vectors())
    hits = index.search(vectors(20, 2))
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        found = stated(hits).sum()
        os.write(into, pickle.dumps(found))
        os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        found = pickle.loads(pipe.read())
    assert found == stated(hits).sum()
    assert os.waitpid(child, 0)[1] == 0


def test_hits_that_travel_say_why_they_state_nothing():
    index = filled_index(SPEC, vectors(40))
    asked = vectors(2, 3)
    hits = travelled(index.search(asked, k=3))
    index.add(vectors(500, 4))
    assert "40 codes are too few" in hits.unstated
    assert "40 codes are too few" in hits[0].unstated
    assert index.search(asked, k=3).unstated == ""
    assert index.unstated == ""


def test_an_interrupted_build_keeps_what_it_had_learned(tmp_path, monkeypatch):
    """Two fits may differ in their last bits, and a file of the journal is never replaced."""
    place = tmp_path / "index"
    terms = Terms(dpi.Ledger(tmp_path / "ledger"))
    dataset = labelled()

    def built():
        build_index(dataset, place, SPEC, None, terms)

    interrupted_at("dpindex.storage.targets.IndexTarget.publish_files", built)
    (staged,) = tmp_path.glob("index.unpublished/*/calibration/*.table")
    before = staged.read_bytes()

    def another(*given):
        found = learned(*given)
        assert found is not None
        return replace(found, total=found.total + 1e-9)

    monkeypatch.setattr("dpindex.storage.targets.learned", another)
    built()
    (published,) = place.glob("calibration/*.table")
    assert published.read_bytes() == before
    assert dpi.PrivateIndex.open(place).calibration is not None


@pytest.mark.extra
def test_calibrate_reaches_an_object_store(run, prints, tmp_path, monkeypatch):
    """It answered that an index is changed in a folder only."""
    index = in_a_store(tmp_path, monkeypatch)
    url = f"file://{tmp_path / 'store'}"
    assert run(f"calibrate {url}")[:2] == (0, "Calibrated: learned from 600 codes.\n")
    (path,) = (tmp_path / "store" / "calibration").iterdir()
    monkeypatch.setattr("dpindex.decode.SAMPLE_ROWS", 300)
    prints(f"calibrate {url}")
    (renewed,) = (tmp_path / "store" / "calibration").iterdir()
    assert renewed.name > path.name
    again = dpi.PrivateIndex.open(url)
    assert again.calibration is not None
    assert index.calibration is not None
    assert again.calibration.to_bytes() != index.calibration.to_bytes()
    assert_array_equal(again.codes.stored, index.codes.stored)
    assert run("calibrate file:///nowhere/at/all")[0] == 2
