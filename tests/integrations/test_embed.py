"""The example from texts to vectors: files that commands read as they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import embed
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

Call = Callable[[str], str]
ROWS = [
    {"id": f"n{i}", "text": f"{word} {i % 7}", "topic": word}
    for i, word in enumerate(["cats", "dogs", "trains", "cakes"] * 60)
]


def letters(texts: Sequence[str]) -> Any:
    """A model: how often each letter occurs."""
    counts = [[text.count(chr(ord("a") + i)) for i in range(24)] for text in texts]
    return np.array(counts, float) + 0.1


def write(folder: Path, kind: str) -> Path:
    table = pa.Table.from_pylist(ROWS)
    path = folder / f"texts.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=50)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_texts_are_searched_by_the_lines_of_the_readme(
    kind: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, kind)
    line = [
        "embed",
        str(path),
        "--model",
        "test_embed:letters",
        "--public",
        "60",
        "--queries",
        "20",
    ]
    monkeypatch.setattr(sys, "argv", [*line, "--to", str(tmp_path)])
    embed.main()
    parts = [pq.read_table(tmp_path / f"{name}.parquet") for name in embed.PARTS]
    assert [len(part) for part in parts] == [160, 60, 20]
    assert parts[0].schema.names == ["id", "topic", "vector"]
    together = {row["id"]: row["vector"] for part in parts for row in part.to_pylist()}
    assert together.keys() == {row["id"] for row in ROWS}
    for row in ROWS:
        np.testing.assert_allclose(together[row["id"]], letters([row["text"]])[0], rtol=1e-6)
    call("dpindex codebook public.parquet codebook.npy --size 10 --centroids")
    call(
        "dpindex build vectors.parquet my-index --method record-codebook --epsilon 8 --record"
        " --codebook codebook.npy --subset 1 --id-column id --payload-columns topic"
        " --skip-leak-check"
    )
    found = call("dpindex query my-index queries.parquet -k 3")
    assert "n" in found


def test_a_folder_is_loaded_by_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def __init__(self, name: str) -> None:
            assert name == "my-model"

        def encode(self, texts: list[str]) -> Any:
            return letters(texts)

    stub = ModuleType("sentence_transformers")
    stub.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", stub)
    assert np.array_equal(embed.encoder_of("my-model")(["abc"]), letters(["abc"]))


def test_what_cannot_be_embedded_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    for said, options in (
        ("has no column 'body'", {"column": "body"}),
        ("too few", {"public": 200, "queries": 40}),
    ):
        with pytest.raises(SystemExit, match=said):
            embed.embed(
                path, tmp_path, letters, **{"column": "text", "public": 0, "queries": 0, **options}
            )
    with pytest.raises(SystemExit, match="must hold files of one of"):
        embed.opened(Path(embed.__file__))
