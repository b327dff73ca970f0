"""The small model of texts: which pieces words consist of, and which texts are alike."""

import gzip

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpindex.base.arrays import unit
from dpindex.integrations.embed import TextModel

MODEL = TextModel()


def cosines(*texts):
    """Cosines of the first text to each other one."""
    vectors = unit(MODEL.encode(texts))
    return vectors[1:] @ vectors[0]


@pytest.mark.parametrize(
    "text, alike, other",
    [
        ("my bicycle was stolen", "someone took my bike", "please book a table for two"),
        ("the doctor was late", "a physician came too late", "the weather in Paris"),
        ("unreadable handwriting", "illegible script", "two litres of milk"),
    ],
)
def test_texts_of_one_meaning_are_nearest(text, alike, other):
    near, far = cosines(text, alike, other)
    assert near > far + 0.1


def test_case_accents_and_spaces_make_no_difference():
    assert_allclose(cosines("Café  society!", "cafe society !"), 1, atol=1e-6)


def test_an_unknown_word_is_of_known_pieces_or_left_out():
    assert MODEL.encode(["xqzvbicycles"]).any()
    bare, known = MODEL.encode(["bicycle", "bicycle жук"])
    assert_array_equal(known, bare)


@pytest.mark.parametrize("text", ["", " \n", "жук", "\u0301", "a" * 101])
def test_a_text_without_a_known_word_is_zero(text):
    assert not MODEL.encode([text]).any()


def test_a_text_has_one_vector_whatever_stands_beside_it():
    texts = ["a lost parcel", "", "my violin is broken, again"]
    one_by_one = np.concatenate([TextModel().encode([text]) for text in texts])
    assert_array_equal(MODEL.encode(texts), one_by_one)
    assert one_by_one.shape == (3, 256)
    assert one_by_one.dtype == np.float32


@pytest.mark.slow
def test_intents_of_clinc150_are_found(data_dir):
    """Ten neighbours of 1000 queries among 22 700 texts."""
    with gzip.open(data_dir / "clinc150_texts.txt.gz", "rt", encoding="utf-8") as file:
        vectors = unit(MODEL.encode(file.read().splitlines()))
    with np.load(data_dir / "clinc150_minilm.npz") as arrays:
        intents = arrays["intent"]
        queries = arrays["query_idx"]
        corpus = arrays["corpus_idx"]
    distances = -vectors[queries] @ vectors[corpus].T
    near = np.argpartition(distances, 10)[:, :10]
    found = intents[corpus][near] == intents[queries][:, None]
    assert found.mean() > 0.81
