"""Texts become vectors with ids and payload, in the Parquet files that ``dpindex build`` reads.

    python embed.py texts.csv --model my-model-folder --public 1000 --queries 20

TEXTS is a file, or a folder of files, of Parquet, CSV or JSON lines, with a column of texts.
Written are ``vectors.parquet`` and, of rows that are chosen at random, ``public.parquet`` and
``queries.parquet``. Other columns are kept. **Texts are left out**, so that no build publishes
them.

MODEL is what sentence-transformers loads: a folder, with which nothing is downloaded, or a name.
Or it is ``MODULE:FUNCTION``, a function from a list of texts to vectors of any other model. The
rows of ``public.parquet`` are those that you may show: plans and codebooks are made of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

Encoder = Callable[[Sequence[str]], Any]
FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
BATCH = 1024
PARTS = ("vectors", "public", "queries")


def encoder_of(model: str) -> Encoder:
    """Return a function from texts to vectors."""
    module, is_function, function = model.partition(":")
    if is_function and not Path(model).exists():
        found: Encoder = getattr(import_module(module), function)
        return found
    loaded = import_module("sentence_transformers").SentenceTransformer(model)
    return lambda texts: loaded.encode(list(texts))


def opened(texts: Path) -> Any:
    """Return the files of one format in a path."""
    files = [texts] if texts.is_file() else sorted(texts.rglob("*"))
    files = [file for file in files if file.suffix in FORMATS]
    kinds = {FORMATS[file.suffix] for file in files}
    if len(kinds) != 1:
        raise SystemExit(f"{texts} must hold files of one of {', '.join(FORMATS)}.")
    return ds.dataset(files, format=kinds.pop())


def embed(
    texts: Path, to: Path, encode: Encoder, *, column: str, public: int, queries: int
) -> list[int]:
    """Write the vectors of all texts; return how many of each part there are."""
    source = opened(texts)
    if column not in source.schema.names:
        raise SystemExit(f"{texts} has no column {column!r}, but {', '.join(source.schema.names)}.")
    count = source.count_rows()
    if public + queries >= count:
        raise SystemExit(f"{texts} has {count} rows: too few for {public + queries} and vectors.")
    part = np.zeros(count, int)
    part[:public] = 1
    part[public : public + queries] = 2
    part = np.random.default_rng().permutation(part)
    to.mkdir(parents=True, exist_ok=True)
    first = 0
    with ExitStack() as files:
        writers: dict[int, Any] = {}
        for batch in source.to_batches(batch_size=BATCH):
            if not len(batch):
                continue
            table = pa.table(batch)
            vectors = np.asarray(encode([text or "" for text in table[column].to_pylist()]))
            flat = pa.array(vectors.astype(np.float32).ravel())
            lists = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
            table = table.drop([column]).append_column("vector", lists)
            for number in range(len(PARTS)):
                chosen = table.filter(pa.array(part[first : first + len(batch)] == number))
                if len(chosen):
                    if number not in writers:
                        name = to / f"{PARTS[number]}.parquet"
                        writers[number] = files.enter_context(pq.ParquetWriter(name, table.schema))
                    writers[number].write_table(chosen)
            first += len(batch)
    return [int((part == number).sum()) for number in range(len(PARTS))]


def main() -> None:
    """Embed what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--model", required=True, metavar="FOLDER, NAME or MODULE:FUNCTION")
    parser.add_argument("--column", default="text")
    parser.add_argument("--public", type=int, default=0, metavar="ROWS")
    parser.add_argument("--queries", type=int, default=0, metavar="ROWS")
    parser.add_argument("--to", type=Path, default=Path())
    options = vars(parser.parse_args())
    counts = embed(encode=encoder_of(options.pop("model")), **options)
    for name, count in zip(PARTS, counts, strict=True):
        print(f"{options['to'] / name}.parquet: {count} vectors")


if __name__ == "__main__":
    main()
