"""A small model of English texts that comes with the package and needs no other.

A text becomes the weighted mean of the vectors of its word pieces. The pieces are those of BERT
(Devlin et al. 2019) in ASCII, and their vectors were distilled from all-MiniLM-L6-v2 (Reimers &
Gurevych 2019, Apache-2.0) by ``bench/text_model.py``, which says how well it does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from dpindex.base.arrays import Singles

FILE = Path(__file__).parent / "pieces.npz"
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_MAX_LETTERS = 100


class TextModel:
    """Vectors of texts, the same on every machine and without a network.

    >>> lost, bike, bill = TextModel().encode(["a lost bike", "my bicycle is gone", "pay a bill"])
    >>> bool(lost @ bike > lost @ bill)
    True
    """

    def __init__(self) -> None:
        with np.load(FILE) as arrays:
            pieces = arrays["pieces"].tobytes().decode("ascii").split("\n")
            # Two numbers a byte, from −7 to 7 and plus 8.
            numbers = np.stack([arrays["levels"] >> 4, arrays["levels"] & 15], axis=2)
            levels = numbers.reshape(len(pieces), -1).astype(np.float32) - 8
            self._vectors = levels * arrays["scales"][:, None]
        self._places = {piece: place for place, piece in enumerate(pieces)}
        self._split = cache(self._places_of)

    def encode(self, texts: Sequence[str]) -> Singles:
        """Return a vector for each text, float32; zeros for one without a known piece."""
        found = np.zeros((len(texts), self._vectors.shape[1]), np.float32)
        for row, text in enumerate(texts):
            places: list[int] = []
            for word in _WORD.findall(_plain(text)):
                places += self._split(word)
            if places:
                found[row] = self._vectors[places].mean(axis=0)
        return found

    def _places_of(self, word: str) -> tuple[int, ...]:
        """The longest piece that a word begins with, then of the rest; none if a rest has none."""
        places = []
        first = 0
        while first < len(word) <= _MAX_LETTERS:
            mark = "##" if first else ""
            last = len(word)
            while last > first and mark + word[first:last] not in self._places:
                last -= 1
            if last == first:
                return ()
            places.append(self._places[mark + word[first:last]])
            first = last
        return tuple(places)


def _plain(text: str) -> str:
    """Lower case without accents."""
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(letter for letter in letters if unicodedata.category(letter) != "Mn")
