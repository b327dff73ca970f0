"""``python -m dpindex.audit.self_test``: report on every way of release; exit code 1 if one fails.

Arguments: a spec, index or sketch (default: one spec of each kind of law), ``--codebook FILE``
and ``--json``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from dpindex.audit.exact import read_claim
from dpindex.audit.self_test.report import check_default_paths, check_paths
from dpindex.audit.verdict import ExactReport
from dpindex.base.errors import InputError
from dpindex.mechanism.codebook import Codebook
from dpindex.mechanism.spec import Spec


def main() -> int:
    parser = argparse.ArgumentParser(prog="dpindex audit --self-test")
    parser.add_argument("spec", nargs="?")
    parser.add_argument("--codebook", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    failed = 0
    try:
        for report in _reports(options.spec, options.codebook):
            text = json.dumps(report.to_dict()) if options.json else str(report)
            print(text, flush=True)
            failed += not report.passed
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if failed else 0


def _reports(path: str | None, codebook: Path | None) -> Iterator[ExactReport]:
    if path is None:
        yield from check_default_paths()
        return
    claim = read_claim(path)
    if codebook is not None and isinstance(claim, Spec):
        claim = claim.with_codebook(Codebook(codebook))
    yield check_paths(claim)


if __name__ == "__main__":
    sys.exit(main())
