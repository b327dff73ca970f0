"""Commands that check and record guarantees: audit, ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.cli import shared as o


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
    import dpindex.audit as audits

    not_covered: dict[str, str] = {}
    is_default_set = False
    if self_test:
        if spec is not None or exact:
            raise InputError("leave out SPEC and --exact beside --self-test.")
        reports: Iterable[Any] = [audits.self_test()]
    elif spec is not None:
        reports = _of_claim(spec, public_part, exact, seconds, trials, confidence)
    elif exact:
        is_default_set = True
        reports = audits.verify_each(audits.default_specs())
        not_covered = audits.not_covered()
    else:
        raise InputError("name the spec to attack: a JSON file of `dpindex spec`, or an index.")
    failed = False
    for report in reports:
        if as_json:
            o.print_json(report.to_dict(), indent=None)  # one a line, since there may be many
        elif is_default_set and report.passed:
            typer.echo(report.verdict)
        else:
            typer.echo(report)
        failed |= not report.passed
    for method, reason in not_covered.items():
        if as_json:
            o.print_json({"method": method, "not_covered": reason}, indent=None)
        else:
            typer.echo(f"{method}: NOT COVERED: {reason}.")
    raise typer.Exit(1 if failed else 0)


def _of_claim(
    path: Path,
    public_part: Path | None,
    exact: bool,
    seconds: float,
    trials: int | None,
    confidence: float,
) -> Iterator[Any]:
    """Yield reports on the claim at a path, and on the codes of an index."""
    from dpindex.audit import attack, examine, read_claim, verify
    from dpindex.mechanism.spec import Spec

    claim, codes = read_claim(path)
    if isinstance(claim, Spec) and public_part is not None:
        claim = claim.with_public(public_part)
    if exact:
        yield verify(claim)
    else:
        with o.progress_bar("attacking") as report:
            found = attack(
                claim,
                trials=trials,
                seconds=seconds,
                confidence=confidence,
                progress=report,
            )
        yield found
    if codes is not None and isinstance(claim, Spec):
        yield examine(codes, claim)


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
        o.print_json({name: [row.to_dict() for row in rows] for name, rows in facts.items()})
        return
    for entry in entries:
        o.say(entry)
    typer.echo("In total" + (":" if totals else ": nothing was released."))
    for total in totals:
        o.say(f"  {total}")
