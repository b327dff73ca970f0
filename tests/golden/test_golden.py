"""Files of every format version, kept since they were made, open for ever and mean the same.

``golden/make.py`` says how they were made; it is never run again for a format, as their noise
cannot be drawn twice. A failure here means that published indexes can no longer be read.
"""

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpindex import PrivateIndex, Privatizer, Spec
from dpindex.base.files import unpack
from dpindex.mechanism.codes import codes_from_bytes
from dpindex.race import RaceSketch

GOLDEN = Path(__file__).parent
FORMATS = {2: GOLDEN / "format2"}
FACTS = {
    number: json.loads((folder / "facts.json").read_text())
    for number, folder in FORMATS.items()
    if folder.exists()
}
every_format = pytest.mark.parametrize("number", FACTS)
INDEXES = [
    pytest.param(name, number, id=f"{name}-{number}")
    for number, facts in FACTS.items()
    for name in facts
    if name != "race"
]
every_index = pytest.mark.parametrize("name, number", INDEXES)
PLAIN = ["bits", "numbers", "wide", "names"]
_made = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
make = importlib.util.module_from_spec(_made)
_made.loader.exec_module(make)


def _same_answers(found, wanted):
    """Scores agree; ids agree except among those whose scores tie with the last one."""
    scores = np.array(wanted["scores"])
    tolerance = 1e-3 * np.abs(scores).max()
    assert np.array(found["scores"]) == pytest.approx(scores, abs=tolerance)
    for ids, row, now in zip(wanted["ids"], scores, found["ids"], strict=True):
        _holds_all_above(row[-1] + 2 * tolerance, zip(ids, row, strict=True), now)


def _holds_all_above(least, scored_ids, found):
    """Every id whose score is clearly above the last one is found."""
    clear = {id_ for id_, score in scored_ids if score > least}
    assert clear <= set(found)


def _files(folder):
    """Segments and ids, which are never changed."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("0*")}


@every_index
def test_an_index_opens_and_answers(name, number, tmp_path):
    place = tmp_path / name
    facts = FACTS[number][name]
    shutil.copytree(FORMATS[number] / name, place)
    index = PrivateIndex.open(place)
    assert len(index) == make.ROWS
    assert make.digest(index) == facts["stored"]
    assert index.spec == make.SPECS[name]
    for setting, value in make.SETTINGS.get(name, {}).items():
        assert getattr(index, setting) == value
    _same_answers(make.search(index), facts["search"])
    # It can be added to: what was there stays as it is, file for file, under a new manifest.
    old = _files(place)
    names = ["new"] if name == "names" else None
    index.add(make.vectors()[:1], names)
    index.save(place)
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest["format"] == max(FORMATS)
    again = PrivateIndex.open(place)
    assert len(again) == make.ROWS + 1
    assert old.items() <= _files(place).items()
    # So it can be removed from, which leaves files of the newest format alone.
    again.remove(again.ids[:1])
    again.save(place)
    untouched = old.keys() & _files(place).keys()
    assert {path.parts[0] for path in untouched} <= {"codebook"}
    stored = PrivateIndex.open(place).codes.stored
    assert stored.tolist() == again.codes.stored.tolist()


@every_index
def test_codes_and_specs_are_read(name, number):
    folder = FORMATS[number]
    facts = FACTS[number][name]
    spec = Spec.read(folder / f"{name}.json")
    assert spec == make.SPECS[name]
    assert spec.to_json() + "\n" == (folder / f"{name}.json").read_text()
    assert spec.fingerprint.hex() == facts["fingerprint"]
    data = (folder / f"{name}.codes").read_bytes()
    assert hashlib.sha256(data).hexdigest() == facts["file"]
    codes = codes_from_bytes(data)
    again = codes_from_bytes(codes.to_bytes())
    assert again.format == codes.format
    assert again.stored.tolist() == codes.stored.tolist()
    assert len(codes) == 10
    assert codes.k == spec.code_length
    assert codes.fingerprint == spec.fingerprint
    # A device of today makes codes that a searcher of then could compare with these.
    ours = Privatizer(make.SPECS[name]).privatize(make.vectors()[:10])
    assert ours.fingerprint == codes.fingerprint
    scale, scale_then = (getattr(made.format, "scale", 1.0) for made in (ours, codes))
    assert scale == pytest.approx(scale_then, rel=1e-12)


@every_format
def test_published_codes_rank_as_they_did(number):
    """Score by score and id by id, up to the order of scores that are equal but for rounding."""
    wanted = json.loads((FORMATS[number] / "rankings.json").read_text())
    found = make.rankings(FORMATS[number])
    assert found.keys() == wanted.keys()
    for name, golden in wanted.items():
        tolerance = 1e-5 * np.abs(golden["scores"]).max()
        of_queries = zip(
            golden["ids"],
            golden["scores"],
            found[name]["ids"],
            found[name]["scores"],
            strict=True,
        )
        for ids, scores, now, scores_now in of_queries:
            assert scores_now == pytest.approx(scores, abs=tolerance), name
            score_of = dict(zip(ids, scores, strict=True))
            ranked = [score_of.get(id_, scores[-1]) for id_ in now]  # only the last may have equals
            assert ranked == pytest.approx(scores, abs=tolerance), name
            _holds_all_above(scores[-1] + 2 * tolerance, score_of.items(), now)


@every_format
def test_an_index_with_a_denoiser_opens_and_answers(number):
    facts = json.loads((FORMATS[number] / "denoised.json").read_text())
    index = PrivateIndex.open(FORMATS[number] / "denoised")
    assert make.digest(index) == facts["stored"]
    assert index.denoiser.error == facts["error"]
    found = make.search(index, np.array(facts["queries"]))
    _same_answers(found, facts["search"])


def test_what_made_the_newest_format_makes_all_of_its_files(tmp_path):
    """With other noise, and with what came later; rankings were made of the indexes."""

    def files(folder):
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}

    make.main(tmp_path)
    make.denoised(tmp_path)
    newest = FORMATS[max(FORMATS)]
    assert files(newest) - files(tmp_path) == {"rankings.json", "queries.f4"}
    made = json.loads((tmp_path / "facts.json").read_text())
    kept = FACTS[max(FORMATS)]
    for name, facts in made.items():
        assert facts.keys() == kept[name].keys()
        assert facts.get("fingerprint") == kept[name].get("fingerprint")
    index = PrivateIndex.open(tmp_path / "denoised")
    assert index.denoiser.error == json.loads((tmp_path / "denoised.json").read_text())["error"]


@every_format
def test_every_width_is_there(number):
    """Signs, and numbers of one, two and four bytes."""
    paths = []
    for name in PLAIN:
        paths.append(FORMATS[number] / f"{name}.codes")
        paths += FORMATS[number].glob(f"{name}*/**/*.codes")
    all_codes = [codes_from_bytes(path.read_bytes()) for path in paths]
    widths = {codes.stored.dtype.str[1:] for codes in all_codes}
    assert widths == {"u1", "i1", "i2", "i4"}


@every_format
def test_a_sketch_opens_and_answers(number):
    facts = FACTS[number]["race"]
    path = FORMATS[number] / "race.sketch"
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == facts["file"]
    sketch = RaceSketch.open(path)
    assert sketch.spec == make.SKETCH
    assert sketch.guarantee == sketch.spec.guarantee
    counts = sketch.count(make.vectors()[:4])
    assert counts == pytest.approx(facts["count"], abs=1e-3)
    again = RaceSketch.from_bytes(sketch.to_bytes())
    assert (again.counts == sketch.counts).all()
    stated, stored = unpack(data, "sketch")
    stated_now, stored_now = unpack(sketch.to_bytes(), "sketch")
    assert stated["spec"].pop("as_published", False) is False  # no longer written
    assert stated == stated_now
    assert (stored["counts"] == stored_now["counts"]).all()
