"""The contract of a release: whatever goes wrong, whenever, there is one release for one booking.

Whoever writes a target subclasses :class:`Case` (how to release into it, what is published there)
and :class:`ReleaseContract` (``case`` is that class), as ``storage/contract_targets.py`` does, and
runs the tests in a process of their own: they fork, and a child of a process that has used the
threads of a search library hangs.

A fault is survived when running the same release again makes everything whole: every vector is
there once, what was drawn and kept is what is published, the ledger counts each id once, and
nothing is left behind. Attempts that are stopped run in children, so that a kill is a kill; what
finds its disk full, or runs again, needs no child, which costs three times as much.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import dpindex as dpi
from dpindex.accounting import ledger
from dpindex.base.errors import InputError
from dpindex.base.files import pack, unpack
from dpindex.storage.journal import RELEASE_MARK, identity
from helpers import faults
from helpers.system_calls import NOT_STOPPED, SUPPORTED, Stopped, stopped_at

ROWS, DIM = 24, 8
VECTORS = np.random.default_rng(0).uniform(-1, 1, (ROWS, DIM))
IDS = [f"person-{row}" for row in range(ROWS)]
SPEC = dpi.Spec("dp-oporp-staircase", dim=DIM, k=8, epsilon=2.0, adjacency=dpi.attribute(1.0))
STEPS = SPEC.grid
"""Worked out before the forks: each of thousands of children would do it again."""

NAMES = ("link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync")
"""What changes names or makes them durable."""

INTERRUPTED = 3


class Case(ABC):
    """One way to release all vectors into ``folder``; ``ledger`` counts them.

    Attributes
    ----------
    folder : Path
        Holds everything.
    place : Path
        What is published.
    ledger : Ledger
    """

    counts: ClassVar[bool] = True
    """Whether the ledger is told."""

    keeps_names: ClassVar[bool] = True
    """Whether what is published is synchronized, so that a loss of power leaves it."""

    keeps_threads: ClassVar[bool] = False
    """Whether a library keeps threads once it was used, after which no child can use it."""

    ends_with: ClassVar[tuple[int, ...]] = (0, 2)
    """How the same command ends after it was published: again, or refused."""

    like_another: ClassVar[bool] = False
    """Whether its steps are those of another target: fewer calls have a fault, and each call gets
    one of interruptions, errors of the disk and other drivers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "target"
        self.ledger = dpi.Ledger(folder / "private" / "ledger")
        self.ledger.path.parent.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:  # noqa: B027
        """Make what is there before the release."""

    @abstractmethod
    def run(self, vectors: Any = VECTORS, allow_rerelease: bool = False) -> None:
        """Make a whole attempt."""

    @abstractmethod
    def published(self) -> bytes | None:
        """Return what is published of all vectors, None before: equal only for one release."""

    def move_away(self) -> None:
        """Move what is published to where it is served."""
        shutil.move(self.place, self.folder / "served")

    def releases(self) -> list[tuple[int, int]]:
        """Return how many ids had how many releases."""
        return [(total.ids, total.releases) for total in self.ledger.totals()]


def in_child(action: Callable[[], object]) -> int:
    """Run in a child; its exit code: 0, 2 for an InputError, 9 for a kill, else 99."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        code = ended(action)
    finally:
        os._exit(code)


def ended(action: Callable[[], object]) -> int:
    """Run it; the code that a command would end with."""
    try:
        action()
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


@contextmanager
def watched(at: int, fault: Callable[[], object]) -> Iterator[None]:
    """Let calls that change a name fail from number ``at`` on."""
    calls: list[str] = []
    plain = {name: getattr(os, name) for name in NAMES}

    def step(name: str) -> None:
        calls.append(name)
        # A full disk lets files be removed.
        if len(calls) >= at and (fault is kill or name not in ("unlink", "rmdir")):
            fault()

    def counted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            step(name)
            return plain[name](*arguments, **options)

        return call

    for name in NAMES:
        setattr(os, name, counted(name))
    try:
        yield
    finally:
        for name, function in plain.items():
            setattr(os, name, function)


def kill() -> None:
    os._exit(9)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def private_files(folder: Path) -> list[Path]:
    """Files that are not published."""
    return [path for path in folder.rglob("*") if ".unpublished" in str(path) and path.is_file()]


def staged(folder: Path) -> set[bytes]:
    """Codes and sketches that a release keeps and has not published."""
    files = [path for path in private_files(folder) if "save-" not in str(path)]
    return {path.read_bytes() for path in files if path.suffix == ".codes" or path.name == "sketch"}


def name_folder(mark: Path) -> None:
    """Let the mark of a release name the lock beside it: a copy is taken for the original.

    That it is not, without this, is what ``test_a_copy_is_refused`` holds.
    """
    header, arrays = unpack(mark.read_bytes(), RELEASE_MARK)
    header["lock"] = identity(mark.with_name("lock"))
    mark.write_bytes(pack(RELEASE_MARK, header, arrays))


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of whatever is in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }


def run_again(case: Case) -> int:
    """Run the same release again; returns 0, or 2 where it was refused, as a command ends."""
    if case.keeps_threads:
        code = in_child(case.run)
        assert code in (0, 2), code
        return code
    try:
        case.run()
    except InputError:
        return 2
    return 0


def check_whole(case: Case) -> None:
    assert case.published() is not None
    check_tidy(case)


def check_tidy(case: Case) -> None:
    """Each id is counted once, and nothing private is left."""
    if case.counts:
        assert case.releases() == [(ROWS, 1)]
    assert not list(case.folder.rglob("*.unpublished"))
    assert not [path for path in case.folder.rglob("*") if path.name.startswith("part-")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
class ReleaseContract:
    """What holds for every target."""

    case: type[Case]

    def made(self, folder: Path) -> Case:
        folder.mkdir(exist_ok=True)
        case = self.case(folder)
        case.prepare()
        return case

    def each_fault(
        self,
        tmp_path: Path,
        fault: Callable[[], object],
    ) -> Iterator[tuple[int, Case]]:
        """Give what is left by a fault at steps of the plan, until an attempt ends without one."""
        for at in faults.plan():
            folder = tmp_path / str(at)
            case = self.made(folder)

            def attempt(case: Case = case, at: int = at) -> None:
                with watched(at, fault):
                    case.run()

            needs_child = fault is kill or case.keeps_threads
            code = in_child(attempt) if needs_child else ended(attempt)
            assert code in (0, 2, 9), f"step {at} ended with {code}"
            if code == 0:
                check_whole(case)
                return
            yield at, case
            shutil.rmtree(folder)

    @pytest.mark.parametrize("fault", [kill, full])
    def test_a_fault_at_any_change_of_a_name(
        self, tmp_path: Path, fault: Callable[[], object]
    ) -> None:
        for at, case in self.each_fault(tmp_path, fault):
            self.check_survived(case, at)

    def check_survived(self, case: Case, at: int) -> None:
        """Run the release again after a fault at step ``at``: that makes everything whole."""
        kept = staged(case.folder)
        before = case.published()
        code = run_again(case)
        assert code in case.ends_with, f"step {at}"
        if before is None:
            assert code == 0, f"step {at}"
            published = case.published()
            assert published is not None
            missing = [data for data in kept if data not in published]
            assert not case.counts or not missing, f"step {at}: what was kept was drawn again"
        else:  # it was published, and perhaps not tidied up
            assert case.published() == before
        check_tidy(case)

    def each_stop(
        self, tmp_path: Path, then: Callable[[Case, Stopped], object], third: int
    ) -> Iterator[tuple[int, Case, int]]:
        """Stop an attempt at calls of the plan; give what is left when it ended, and its code.

        Where the target is like another, at the first, second or last call of three.
        """
        if not SUPPORTED:
            pytest.skip("traces system calls of Linux on x86-64")
        calls = faults.plan(third, 3) if self.case.like_another else faults.plan()
        for at in calls:
            case = self.made(tmp_path / str(at))
            code = stopped_at((at,), partial(then, case), partial(ended, case.run))
            if code >= NOT_STOPPED:
                assert code == NOT_STOPPED
                check_whole(case)
                return
            yield at, case, code
            shutil.rmtree(case.folder)

    def each_kill(self, tmp_path: Path) -> Iterator[tuple[int, Case]]:
        """Give what kills leave: one attempt, and a copy at each system call.

        Where the target is like another, at those of the plan.
        """
        if not SUPPORTED:
            pytest.skip("traces system calls of Linux on x86-64")
        folder = tmp_path / "case"
        case = self.made(folder)

        def keep(one: Stopped) -> None:
            shutil.copytree(folder, tmp_path / str(one.number))

        stops = faults.plan() if self.case.like_another else range(1, 10_000)
        assert stopped_at(stops, keep, partial(ended, case.run)) == 0
        check_whole(case)
        before: dict[str, tuple[int, bytes]] = {}
        for at in stops:
            if not (tmp_path / str(at)).exists():
                return
            shutil.rmtree(folder)
            os.rename(tmp_path / str(at), folder)
            left = contents(folder)
            if left == before:  # locks and files that are opened leave nothing
                continue
            before = left
            for mark in folder.rglob(RELEASE_MARK):
                name_folder(mark)
            yield at, self.case(folder)

    def test_f2_killed_at_every_system_call_and_run_again(self, tmp_path: Path) -> None:
        """Then the target is moved away, and the same command runs once more."""
        for at, case in self.each_kill(tmp_path):
            self.check_survived(case, at)
            self.check_one_release(case, at)

    def test_f2_killed_at_every_system_call_and_moved_away(self, tmp_path: Path) -> None:
        """What was published is moved away before the same command runs again."""
        for at, case in self.each_kill(tmp_path):
            self.check_one_release(case, at)

    def test_interrupted_at_every_system_call(self, tmp_path: Path) -> None:
        for at, case, code in self.each_stop(tmp_path, lambda _, one: one.interrupt(), 1):
            assert code in (0, 2, INTERRUPTED), f"step {at}"
            self.check_survived(case, at)

    def test_every_system_call_may_fail(self, tmp_path: Path) -> None:
        """The disk has an error once."""
        for at, case, code in self.each_stop(tmp_path, lambda _, one: one.fail(), 2):
            assert code in (0, 2), f"step {at}"
            self.check_survived(case, at)

    def test_f1_another_driver_runs_at_every_system_call(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first is stopped while the second runs to its end, and goes on then."""
        monkeypatch.setattr(ledger, "BUSY_SECONDS", 0.2)

        ends: list[int] = []

        def second(case: Case, one: Stopped) -> None:
            ends.append(run_again(case))

        for at, case, code in self.each_stop(tmp_path, second, 3):
            codes = {code, ends[-1]}
            assert codes <= {0, 2}, f"step {at}"
            assert 0 in codes, f"step {at}"
            published = case.published()
            assert published is not None
            assert run_again(case) in case.ends_with, f"step {at}"
            assert case.published() == published, f"step {at}: a second release"
            check_tidy(case)

    def check_one_release(self, case: Case, at: int) -> None:
        """The same command publishes equal rows, or nothing, once the target is moved away."""
        first = case.published()
        if first is None:
            assert run_again(case) == 0, f"step {at}"
        else:
            # Without a ledger a release that has ended, whose mark is gone, is not remembered.
            half_finished = any(path.name == "record" for path in private_files(case.folder))
            case.move_away()
            run_again(case)
            if case.counts or half_finished:
                second = case.published()
                assert second in (None, first), f"step {at}: a second release"
        if case.counts:
            assert case.releases() == [(ROWS, 1)], f"step {at}"

    def test_f1_of_two_drivers_one_leads(self, tmp_path: Path) -> None:
        """The second is refused while the first checks, and when it is about to draw."""
        case = self.made(tmp_path)
        codes: list[int] = []

        def first() -> None:
            plain = os.link

            def second() -> None:
                os.link = plain
                case.run()

            def link(*arguments: Any, **options: Any) -> None:
                codes.append(in_child(second))
                plain(*arguments, **options)

            os.link = link
            case.run()
            os.link = plain
            os._exit(0 if set(codes) == {2} else 7)

        assert in_child(first) == 0
        published = case.published()
        assert published is not None
        assert run_again(case) in case.ends_with
        assert case.published() == published
        check_whole(case)

    def test_f1_a_driver_that_comes_late_draws_nothing(self, tmp_path: Path) -> None:
        """Whatever it had read before the first ended, and wherever the target is by then."""
        for number, moved in enumerate((False, True)):
            case = self.made(tmp_path / str(number))
            if not case.counts:
                continue

            def late(case: Case = case, moved: bool = moved) -> None:
                plain = os.mkdir

                def mkdir(*arguments: Any, **options: Any) -> None:
                    os.mkdir = plain
                    if in_child(case.run) == 0 and moved:
                        case.move_away()
                    plain(*arguments, **options)

                os.mkdir = mkdir  # of its private folder: nothing was locked yet
                case.run()

            assert in_child(late) in (0, 2)
            assert (case.published() is None) == (case.folder / "served").exists()
            assert not staged(case.folder)
            assert case.releases() == [(ROWS, 1)]

    def test_what_is_allowed_to_be_released_again_is_counted(self, tmp_path: Path) -> None:
        case = self.made(tmp_path)
        if not case.counts:
            pytest.skip("nothing is counted")
        case.run()
        first = case.published()
        case.move_away()
        with pytest.raises(InputError):
            case.run()
        assert case.published() is None
        case.run(allow_rerelease=True)
        assert case.published() not in (None, first)
        assert case.releases() == [(ROWS, 2)]

    @pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
    @pytest.mark.parametrize(
        "order", ["all", "none", "first", "second", "all but the first", "all but the second"]
    )
    def test_power_is_lost_at_any_change_of_a_name(self, tmp_path: Path, order: str) -> None:
        for at in faults.plan():
            folder = tmp_path / str(at)
            case = self.made(folder)
            if not case.keeps_names:
                pytest.skip("nothing synchronizes the names of what is published")
            disk = LostPower(folder, at, GOES_BACK[order])

            def attempt(disk: LostPower = disk, case: Case = case) -> None:
                disk.lead(case.run)

            code = in_child(attempt)
            if code == 0:
                check_whole(case)
                return
            assert code == 9
            self.check_survived(case, at)
            shutil.rmtree(folder)


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
        for name in NAMES:
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
            source = Path()
            if name == "rename":
                source = _whole_path(arguments[0], options.get("src_dir_fd"))
            done = call(*arguments, **options)
            if name == "rename" and Path(arguments[1]).is_dir():
                self._moved.append((source, Path(arguments[1])))
                self._kept |= {folder: self._names(folder) for folder in self._folders()}
            if name == "fsync":
                folder = Path(os.readlink(f"/proc/self/fd/{arguments[0]}"))
                if folder.is_dir() and folder.is_relative_to(self._root):
                    self._kept[folder] = self._names(folder)
                    self._moved = [move for move in self._moved if move[1].parent != folder]
            return done

        return watched_call

    def _fail(self) -> None:
        for source, place in list(self._moved):  # going back is a rename too
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
                (folder / name).chmod(0o600)  # which the mark of a release has
        if RELEASE_MARK in kept and "lock" in kept:
            name_folder(folder / RELEASE_MARK)  # a disk gives the lock itself back


def _whole_path(name: Any, folder: int | None) -> Path:
    """Return a path that is resolved from the descriptor of a folder."""
    if folder is None:
        return Path(name)
    return Path(os.readlink(f"/proc/self/fd/{folder}")) / name


GOES_BACK: dict[str, Callable[[int], bool]] = {
    "all": lambda number: True,
    "none": lambda number: False,
    "first": lambda number: number == 0,
    "second": lambda number: number == 1,
    "all but the first": lambda number: number != 0,
    "all but the second": lambda number: number != 1,
}
