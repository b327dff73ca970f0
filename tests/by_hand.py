"""Index directories written file by file, for what no dpindex writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dpindex.mechanism.codes import Codes
from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.manifest import MANIFEST, FileMark, Manifest, SegmentPaths, Settings


def write_index_by_hand(
    path: Path, settings: Settings, segments: Iterable[tuple[Codes, Any]]
) -> None:
    """Write codes and ids as they are given, whatever they are."""
    marks: dict[str, FileMark] = {}
    counts: dict[str, int] = {}
    for number, (codes, ids) in enumerate(segments):
        paths = SegmentPaths(f"{number:06d}")
        files = {paths.codes: codes.to_bytes(), paths.ids: ids_to_bytes(np.asarray(ids))}
        for name, data in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
            marks[name] = FileMark.of(data)
        counts[paths.number] = len(codes)
    manifest = Manifest(settings, len(counts), counts, files=marks)
    (path / MANIFEST).write_bytes(manifest.to_bytes())
