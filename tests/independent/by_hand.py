"""Index directories written file by file, for what no dpindex writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.mechanism.codes import Codes
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.manifest import MANIFEST, FileMark, Manifest, Settings, file_path


def write_index_by_hand(
    path: Path, settings: Settings, segments: Iterable[tuple[Codes, Any]]
) -> None:
    """Write codes and ids as they are given, whatever they are."""
    marks: dict[str, FileMark] = {}
    counts: dict[str, int] = {}
    for number, (codes, ids) in enumerate(segments):
        six_digits = f"{number:06d}"
        files = {
            file_path("codes", six_digits): codes.to_bytes(),
            file_path("ids", six_digits): ids_to_bytes(np.asarray(ids)),
        }
        for name, data in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
            marks[name] = FileMark.of(data)
        counts[six_digits] = len(codes)
    manifest = Manifest(settings, len(counts), counts, files=marks)
    (path / MANIFEST).write_bytes(manifest.text)
