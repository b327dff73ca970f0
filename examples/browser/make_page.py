"""The page of this example: 5000 real sentences, searched in a browser by their private codes.

    python examples/browser/make_page.py FOLDER
    python -m http.server --directory FOLDER

The sentences are those of CLINC150 (Larson et al. 2019, CC BY 3.0), with MiniLM vectors, from the
folder that ``DPINDEX_DATA`` names. Half of them are public: they give the codebook and the vector
of every word, by which the page understands what is typed. The others are private records.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from export import export
from scipy import sparse

from dpindex import Codebook, PrivateIndex, Spec, record
from dpindex.mechanism.public_random import PublicStream

RECORDS = 5000
CODEWORDS = 1000
EPSILON = 6.0
RIDGE = 3.0
_MIN_COUNT = 2
_WORD = re.compile(r"[a-z0-9]+")
_LARGEST_BYTE = 127

Singles = npt.NDArray[np.float32]


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; page.js splits alike."""
    return _WORD.findall(text.lower())


def word_vectors(texts: list[str], vectors: Singles) -> tuple[list[str], npt.NDArray[np.int8]]:
    """Return words and a vector for each, whose sums come nearest to the vectors of the texts.

    Ridge regression of the vectors, shape (n, dim), on the words of the texts; in bytes.
    """
    counts = Counter(word for text in texts for word in set(words_of(text)))
    words = sorted(word for word, count in counts.items() if count >= _MIN_COUNT)
    column = {word: i for i, word in enumerate(words)}
    places = [
        (row, column[word])
        for row, text in enumerate(texts)
        for word in set(words_of(text))
        if word in column
    ]
    rows, columns = np.array(places).T
    shape = (len(texts), len(words))
    present = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    squares = (present.T @ present).toarray()
    fitted = np.linalg.solve(squares + RIDGE * np.eye(len(words)), present.T @ vectors)
    scale = _LARGEST_BYTE / np.abs(fitted).max()
    return words, np.rint(scale * fitted).astype(np.int8)


def make(data: Path, folder: Path) -> None:
    """Write the page and what it searches."""
    with np.load(data / "clinc150_minilm.npz") as stored:
        vectors = stored["E"].astype(np.float32)
    with gzip.open(data / "clinc150_texts.txt.gz", "rt", encoding="utf-8") as file:
        texts = file.read().splitlines()
    order = PublicStream(0, "browser page").permutation(len(texts))
    public = order[: len(order) // 2]
    private = order[len(order) // 2 :][:RECORDS]
    codebook = Codebook.spaced(vectors[public], CODEWORDS)
    spec = Spec(
        "record-codebook",
        vectors.shape[1],
        epsilon=EPSILON,
        adjacency=record(),
        codebook=codebook,
    )
    index = PrivateIndex(spec)
    index.add(vectors[private])
    export(index, folder)
    words, word_bytes = word_vectors([texts[i] for i in public], vectors[public])
    (folder / "words.json").write_text(json.dumps(words), encoding="utf-8")
    (folder / "words.i8").write_bytes(word_bytes.tobytes())
    sentences = [texts[i] for i in private]
    (folder / "sentences.json").write_text(json.dumps(sentences), encoding="utf-8")
    for name in ("index.html", "page.js"):
        shutil.copyfile(Path(__file__).with_name(name), folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the page that searches real sentences.")
    parser.add_argument("folder", type=Path, help="folder to write")
    folder = parser.parse_args().folder
    make(Path(os.environ.get("DPINDEX_DATA", "../shared/data")), folder)
    total = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {RECORDS} sentences, {total / 1e6:.1f} MB in all.")


if __name__ == "__main__":
    main()
