"""Libraries of the optional extras, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dpindex.base.errors import MissingPackageError

__all__ = ["EXTRAS", "import_extra"]

EXTRAS = {
    "cloud": "obstore pyarrow",
    "dask": "dask[dataframe] distributed",
    "eval": "jinja2 matplotlib pillow scikit-learn",
    "io": "h5py pyarrow",
    "lance": "lancedb",
    "langchain": "langchain-core",
    "milvus": "pymilvus milvus-lite==2.5.1 setuptools~=80.9 pyarrow",
    "postgres": "psycopg[binary] pyarrow",
    "serve": "fastapi uvicorn",
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
