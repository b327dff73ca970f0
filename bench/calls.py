"""How many functions of the package one operation calls, and in how many files they are.

    python bench/calls.py            # a line for each operation and kind of code
    python bench/calls.py --trace    # and the calls of one run, indented by their depth

That is what a reader has to follow: the exit code is 1 where it is more than ``LIMITS``. Each
operation has run before, so that what is made once is made; of several runs the one in the middle
counts, as draws of noise differ. A generator counts once, however often it goes on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parent))

from latency import made, specs

import dpindex as dpi

PACKAGE = str(Path(dpi.__file__).parent)
ROWS = 2000
RUNS = 9
LIMITS = {"add": (50, 12), "exact search": (60, 11)}
"""Calls and files that an operation may take."""

Action = Callable[[], object]


class Call(NamedTuple):
    """A call of one of the package's functions."""

    depth: int
    name: str
    file: str


def calls(action: Action) -> list[Call]:
    """The calls that an action makes, in their order."""
    found: list[Call] = []
    frames: list[Any] = []  # kept, so that no two of them have one id
    begun: set[int] = set()
    depth = 0

    def follow(frame: Any, event: str, _: object) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "return":
            depth -= 1
        if event != "call":
            return
        depth += 1
        if id(frame) not in begun:
            begun.add(id(frame))
            frames.append(frame)
            file = code.co_filename.removeprefix(PACKAGE + "/")
            found.append(Call(depth, code.co_name, f"{file}:{code.co_firstlineno}"))

    sys.setprofile(follow)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def operations() -> Iterator[tuple[str, str, Action]]:
    """What is done, to which kind of code, and how."""
    vectors = made(ROWS)
    others = iter(np.clip(made(1000), -1, 1)[:, None])  # none is released twice
    one = vectors[:1]
    for kind, spec in specs().items():
        index = dpi.PrivateIndex(spec)
        index.add(vectors)
        code = dpi.Privatizer(spec).privatize(one)
        yield "add", kind, lambda: index.add(next(others))  # noqa: B023
        yield "exact search", kind, lambda: index.search(one)  # noqa: B023
        yield "private search", kind, lambda: index.search(code)  # noqa: B023


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trace", action="store_true", help="show every call")
    is_traced = parser.parse_args().trace
    counts: dict[str, list[int]] = {}
    is_over = False
    for what, kind, action in operations():
        action()
        runs = sorted((calls(action) for _ in range(RUNS)), key=len)
        middle = runs[RUNS // 2]
        files = {call.file.partition(":")[0] for call in middle}
        counts.setdefault(what, []).append(len(middle))
        most_calls, most_files = LIMITS.get(what, (len(middle), len(files)))
        is_over |= len(middle) > most_calls or len(files) > most_files
        print(f"{what}, {kind}: {len(middle)} calls in {len(files)} files")
        for call in middle if is_traced else ():
            print(f"{'  ' * call.depth}{call.name}  {call.file}")
    for what, numbers in counts.items():
        print(f"{what}: median {statistics.median(numbers):g}, most {max(numbers)}")
    sys.exit(is_over)


if __name__ == "__main__":
    main()
