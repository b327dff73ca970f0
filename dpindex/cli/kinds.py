"""Kinds of files and folders, for whoever names one where another is expected."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpindex.base.checks import MAX_TEXT
from dpindex.base.files import MAGIC
from dpindex.vectors.readers import VECTOR_SUFFIXES

_HEAD_BYTES = 1 << 16
_LEDGER = b"SQLite format 3\0"
_NAMES = {
    "index": "a dpindex index",
    "sketch": "a RACE sketch",
    "spec": "a spec",
    "codes": "a file of private codes",
    "ledger": "a ledger",
    "vectors": "a file of vectors",
}
_USES = {
    "index": "use dpindex query, info, add or denoise; dpindex info --spec prints its spec",
    "sketch": "use dpindex race query or dpindex race info",
    "spec": "dpindex privatize --spec makes codes under it",
    "codes": "dpindex add puts them into an index, and dpindex query searches with them",
    "ledger": "dpindex ledger shows it",
}
_MAKERS = {
    "index": "dpindex build makes one of vectors",
    "sketch": "dpindex race build makes one of vectors",
    "spec": "dpindex spec prints one",
    "ledger": "a new one is made where --ledger names no file",
}


@dataclass(frozen=True)
class Takes:
    """Annotation of a parameter that takes the path of a thing of these kinds."""

    kinds: tuple[str, ...]


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """The kind of thing at a path, by its first bytes; None for anything unknown or unreadable."""
    place = Path(path)
    try:
        if (place / "manifest.json").is_file():
            return "index"
        if not place.is_file():
            return None
        with open(place, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(MAGIC):
            return _container_kind(head)
        if head.startswith(_LEDGER):
            if head[68:72] == b"DPLG":
                return "ledger"
            return None
        if head.lstrip().startswith(b"{") and place.stat().st_size <= MAX_TEXT:
            facts = json.loads(place.read_bytes())
            if {"method", "format"} <= facts.keys():
                return "spec"
            return None
    except (OSError, ValueError, RecursionError):
        return None
    if place.suffix.lower() in VECTOR_SUFFIXES:
        return "vectors"
    return None


def _container_kind(head: bytes) -> str | None:
    """The kind that a container states in its header."""
    match = re.search(rb'"kind": "(codes|sketch)"', head)
    return match and match[1].decode()


def mistaken(values: Mapping[str, Any], takes: Mapping[str, Takes]) -> str | None:
    """Return a sentence about a path of another kind than expected; None if there is none."""
    for name, expected in takes.items():
        present = None
        if values.get(name) is not None:
            present = kind_of(values[name])
        if present is None or present in expected.kinds:
            continue
        expected_names = " or ".join(_NAMES[kind] for kind in expected.kinds)
        remedy = _USES.get(present, _MAKERS.get(expected.kinds[0]))
        return f"{values[name]} is {_NAMES[present]}, not {expected_names}; {remedy}."
    return None
