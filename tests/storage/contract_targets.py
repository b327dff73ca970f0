"""The contract of a release over every target of the package, run by test_release.py."""

import shutil

import numpy as np
import pytest
from helpers.common import dataset_of, filled_index, refuses
from helpers.release_faults import ReleaseFaults

import dpindex as dpi
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import codes_from_bytes
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.race.release import build_sketch
from dpindex.storage.history import Terms
from dpindex.storage.journal import Journal
from dpindex.storage.release import release
from dpindex.storage.targets import CodesFile, IndexOptions, IndexTarget, build_index
from dpindex.testing.release import (
    DIM,
    IDS,
    ROWS,
    SPEC,
    VECTORS,
    Case,
    check_whole,
    in_child,
    kill,
    watched,
)

SKETCH = SketchSpec(dim=DIM, rows=5, width=7, hash=PStable(1.0), epsilon=1.0)
LAW = SKETCH.law
"""Worked out before the forks."""


def dataset(vectors):
    return dataset_of(vectors, ids=IDS, rows=12)


class BuiltFolder(Case):
    options = None

    @property
    def address(self):
        return self.place

    def terms(self, allow_rerelease):
        return Terms(self.ledger, allow_rerelease)

    def run(self, vectors=VECTORS, allow_rerelease=False):
        terms = self.terms(allow_rerelease)
        build_index(dataset(vectors), self.address, SPEC, self.options, terms)

    def published(self):
        if not self.place.exists():
            return None
        index = dpi.PrivateIndex.open(self.place)
        assert sorted(index.ids.tolist()) == sorted(IDS)
        return b"".join(path.read_bytes() for path in sorted(self.place.glob("segments/*.codes")))


class UncountedFolder(BuiltFolder):
    """Without a ledger nothing is counted, but no token is drawn twice."""

    counts = False

    def terms(self, allow_rerelease):
        return Terms()


class Stored(BuiltFolder):
    """A folder that is reached as a bucket: see the fixture."""

    keeps_threads = True

    def prepare(self):
        self.place.mkdir()

    def move_away(self):
        super().move_away()
        self.place.mkdir()

    @property
    def address(self):
        return f"file://{self.place}"

    @property
    def options(self):
        return IndexOptions(private=self.folder / "keys.unpublished")

    def published(self):
        if not (self.place / "manifest.json").exists():
            return None
        return super().published()


class WrittenCodes(Case):
    def run(self, vectors=VECTORS, allow_rerelease=False):
        terms = Terms(self.ledger, allow_rerelease)
        release(dataset(vectors), CodesFile(self.place, SPEC), terms)

    def published(self):
        if not self.place.exists():
            return None
        codes = codes_from_bytes(self.place.read_bytes())
        assert len(codes) == ROWS
        # As the segments that are staged, so that these can be found in it.
        parts = [codes.take(slice(row, row + 12)).to_bytes() for row in range(0, ROWS, 12)]
        return b"".join(parts)


class Sketch(Case):
    def run(self, vectors=VECTORS, allow_rerelease=False):
        build_sketch(
            dataset(vectors),
            self.place,
            SKETCH,
            Terms(self.ledger, allow_rerelease),
        )

    def published(self):
        if not self.place.exists():
            return None
        assert RaceSketch.open(self.place).spec == SKETCH
        return self.place.read_bytes()


class Grown(Case):
    """A saved index to which vectors are added that a ledger counts."""

    ends_with = (0,)
    there = (VECTORS[:3], ["x", "y", "z"])

    def prepare(self):
        filled_index(SPEC, *self.there).save(self.place)
        shutil.copytree(self.place, self.folder / "before")

    def run(self, vectors=VECTORS, allow_rerelease=False):
        with dpi.PrivateIndex.changing(self.place, _busy) as index:
            if IDS[0] not in index:  # a growth that was sealed is finished by who opens it
                index.add(
                    vectors,
                    IDS,
                    ledger=self.ledger,
                    allow_rerelease=allow_rerelease,
                )

    def published(self):
        index = dpi.PrivateIndex.open(self.place)
        assert len(index) in (3, ROWS + 3)
        if len(index) == 3:
            return None
        return index.codes.take(slice(3, None)).to_bytes()

    def move_away(self):
        """The index is served elsewhere, and a copy from before takes its place."""
        shutil.move(self.place, self.folder / "served")
        shutil.copytree(self.folder / "before", self.place)


class Replaced(Grown):
    """Vectors that take the place of others, with a ledger that does not know these."""

    def run(self, vectors=VECTORS, allow_rerelease=False):
        with dpi.PrivateIndex.changing(self.place, _busy) as index:
            if IDS[0] not in index:
                options = {"ledger": self.ledger, "allow_rerelease": allow_rerelease}
                index.add(vectors, IDS, upsert=True, **options)


class GrownAlone(Grown):
    """Vectors that are added by a command without a ledger: they are known again by their tags."""

    counts = False
    ends_with = (0, 2)
    there = (-VECTORS[:3],)

    def run(self, vectors=VECTORS, allow_rerelease=False):
        with dpi.PrivateIndex.changing(self.place, _busy) as index:
            index.add(vectors)
            index.save(self.place)


class Saved(Case):
    """Codes in memory that are saved to a new folder; nothing is counted."""

    counts = False

    def run(self, vectors=VECTORS, allow_rerelease=False):
        index = filled_index(SPEC, vectors, IDS)
        index.save(self.place)

    def published(self):
        return BuiltFolder.published(self)


def _busy():
    raise InputError("another process writes; this one does not wait.")


class TestBuiltFolder(ReleaseFaults):
    case = BuiltFolder

    def test_h1_a_finished_index_holds_codes_and_nothing_of_the_release(self, tmp_path):
        case = self.made(tmp_path)
        case.run()
        files = {path.relative_to(case.place).parts[0] for path in case.place.rglob("*")}
        assert files == {".lock", "manifest.json", "segments", "ids"}


class TestUncountedFolder(ReleaseFaults):
    case = UncountedFolder
    like_another = True


class TestWrittenCodes(ReleaseFaults):
    case = WrittenCodes
    like_another = True


class TestSketch(ReleaseFaults):
    case = Sketch
    like_another = True


class TestGrown(ReleaseFaults):
    case = Grown


class TestReplaced(ReleaseFaults):
    case = Replaced
    like_another = True


class TestGrownAlone(ReleaseFaults):
    case = GrownAlone
    like_another = True


class TestSaved(ReleaseFaults):
    case = Saved
    # A save is no release: the first to end wins.
    test_f1_of_two_drivers_one_leads = None
    test_f1_another_driver_runs_at_every_system_call = None


class TestStored(ReleaseFaults):
    case = Stored
    like_another = True
    keeps_names = False  # what a real bucket takes is durable; a folder in its place is not

    @pytest.fixture(autouse=True)
    def _folders_as_buckets(self, monkeypatch):
        store = pytest.importorskip("obstore.store")
        opened_at = store.from_url
        monkeypatch.setattr(store, "from_url", lambda url: opened_at(url, mkdir=True))
        monkeypatch.setattr("dpindex.data.stores.FILE_URL", "none")


KILLED_AT = 19
"""A change of a name after the record of a release was created, and before it is drawn."""


@pytest.mark.parametrize(
    "kind", [BuiltFolder, WrittenCodes, Sketch], ids=lambda kind: kind.__name__
)
class TestUnfinished:
    """A release that was killed while it was drawn."""

    def killed(self, kind, folder):
        folder.mkdir(exist_ok=True)
        case = kind(folder)

        def attempt():
            with watched(KILLED_AT, kill):
                case.run()

        assert in_child(attempt) == 9
        return case

    def test_a_copy_is_refused(self, tmp_path, kind):
        case = self.killed(kind, tmp_path / "a")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        copy = kind.__new__(kind)
        copy.folder = tmp_path / "b"
        copy.place = copy.folder / "target"
        copy.ledger = dpi.Ledger(copy.folder / "private" / "ledger")
        with refuses("begun elsewhere"):
            copy.run()
        # Put back in its place, a copy is still not the one that was begun.
        shutil.move(tmp_path / "a", tmp_path / "c")
        shutil.copytree(tmp_path / "c", tmp_path / "a")
        with refuses("begun elsewhere"):
            case.run()
        shutil.rmtree(tmp_path / "a")
        shutil.move(tmp_path / "c", tmp_path / "a")
        assert in_child(case.run) == 0
        check_whole(case)

    def test_h7_the_content_decides_what_is_the_same_release(self, tmp_path, kind):
        case = self.killed(kind, tmp_path)
        changed = VECTORS.copy()
        changed[-1, -1] = -changed[-1, -1]
        with refuses("vectors, ids or payload differ"):
            case.run(changed)
        case.run(VECTORS.copy())
        check_whole(case)


@pytest.mark.parametrize("kind", [BuiltFolder, UncountedFolder])
def test_f2_what_is_drawn_and_gone_is_not_drawn_again(tmp_path, kind):
    """Killed after it was published, and moved away: a second release is one more, and counted."""
    case = kind(tmp_path)

    def killed():
        Journal.end = lambda _: kill()
        case.run()

    assert in_child(killed) == 9
    case.move_away()
    with refuses("its codes are gone from"):
        case.run()
    assert case.published() is None
    if case.counts:
        case.run(allow_rerelease=True)
        assert case.published() is not None
        assert case.releases() == [(ROWS, 2)]
        assert not list(case.folder.rglob("*.unpublished"))


def test_f2_the_ledger_remembers_what_its_journal_forgot(tmp_path):
    """Files of the private folder go back to when nothing was drawn; the folder itself stays."""
    case = BuiltFolder(tmp_path)

    def killed():
        IndexTarget.publish_files = lambda *_: kill()
        case.run()

    assert in_child(killed) == 9
    private = tmp_path / "target.unpublished"
    for drawn in [*private.rglob("*.drawn"), *private.rglob("*.codes")]:
        drawn.unlink()
    assert (private / "record").exists()
    with refuses("its codes are gone from"):
        case.run()
    assert case.published() is None
    assert case.releases() == [(ROWS, 1)]


def test_a_ledger_takes_an_index_with_a_folder(tmp_path):
    ledger = dpi.Ledger(tmp_path / "ledger")
    index = dpi.PrivateIndex(SPEC)
    with refuses(r"save the index to a folder first \(index.save"):
        index.add(VECTORS, IDS, ledger=ledger)
    assert not ledger.path.exists()
    index.save(tmp_path / "index")
    index.add(VECTORS, IDS, ledger=ledger)
    saved = dpi.PrivateIndex.open(tmp_path / "index")
    assert np.array_equal(saved.codes.stored, index.codes.stored)
    index.remove(IDS[:3])
    index.add(VECTORS[:1], ["new"], ledger=ledger)  # with what was changed before
    assert len(dpi.PrivateIndex.open(tmp_path / "index")) == len(index) == ROWS - 2
    other = dpi.PrivateIndex.open(tmp_path / "index")
    other.add_codes(index.codes.take(slice(1)), ["other"])
    other.save(tmp_path / "index")
    with refuses("was changed since this index was opened"):
        index.add(VECTORS[:1], ["more"], ledger=ledger)
    assert sum(entry.count for entry in ledger.entries()) == ROWS + 1
