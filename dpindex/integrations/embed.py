"""Texts become vectors with ids and payload, in the Parquet files that ``dpindex build`` reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.base.arrays import AnyArray, Singles
from dpindex.base.errors import InputError, import_extra, naming, one_line
from dpindex.base.files import create_file
from dpindex.base.ids import check_unique, ids_of_file
from dpindex.base.tables import plain
from dpindex.data import TABLE_SUFFIXES, read_tables
from dpindex.integrations.text_model import TextModel


def embed(
    texts: Path,
    folder: Path,
    *,
    model: str | None = None,
    column: str = "text",
    public: int = 0,
    queries: int = 0,
) -> dict[Path, int]:
    """Write the vectors of texts to Parquet files, and return how many rows each file has.

    Texts are left out, so that no build publishes them; other columns are kept. Rows get their
    number as ``id`` if they have no such column. Vectors have length 1.

    Parameters
    ----------
    texts : path
        A file, or a folder of files, of Parquet, CSV, TSV, JSON lines, or Arrow as the
        ``datasets`` of Hugging Face write it.
    folder : path
        Where ``vectors.parquet`` is written, and ``public.parquet`` and ``queries.parquet`` with
        the rows that are held out at random.
    model : str, optional
        A folder or name that model2vec loads; default the small English model of dpindex itself.

    Raises
    ------
    InputError
        For texts or a model that cannot be read, too few rows, and files that exist.
    """
    import_extra("pyarrow", "tables of texts need pyarrow", "embed")
    import pyarrow as pa
    from pyarrow.parquet import write_table

    sizes = {"vectors": 0, "public": public, "queries": queries}
    files = {name: folder / f"{name}.parquet" for name in sizes}
    for file in files.values():
        if file.exists():
            raise InputError(f"{file} already exists; choose another folder.", field="to")
    texts = texts.expanduser()
    table = _table(texts, column)
    if "vector" in table.column_names:
        raise InputError(f"{texts} has a column 'vector', as the output has; rename it.")
    sizes["vectors"] = len(table) - public - queries
    if min(public, queries) < 0 or sizes["vectors"] < 1:
        raise InputError(
            f"{texts} has {len(table)} rows; {public} public ones and {queries} queries cannot be "
            f"held out with vectors left."
        )
    words = _words(texts, table, column)
    if "id" not in table.column_names:
        table = table.append_column("id", pa.array(np.arange(len(table))))
    with naming(f"{texts}, column 'id'"):
        check_unique(ids_of_file(table["id"]))
    with naming(str(texts)):
        vectors = embedded(words, model)
    numbers = pa.array(vectors.ravel())
    table = table.drop([column])
    lists = pa.FixedSizeListArray.from_arrays(numbers, vectors.shape[1])
    table = table.append_column("vector", lists)
    order = np.random.default_rng(0).permutation(len(table))
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    written = {}
    for name, size in sizes.items():
        if size:
            rows = np.sort(order[first : first + size])
            archive = BytesIO()
            write_table(table.take(rows), archive)
            create_file(files[name], archive.getvalue())
            written[files[name]] = size
            first += size
    return written


def embedded(words: list[str], model: str | None = None) -> Singles:
    """Return the vectors of texts, float32, shape (n, dim), of length 1.

    Parameters
    ----------
    words : list of str
    model : str, optional
        As of :func:`embed`.

    Raises
    ------
    InputError
        For a text without a word that the model knows.

    >>> embedded(["can I change my insurance"]).shape
    (1, 256)
    """
    vectors = _encoder(model)(words).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not lengths.all():
        row = int(np.argmin(lengths))
        raise InputError(f"row {row} has no word that the model knows; leave it out.")
    return np.asarray(vectors / lengths)


def texts_by_id(texts: Path, column: str) -> dict[Any, str]:
    """Return the texts of a file by their ids, as :func:`embed` takes them.

    Parameters
    ----------
    texts : path
        As of :func:`embed`.
    column : str
        Of the texts; ids are in the column ``id``, or the numbers of the rows.

    Raises
    ------
    InputError
        For texts that cannot be read, and an id with two of them.
    """
    table = _table(texts, column)
    words = _words(texts, table, column)
    ids: AnyArray = np.arange(len(words))
    if "id" in table.column_names:
        ids = ids_of_file(table["id"])
    with naming(str(texts)):
        check_unique(ids)
    return dict(zip(ids.tolist(), words, strict=True))


def _encoder(model: str | None) -> Callable[[list[str]], Any]:
    """Return what makes vectors of texts: the model of the package, or that of a path or name."""
    if model is None:
        return TextModel().encode
    model2vec = import_extra("model2vec", "--model needs model2vec", "model2vec")
    try:
        loaded = model2vec.StaticModel.from_pretrained(model)
    except Exception as error:  # of the hub, of a file, or of the model
        reason = one_line(error)
        raise InputError(f"{model} cannot be loaded by model2vec: {reason}.") from error
    return partial(loaded.encode, use_multiprocessing=False)


def _words(texts: Path, table: Any, column: str) -> list[str]:
    """Return the texts of a column, "" for a missing one; InputError if they are no texts."""
    import pyarrow as pa

    if column not in table.column_names:
        count = table.num_columns
        raise InputError(
            f"{texts} has no column {column!r} among its {count} columns; name another.",
            field="column",
        )
    values = plain(table[column])
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise InputError(
            f"{texts}: column {column!r} holds {values.type}, not text; name another.",
            field="column",
        )
    return [text or "" for text in values.to_pylist()]


def _table(texts: Path, column: str) -> Any:
    """Return the rows of the files of one format in a path."""
    if not texts.exists():
        raise InputError(f"{texts}: No such file or directory; check the path.")
    if texts.is_file():
        return read_tables([texts], [column])
    files = sorted(texts.rglob("[!.]*"))
    kinds = {file.suffix for file in files}.intersection(TABLE_SUFFIXES)
    if len(kinds) != 1:
        raise InputError(f"{texts} must hold files of one of {', '.join(TABLE_SUFFIXES)}.")
    return read_tables([file for file in files if file.suffix in kinds], [column])
