"""Commands that check and record guarantees: audit, ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from dpindex.base.errors import InputError
from dpindex.cli import options as o
from dpindex.cli import output as out


class _Report(NamedTuple):
    """What one check found: as JSON values, in words, and whether the claim stands."""

    facts: dict[str, Any]
    text: str
    passed: bool


def audit(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="Spec as JSON, an index directory, or (with --exact) a sketch.", show_default=False
        ),
        o.Takes(("spec", "index", "sketch")),
    ] = None,
    public_part: o.PublicFile = None,
    exact: Annotated[bool, "Prove instead of attack; without SPEC, the default set."] = False,
    self_test: Annotated[
        bool, "Check this installation: known answers of cipher and noise, a release of each kind."
    ] = False,
    seconds: Annotated[float, "Time for the trials of the attack."] = 20.0,
    trials: Annotated[int | None, "Vectors for each neighbour, instead of a time."] = None,
    confidence: Annotated[float, "Confidence of all lower bounds together."] = 0.999,
    as_json: o.AsJson = False,
) -> None:
    """Attack a guarantee, or prove it.

    The attack uses worst-case neighbours; the proof is in exact integers. Both concern the method,
    with fresh noise. The codes of an index are tested too, as far as that is possible. The exit
    code is 1 if the guarantee is refuted or does not hold, or if the codes cannot have the claimed
    noise.

    $ dpindex audit my-index --exact
    """
    if self_test:
        if spec is not None or exact:
            raise InputError("leave out SPEC and --exact beside --self-test.")
        reports = _self_test()
    elif spec is not None:
        reports = _of_claim(spec, public_part, exact, seconds, trials, confidence)
    elif exact:
        reports = _of_default_set()
    else:
        raise InputError("name the spec to attack: a JSON file of `dpindex spec`, or an index.")
    failed = False
    for report in reports:
        if as_json:
            out.print_json(report.facts, indent=None)  # one a line, since there may be many
        else:
            typer.echo(report.text)
        failed |= not report.passed
    raise typer.Exit(1 if failed else 0)


def _self_test() -> Iterator[_Report]:
    """Yield one report on all checks of the self-test."""
    from dpindex.audit import self_test

    checks = self_test()
    failed = [check.name for check in checks if not check.passed]
    verdict = f"FAILED: {', '.join(failed)}" if failed else f"{len(checks)} checks hold"
    facts = {"passed": not failed, "checks": [asdict(check) for check in checks]}
    lines = [f"self-test: {verdict}", *(f"  {check}" for check in checks)]
    yield _Report(facts, "\n".join(lines), not failed)


def _of_claim(
    path: Path,
    public_part: Path | None,
    exact: bool,
    seconds: float,
    trials: int | None,
    confidence: float,
) -> Iterator[_Report]:
    """Yield reports on the claim at a path, and on the codes of an index."""
    from dpindex.audit import attack, examine, read_claim, verify
    from dpindex.mechanism.spec import Spec

    claim, codes = read_claim(path)
    if isinstance(claim, Spec) and public_part is not None:
        claim = claim.with_public(public_part)
    if exact:
        proof = verify(claim)
        yield _Report(proof.to_dict(), str(proof), proof.passed)
    else:
        with out.progress_bar("attacking") as bar:
            found = attack(
                claim,
                trials=trials,
                seconds=seconds,
                confidence=confidence,
                progress=lambda done: bar(math.floor(100 * done), 100),
            )
        yield _Report(found.to_dict(), str(found), not found.violated)
    if codes is not None and isinstance(claim, Spec):
        examined = examine(codes, claim)
        yield _Report({"codes": examined.to_dict()}, str(examined), examined.passed)


def _of_default_set() -> Iterator[_Report]:
    """Yield a report on each method; only what fails is shown in full."""
    from dpindex.audit import default_specs, not_covered, verify_each

    for proof in verify_each(default_specs()):
        text = str(proof)
        if proof.passed:
            text = text.splitlines()[0]
        yield _Report(proof.to_dict(), text, proof.passed)
    for method, reason in not_covered().items():
        facts = {"method": method, "not_covered": reason}
        yield _Report(facts, f"{method}: NOT COVERED: {reason}.", True)


def ledger(
    path: Annotated[
        Path, typer.Argument(help="Ledger file, made by --ledger."), o.Takes(("ledger",))
    ],
    delta: Annotated[
        float | None, "Compose tightly at this delta.  [default: epsilons and deltas add up]"
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Show releases, and what they promise in total.

    No key is needed.

    $ dpindex ledger mine.db --delta 1e-6
    """
    from dpindex.accounting.ledger import Ledger

    book = Ledger(path)
    entries = book.entries()
    totals = book.totals(delta=delta)
    if as_json:
        facts: dict[str, Any] = {"releases": entries, "totals": totals}
        out.print_json({name: [row.to_dict() for row in rows] for name, rows in facts.items()})
        return
    for entry in entries:
        out.say(entry)
    typer.echo("In total" + (":" if totals else ": nothing was released."))
    for total in totals:
        out.say(f"  {total}")
