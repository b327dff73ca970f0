"""A copy of an index in an object store, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dpindex.base.errors import InputError
from dpindex.data.stores import open_store
from dpindex.storage.manifest import MANIFEST, MAX_MANIFEST_BYTES, Manifest

__all__ = ["fetched"]

_REQUESTS = 8


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """Give a temporary folder with a copy of the index at ``url``, while the block runs.

    Sizes are bounded by the manifest; whoever reads the folder checks sizes and hashes.

    Raises
    ------
    InputError
        If there is no finished index, or a file is missing.
    """
    store = open_store(url)
    text = store.read(MANIFEST, MAX_MANIFEST_BYTES)
    if text is None:
        raise InputError(f"{url} is not a dpindex index, or its build is not finished.")
    files = Manifest.from_bytes(text, Path(url)).files
    with TemporaryDirectory(prefix="dpindex-") as folder:
        place = Path(folder).resolve() / "index"

        def copy(path: str) -> None:
            data = store.read(path, files[path].bytes)
            if data is None:
                raise InputError(f"{url}/{path} is missing.")
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)

        with ThreadPoolExecutor(_REQUESTS) as pool:
            for _ in pool.map(copy, files):
                pass
        (place / MANIFEST).write_bytes(text)
        yield place
