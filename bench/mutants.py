"""Plants weaknesses, one at a time, and records which check notices each.

    python bench/mutants.py                   # all of them: 45 minutes on two cores
    python bench/mutants.py --only "half"     # those whose name or part contains it
    python bench/mutants.py --table           # docs/mutations.md from the last results

A weakness is a change of source text in a temporary copy of the package (``mutant_list.py``); the
checkout is never touched. Each is given to the exact audit with the self-test, to the attack and to
the tests of its part, every time in a fresh process. Results go to ``bench/mutants.csv`` and into
the table of ``docs/mutations.md``. The exit code is 1 if the audit misses a weakness that changes
what is released, or the tests miss any.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from mutant_list import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "mutants.csv", ROOT / "docs" / "mutations.md"
BEGIN, END = "<!-- campaign -->\n", "<!-- end of campaign -->\n"
SECONDS = 300

SPEC = """
import json, sys
import numpy as np
import dpindex as dpi
from dpindex.race import PStable, SketchSpec

stated = json.loads(sys.argv[1])
if "method" in stated:
    stated["adjacency"] = dpi.attribute(1.0)
if stated.get("method", "").startswith("record-"):
    stated["adjacency"] = dpi.record()
if radius := stated.pop("radius", 0):
    stated["adjacency"] = dpi.l2(radius)
if size := stated.pop("codewords", 0):
    words = np.random.default_rng(0).normal(size=(size, stated["dim"]))
    stated["codebook"] = dpi.Codebook(words)
sketch = "rows" in stated
spec = SketchSpec(dim=3, hash=PStable(1.0, 2), **stated) if sketch else dpi.Spec(**stated)
"""

AUDIT = (
    SPEC
    + """
from dpindex.audit import verify
from self_test import check_paths

print("; ".join([*verify(spec).failed, *check_paths(spec).failed]))
"""
)

ATTACK = (
    SPEC
    + """
from dpindex.audit import attack

report = attack(spec, trials=60000, through_files=False)
found = report.findings[0]
print(found.name if report.violated else "")
"""
)


@dataclass(frozen=True)
class Result:
    """What noticed a weakness: the check, the finding and the test by name, or "-"."""

    part: str
    name: str
    exact: str
    attack: str
    test: str
    audited: bool

    @property
    def missed(self) -> bool:
        """Whether a check that must notice did not."""
        return self.test == "-" or (self.audited and self.exact == self.attack == "-")


def planted(mutant: Mutant, folder: Path) -> None:
    """A copy of the package and its tests in ``folder``, with the weakness."""
    for name in ("dpindex", "examples", "tests", "docs", "pyproject.toml", "README.md"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    target = folder / "dpindex" / mutant.file
    text = target.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text occurs {text.count(mutant.old)} times")
    target.write_text(text.replace(mutant.old, mutant.new))


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of Python in the copy; what takes too long noticed nothing."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}:{folder / 'tests'}",
        "OMP_NUM_THREADS": "1",
    }
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 0, "", ""
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def noticed(folder: Path, script: str, spec: str) -> str:
    """What a script of the audit found; a crash of the mutant counts as found."""
    code, out, errors = run(folder, "-c", script, spec)
    if code:
        return "stops: " + re.sub(r":.*", "", errors.splitlines()[-1])
    return out or "-"


def tested(folder: Path, tests: str) -> str:
    """The first test that fails; slow ones are asked only if no other does."""
    files = [str(next((folder / "tests").rglob(name))) for name in tests.split()]
    options = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "-rfE", "-m")
    for tier in ("not slow", "slow"):
        code, out, _ = run(folder, "-m", "pytest", *options, tier, *files)
        failed = re.search(
            r"^(?:FAILED|ERROR) tests/(?:\w+/)*(test_\S+?)(?:\[| |$)", out, re.MULTILINE
        )
        if failed:
            return failed[1]
        if code not in (0, 5):  # 5: there are no tests of this tier
            return "stops"
    return "-"


def judged(mutant: Mutant) -> Result:
    spec = json.dumps(mutant.spec)
    with tempfile.TemporaryDirectory(prefix="dpindex-mutant-") as name:
        folder = Path(name)
        planted(mutant, folder)
        attacked = mutant.audited and not {"rows", "min_norm"} & set(mutant.spec)
        exact = noticed(folder, AUDIT, spec) if mutant.audited else "-"
        attack = noticed(folder, ATTACK, spec) if attacked else "-"
        test = tested(folder, mutant.tests)
    return Result(mutant.part, mutant.name, exact, attack, test, mutant.audited)


def table(results: list[Result]) -> str:
    """The table of the page."""
    rows = [
        f"| {r.part} | {r.name} | {shown(r, r.exact)} | {shown(r, r.attack)} | `{r.test}` |\n"
        for r in results
    ]
    head = "| part | weakness | exact audit | attack | first test |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def write_page(results: list[Result]) -> None:
    """Put the table between the two marks of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + table(results) + END + after)


def shown(result: Result, check: str) -> str:
    """A cell of the table; empty where the audit was not asked."""
    return check if check != "-" else "–" if result.audited else ""


def read_results() -> list[Result]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        rows = [{**row, "audited": row["audited"] == "True"} for row in csv.DictReader(file)]
    return [Result(**row) for row in rows]


def write_results(results: list[Result]) -> None:
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(results[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="part of a name, or a part of the package")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--new", action="store_true", help="those without a result")
    parser.add_argument("--table", action="store_true", help="write the page from the last results")
    options = parser.parse_args()
    known = {result.name: result for result in read_results()}
    if not options.table:
        chosen = [m for m in MUTANTS if options.only in m.name or options.only == m.part]
        if options.new:
            chosen = [m for m in chosen if m.name not in known]
        with ThreadPoolExecutor(options.jobs) as pool:
            for work in as_completed([pool.submit(judged, mutant) for mutant in chosen]):
                result = work.result()
                known[result.name] = result
                mark = "MISSED" if result.missed else "caught"
                print(f"{mark}  {result.part}: {result.name}: {result.exact} | {result.attack} "
                      f"| {result.test}", flush=True)  # fmt: skip
                kept = [known[m.name] for m in MUTANTS if m.name in known]
                write_results(kept)
    results = [known[m.name] for m in MUTANTS if m.name in known]
    write_page(results)
    missed = [result.name for result in results if result.missed]
    print(f"{len(results)} weaknesses, {len(missed)} missed {missed or ''}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
