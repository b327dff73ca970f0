"""Commands that release codes, and that check and record what they promise.

They are privatize, add, denoise, calibrate, spec, audit and ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from dpindex.base.display import counted
from dpindex.base.errors import InputError, NoDenoiserError
from dpindex.cli import shared as o
from dpindex.data import open_dataset
from dpindex.data.stores import is_url
from dpindex.mechanism.codes import read_codes

# Two codes of this many bits are not equal by chance.
_TELLING_BITS = 128


def privatize(
    vectors: o.VectorFile,
    codes: Annotated[Path, typer.Argument(help="File to write the codes to.")],
    spec: Annotated[
        Path, typer.Option("--spec", help="Spec as JSON: see `dpindex spec`."), o.Takes(("spec",))
    ],
    release: o.CodeReleaseOptions,
    public_part: o.PublicFile = None,
    max_epsilon: Annotated[float | None, "Refuse a spec with a larger epsilon, or iDP."] = None,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Turn vectors into codes, as a device does.

    Codes carry no ids: those are for the ledger.

    $ dpindex privatize vectors.npy my.codes --spec spec.json --ledger mine.db --ids ids.txt
    """
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.release import release as release_into
    from dpindex.storage.targets import CodesFile

    described = Spec.read(spec)
    if public_part is not None:
        described = described.with_public(public_part)
    terms = release.terms()
    ids = release.ids_for_ledger("codes carry")
    target = CodesFile(
        codes, described, allow_unprotected=allow_unprotected, max_epsilon=max_epsilon
    )
    with (
        open_dataset(vectors, in_process=True) as dataset,
        o.progress_bar("releasing") as report,
    ):
        o.note_warnings(described, dataset.rows)
        o.announce_size(dataset.rows, described.format)
        labelled = dataset.with_labels(ids)
        outcome = release_into(labelled, target, terms, progress=report)
    o.tell_clipped(outcome.clipped)
    made = counted(outcome.rows, "code")
    o.say(f"{codes}: {made}, {outcome.published} bytes. {described.guarantee}.")
    o.print_totals(terms.ledger, ids)


def add(
    index: o.IndexFolder,
    items: Annotated[
        str,
        typer.Argument(metavar="CODES-OR-VECTORS", help="Codes of devices, or vectors."),
        o.Takes(("codes", "vectors")),
    ],
    release: o.CodeReleaseOptions,
    payload: o.PayloadOptions,
    kind: o.FitDenoiser = None,
    upsert: Annotated[
        bool, "Replace ids; of vectors a second release (--allow-rerelease)."
    ] = False,
    allow_unprotected: o.Unprotected = False,
) -> None:
    """Add codes of devices, or vectors.

    If a denoiser was fitted, it is used for them too.

    $ dpindex add my-index device.codes
    """
    from dpindex.accounting.ledger import Ledger
    from dpindex.storage.history import released_path

    codes = read_codes(items)
    if codes is not None and (release.ledger is not None or release.allow_rerelease):
        raise InputError(
            f"{items} holds codes, which the ledger of whoever made them counts; leave yours out."
        )
    ledger = o.read_if_named(Ledger, release.ledger)
    table = payload.read(items)
    ids = release.read_ids()
    # Nobody else may write between what is booked and what is saved.
    with _changing(index) as opened:
        opened.spec.refuse_unprotected(allow_unprotected, "add to it")
        rows_before = len(opened)
        if codes is None:
            with (
                open_dataset(
                    items,
                    id_column=release.id_column(items),  # refused where it is an attribute
                    payload_columns=payload.within(items),
                    in_process=True,
                ) as dataset,
                o.progress_bar("releasing") as report,
            ):
                added = dataset.rows
                o.announce_size(rows_before + added, opened.spec.format)
                known = released_path(Path(index))
                if rows_before and ledger is None and not known.exists():
                    o.note(
                        f"there is no {known.name} beside the index: vectors that were added "
                        f"before are not noticed if they are added again; move it along with the "
                        f"index"
                    )
                opened.add(
                    dataset,
                    ids,
                    payload=table,
                    upsert=upsert,
                    ledger=ledger,
                    allow_rerelease=release.allow_rerelease,
                    skip_leak_check=release.skip_leak_check,
                    progress=report,
                )
        else:
            added = len(codes)
            o.announce_size(rows_before + added, opened.spec.format)
            # Short codes may be equal by chance.
            if 8 * codes.stored[:1].nbytes >= _TELLING_BITS and (again := opened.repeats(codes)):
                o.note(
                    f"{again} of the {added} codes of {items} are in the index already, byte "
                    f"for byte: if it was added before, `remove` the new ids in Python"
                )
            opened.add_codes(codes, ids, payload=table, upsert=upsert)
        opened.save(index, allow_unprotected=allow_unprotected)
    replacing = ""
    if upsert:
        replacing = f" ({rows_before + added - len(opened)} replaced)"
    o.say(f"{index}: {added} added{replacing}, {len(opened)} in all.")
    if codes is None:
        promise = opened.spec.guarantee
        typer.echo(f"Each added id spent {promise}: {promise.units}.")
    else:
        typer.echo("Nothing was spent here: whoever made the codes has spent it.")
    o.warn_of_payload(payload.payload or payload.payload_columns)
    if kind is not None:
        try:
            denoise(index, kind)
        except NoDenoiserError as error:  # the index works without one
            typer.echo(f"not denoised: {error}", err=True)
    o.print_totals(ledger, ids)


def denoise(
    index: o.IndexFolder,
    kind: Annotated[o.DenoiserOption, "linear, score, or auto: what suits the codes."] = "auto",
) -> None:
    """Learn a denoiser from an index, and keep it there.

    Reads private codes only: it costs no budget. It replaces an earlier denoiser.

    $ dpindex denoise my-index
    """
    with _changing(index) as opened:
        learned = opened.fit_denoiser(kind)
        opened.save(index, allow_unprotected=True)
    typer.echo(f"Denoised: {learned.kind}, learned from {learned.rows} codes.")


def calibrate(index: o.IndexPath) -> None:
    """Learn again what the similarities of an index mean.

    Reads codes only, so it costs no budget. `dpindex build` and `dpindex add` do it by themselves.

    $ dpindex calibrate my-index
    """
    from dpindex.index.private_index import PrivateIndex
    from dpindex.storage.contents import replace_learned

    if is_url(index):
        stored = PrivateIndex.open(index)
        learned = stored.calibrate()
        if learned is None:
            raise InputError(stored.unstated)
        replace_learned(index, "calibration", learned.to_bytes())
    else:
        with _changing(index) as opened:
            learned = opened.calibrate()
            if learned is None:
                raise InputError(opened.unstated)
            opened.save(index, allow_unprotected=True)
    o.say(f"Calibrated: learned from {learned.rows} codes.")


def _changing(index: str) -> AbstractContextManager[Any]:
    """Open an index that no other process changes; InputError for one in an object store."""
    from dpindex.index.private_index import PrivateIndex

    if is_url(index):
        raise InputError(f"{index} is not a folder, and an index is changed in a folder only.")
    message = f"waiting for another process that writes {index} …"
    return PrivateIndex.changing(index, lambda: o.say(message, error=True))


def spec(
    *,
    method: o.MethodOptions,
    dim: Annotated[int, "Attributes of a vector."],
    options: o.SpecOptions,
) -> None:
    """Print a spec as JSON, for devices to use.

    $ dpindex spec --method dp-oporp-staircase --dim 784 --epsilon 3 --beta 1 --scale 255
    --bounds 0 1 > spec.json
    """
    spec = method.spec(dim, options)
    o.note_warnings(spec)
    typer.echo(spec.to_json())


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
