"""Commands that check and record guarantees: audit, ledger."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpindex.base.errors import InputError
from dpindex.base.files import create_file
from dpindex.cli import options as o
from dpindex.cli import output as out
from dpindex.cli.kinds import Takes

if TYPE_CHECKING:  # a command on an index loads no sketch, and help no noise laws
    from dpindex.audit import Mechanism
    from dpindex.mechanism.codes import Codes
    from dpindex.mechanism.spec import Spec
    from dpindex.privacy import VectorAdjacency
    from dpindex.race import SketchSpec


@dataclass(frozen=True)
class AttackOptions:
    """How long an attack takes, and how sure it is."""

    seconds: Annotated[float, "Time for the trials of the attack."] = 20.0
    trials: Annotated[int | None, "Vectors for each neighbour, instead of a time."] = None
    confidence: Annotated[float, "Confidence of all lower bounds together."] = 0.999
    plot: Annotated[Path | None, "PNG file for a picture of the attack."] = None


@dataclass(frozen=True)
class FunctionOptions:
    """Noise of other code, and what is claimed of it."""

    function: Annotated[
        str | None, "Attack MODULE:NAME, a function from a vector to an array or bytes."
    ] = None
    dim: Annotated[int | None, "With --function: attributes of its vectors."] = None
    epsilon: Annotated[float | None, "With --function: the epsilon it claims."] = None
    delta: Annotated[float, "With --function: the delta it claims."] = 0.0
    adjacency: Annotated[
        str, "With --function: adjacency of the claim: record, attribute:BETA or l2:RADIUS."
    ] = "record"
    bounds: Annotated[tuple[float, float], "With --function: range of an attribute."] = (-1.0, 1.0)
    norm: Annotated[float | None, "With --function: norm of every vector."] = None
    batched: Annotated[bool, "The function takes many vectors, shape (n, dim)."] = False

    def mechanism(self) -> Mechanism:
        """The function and its claim."""
        from dpindex.audit import Mechanism

        if self.dim is None or self.epsilon is None:
            raise InputError("--function needs --dim and --epsilon, the claim to attack.")
        return Mechanism(
            _imported(str(self.function)),
            self.dim,
            self.epsilon,
            self.delta,
            _adjacency(self.adjacency),
            self.bounds,
            self.norm,
            self.batched,
        )


def _imported(name: str) -> Callable[[Any], Any]:
    """The function MODULE:NAME; modules of the working directory are found too."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"--function must be MODULE:NAME, not {name}: {error}.") from None
    finally:
        sys.path.pop(0)
    if not callable(function):
        raise InputError(f"--function {name} is no function.")
    checked: Callable[[Any], Any] = function
    return checked


def _adjacency(text: str) -> VectorAdjacency:
    """The adjacency that --adjacency states."""
    from dpindex.privacy import attribute, l2, record

    kind, _, size = text.partition(":")
    sized: dict[str, Callable[[float], VectorAdjacency]] = {"attribute": attribute, "l2": l2}
    if text == "record":
        return record()
    try:
        return sized[kind](float(size))
    except (KeyError, ValueError):
        raise InputError(
            f"--adjacency must be record, attribute:BETA or l2:RADIUS, not {text!r}."
        ) from None


def audit(
    effort: AttackOptions,
    foreign: FunctionOptions,
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="Spec as JSON, an index directory, or (with --exact) a sketch.", show_default=False
        ),
        Takes(("spec", "index", "sketch")),
    ] = None,
    codebook: o.CodebookFile = None,
    exact: Annotated[bool, "Prove instead of attack; without SPEC, the default set."] = False,
    self_test: Annotated[
        bool, "Check this installation: known answers of cipher and noise, a release of each kind."
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Attack a guarantee, or prove it.

    The attack uses worst-case neighbours; the proof is in exact integers. Both concern the method,
    with fresh noise. The codes of an index are tested too, as far as that is possible. --function
    attacks the noise of any other code. The exit code is 1 if the guarantee is refuted or does not
    hold, or if the codes cannot have the claimed noise.
    """
    if foreign.function is not None:
        if spec is not None or exact or self_test:
            raise InputError("leave out SPEC, --exact and --self-test beside --function.")
        raise typer.Exit(_attack(foreign.mechanism(), effort, as_json))
    if self_test:
        if spec is not None or exact:
            raise InputError("leave out SPEC and --exact beside --self-test.")
        raise typer.Exit(0 if _self_test_passes(as_json) else 1)
    if exact:
        _verify(spec, codebook, as_json)
    if spec is None:
        raise InputError("name the spec to attack: a JSON file of `dpindex spec`, or an index.")
    claim, codes = _subject(spec, codebook)
    refuted = _attack(claim, effort, as_json)
    codes_pass = _codes_pass(claim, codes, as_json)
    raise typer.Exit(0 if codes_pass and not refuted else 1)


def _attack(claim: Spec | SketchSpec | Mechanism, effort: AttackOptions, as_json: bool) -> bool:
    """Whether the attack refutes the claim."""
    from dpindex.audit import attack, attack_png

    if effort.plot is not None:
        out.refuse_existing(effort.plot)
    with out.progress_bar("attacking") as bar:
        report = attack(
            claim,
            trials=effort.trials,
            seconds=effort.seconds,
            confidence=effort.confidence,
            progress=lambda done: bar(math.floor(100 * done), 100),
        )
    if effort.plot is not None:
        create_file(effort.plot, attack_png(report))
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


def _subject(path: Path, codebook: Path | None) -> tuple[Spec | SketchSpec, Codes | None]:
    """Return the claim at a path, and the codes of an index."""
    from dpindex.audit import read_subject
    from dpindex.mechanism.spec import Spec

    claim, codes = read_subject(path)
    return o.with_codebook(claim, codebook) if isinstance(claim, Spec) else claim, codes


def _verify(path: Path | None, codebook: Path | None, as_json: bool) -> None:
    """Verify a claim, or the default set, of which only what fails is shown in full."""
    from dpindex.audit import not_covered, verify, verify_default

    failed = 0
    codes_pass = True
    subject = None
    if path is not None:
        subject = _subject(path, codebook)
    for report in verify_default() if subject is None else [verify(subject[0])]:
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
        Path, typer.Argument(help="Ledger file, made by --ledger."), Takes(("ledger",))
    ],
    delta: Annotated[
        float | None, "Compose tightly at this delta.  [default: epsilons and deltas add up]"
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Show releases, and what they promise in total.

    No key is needed.
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
