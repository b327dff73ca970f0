"""Notes that outlive the process: a private index, with documents and vectors on this disk.

    python langchain_notes.py notes "Ann has asthma." "Bob plays chess."
    python langchain_notes.py notes --find "Who plays chess?"

NOTES/index holds codes and may be given away; NOTES/documents and NOTES/vectors stay here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.stores import BaseStore

import dpindex as dpi
from dpindex.integrations.langchain import PrivateVectorStore

DIM = 384


class FolderStore(BaseStore[str, Any]):
    """A JSON file for each key, called by its hash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{sha256(key.encode()).hexdigest()}.json"

    def mget(self, keys: Sequence[str]) -> list[Any]:
        """Return the values of keys, None for one that is not there."""
        paths = map(self._path, keys)
        return [self._read(path)[1] if path.exists() else None for path in paths]

    def mset(self, key_value_pairs: Sequence[tuple[str, Any]]) -> None:
        """Keep values under keys."""
        for key, value in key_value_pairs:
            if isinstance(value, Document):
                value = {"page_content": value.page_content, "metadata": value.metadata}
            self._path(key).write_text(json.dumps([key, value]), encoding="utf-8")

    def mdelete(self, keys: Sequence[str]) -> None:
        """Forget keys."""
        for key in keys:
            self._path(key).unlink(missing_ok=True)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Give all keys that begin with a prefix."""
        keys = (self._read(path)[0] for path in self._folder.glob("*.json"))
        yield from (key for key in keys if key.startswith(prefix or ""))

    def _read(self, path: Path) -> tuple[str, Any]:
        key, value = json.loads(path.read_text(encoding="utf-8"))
        return key, Document(id=key, **value) if isinstance(value, dict) else value


def opened(folder: Path, embedding: Embeddings) -> PrivateVectorStore:
    """The store in a folder, which is made at first."""
    if not (folder / "index").exists():
        spec = dpi.Spec("record-cap", dim=DIM, epsilon=8, adjacency=dpi.record())
        dpi.PrivateIndex(spec).save(folder / "index")
    return PrivateVectorStore(
        embedding,
        dpi.PrivateIndex.open(folder / "index"),
        documents=FolderStore(folder / "documents"),
        vectors=FolderStore(folder / "vectors"),
        ledger=dpi.Ledger(folder / "ledger"),
    )


def main() -> None:
    """Add texts, or find the nearest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notes", type=Path)
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--find", metavar="TEXT")
    options = parser.parse_args()
    store = opened(options.notes, DeterministicFakeEmbedding(size=DIM))  # take a real model here
    if options.texts:
        store.add_texts(options.texts)  # ids are published: these are random
    if options.find:
        for document, cosine in store.similarity_search_with_score(options.find, k=3):
            print(f"{cosine:.2f} {document.page_content}")


if __name__ == "__main__":
    main()
