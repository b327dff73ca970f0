"""The contract of a release, over every target, run by test_release.py: whatever goes wrong, when.

A fault is survived when running the same release again makes everything whole: every vector is
there once, what was drawn and kept is what is published, the ledger counts each id once, and
nothing is left behind. Attempts run in children, so that a kill is a kill.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releases import build, dataset_of, write_codes

import dpindex as dpi
from dpindex.base.errors import InputError
from dpindex.mechanism.codes import codes_from_bytes
from dpindex.race import PStable, RaceSketch, SketchSpec
from dpindex.race.release import build_sketch
from dpindex.storage.release import Terms

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ROWS, DIM = 60, 8
VECTORS = np.random.default_rng(0).uniform(-1, 1, (ROWS, DIM))
IDS = [f"person-{row}" for row in range(ROWS)]
SPEC = dpi.Spec("dp-oporp-staircase", dim=DIM, k=4, epsilon=2.0, adjacency=dpi.attribute(1.0))
SKETCH = SketchSpec(dim=DIM, rows=5, width=7, hash=PStable(1.0), epsilon=1.0)
LAWS = (SPEC.grid, SKETCH.law)
"""Worked out before the forks: each of thousands of children would do it again."""

CALLS = ("link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync")
"""What changes names or makes them durable."""


KILLED_AT = 19
"""A call after the record of a release was created, and before its commit."""


class Target:
    """One way to release all vectors into ``folder``; ``ledger`` counts them.

    ``run`` is a whole attempt. ``rows`` are how many vectors are published, 0 before the commit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "target"
        self.ledger = dpi.Ledger(folder / "private" / "ledger")
        self.ledger.path.parent.mkdir()

    def prepare(self) -> None:
        """Make what is there before the release."""

    def run(self, vectors: Any = VECTORS) -> None:
        raise NotImplementedError

    def rows(self) -> int:
        raise NotImplementedError

    def parts(self) -> set[bytes]:
        """Return the codes that are published, as bytes of files."""
        return {path.read_bytes() for path in self.place.rglob("*.codes")}


class Folder(Target):
    def run(self, vectors: Any = VECTORS) -> None:
        build(self.place, SPEC, vectors, ids=IDS, rows=20, ledger=self.ledger)

    def rows(self) -> int:
        return len(dpi.PrivateIndex.open(self.place)) if self.place.exists() else 0


class CodesFile(Target):
    def run(self, vectors: Any = VECTORS) -> None:
        write_codes(self.place, SPEC, vectors, ids=IDS, rows=20, ledger=self.ledger)

    def rows(self) -> int:
        return len(codes_from_bytes(self.place.read_bytes())) if self.place.exists() else 0

    def parts(self) -> set[bytes]:
        codes = codes_from_bytes(self.place.read_bytes())
        return {codes.take(slice(row, row + 20)).to_bytes() for row in (0, 20, 40)}


class Saved(Target):
    """Memory, saved to a new folder."""

    def run(self, vectors: Any = VECTORS) -> None:
        index = dpi.PrivateIndex(SPEC)
        index.add(vectors, IDS, ledger=self.ledger)
        index.save(self.place)

    def rows(self) -> int:
        return len(dpi.PrivateIndex.open(self.place)) if self.place.exists() else 0


class Grown(Target):
    """Memory, saved to the folder that the index came from."""

    def prepare(self) -> None:
        index = dpi.PrivateIndex(SPEC)
        index.add(VECTORS[:3], ["x", "y", "z"])
        index.save(self.place)

    def run(self, vectors: Any = VECTORS) -> None:
        with dpi.PrivateIndex.changing(self.place, _busy) as index:
            if IDS[0] not in index:  # a save that was sealed is finished by who opens it
                index.add(vectors, IDS, ledger=self.ledger)
                index.save(self.place)

    def rows(self) -> int:
        return len(dpi.PrivateIndex.open(self.place)) - 3


def _busy() -> None:
    raise InputError("another process writes; this one does not wait.")


class Sketch(Target):
    def run(self, vectors: Any = VECTORS) -> None:
        dataset = dataset_of(vectors, ids=IDS, rows=20)
        build_sketch(dataset, self.place, SKETCH, Terms(self.ledger))

    def rows(self) -> int:
        if not self.place.exists():
            return 0
        assert RaceSketch.open(self.place).spec == SKETCH
        return ROWS

    def parts(self) -> set[bytes]:
        return {self.place.read_bytes()}


TARGETS = [Folder, CodesFile, Saved, Grown, Sketch]
every_target = pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.__name__)


def in_child(action: Callable[[], object]) -> int:
    """Run in a child; its exit code: 0, 2 for an InputError, 9 for a kill, else 99."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        action()
        code = 0
    except InputError as error:
        print(error, file=sys.stderr)
        code = 2
    finally:
        os._exit(code)


@contextmanager
def watched(at: int, fault: Callable[[], object]) -> Iterator[None]:
    """Let the calls that change names fail from number ``at`` on."""
    count = 0
    plain = {name: getattr(os, name) for name in CALLS}

    def counted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            # A full disk lets files be removed.
            if count >= at and (fault is _kill or name not in ("unlink", "rmdir")):
                fault()
            return plain[name](*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(name))
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(os, name, function)


def _kill() -> None:
    os._exit(9)


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def staged(folder: Path) -> set[bytes]:
    """Codes and sketches that are kept and not published."""
    places = [path for path in folder.rglob("*") if ".unpublished" in str(path) and path.is_file()]
    return {
        path.read_bytes() for path in places if path.suffix == ".codes" or path.name == "sketch"
    }


def check_whole(target: Target) -> None:
    assert target.rows() == ROWS
    counted = [(total.ids, total.releases) for total in target.ledger.totals()]
    assert counted == [(ROWS, 1)]
    assert not list(target.folder.rglob("*.unpublished"))
    assert not [path for path in target.folder.rglob("*") if path.name.startswith("part-")]


def check_survived(target: Target, at: int) -> None:
    """Run the release again after a fault at call ``at``: that makes everything whole."""
    kept = staged(target.folder)
    kind = type(target)
    if target.rows():  # it was committed, and perhaps not tidied up
        assert in_child(target.run) == (0 if kind is Grown else 2)
        for leftover in target.folder.rglob("*.unpublished"):
            shutil.rmtree(leftover)
    else:
        assert in_child(target.run) == 0
        if kind is not Saved and kind is not Grown:
            assert kept <= target.parts(), f"call {at}: what was kept was drawn again"
    check_whole(target)


@pytest.mark.parametrize("fault", [_kill, _full], ids=["killed", "disk full"])
@pytest.mark.parametrize(
    "stride", [17, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
@every_target
def test_a_fault_at_any_change_of_a_name(
    tmp_path: Path, kind: type[Target], stride: int, fault: Callable[[], object]
) -> None:
    for at in range(1, 10_000, stride):
        folder = tmp_path / str(at)
        folder.mkdir()
        target = kind(folder)
        target.prepare()

        def attempt(target: Target = target, at: int = at) -> None:
            with watched(at, fault):
                target.run()

        code = in_child(attempt)
        assert code in (0, 2, 9), f"call {at} ended with {code}"
        if code == 0:
            check_whole(target)
            return
        check_survived(target, at)
        shutil.rmtree(folder)


@every_target
def test_two_at_once_make_one(tmp_path: Path, kind: type[Target]) -> None:
    """A second process runs the whole release while the first is about to draw."""
    target = kind(tmp_path)
    target.prepare()

    def first() -> None:
        ready = {"left": True}
        plain = os.link

        def link(*arguments: Any, **options: Any) -> None:
            if ready["left"] and target.ledger.path.exists():
                ready["left"] = False
                in_child(target.run)
            plain(*arguments, **options)

        os.link = link
        target.run()

    assert in_child(first) in (0, 2)
    if not target.rows():
        assert in_child(target.run) == 0
    for leftover in tmp_path.rglob("*.unpublished"):
        assert not staged(tmp_path), leftover
        shutil.rmtree(leftover)
    check_whole(target)


@pytest.mark.parametrize("kind", [Folder, CodesFile, Sketch], ids=lambda kind: kind.__name__)
def test_a_copy_of_an_unfinished_release_is_refused(tmp_path: Path, kind: type[Target]) -> None:
    (tmp_path / "a").mkdir()
    target = kind(tmp_path / "a")

    def killed() -> None:
        with watched(KILLED_AT, _kill):
            target.run()

    assert in_child(killed) == 9
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = kind.__new__(kind)
    copy.folder = tmp_path / "b"
    copy.place = copy.folder / "target"
    copy.ledger = dpi.Ledger(copy.folder / "private" / "ledger")
    with pytest.raises(InputError, match="begun elsewhere"):
        copy.run()
    # Put back in its place, a copy is still not the one that was begun.
    shutil.move(tmp_path / "a", tmp_path / "c")
    shutil.copytree(tmp_path / "c", tmp_path / "a")
    with pytest.raises(InputError, match="begun elsewhere"):
        target.run()
    shutil.rmtree(tmp_path / "a")
    shutil.move(tmp_path / "c", tmp_path / "a")
    assert in_child(target.run) == 0
    check_whole(target)


@pytest.mark.parametrize("kind", [Folder, CodesFile, Sketch], ids=lambda kind: kind.__name__)
def test_h7_the_content_decides_what_is_the_same_release(
    tmp_path: Path, kind: type[Target]
) -> None:
    target = kind(tmp_path)

    def killed() -> None:
        with watched(KILLED_AT, _kill):
            target.run()

    assert in_child(killed) == 9
    changed = VECTORS.copy()
    changed[-1, -1] = -changed[-1, -1]
    with pytest.raises(InputError, match="vectors, ids or payload differ"):
        target.run(changed)
    target.run(VECTORS.copy())
    check_whole(target)


def test_h3_codes_that_a_ledger_counts_are_taken_up_again(tmp_path: Path) -> None:
    """An index that is gone before it was saved; then the same call, and other vectors."""
    ledger = dpi.Ledger(tmp_path / "ledger")
    index = dpi.PrivateIndex(SPEC)
    index.add(VECTORS, IDS, ledger=ledger)
    with pytest.raises(InputError, match="was released before"):
        dpi.PrivateIndex(SPEC).add(VECTORS, IDS, ledger=ledger)  # the first is alive
    codes = index.codes.to_bytes()
    del index
    with pytest.raises(InputError, match="was released before"):
        dpi.PrivateIndex(SPEC).add(VECTORS[::-1], IDS, ledger=ledger)
    again = dpi.PrivateIndex(SPEC)
    again.add(VECTORS, IDS, ledger=ledger)
    assert again.codes.to_bytes() == codes
    assert [(total.ids, total.releases) for total in ledger.totals()] == [(ROWS, 1)]
    again.save(tmp_path / "index")
    assert not (tmp_path / "ledger.unpublished").exists()
    with pytest.raises(InputError, match="was released before"):
        dpi.PrivateIndex(SPEC).add(VECTORS, IDS, ledger=ledger)


def test_h1_a_finished_index_holds_codes_and_nothing_of_the_release(tmp_path: Path) -> None:
    target = Folder(tmp_path)
    target.run()
    files = {path.relative_to(target.place).parts[0] for path in target.place.rglob("*")}
    assert files == {".lock", "manifest.json", "segments", "ids"}


class LostPower:
    """A disk that keeps of every folder the names that it had when it was last synchronized.

    At change number ``at`` of a name the power fails: of the folders that changed since they were
    synchronized, those that ``goes_back`` chooses by their order go back, the others keep what is
    new. Contents of files are kept, as each is synchronized before it gets its name. A folder that
    is renamed is in one of both places. The ledger's database keeps a journal of its own.
    """

    def __init__(self, root: Path, at: int, goes_back: Callable[[int], bool]) -> None:
        self._root = root
        self._left = at
        self._goes_back = goes_back
        self._moved: list[tuple[Path, Path]] = []
        self._kept = {folder: self._names(folder) for folder in self._folders()}

    def lead(self, action: Callable[[], object]) -> None:
        """Do something on this disk; the process ends with it."""
        for name in CALLS:
            setattr(os, name, self._watched(name, getattr(os, name)))
        action()

    def _folders(self) -> list[Path]:
        return [Path(folder) for folder, _, _ in os.walk(self._root)]

    def _names(self, folder: Path) -> dict[str, bytes | None]:
        """Files by name with their contents; folders with None."""
        names: dict[str, bytes | None] = {}
        for entry in folder.iterdir():
            if entry.is_dir():
                names[entry.name] = None
            elif not entry.name.startswith("ledger"):
                names[entry.name] = entry.read_bytes()
        return names

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched_call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._fail()
            done = call(*arguments, **options)
            if name == "rename" and Path(arguments[1]).is_dir():
                self._moved.append((Path(arguments[0]), Path(arguments[1])))
                self._kept |= {folder: self._names(folder) for folder in self._folders()}
            if name == "fsync":
                folder = Path(os.readlink(f"/proc/self/fd/{arguments[0]}"))
                if folder.is_dir() and folder.is_relative_to(self._root):
                    self._kept[folder] = self._names(folder)
                    self._moved = [move for move in self._moved if move[1].parent != folder]
            return done

        return watched_call

    def _fail(self) -> None:
        for source, place in self._moved:
            if self._goes_back(0):
                os.renames(place, source)
        changed = [one for one in self._folders() if self._kept.get(one, {}) != self._names(one)]
        for number, folder in enumerate(changed):
            if self._goes_back(number) and folder.exists():
                self._revert(folder)
        os._exit(9)

    def _revert(self, folder: Path) -> None:
        kept = self._kept.get(folder, {})
        for name in self._names(folder).keys() - kept.keys():
            place = folder / name
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink()
        for name, content in kept.items():
            if content is None:
                (folder / name).mkdir(exist_ok=True)
            else:
                (folder / name).write_bytes(content)


GOES_BACK: dict[str, Callable[[int], bool]] = {
    "all": lambda number: True,
    "none": lambda number: False,
    "first": lambda number: number == 0,
    "second": lambda number: number == 1,
    "all but the first": lambda number: number != 0,
    "all but the second": lambda number: number != 1,
}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
@pytest.mark.parametrize(
    "stride", [11, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "every"]
)
@pytest.mark.parametrize("order", GOES_BACK)
@every_target
def test_power_is_lost_at_any_change_of_a_name(
    tmp_path: Path, kind: type[Target], order: str, stride: int
) -> None:
    for at in range(1, 10_000, stride):
        folder = tmp_path / str(at)
        folder.mkdir()
        target = kind(folder)
        target.prepare()
        disk = LostPower(folder, at, GOES_BACK[order])

        def attempt(disk: LostPower = disk, target: Target = target) -> None:
            disk.lead(target.run)

        code = in_child(attempt)
        if code == 0:
            check_whole(target)
            return
        assert code == 9
        check_survived(target, at)
        shutil.rmtree(folder)
