"""Commands that check and record guarantees: audit, ledger."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.cli import options as o
from dpindex.cli import output as out

if TYPE_CHECKING:  # a command on an index loads no sketch, and help no noise laws
    from dpindex.mechanism.codes import Codes
    from dpindex.mechanism.spec import Spec
    from dpindex.race import SketchSpec


@dataclass(frozen=True)
class AttackOptions:
    """How long an attack takes, and how sure it is."""

    seconds: Annotated[float, "Time for the trials of the attack."] = 20.0
    trials: Annotated[int | None, "Vectors for each neighbour, instead of a time."] = None
    confidence: Annotated[float, "Confidence of all lower bounds together."] = 0.999


def audit(
    effort: AttackOptions,
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
        raise typer.Exit(0 if _self_test_passes(as_json) else 1)
    if exact:
        _verify(spec, public_part, as_json)
    if spec is None:
        raise InputError("name the spec to attack: a JSON file of `dpindex spec`, or an index.")
    claim, codes = _subject(spec, public_part)
    refuted = _attack(claim, effort, as_json)
    codes_pass = _codes_pass(claim, codes, as_json)
    raise typer.Exit(0 if codes_pass and not refuted else 1)


def _attack(claim: Spec | SketchSpec, effort: AttackOptions, as_json: bool) -> bool:
    """Whether the attack refutes the claim."""
    from dpindex.audit import attack

    with out.progress_bar("attacking") as bar:
        report = attack(
            claim,
            trials=effort.trials,
            seconds=effort.seconds,
            confidence=effort.confidence,
            progress=lambda done: bar(math.floor(100 * done), 100),
        )
    _print(report.to_dict(), str(report), as_json)
    return report.violated


def _self_test_passes(as_json: bool) -> bool:
    """Print the checks of the self-test, and a verdict; whether all hold."""
    from dpindex.audit import self_test

    checks = self_test()
    failed = [check.name for check in checks if not check.passed]
    verdict = f"FAILED: {', '.join(failed)}" if failed else f"{len(checks)} checks hold"
    facts = {"passed": not failed, "checks": [asdict(check) for check in checks]}
    _print(
        facts, "\n".join([f"self-test: {verdict}", *(f"  {check}" for check in checks)]), as_json
    )
    return not failed


def _subject(path: Path, public_part: Path | None) -> tuple[Spec | SketchSpec, Codes | None]:
    """Return the claim at a path, and the codes of an index."""
    from dpindex.audit import read_claim
    from dpindex.mechanism.spec import Spec

    claim, codes = read_claim(path)
    if isinstance(claim, Spec) and public_part is not None:
        claim = claim.with_public(public_part)
    return claim, codes


def _verify(path: Path | None, public_part: Path | None, as_json: bool) -> None:
    """Verify a claim, or the default set, of which only what fails is shown in full."""
    from dpindex.audit import default_specs, not_covered, verify, verify_each

    failed = 0
    codes_pass = True
    subject = None
    if path is not None:
        subject = _subject(path, public_part)
    for report in verify_each(default_specs()) if subject is None else [verify(subject[0])]:
        failed += not report.passed
        in_full = path is not None or not report.passed
        _print(report.to_dict(), str(report) if in_full else str(report).splitlines()[0], as_json)
    for method, reason in not_covered().items() if path is None else ():
        facts = {"method": method, "not_covered": reason}
        _print(facts, f"{method}: NOT COVERED: {reason}.", as_json)
    if subject is not None:
        codes_pass = _codes_pass(*subject, as_json)
    raise typer.Exit(0 if codes_pass and not failed else 1)


def _codes_pass(claim: Spec | SketchSpec, codes: Codes | None, as_json: bool) -> bool:
    """Report on the codes of an index, if there are any; whether the noise can be in them."""
    from dpindex.audit import examine
    from dpindex.mechanism.spec import Spec

    if codes is None or not isinstance(claim, Spec):
        return True
    report = examine(codes, claim)
    _print({"codes": report.to_dict()}, str(report), as_json)
    return report.passed


def _print(facts: Any, text: str, as_json: bool) -> None:
    """One report; as JSON on one line, since there may be many."""
    if as_json:
        out.print_json(facts, indent=None)
    else:
        typer.echo(text)


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
