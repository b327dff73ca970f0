"""A check that the sample given to the planner is not the private collection itself.

It detects accidents only. No program can tell a copy of private vectors in memory, under another
size, or in part from public data; whoever declares a sample public is responsible for it. The check
looks at index directories beside the sample: at the number of their codes and attributes, and,
while a build is in progress, at the fingerprint of its source.
"""

from __future__ import annotations

from pathlib import Path

from dpindex.errors import InputError
from dpindex.index import IndexDirectory
from dpindex.vectors import VectorSource

__all__ = ["refuse_private"]


def refuse_private(source: VectorSource, n: int) -> None:
    """Raise InputError if the sample looks like the collection itself.

    It does if it has exactly the n rows of the collection, or if an index in its directory or in
    the working directory was built, or is being built, from as many rows of as many columns.
    """
    if reason := _suspicion(source, n):
        raise InputError(
            f"{source.name} looks like the private vectors themselves ({reason}), and parameters "
            f"that are chosen by looking at private data reveal something that no epsilon covers; "
            f"name a public sample or public facts instead, or pass --skip-leak-check "
            f"(skip_leak_check=True) if it is public after all or you accept that."
        )


def _suspicion(source: VectorSource, n: int) -> str | None:
    rows, columns = source.shape
    if rows == n:
        return f"it has exactly the {n} rows of the collection that is planned for"
    for directory in _indexes(source.name):
        try:
            manifest = directory.manifest()
        except InputError:  # damaged or of another version, which does not matter here
            continue
        if (manifest.input or {}).get("source") == source.fingerprint():
            return f"{directory.path} is being built from it"
        if (manifest.count, manifest.settings.spec.dim) == (rows, columns):
            return f"{directory.path} holds as many codes, of as many attributes"
    return None


def _indexes(name: str) -> list[IndexDirectory]:
    """The index directories beside the file of that name and in the working directory."""
    folders = dict.fromkeys((Path.cwd(), Path(name.partition(":")[0]).resolve().parent))
    children = (child for folder in folders for child in sorted(folder.glob("*")))
    return [d for child in children if child.is_dir() and (d := IndexDirectory(child)).exists]
