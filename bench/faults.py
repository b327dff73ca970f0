"""Everything that can go wrong while an index is kept, provoked on purpose; counts what survived.

    python bench/faults.py            # 200 kills and the rest: a few minutes
    python bench/faults.py --kills 10 --times 1

A fault is survived when no committed vector is lost or changed, none is privatized a second time,
whatever is refused is refused in one sentence, and the same command works once the cause is gone.
Children are forked, so that a fault costs milliseconds; POSIX only. Disks fill up on a small tmpfs
where this process may mount one, else by a limit on the size of files.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import dpindex.index.ingest as ingest_module
import numpy as np
from dpindex.index.index_sinks import NewDirectory
from dpindex.index.ingest import ingest

from dpindex import Ledger, PrivateIndex, Privatizer, Spec
from dpindex.base.errors import InputError
from dpindex.cli import main as command_line
from dpindex.storage.directory import IndexDirectory
from dpindex.storage.manifest import Settings
from dpindex.vectors import as_source, open_vectors

ROWS, DIM, STEP = 4000, 16, 50
SPEC = Spec(method="dp-oporp-staircase", dim=DIM, k=8, epsilon=2.0)

Seen = dict[str, str]


class FaultError(Exception):
    """A fault that was not survived."""


def must(holds: object, what: str) -> None:
    if not holds:
        raise FaultError(what)


class Workshop:
    """A directory with vectors in it, and builds of them that leave a trace of what they drew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vectors = folder / "vectors.npy"
        self.stride = 1
        np.save(self.vectors, np.random.default_rng(0).uniform(-1, 1, (ROWS, DIM)))
        self._number = 0

    def new(self) -> Path:
        self._number += 1
        return self.folder / f"index{self._number}"

    def build(self, path: Path, drawn: Path | None = None) -> None:
        """Build in this process; every row is written down before its noise is drawn."""
        ingest_module._CHUNK_BYTES = STEP * DIM * 8
        plain = Privatizer.privatize

        def traced(self: Privatizer, x: object, *, first_row: int = 0, **rest: object) -> object:
            if drawn is not None:
                with open(drawn, "a") as file:
                    file.write(f"{first_row}\n")
            return plain(self, x, first_row=first_row, threads=1)

        Privatizer.privatize = traced  # type: ignore[assignment,method-assign]
        try:
            with open_vectors(self.vectors) as source:
                ingest(source, NewDirectory(path, Settings(SPEC)))
        finally:
            Privatizer.privatize = plain  # type: ignore[method-assign]


def fork(action: Callable[[], object], errors: Path | None = None) -> int:
    """Run in a child; returns its process id. It ends with 0, or 2 for an InputError."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        if errors is not None:
            handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        action()
        code = 0
    except InputError as error:
        print(error, file=sys.stderr)
        code = 2
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):  # a full disk: the child must end all the same
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def ended(child: int) -> int:
    """Exit code, or minus the number of the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def committed(path: Path) -> Seen:
    """What a manifest promises: each segment and ids file, and the hash of what is there."""
    directory = IndexDirectory(path)
    if not directory.exists:
        return {}
    files = directory.manifest().paths
    return {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in files}


def check_kept(before: Seen, path: Path) -> Seen:
    """Everything that was committed is still there, bit for bit: not lost, not drawn again."""
    now = committed(path)
    must(all(now.get(name) == digest for name, digest in before.items()), "a segment changed")
    return now


def check_complete(path: Path) -> None:
    index = PrivateIndex.open(path)
    must(index.ids.tolist() == list(range(ROWS)), "ids are missing, doubled or out of order")
    must(not list(path.rglob("*.tmp")), "temporary files were left")
    must(IndexDirectory(path).manifest().input is None, "what it was built from was left")
    hits = index.search(np.zeros((1, DIM)) + 0.1, k=3)
    must(hits.ids.shape == (1, 3), "it cannot be searched")


def finish(shop: Workshop, path: Path, before: Seen) -> None:
    """Run the same build again, in a child, to its end."""
    code = ended(fork(lambda: shop.build(path), Path(os.devnull)))
    must(code in (0, 2), f"the build ended with {code}")
    check_kept(before, path)
    check_complete(path)


# The faults. Each yields once for every fault that was survived.


def kills(shop: Workshop, times: int) -> Iterator[str]:
    """kill -9 at a random moment of a build, which is then resumed, and killed again."""
    start = time.perf_counter()
    path = shop.new()
    must(ended(fork(lambda: shop.build(path))) == 0, "an undisturbed build failed")
    whole = time.perf_counter() - start
    check_complete(path)
    done = 0
    while done < times:
        path, drawn = shop.new(), shop.folder / "drawn"
        drawn.unlink(missing_ok=True)
        before: Seen = {}
        while True:
            rows_before = STEP * (len(before) // 2)
            read = len(drawn.read_text().split()) if drawn.exists() else 0
            child = fork(lambda path=path, drawn=drawn: shop.build(path, drawn))
            time.sleep(random.uniform(0, whole / 3))
            os.kill(child, signal.SIGKILL)
            code = ended(child)
            again = [int(row) for row in drawn.read_text().split()][read:] if drawn.exists() else []
            must(all(row >= rows_before for row in again), "a committed vector was drawn again")
            must(len(again) == len(set(again)), "a vector was drawn twice in one build")
            before = check_kept(before, path)
            if code == -signal.SIGKILL:
                done += 1
                yield "kill"
            manifest = IndexDirectory(path).manifest() if before else None
            if code == 0 or done >= times or (manifest and manifest.state == "complete"):
                break
        finish(shop, path, before)
        shutil.rmtree(path)


_WRITING = (
    "openat,write,pwrite64,fsync,fdatasync,ftruncate,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir"
)
"""System calls that change what is on a disk, or may."""

_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


def at_call(action: Callable[[], object], errors: Path, inject: str) -> int:
    """Run in a child, and let strace inject a fault into its calls; its exit code."""
    ready, go = os.pipe()

    def waiting() -> None:
        ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY)  # lets a process that is no parent attach
        os.read(ready, 1)
        action()

    child = fork(waiting, errors)
    command = ["strace", "-qq", "-o", os.devnull, "-e", f"trace={_WRITING}", "-e", inject]
    tracer = subprocess.Popen([*command, "-p", str(child)], stderr=subprocess.DEVNULL)
    status = Path(f"/proc/{child}/status")
    while "TracerPid:\t0\n" in status.read_text() and tracer.poll() is None:
        time.sleep(0.001)
    traced = tracer.poll() is None
    os.write(go, b"!")
    os.close(go)
    os.close(ready)
    code = ended(child)
    tracer.wait()
    must(traced, "strace cannot attach; allow it, or leave every_call out")
    return code


def in_view(path: Path) -> Seen:
    """Codes that whoever watches the directory sees, under their names and temporary ones."""
    files = [file for file in path.glob("segments/*") if file.stat().st_size]
    return {file.name.removesuffix(".tmp"): file.read_bytes().hex() for file in files}


def works(shop: Workshop) -> dict[Callable[[Path], None], int]:
    """What changes an index and its ledger, and how many rows the index has then."""
    rows = np.load(shop.vectors)[:120]
    names = [f"r{i}" for i in range(len(rows))]

    def build(path: Path) -> None:
        ingest_module._CHUNK_BYTES = STEP * DIM * 8
        sink, ledger = NewDirectory(path, Settings(SPEC)), Ledger(path.with_name("ledger"))
        try:
            payload = {"name": names}
            ingest(as_source(rows), sink, ids=np.array(names), payload=payload, ledger=ledger)
        except InputError:  # it was finished by the first run
            directory = IndexDirectory(path)
            if not directory.exists or directory.manifest().state != "complete":
                raise

    def add(path: Path) -> None:
        index, ledger = PrivateIndex.open(path), Ledger(path.with_name("ledger"))
        if len(index) == len(rows):
            new = [f"new{i}" for i in range(STEP)]
            payload = {"name": new}
            index.add(rows[:STEP], new, payload=payload, ledger=ledger, allow_rerelease=True)
            index.save(path)

    def remove(path: Path) -> None:
        index = PrivateIndex.open(path)
        if len(index) == len(rows):
            index.remove(names[:STEP])
            index.save(path)

    def record(path: Path) -> None:
        Ledger(path.with_name("ledger")).record(SPEC, ["one"], token="t")

    return {build: len(rows), add: len(rows) + STEP, remove: len(rows) - STEP, record: len(rows)}


def prepared(shop: Workshop, work: Callable[[Path], None]) -> Path:
    """Where the work is to be done: a new place, with the index that it changes."""
    path = shop.folder / "every" / "index"
    path.parent.mkdir()
    if work.__name__ != "build":
        next(iter(works(shop)))(path)
    return path


def check_again(
    work: Callable[[Path], None], count: int, path: Path, before: Seen, seen: Seen
) -> None:
    """After a fault: what was ``seen`` is counted, and doing the work again makes everything whole.

    Nothing is lost, drawn again, doubled or left behind.
    """
    place = path.parent
    ledger = Ledger(place / "ledger")
    counted = sum(t.ids for t in ledger.totals()) if ledger.path.exists() else 0
    must(counted or not seen, "codes were seen that were not counted")
    work(path)
    now = in_view(path)
    index = PrivateIndex.open(path)
    must(len(index) == len(set(index.ids)) == count, "rows are missing or doubled")
    must(index.payload["name"].to_pylist() == index.ids.tolist(), "the payload is of other rows")
    fresh = seen if work.__name__ != "remove" else seen.keys() - before
    must(all(now[name].startswith(seen[name]) for name in fresh), "seen, and drawn again")
    manifest = IndexDirectory(path).manifest()
    must(len(now) == len(manifest.segments), "codes that do not belong were left")
    must(not list(path.rglob("*.tmp")), "temporary files were left")
    most = max(t.releases for t in ledger.totals())
    must(most == 1 or (work.__name__ == "add" and most == 2), "the ledger counts wrongly")
    folder = place / "ledger.builds"
    must(not folder.exists() or not list(folder.iterdir()), "a claim was left")
    state = Path(os.environ["DPINDEX_STATE"])
    must(not state.exists() or not list(state.iterdir()), "a journal was left")
    shutil.rmtree(place)


def every_call(shop: Workshop, times: int) -> Iterator[str]:
    """kill -9 at every system call that touches the disk, and a disk that is full from there on:
    build, add, remove and the ledger. What was seen is committed, and counted. Needs strace.
    """
    if shutil.which("strace") is None:
        return
    for work, count in works(shop).items():
        for fault in ("signal=SIGKILL:when={}", "error=ENOSPC:when={}+"):
            calls = _WRITING if "KILL" in fault else "write,pwrite64,fsync,fdatasync,mkdir"
            for at in range(1, 10**6, shop.stride):
                path, errors = prepared(shop, work), shop.folder / "errors"
                before = in_view(path)
                inject = f"inject={calls}:{fault.format(at)}"
                code = at_call(partial(work, path), errors, inject)
                said = errors.read_text()  # 99 if there was no room for all of it either
                known = code in (0, 2, 99, -signal.SIGKILL) and "Traceback" not in said
                must(known, f"{work.__name__} ended with {code}: {said}")
                check_again(work, count, path, before, in_view(path))
                if code == 0:
                    break
                name = "killed" if "KILL" in fault else "disk full"
                yield f"{name} at a call of {work.__name__}"


class LostPower:
    """A disk that keeps of every folder the names that it had when it was last synchronized.

    It counts the calls that change names. At call number ``at`` the power fails: of the folders
    that changed since, those in ``old`` (by their order) go back, the others keep what is new.
    Contents of files are kept, as each is synchronized before it gets its name; the database of the
    ledger keeps its own journal and is left alone.
    """

    _CALLS = ("replace", "unlink", "mkdir", "rmdir", "link", "fsync")

    def __init__(self, root: Path, at: int, old: Callable[[int], bool]) -> None:
        self._root, self._left, self._old = root, at, old
        self._kept = {folder: self._names(folder) for folder in self._folders()}

    def _folders(self) -> list[Path]:
        return [Path(folder) for folder, _, _ in os.walk(self._root)]

    def _names(self, folder: Path) -> dict[str, bytes | None]:
        """Files by name with their contents; folders with None. Of the root the folders only."""
        names: dict[str, bytes | None] = {}
        for entry in folder.iterdir():
            if entry.is_dir():
                names[entry.name] = None
            elif folder != self._root and not entry.name.startswith("ledger"):
                names[entry.name] = entry.read_bytes()
        return names

    def lead(self, action: Callable[[], object]) -> None:
        """Do something on this disk; the process ends with it."""
        for name in self._CALLS:
            setattr(os, name, self._watched(name, getattr(os, name)))
        action()

    def _watched(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def watched(*arguments: object, **rest: object) -> object:
            self._left -= 1
            if self._left == 0:
                self._fail()
            done = call(*arguments, **rest)
            if name == "fsync":
                folder = Path(os.readlink(f"/proc/self/fd/{arguments[0]}"))
                if folder.is_dir() and folder.is_relative_to(self._root):
                    self._kept[folder] = self._names(folder)
            return done

        return watched

    def _fail(self) -> None:
        seen = in_view(self._root / "every" / "index")
        changed = [f for f in self._folders() if self._kept.get(f, {}) != self._names(f)]
        for number, folder in enumerate(changed):
            if not self._old(number) or not folder.exists():
                continue
            kept, now = self._kept.get(folder, {}), self._names(folder)
            for name in now.keys() - kept.keys():
                place = folder / name
                shutil.rmtree(place) if place.is_dir() else place.unlink()
            for name, content in kept.items():
                if content is None:
                    (folder / name).mkdir(exist_ok=True)
                else:
                    (folder / name).write_bytes(content)
        (self._root / "seen.json").write_text(json.dumps(seen))
        os.kill(os.getpid(), signal.SIGKILL)


def lost_power(shop: Workshop, times: int) -> Iterator[str]:
    """Power fails at every change of a name, on a disk that reorders: of the folders that were not
    synchronized since they changed, all go back, or one alone, or all but one.
    """
    orders: list[Callable[[int], bool]] = [lambda number: True, lambda number: False]
    orders += [lambda number, one=one: number == one for one in range(3)]
    orders += [lambda number, one=one: number != one for one in range(3)]
    for work, count in works(shop).items():
        for old in orders:
            for at in range(1, 10**6, shop.stride):
                path, root = prepared(shop, work), shop.folder
                before = in_view(path)
                (root / "seen.json").unlink(missing_ok=True)

                disk = LostPower(root, at, old)
                code = ended(fork(partial(disk.lead, partial(work, path)), root / "errors"))
                if code == 0:
                    shutil.rmtree(path.parent)
                    break
                must(code == -signal.SIGKILL, (root / "errors").read_text())
                seen = json.loads((root / "seen.json").read_text())
                check_again(work, count, path, before, seen)
                yield f"power lost at a change of a name in {work.__name__}"


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[bool]:
    """A folder on a disk of ``size`` bytes; False if there is no right to mount one."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = (
        os.geteuid() == 0
        and shutil.which("mount") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def full_disk(shop: Workshop, times: int) -> Iterator[str]:
    """The disk fills up in the middle of a build, which is resumed when there is room again."""
    for number in range(times):
        place = shop.folder / f"disk{number}"
        with small_disk(place, 4096 * random.randint(12, 120)) as mounted:
            path = (place if mounted else shop.folder) / "index"
            errors = shop.folder / "errors"
            limit = random.randint(100, 4000)

            def full(path: Path = path, limit: int = limit, mounted: bool = mounted) -> None:
                if not mounted:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                shop.build(path)

            code = ended(fork(full, errors))
            text = errors.read_text()
            must(code == 2, f"a full disk ended a build with {code}: {text}")
            must("cannot be written" in text and text.count("\n") == 1, f"it said {text!r}")
            before = committed(path)
            if mounted:
                wider = ["mount", "-o", "remount,size=8m", str(place)]
                subprocess.run(wider, check=True)
            finish(shop, path, before)
            shutil.rmtree(path)
        yield f"full disk ({'tmpfs' if mounted else 'RLIMIT_FSIZE'})"


def read_only(shop: Workshop, times: int) -> Iterator[str]:
    """A directory that may not be written: refused in a sentence, and still searched."""
    for number in range(times):
        place = shop.folder / f"locked{number}"
        with small_disk(place, 1 << 23) as mounted:
            if os.geteuid() == 0 and not mounted:
                return  # root may write anywhere else
            path = place / "index"
            shop.build(path)
            before = committed(path)
            protected = [path, path / "segments", path / "ids"]
            if mounted:
                subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
            for folder in [] if mounted else protected:
                folder.chmod(0o555)

            def add(path: Path = path) -> None:
                index = PrivateIndex.open(path)
                must(len(index.search(np.zeros((1, DIM)), k=3).ids), "it cannot be searched")
                index.add(np.zeros((1, DIM)))
                index.save(path)

            errors = shop.folder / "errors"
            code, text = ended(fork(add, errors)), errors.read_text()
            must(code == 2, f"a read-only directory ended an add with {code}: {text}")
            must("cannot be written" in text, f"it said {text!r}")
            check_kept(before, path)
            check_complete(path)
            for folder in [] if mounted else protected:
                folder.chmod(0o755)
        yield "read-only directory"


def two_writers(shop: Workshop, times: int) -> Iterator[str]:
    """Two builds at once: one goes on, the other is refused, and the lock dies with its holder."""
    for _ in range(times):
        path, errors = shop.new(), shop.folder / "errors"
        first = fork(lambda path=path: shop.build(path))
        while not (path / "manifest.json").exists():
            time.sleep(0.001)
        os.kill(first, signal.SIGSTOP)
        code = ended(fork(lambda path=path: shop.build(path), errors))
        text = errors.read_text()
        must(code == 2, f"a second writer ended with {code}: {text}")
        must("another process" in text or "finished index" in text, f"it said {text!r}")
        before = committed(path)
        os.kill(first, signal.SIGKILL)
        must(ended(first) in (-signal.SIGKILL, 0), "the first writer did not die")
        finish(shop, path, before)
        yield "second writer refused"
        # Several add to one index at once: those that say so are in it, and nothing else is.
        children = []
        for number in range(4):

            def add(path: Path = path, number: int = number) -> None:
                index = PrivateIndex.open(path)
                index.add(np.zeros((1, DIM)), ids=[ROWS + number])
                index.save(path)

            children.append(fork(add, shop.folder / f"errors{number}"))
        codes = [ended(child) for child in children]
        must(set(codes) <= {0, 2} and 0 in codes, f"writers at once ended with {codes}")
        ids = PrivateIndex.open(path).ids.tolist()
        won = [ROWS + number for number, code in enumerate(codes) if code == 0]
        must(sorted(ids) == [*range(ROWS), *won], "what was added is not what is there")
        check_kept(before, path)
        shutil.rmtree(path)
        yield "four writers at once"


def interrupts(shop: Workshop, times: int) -> Iterator[str]:
    """Ctrl-C at a random moment of build, query and evaluate: one line, and nothing is torn."""
    path, errors = shop.new(), shop.folder / "errors"
    shop.build(path)
    before, data = committed(path), str(shop.vectors)
    np.save(shop.folder / "some.npy", np.load(shop.vectors)[:200])
    some = str(shop.folder / "some.npy")
    method = ["--method", "dp-oporp-staircase", "--epsilon", "2", "--code-length", "8"]
    for number in range(times):
        new, report = str(shop.new()), str(shop.folder / f"report{number}")
        for name, arguments, longest in (
            ("build", ["build", data, new, *method], 0.2),
            ("search", ["query", str(path), data, "--format", "json"], 0.5),
            ("evaluate", ["evaluate", some, some, "--report", report, "--runs", "3"], 3.0),
        ):

            def run(arguments: list[str] = arguments) -> None:
                ingest_module._CHUNK_BYTES = STEP * DIM * 8
                sys.argv = ["dpindex", *arguments]
                print("ready", flush=True)
                command_line()

            child = fork(run, errors)
            while not errors.exists() or b"ready" not in errors.read_bytes():
                time.sleep(0.001)
            time.sleep(random.uniform(0.001, longest))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)
            code, text = ended(child), errors.read_text()
            errors.unlink()
            must(code in (0, 130), f"Ctrl-C in {name} ended with {code}: {text}")
            must("Traceback" not in text, f"Ctrl-C in {name} showed a traceback: {text}")
            if code == 130:
                yield f"Ctrl-C in {name}"
        check_kept(before, path)
        if IndexDirectory(Path(new)).exists:
            shop_before = committed(Path(new))
            again = ended(fork(lambda new=new: _again(["build", data, new, *method])))
            must(again in (0, 2), f"the build did not resume: {again}")
            check_kept(shop_before, Path(new))
            must(len(PrivateIndex.open(new)) == ROWS, "rows are missing")
        shutil.rmtree(new, ignore_errors=True)
        for file in Path(report).glob("*") if Path(report).exists() else ():
            must(file.suffix in (".csv", ".png", ".html"), f"{file.name} was left half-written")
    check_complete(path)


def _again(arguments: list[str]) -> None:
    ingest_module._CHUNK_BYTES = STEP * DIM * 8
    sys.argv = ["dpindex", *arguments]
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    command_line()


def clocks(shop: Workshop, times: int) -> Iterator[str]:
    """The clock jumps between kill and resume, and every file bears a wrong time."""
    for _ in range(times):
        for jump in (-(10**9), 10**9):
            path = shop.new()
            child = fork(lambda path=path: shop.build(path))
            while not (path / "manifest.json").exists():
                time.sleep(0.001)
            time.sleep(0.01)
            os.kill(child, signal.SIGKILL)
            ended(child)
            before = committed(path)
            for file in path.rglob("*"):
                os.utime(file, (time.time() + jump, time.time() + jump))
            real = time.time
            time.time = lambda jump=jump, real=real: real() + jump
            try:
                finish(shop, path, before)
            finally:
                time.time = real
            shutil.rmtree(path)
            yield "changed clock"


def _codes() -> bytes:
    return Privatizer(SPEC).privatize(np.zeros((64, DIM))).to_bytes()


def forks(shop: Workshop, times: int) -> Iterator[str]:
    """Parent and forked or spawned children never draw the same noise."""
    for _ in range(times):
        seen = [_codes()]
        for number in range(4):
            place = shop.folder / f"codes{number}"
            child = fork(lambda place=place: place.write_bytes(_codes()))
            must(ended(child) == 0, "a forked child failed")
            seen += [place.read_bytes(), _codes()]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            seen += pool.starmap(_codes, [()] * 2)
        must(len(set(seen)) == len(seen), "two processes drew the same noise")
        yield "fork"
        yield "spawn"


def threads(shop: Workshop, times: int) -> Iterator[str]:
    """Threads that add, search, remove and save one index at once."""
    for _ in range(times):
        index, path = PrivateIndex(SPEC), shop.new()
        index.add(np.full((100, DIM), 0.5))
        wrong: list[BaseException] = []
        drawn: list[bytes] = []

        def work(  # what belongs to this round, bound now
            number: int,
            index: PrivateIndex = index,
            path: Path = path,
            wrong: list[BaseException] = wrong,
            drawn: list[bytes] = drawn,
        ) -> None:
            try:
                for turn in range(10):
                    index.add(np.zeros((5, DIM)), ids=1000 + 100 * number + 5 * turn + np.arange(5))
                    index.search(np.full((2, DIM), 0.5), k=5)
                    index.remove([1000 + 100 * number + 5 * turn])
                    index.save(path)
                    drawn.append(_codes())
            except BaseException as error:
                wrong.append(error)

        pool = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        must(not wrong, f"a thread failed: {wrong[:1]}")
        must(len(index) == 100 + 6 * 10 * 4, "rows are missing or doubled")
        must(len(set(drawn)) == len(drawn), "two threads drew the same noise")
        index.save(path)
        must(PrivateIndex.open(path).ids.tolist() == index.ids.tolist(), "saving lost rows")
        shutil.rmtree(path)
        yield "threads"


FAULTS = (
    kills, every_call, lost_power, full_disk, read_only, two_writers, interrupts, clocks, threads,
    forks,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--times", type=int, default=10, help="of each other fault")
    parser.add_argument("--stride", type=int, default=1, help="of the calls of every_call")
    parser.add_argument("--without", nargs="*", default=[], choices=[f.__name__ for f in FAULTS])
    arguments = parser.parse_args()
    survived: dict[str, int] = {}
    failures = 0
    start = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="dpindex-faults-"))
    os.environ["DPINDEX_STATE"] = str(folder / "state")
    shop = Workshop(folder)
    shop.stride = arguments.stride
    for fault in FAULTS:
        if fault.__name__ in arguments.without:
            continue
        times = arguments.kills if fault is kills else arguments.times
        try:
            for name in fault(shop, times):
                survived[name] = survived.get(name, 0) + 1
        except FaultError as failure:
            failures += 1
            print(f"NOT SURVIVED, {fault.__name__}: {failure}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    for name, count in survived.items():
        print(f"{count:5}  {name}")
    seconds = time.perf_counter() - start
    print(f"{sum(survived.values())} faults survived, {failures} not; {seconds:.0f} s.")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
