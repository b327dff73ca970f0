"""The documents are easy to read: limits of ``bench/reading.py``."""

import importlib.util
import statistics

from helpers.common import ROOT

_SPEC = importlib.util.spec_from_file_location("reading", ROOT / "bench" / "reading.py")
reading = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reading)
LENGTHS = [
    (reading.words(sentence), page.name, sentence)
    for page in reading.PAGES
    for sentence in reading.sentences(page.read_text(encoding="utf-8"))
]


def test_sentences_are_short():
    assert statistics.median(count for count, _, _ in LENGTHS) <= reading.MEDIAN
    long = [line for line in LENGTHS if line[0] > reading.LONGEST]
    assert long == []


def test_the_documents_are_few():
    docs = reading.ROOT / "docs"
    sizes = [page.stat().st_size for page in reading.PAGES if page.parent == docs]
    assert sum(sizes) <= 1000 * reading.KILOBYTES


def test_sentences_are_told_apart():
    text = (
        "One, see Thm 3.16 of Li et al. 2023. Two words `a b`: more.\n\n- Three\n\n| x |\n\n# four"
    )
    counted = [reading.words(sentence) for sentence in reading.sentences(text)]
    assert counted == [9, 4, 1]
