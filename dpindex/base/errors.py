"""The errors that a user meets.

Every error is an :class:`InputError`. A subclass exists where a caller must tell the cause apart.
One warning is of results that mean little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Bad input: one sentence that says what was wrong, where, and what to do.

    Parameters
    ----------
    sentence : str
    field : str
        The parameter to change, such as "ids", or several, as "ids, ledger". Where the sentence
        does not name it, it is appended in parentheses; the command line appends its own options.

    >>> print(InputError("give every vector an id.", field="ids"))
    give every vector an id (ids).
    >>> print(InputError("beta must be above 0, not -1.", field="beta"))
    beta must be above 0, not -1.
    """

    def __init__(self, sentence: str, *, field: str = "") -> None:
        super().__init__(sentence)
        self.field = field

    def __str__(self) -> str:
        return self.pointing_at(self.field)

    def pointing_at(self, name: str) -> str:
        """Return the sentence, with a name of what to change at its end unless it is in it."""
        sentence = str(self.args[0])
        if name in sentence:
            return sentence
        return f"{sentence.removesuffix('.')} ({name})."


class NoGuaranteeError(InputError):
    """These parameters have no mechanism: no proof covers them, or no code can hold the noise.

    >>> from dpindex import Spec, attribute
    >>> try:
    ...     Spec("dp-signrp-rr", dim=8, epsilon=1.0, delta=1e-6, adjacency=attribute(1.0))
    ... except NoGuaranteeError as error:
    ...     print(str(error)[:40])
    dp-signrp-rr with a delta needs min_norm
    """


class NoDenoiserError(InputError):
    """No denoiser can be learned: the method has none or no noise, or the codes say too little."""


class DamagedError(InputError):
    """A file is damaged, cut off, of another version, or not of the expected kind.

    >>> from dpindex import codes_from_bytes
    >>> try:
    ...     codes_from_bytes(b"other bytes")
    ... except DamagedError as error:
    ...     print(error)
    these bytes hold no dpindex codes.
    """


class BusyError(InputError):
    """Another process holds the lock of an index or a ledger.

    Whoever waits may try again; what was asked for has not happened.

    >>> issubclass(BusyError, InputError)
    True
    """


class StorageError(InputError):
    """A file or an object store cannot be read or written: missing, full, denied, unreachable.

    >>> from dpindex.data import open_vectors
    >>> try:
    ...     open_vectors("nowhere.npy")
    ... except StorageError as error:
    ...     print(error)
    nowhere.npy: No such file or directory; check the path.
    """


class MissingPackageError(InputError):
    """A package of an optional extra is not installed."""


class QualityWarning(UserWarning):
    """The release is private as stated, but its results mean little.

    >>> issubclass(QualityWarning, UserWarning)
    True
    """


@contextmanager
def naming(name: str, *, but: Collection[str] = ()) -> Iterator[None]:
    """Let the sentence of an :class:`InputError` begin with the name of the file it is about.

    The error keeps its class. One about a parameter in ``but`` is not about the file.

    >>> with naming("x.npy"):
    ...     raise InputError("row 3 is empty.")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: x.npy: row 3 is empty.
    """
    try:
        yield
    except InputError as error:
        sentence = str(error.args[0])
        if error.field not in but and not sentence.startswith(name):
            error.args = (f"{name}: {sentence}",)
        raise


_MAX_REASON = 200


def escaped(text: str) -> str:
    r"""Return text on one line, in which characters that cannot be printed are Python's escapes.

    >>> print(escaped("year\n\x1b[2Jepsilon = 0.1"))
    year\n\x1b[2Jepsilon = 0.1
    """
    letters = []
    for letter in text:
        if not letter.isprintable():
            letter = ascii(letter)[1:-1]
        letters.append(letter)
    return "".join(letters)


def one_line(error: object) -> str:
    r"""Return what an error of another library says, on one line of at most 200 characters.

    >>> one_line(ValueError("no such\n  column"))
    'no such column'
    """
    return " ".join(str(error).split())[:_MAX_REASON]


def refuse_unprintable(names: Iterable[str], kind: str) -> None:
    r"""Refuse names that could forge what is printed around them.

    Raises
    ------
    InputError
        For a name with a line break, an escape sequence or another character that is not printed.

    >>> refuse_unprintable(["year", "a\nb"], "column")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    dpindex.base.errors.InputError: the name of column 'a\nb' has characters that cannot be ...
    """
    for name in names:
        if not name.isprintable():
            raise InputError(
                f"the name of {kind} {escaped(repr(name))} has characters that cannot be printed;"
                " rename it."
            )


EXTRAS = {
    "accounting": "dp-accounting",
    "cloud": "obstore pyarrow",
    "dask": "distributed",
    "duckdb": "duckdb pyarrow",
    "embed": "pyarrow",
    "eval": "jinja2 pillow",
    "io": "h5py pyarrow",
    "lance": "lancedb",
    "langchain": "langchain-core",
    "model2vec": "model2vec",
    "milvus": "pymilvus milvus-lite==2.5.1 setuptools~=80.9 pyarrow",
    "plot": "matplotlib",
    "postgres": "psycopg[binary] pyarrow",
    "serve": "starlette uvicorn",
}
"""Packages of each extra. Messages name them: pip finds them wherever dpindex came from."""


def import_extra(module: str, need: str, extra: str) -> Any:
    """The module of that name; InputError, which states the ``need``, if it is not installed.

    >>> import_extra("no_such_module", "pictures need matplotlib", "io")
    Traceback (most recent call last):
      ...
    dpindex.base.errors.MissingPackageError: pictures need matplotlib; run pip install h5py pyarrow.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError(f"{need}; run pip install {EXTRAS[extra]}.") from error
