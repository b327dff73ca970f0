"""Weakens the package in one place at a time, and records which test notices each.

    python bench/mutants.py                   # all of them, in minutes
    python bench/mutants.py --only "half"     # those whose name or part contains it
    python bench/mutants.py --baseline        # the same tests without a weakness: all must pass
    python bench/mutants.py --table           # bench/mutations.md from the last results

A weakness is a monkeypatch of a named function, method or attribute (``mutant_list.py``,
``mutant_paths.py``, ``mutant_builds.py``). Everything is imported once; each weakness is put into a
forked child, which proves a spec that the exact audit must refute, if there is one, and runs the
tests that must fail.
Results go to ``bench/mutants.csv`` and into the table of ``bench/mutations.md``. The exit code is 1
if the exact audit or the tests miss any.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: children are forked
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each child would import them anew

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Last: some files of this folder are called like packages.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "bench"]
sys.path += [str(ROOT / "tests"), str(ROOT / "bench"), str(ROOT / "examples")]

from mutant_builds import BUILDS  # noqa: E402
from mutant_list import MECHANISM, Mutant, spec_of  # noqa: E402
from mutant_paths import RELEASES  # noqa: E402

import dpindex  # noqa: E402

sys.path.remove(str(ROOT / "bench"))  # Dask would import our sparse.py

MUTANTS = [*MECHANISM, *RELEASES, *BUILDS]
RESULTS, PAGE = ROOT / "bench" / "mutants.csv", ROOT / "bench" / "mutations.md"
BEGIN, END = "<!-- campaign -->\n", "<!-- end of campaign -->\n"
SECONDS = 300
"""What one weakness may take; whoever looks for a test that is slower should make that faster."""


@dataclass(frozen=True)
class Result:
    """What noticed a weakness: checks of the exact audit, and the test; "-" for none."""

    part: str
    name: str
    proof: str
    test: str

    @property
    def missed(self) -> bool:
        """Whether the tests, or a proof that must fail, noticed nothing."""
        return self.proof == "-" or self.test.startswith("-")


class FirstFailure:
    """A plugin of pytest that keeps the first test that fails, or that ran out of time."""

    name = "-"
    running = "the proof"

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.name == "-":
            self.name = report.nodeid.split("tests/")[-1].replace("\n", " ")
            for _, crash, _ in getattr(report.longrepr, "chain", ()):
                if crash is not None and Path(crash.path).name.startswith("mutant_"):
                    self.name = f"- (the plant itself stops: {crash.message})"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.name == "-":
            self.name = f"collecting {report.nodeid}"


def places() -> dict[str, list[str]]:
    """The files of every test function; a name may occur in several."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(str(path))
    return found


def nodes_of(names: Iterable[str]) -> list[str]:
    """Where tests of these names are, as pytest is told."""
    known = places()
    return [f"{path}::{name}" for name in names for path in known[name.partition("[")[0]]]


def run_tests(names: tuple[str, ...], plugin: FirstFailure) -> str:
    """The first of some tests that fails, in this process; "-" if none does."""
    nodes = nodes_of(names)
    options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header"]
    options += ["--assert=plain", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*options, *nodes], plugins=[plugin])
    if code not in (0, 1) and plugin.name == "-":
        raise SystemExit(f"pytest ended with {code}: {nodes}")
    return plugin.name


def run_baseline(mutants: list[Mutant], jobs: int) -> int:
    """All tests of these weaknesses at once, without any; the slowest are named."""
    nodes = nodes_of(sorted({test for mutant in mutants for test in mutant.tests}))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", str(jobs)]
    command += ["-p", "no:cacheprovider", "--durations=20", *nodes]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def proved(mutant: Mutant) -> str:
    """The checks that refute the weakened law; "" if they are not asked.

    Those of the exact audit, and the replay of the sampler by the tests' second reading.
    """
    from self_test.second_reading import refuted

    if not mutant.proof:
        return ""
    try:
        return "; ".join(refuted(spec_of(mutant.proof))) or "-"
    except Exception as error:  # the weakened copy cannot even be made
        return f"stops: {type(error).__name__}"


def in_child(mutant: Mutant, work: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """What ``work`` notes in a forked child that has the weakness, and the error it stops with."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.signal(signal.SIGALRM, out_of_time)
        signal.alarm(SECONDS)
        with TemporaryFile("w+") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            found: dict[str, Any] = {}
            try:
                mutant.plant(pytest.MonkeyPatch())
                work(found)
            except BaseException as error:
                found["error"] = repr(error)
            os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else {"error": "no answer"}


def judged(mutant: Mutant) -> Result:
    """Run one weakness in a forked child."""

    def work(found: dict[str, Any]) -> None:
        plugin = FirstFailure()
        try:
            found["proof"] = proved(mutant)
            found["test"] = run_tests(mutant.tests, plugin)
        finally:
            found["running"] = plugin.running

    found = in_child(mutant, work)
    test = found.get("test", "-")
    if "error" in found:
        test = f"- ({found['error']} in {found.get('running', 'the plant')})"
    return Result(mutant.part, mutant.name, found.get("proof", ""), test)


def out_of_time(*_: object) -> None:
    """Named by :func:`judged`; no test counts this as its own failure."""
    raise KeyboardInterrupt(f"{SECONDS} s are over")


def import_everything() -> None:
    """So that children import little but their tests."""
    for name in (
        "independent.oracle",
        "helpers.common",
        "hypothesis",
        "dp_accounting.pld",
        "scipy.stats",
    ):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(dpindex.__path__, "dpindex."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError, dpindex.InputError):
                importlib.import_module(module.name)


def table(results: list[Result]) -> str:
    """The table of the page."""
    head = "| part | weakness | exact audit | first test |\n|---|---|---|---|\n"
    rows = [f"| {r.part} | {r.name} | {r.proof} | `{r.test}` |\n" for r in results]
    return head + "".join(rows)


def write_page(results: list[Result]) -> None:
    """Put the table between the two marks of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + table(results) + END + after)


def read_results() -> list[Result]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return [Result(**row) for row in csv.DictReader(file)]


def write_results(results: list[Result]) -> None:
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(results[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="part of a name, or a part of the package")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--new", action="store_true", help="those without a result, or missed")
    parser.add_argument("--baseline", action="store_true", help="without any weakness")
    parser.add_argument("--table", action="store_true", help="write the page from the last results")
    options = parser.parse_args()
    known = {result.name: result for result in read_results()}
    chosen = [m for m in MUTANTS if options.only in m.name or options.only == m.part]
    if not chosen:
        parser.error(f"--only {options.only}: no weakness and no part is called so")
    if options.baseline:
        sys.exit(run_baseline(chosen, options.jobs))
    if not options.table:
        import_everything()
        if options.new:
            chosen = [m for m in chosen if m.name not in known or known[m.name].missed]
        started = time.monotonic()
        with ThreadPoolExecutor(options.jobs) as pool:
            tasks = [pool.submit(judged, mutant) for mutant in chosen]
            for work in as_completed(tasks):
                result = work.result()
                known[result.name] = result
                mark = "MISSED" if result.missed else "caught"
                seconds = time.monotonic() - started
                print(f"{mark} {seconds:5.0f} s  {result.part}: {result.name}: {result.proof} "
                      f"| {result.test}", flush=True)  # fmt: skip
                write_results([known[m.name] for m in MUTANTS if m.name in known])
    results = [known[m.name] for m in MUTANTS if m.name in known]
    write_page(results)
    missed = [result.name for result in results if result.missed]
    print(f"{len(results)} weaknesses, {len(missed)} missed {missed or ''}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
