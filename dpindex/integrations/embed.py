"""Texts become vectors with ids and payload, in the Parquet files that ``dpindex build`` reads.

A small model of English texts comes with the package and needs no other. A text becomes the
weighted mean of the vectors of its word pieces. The pieces are those of BERT (Devlin et al. 2019)
in ASCII, and their vectors were distilled from all-MiniLM-L6-v2 (Reimers & Gurevych 2019,
Apache-2.0) by ``bench/text_model.py``, which says how well it does.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial
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
    encode = _encoder(model)
    with naming(str(texts)):
        vectors = _embedded(words, encode)
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
    return _embedded(words, _encoder(model))


def _embedded(words: list[str], encode: Callable[[list[str]], Any]) -> Singles:
    vectors = encode(words).astype(np.float32)
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
        reason = one_line(error).rstrip(".")
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


FILE = Path(__file__).parent / "text_model" / "pieces.npz"
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
