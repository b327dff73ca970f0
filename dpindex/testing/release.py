"""The contract of a release: whatever goes wrong, whenever, there is one release for one booking.

Whoever writes a target subclasses :class:`Case` (how to release into it, what is published there)
and :class:`ReleaseContract` (``case`` is that class), and runs the tests
in a process of their own: they fork, and a child of a process that has used the threads of a search
library hangs.

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
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dpindex.accounting.ledger import Ledger
from dpindex.base.errors import InputError
from dpindex.mechanism.spec import Spec
from dpindex.privacy.adjacency import attribute

ROWS = 24
DIM = 8
VECTORS = np.random.default_rng(0).uniform(-1, 1, (ROWS, DIM))
IDS = [f"person-{row}" for row in range(ROWS)]
SPEC = Spec("dp-oporp-staircase", dim=DIM, k=8, epsilon=2.0, adjacency=attribute(1.0))
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

    keeps_threads: ClassVar[bool] = False
    """Whether a library keeps threads once it was used, after which no child can use it."""

    ends_with: ClassVar[tuple[int, ...]] = (0, 2)
    """How the same command ends after it was published: again, or refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "target"
        self.ledger = Ledger(folder / "private" / "ledger")
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

    def steps(self) -> range:
        """Changes of a name at which there is a fault, until an attempt ends without one."""
        return range(1, 10_000)

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
        for at in self.steps():
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
