"""Index directories written file by file, for what no dpindex writes."""

import hashlib
import json
from contextlib import contextmanager

import numpy as np

from dpindex.storage.ids import ids_to_bytes
from dpindex.storage.manifest import MANIFEST, FileMark, Manifest, file_path


def write_index_by_hand(path, settings, segments):
    """Write codes and ids as they are given, whatever they are."""
    marks = {}
    counts = {}
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


@contextmanager
def resealed(path):
    """What a manifest says, to be edited as an attacker would, who can compute checksums too."""
    manifest = path / MANIFEST
    data = json.loads(manifest.read_text())
    del data["checksum"]
    yield data
    seal = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps({**data, "checksum": seal}, indent=1, sort_keys=True))
