"""Files of every format version, kept since they were made, open for ever and mean the same.

``golden/make.py`` says how they were made; it is never run again, as their noise cannot be drawn
twice. A failure here means that published indexes can no longer be read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpindex import PrivateIndex, Privatizer, Spec
from dpindex.codes import codes_from_bytes
from dpindex.race import RaceSketch

GOLDEN = Path(__file__).parent / "golden"
FACTS = json.loads((GOLDEN / "facts.json").read_text())
INDEXES = ["bits", "numbers", "wide", "names"]
_made = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
assert _made is not None
assert _made.loader is not None
make: Any = importlib.util.module_from_spec(_made)
_made.loader.exec_module(make)


def _same_answers(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Scores agree; ids agree except among those whose scores tie with the last one."""
    scores = np.array(wanted["scores"])
    tolerance = 1e-3 * np.abs(scores).max()
    assert np.array(found["scores"]) == pytest.approx(scores, abs=tolerance)
    for ids, row, now in zip(wanted["ids"], scores, found["ids"], strict=True):
        clear = {i for i, score in zip(ids, row, strict=True) if score > row[-1] + 2 * tolerance}
        assert clear <= set(now)


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_opens_and_answers(name: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    index = PrivateIndex.open(tmp_path / name)
    assert len(index) == make.ROWS
    assert make.digest(index) == FACTS[name]["stored"]
    assert index.spec == make.SPECS[name]
    for setting, value in make.SETTINGS.get(name, {}).items():
        assert getattr(index, setting) == value
    _same_answers(make.search(index), FACTS[name]["search"])
    # It can be added to, and what was there stays as it is, file for file.
    old = {p: p.read_bytes() for p in (tmp_path / name).rglob("0*")}
    index.add(make.vectors()[:1], ids=["new"] if name == "names" else None)
    index.save(tmp_path / name)
    assert len(PrivateIndex.open(tmp_path / name)) == make.ROWS + 1
    assert all(path.read_bytes() == data for path, data in old.items())


@pytest.mark.parametrize("name", INDEXES)
def test_codes_and_specs_are_read(name: str) -> None:
    spec = Spec.read(GOLDEN / f"{name}.json")
    assert spec == make.SPECS[name]
    assert spec.to_json() + "\n" == (GOLDEN / f"{name}.json").read_text()
    assert spec.fingerprint.hex() == FACTS[name]["fingerprint"]
    data = (GOLDEN / f"{name}.codes").read_bytes()
    assert hashlib.sha256(data).hexdigest() == FACTS[name]["file"]
    codes = codes_from_bytes(data)
    assert codes.to_bytes() == data
    assert (len(codes), codes.k, codes.fingerprint) == (10, spec.code_length, spec.fingerprint)
    # A device of today makes codes that a searcher of then could compare with these.
    ours = Privatizer(spec).privatize(make.vectors()[:10])
    assert ours.fingerprint == codes.fingerprint
    assert getattr(ours, "gain", 1.0) == pytest.approx(getattr(codes, "gain", 1.0), rel=1e-12)


def test_an_index_with_a_denoiser_opens_and_answers() -> None:
    facts = json.loads((GOLDEN / "denoised.json").read_text())
    index = PrivateIndex.open(GOLDEN / "denoised")
    assert make.digest(index) == facts["stored"]
    assert index.denoiser is not None
    assert index.denoiser.error == facts["error"]
    hits = index.search(np.array(facts["queries"]), k=5)
    found = {"ids": hits.ids.tolist(), "scores": hits.scores.tolist()}
    _same_answers(found, facts["search"])


def test_every_width_is_there() -> None:
    """One byte, two and four for numbers, and bits: byte 5 of a codes file says which."""
    kinds = {path.read_bytes()[5] for path in GOLDEN.rglob("*.codes")}
    assert kinds == {0, 1, 2, 4}


@pytest.mark.parametrize("name", ["race", "race_2"])
def test_a_sketch_opens_and_answers(name: str) -> None:
    facts = FACTS[name] if name in FACTS else json.loads((GOLDEN / f"{name}.json").read_text())
    data = (GOLDEN / f"{name}.sketch").read_bytes()
    assert hashlib.sha256(data).hexdigest() == facts["file"]
    sketch = RaceSketch.open(GOLDEN / f"{name}.sketch")
    assert sketch.spec == make.SKETCH
    assert sketch.guarantee == sketch.spec.guarantee
    assert sketch.noise_variance == pytest.approx(make.SKETCH.noise.variance)
    assert sketch.count(make.vectors()[:4]) == pytest.approx(facts["count"], abs=1e-3)
    again = RaceSketch.from_bytes(sketch.to_bytes())
    assert (again.counts == sketch.counts).all()
    if name != "race":  # written in format 1, which nothing writes any more
        assert sketch.to_bytes() == data
