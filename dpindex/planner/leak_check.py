"""Private vectors are not for planning: what can be noticed of it, and the sentence that says so.

Honest limits: only accidents are noticed. A sample in memory, a copy under another size, or a part
of the private file cannot be told from public data by any program; whoever names a sample public
answers for it. Index directories beside the sample are looked at, not their vectors, which are not
there: how many codes they hold and of how many attributes, and, while a build is under way, the
mark that it keeps of its source.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpindex.errors import InputError
from dpindex.index import IndexDirectory
from dpindex.vectors import VectorSource

__all__ = ["refuse_private"]


def refuse_private(source: VectorSource, n: int) -> None:
    """Raise InputError if the sample looks like the collection itself.

    That is: it has exactly the n rows of the collection, or an index beside its file or in the
    working directory was built, or is being built, from as many rows of as many columns.
    """
    rows, columns = source.shape
    if rows == n:
        _refuse(source, f"it has exactly the {n} rows of the collection that is planned for")
    for directory in _indexes(source.name):
        try:
            manifest = directory.manifest()
        except InputError:  # damaged, or of another version: none of this command's business
            continue
        if (manifest.input or {}).get("source") == source.fingerprint():
            _refuse(source, f"{directory.path} is being built from it")
        if (manifest.count, manifest.settings.spec.dim) == (rows, columns):
            _refuse(source, f"{directory.path} holds as many codes, of as many attributes")


def _refuse(source: VectorSource, reason: str) -> None:
    raise InputError(
        f"{source.name} looks like the private vectors themselves ({reason}), and parameters "
        f"chosen by looking at private data give something of it away that no epsilon covers; "
        f"name a public sample or public facts instead, or pass --skip-leak-check "
        f"(skip_leak_check=True) if it is public after all or you accept that."
    )


def _indexes(name: str) -> Iterator[IndexDirectory]:
    """Index directories beside the file of that name, and in the working directory."""
    for folder in dict.fromkeys((Path.cwd(), Path(name.partition(":")[0]).resolve().parent)):
        children = sorted(folder.iterdir()) if folder.is_dir() else []
        for directory in (IndexDirectory(child) for child in children if child.is_dir()):
            if directory.exists:
                yield directory
