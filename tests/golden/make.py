"""How the files of this folder were made, once for each format version. Never run again for one.

    python tests/golden/make.py FOLDER

Each format has a folder of its own, such as "format2". A file that changes would prove nothing: the
noise in it is secret and cannot be drawn again. All of them must open for ever.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from helpers.common import attribute_spec, record_spec, unit

from dpindex import Codebook, Dense, PrivateIndex, Privatizer, Spec, l2
from dpindex.mechanism.codes import codes_from_bytes
from dpindex.race import PStable, RaceSketch, SketchSpec

ROWS = 120
DIM = 24
CODEWORDS = np.sin(0.9 * np.arange(30 * DIM)) + 1
BOOK = Codebook(CODEWORDS.reshape(30, DIM))
SPECS = {
    "bits": attribute_spec("dp-signoporp-geometric", DIM, 12, 8.0, norm=1.0, seed=1),
    "numbers": attribute_spec("dp-oporp-staircase", DIM, 8, 6.0, seed=2),
    "wide": attribute_spec("dp-rp-l", DIM, 6, 0.002, seed=3, variant=Dense("gaussian"), norm=1.0),
    "names": Spec("row-rp-g-opt", DIM, 8, 4.0, delta=1e-6, adjacency=l2(0.5), seed=4),
    "caps": record_spec("record-cap", DIM, k=64, epsilon=8.0, seed=7),
    "symbols": record_spec("record-codebook", DIM, epsilon=4.0, subset=2, codebook=BOOK),
}
"""Those of whole records came within format 2."""

SKETCH = SketchSpec(DIM, 40, 50, PStable(1.0), 5.0, seed=5)
SETTINGS = {"names": {"metric": "l2", "query_epsilon": 2.0}, "numbers": {"index_type": "f16"}}


def vectors():
    """Unit vectors around six directions, without any random generator."""
    row = np.arange(ROWS)
    column = np.arange(DIM)
    waves = 0.3 * np.sin(0.7 * np.arange(ROWS * DIM))
    directions = np.cos(np.outer(row % 6, column) + 1.0)
    return unit(waves.reshape(ROWS, DIM) + directions)


def digest(index):
    """Of the codes as integers, whatever their width in memory."""
    stored = index.codes.stored.astype("<i4")
    return hashlib.sha256(stored.tobytes()).hexdigest()


def search(index, queries=None):
    asked = vectors()[:4] if queries is None else queries
    hits = index.search(asked, k=5)
    return {"ids": hits.ids.tolist(), "scores": hits.scores.round(6).tolist()}


def rankings(folder):
    """The first twenty of each index, for exact queries and codes that are both read as bytes.

    Only these came after the indexes: published codes rank as they do here, whatever ranks them.
    """
    exact = np.fromfile(folder / "queries.f4", "<f4").reshape(-1, DIM)
    found = {}
    for name in SPECS:
        index = PrivateIndex.open(folder / name)
        codes = codes_from_bytes((folder / f"{name}.codes").read_bytes())
        asked = {"exact": exact, "codes": codes.take(slice(0, 3))}
        for mode, queries in asked.items():
            hits = index.search(queries, k=20)
            scores = [[float(f"{score:.7g}") for score in row] for row in hits.scores]
            found[f"{name}-{mode}"] = {"ids": hits.ids.tolist(), "scores": scores}
    return found


def denoised(folder):
    """An index with a denoiser, whose vectors lie in a plane so that there is one to learn."""
    angle = np.arange(1500) * 0.37
    column = np.arange(16)
    rows = np.outer(np.cos(angle), np.cos(column))
    rows += np.outer(np.sin(1.3 * angle), np.sin(column))
    rows /= 2
    index = PrivateIndex(attribute_spec("dp-oporp-staircase", 16, 8, 20.0, seed=6))
    index.add(rows)
    denoiser = index.fit_denoiser("linear")
    index.save(folder / "denoised")
    (folder / "denoised" / ".lock").unlink()
    facts = {
        "stored": digest(index),
        "error": denoiser.error,
        "search": search(PrivateIndex.open(folder / "denoised"), rows[:4]),
        "queries": rows[:4].tolist(),
    }
    (folder / "denoised.json").write_text(json.dumps(facts) + "\n")


def sketch(path):
    made = RaceSketch(SKETCH).fit(vectors()).release()
    made.save(path)
    return {
        "file": hashlib.sha256(made.to_bytes()).hexdigest(),
        "count": made.count(vectors()[:4]).round(6).tolist(),
    }


def main(folder):
    x = vectors()
    facts = {}
    for name, spec in SPECS.items():
        index = PrivateIndex(spec, **SETTINGS.get(name, {}))
        ids = [f"id-{i}-é" for i in range(ROWS)] if name == "names" else None
        for part in (slice(0, 70), slice(70, ROWS)):
            names = ids[part] if ids else None
            index.add(x[part], names)
            index.save(folder / name)
        (folder / name / ".lock").unlink()
        (folder / f"{name}.json").write_text(spec.to_json() + "\n")
        data = Privatizer(spec).privatize(x[:10]).to_bytes()
        (folder / f"{name}.codes").write_bytes(data)
        facts[name] = {
            "stored": digest(index),
            "file": hashlib.sha256(data).hexdigest(),
            "fingerprint": spec.fingerprint.hex(),
            "search": search(PrivateIndex.open(folder / name)),
        }
    facts["race"] = sketch(folder / "race.sketch")
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir()
    main(target)
    denoised(target)
