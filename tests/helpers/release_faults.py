"""What the package's own targets hold beyond the contract: faults at any system call, lost power.

Which calls have a fault in this run says :mod:`helpers.faults`.
"""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from dpindex.accounting import ledger
from dpindex.base.files import pack, unpack
from dpindex.storage.journal import RELEASE_MARK, identity
from dpindex.testing.release import (
    INTERRUPTED,
    NAMES,
    ReleaseContract,
    check_tidy,
    check_whole,
    ended,
    in_child,
    run_again,
)
from helpers import faults
from helpers.system_calls import NOT_STOPPED, SUPPORTED, stopped_at


def name_folder(mark):
    """Let the mark of a release name the lock beside it: a copy is taken for the original.

    That it is not, without this, is what ``test_a_copy_is_refused`` holds.
    """
    header, arrays = unpack(mark.read_bytes(), RELEASE_MARK)
    header["lock"] = identity(mark.with_name("lock"))
    mark.write_bytes(pack(RELEASE_MARK, header, arrays))


def contents(folder):
    """Return mode and content of whatever is in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }


def traced_calls(*part):
    if not SUPPORTED:
        pytest.skip("traces system calls of Linux on x86-64")
    return faults.plan(*part)


class ReleaseFaults(ReleaseContract):
    """The contract, with a kill, an interruption, an error or another driver at system calls."""

    like_another = False
    """Whether its steps are those of another target: fewer calls have a fault, and each call gets
    one of interruptions, errors of the disk and other drivers."""

    keeps_names = True
    """Whether what is published is synchronized, so that a loss of power leaves it."""

    def steps(self):
        return faults.plan()

    def each_stop(self, tmp_path, then, third):
        """Stop an attempt at calls of the plan; give what is left when it ended, and its code.

        Where the target is like another, at the first, second or last call of three.
        """
        calls = traced_calls(third, 3) if self.like_another else traced_calls()
        for at in calls:
            case = self.made(tmp_path / str(at))
            code = stopped_at((at,), partial(then, case), partial(ended, case.run))
            if code >= NOT_STOPPED:
                assert code == NOT_STOPPED
                check_whole(case)
                return
            yield at, case, code
            shutil.rmtree(case.folder)

    def each_kill(self, tmp_path):
        """Give what kills leave: one attempt, and a copy at each system call of the plan."""
        stops = traced_calls()
        folder = tmp_path / "case"
        case = self.made(folder)

        def keep(one):
            shutil.copytree(folder, tmp_path / str(one.number))

        assert stopped_at(stops, keep, partial(ended, case.run)) == 0
        check_whole(case)
        before = {}
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

    def test_f2_killed_at_every_system_call_and_run_again(self, tmp_path):
        """Then the target is moved away, and the same command runs once more."""
        for at, case in self.each_kill(tmp_path):
            self.check_survived(case, at)
            self.check_one_release(case, at)

    def test_f2_killed_at_every_system_call_and_moved_away(self, tmp_path):
        """What was published is moved away before the same command runs again."""
        for at, case in self.each_kill(tmp_path):
            self.check_one_release(case, at)

    def test_interrupted_at_every_system_call(self, tmp_path):
        for at, case, code in self.each_stop(tmp_path, lambda _, one: one.interrupt(), 1):
            assert code in (0, 2, INTERRUPTED), f"step {at}"
            self.check_survived(case, at)

    def test_every_system_call_may_fail(self, tmp_path):
        """The disk has an error once."""
        for at, case, code in self.each_stop(tmp_path, lambda _, one: one.fail(), 2):
            assert code in (0, 2), f"step {at}"
            self.check_survived(case, at)

    def test_f1_another_driver_runs_at_every_system_call(self, tmp_path, monkeypatch):
        """The first is stopped while the second runs to its end, and goes on then."""
        monkeypatch.setattr(ledger, "BUSY_SECONDS", 0.2)

        ends = []

        def second(case, one):
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

    @pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")
    @pytest.mark.parametrize(
        "order", ["all", "none", "first", "second", "all but the first", "all but the second"]
    )
    def test_power_is_lost_at_any_change_of_a_name(self, tmp_path, order):
        for at in faults.plan():
            folder = tmp_path / str(at)
            case = self.made(folder)
            if not self.keeps_names:
                pytest.skip("nothing synchronizes the names of what is published")
            earlier = [GOES_BACK[name] for name in [*GOES_BACK][: [*GOES_BACK].index(order)]]
            disk = LostPower(folder, at, GOES_BACK[order], earlier)

            def attempt(disk=disk, case=case):
                disk.lead(case.run)

            code = in_child(attempt)
            if code == 0:
                check_whole(case)
                return
            assert code in (9, LostPower.SEEN)
            if code == 9:
                self.check_survived(case, at)
            shutil.rmtree(folder)


class LostPower:
    """A disk that keeps of every folder the names that it had when it was last synchronized.

    At change number ``at`` of a name the power fails: of the folders that changed since they were
    synchronized, those that ``goes_back`` chooses by their order go back, the others keep what is
    new. Contents of files are kept, as each is synchronized before it gets its name. A folder that
    is renamed is in one of both places. The ledger's database keeps a journal of its own.

    Where one of ``earlier`` chooses the same of these folders, the process ends with ``SEEN``.
    """

    SEEN = 8

    def __init__(self, root, at, goes_back, earlier):
        self._root = root
        self._left = at
        self._goes_back = goes_back
        self._earlier = earlier
        self._moved = []
        self._kept = {folder: self._names(folder) for folder in self._folders()}

    def lead(self, action):
        """Do something on this disk; the process ends with it."""
        for name in NAMES:
            setattr(os, name, self._watched(name, getattr(os, name)))
        action()

    def _folders(self):
        return [Path(folder) for folder, _, _ in os.walk(self._root)]

    def _names(self, folder):
        """Files by name with their contents; folders with None."""
        names = {}
        for entry in folder.iterdir():
            if entry.is_dir():
                names[entry.name] = None
            elif not entry.name.startswith("ledger"):
                names[entry.name] = entry.read_bytes()
        return names

    def _watched(self, name, call):
        def watched_call(*arguments, **options):
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

    def _fail(self):
        for source, place in list(self._moved):  # going back is a rename too
            if self._goes_back(0):
                os.renames(place, source)
        changed = [one for one in self._folders() if self._kept.get(one, {}) != self._names(one)]
        asked = range(max(len(changed), bool(self._moved)))
        chosen = [self._goes_back(number) for number in asked]
        if any([one(number) for number in asked] == chosen for one in self._earlier):
            os._exit(self.SEEN)
        for number, folder in enumerate(changed):
            if self._goes_back(number) and folder.exists():
                self._revert(folder)
        os._exit(9)

    def _revert(self, folder):
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


def _whole_path(name, folder):
    """Return a path that is resolved from the descriptor of a folder."""
    if folder is None:
        return Path(name)
    return Path(os.readlink(f"/proc/self/fd/{folder}")) / name


GOES_BACK = {
    "all": lambda number: True,
    "none": lambda number: False,
    "first": lambda number: number == 0,
    "second": lambda number: number == 1,
    "all but the first": lambda number: number != 0,
    "all but the second": lambda number: number != 1,
}
