"""What several commands share: groups of options, and what is printed for people and programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from dpindex.base.arrays import AnyArray
from dpindex.base.display import counted
from dpindex.base.display import progress_bar as progress_bar
from dpindex.base.display import text_table as text_table
from dpindex.base.errors import InputError, escaped
from dpindex.cli import MISREAD
from dpindex.cli import Takes as Takes
from dpindex.cli import note as note
from dpindex.data import Ranges, VectorSource, open_dataset, read_ids, read_payload
from dpindex.data.columns import COLUMN_SUFFIXES
from dpindex.data.source import split_key
from dpindex.data.stores import is_url
from dpindex.mechanism.codes import CodeFormat
from dpindex.privacy import Guarantee, VectorAdjacency, attribute, l2, record

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.accounting.ledger import Ledger
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.history import Terms

_Path = TypeVar("_Path")
_Content = TypeVar("_Content")


# Types of options. ``Annotated[type, "--name", "help"]`` is an option with that name and help;
# without a name it is called as the parameter.

VectorFile = Annotated[
    str,
    typer.Argument(
        help="Vector file: .npy, .npz, .fvecs, .fbin, .hdf5, .parquet, .arrow, .csv, …; PATH:KEY "
        "names one of several arrays."
    ),
    Takes(("vectors",)),
]
IndexPath = Annotated[
    str,
    typer.Argument(help="Index directory, or s3://, gs:// or az:// URL."),
    Takes(("index",)),
]
IndexFolder = Annotated[
    str,
    typer.Argument(help="Index directory: in an object store, nothing is added."),
    Takes(("index",)),
]
RangesFile = Annotated[
    Path | None,
    "--ranges",
    "PUBLIC ranges of columns, .csv: column,low,high.",
]
Collection = Annotated[str, "Name in the vector database, for a URI of one."]
AsJson = Annotated[bool, "--json", "Print JSON."]
MetricOption = Annotated[
    Literal["cosine", "ip", "l2"], "--metric KIND", "cosine, ip or l2: what to rank by."
]
DenoiserOption = Literal["auto", "linear", "score"]
FitDenoiser = Annotated[
    DenoiserOption | None,
    "--denoise KIND",
    "auto, linear or score, learned from the codes.",
]
RerankIds = Annotated[
    str | None,
    "--rerank-ids FILE",
    "Ids of the rows of --rerank, as of --ids.",
]
PublicFile = Annotated[
    Path | None,
    typer.Option(
        "--codebook",
        "--design",
        metavar="FILE",
        help="The codebook or design that the spec names.",
    ),
]
Unprotected = Annotated[bool, "Allow a none-* method: it protects nothing."]


@dataclass(frozen=True)
class ComparedOptions:
    """How public vectors are brought to what a spec compares."""

    scale: Annotated[float, "PUBLIC divisor, e.g. 255 for bytes."] = 1.0
    ranges: RangesFile = None
    bounds: Annotated[tuple[float, float], "PUBLIC range after --scale, for --clip."] = (-1.0, 1.0)
    clip: Annotated[bool, "Clip to the bounds."] = False

    def compared(self, source: VectorSource) -> VectorSource:
        """Return the vectors in their ranges, clipped."""
        source = scaled_source(source, self.ranges)
        if not self.clip:
            return source
        low, high = self.bounds
        return source.clipped(low * self.scale, high * self.scale)


@dataclass(frozen=True)
class DataOptions:
    """What is public about the vectors, and what neighbours may differ in."""

    delta: Annotated[float, "For Gaussian noise, e.g. 1e-6; others need 0."] = 0.0
    beta: Annotated[
        float | None,
        "One attribute, changed by at most this after --scale.",
    ] = None
    l2_radius: Annotated[
        float | None,
        "--l2",
        "Or: all attributes, by this distance together.",
    ] = None
    record: Annotated[bool, "Or: the whole vector; any two are hard to tell apart."] = False
    record_epsilon: Annotated[float | None, "codebook-softmax: epsilon for --record, as well."] = (
        None
    )
    scale: Annotated[float, "PUBLIC divisor, e.g. 255 for bytes."] = 1.0
    ranges: RangesFile = None
    bounds: Annotated[tuple[float, float], "PUBLIC range after --scale."] = (
        -1.0,
        1.0,
    )
    clip: Annotated[bool, "Clip to the bounds; else values outside are refused."] = False
    norm: Annotated[float | None, "PUBLIC norm of every vector: better similarities."] = None

    @property
    def adjacency(self) -> VectorAdjacency:
        """The adjacency that --beta, --l2 or --record states."""
        stated: list[VectorAdjacency] = []
        if self.beta is not None:
            stated.append(attribute(self.beta))
        if self.l2_radius is not None:
            stated.append(l2(self.l2_radius))
        if self.record:
            stated.append(record())
        if len(stated) != 1:
            raise InputError("give one of --beta, --l2 and --record: they are different promises.")
        return stated[0]

    def stated(self) -> dict[str, Any]:
        """The options as fields of a spec."""
        ranges = read_if_named(Ranges.read, self.ranges)
        values = {**vars(self), "adjacency": self.adjacency, "ranges": ranges}
        for name in ("beta", "l2_radius", "record"):
            del values[name]
        return values


@dataclass(frozen=True)
class SpecOptions(DataOptions):
    """All fields of a spec but method, dim, epsilon and code length."""

    codebook: Annotated[Path | None, "*codebook*: PUBLIC vectors, as of `dpindex codebook`."] = None
    subset: Annotated[int | None, "record-codebook: codewords that share a report."] = None
    window: Annotated[float | None, "codebook-softmax: clip to this many deviations."] = None
    design: Annotated[Path | None, "*-designed-*: file of `dpindex design`."] = None
    seed: Annotated[int, "PUBLIC seed of the projection."] = 0
    variant: Annotated[
        str | None,
        "--variant NAME=VALUE,…",
        "Of methods of papers: see `dpindex methods --all`.",
    ] = None

    def stated(self) -> dict[str, Any]:
        from dpindex.mechanism.parameters import PARTS
        from dpindex.mechanism.variants import parse_variant

        fields = super().stated()
        fields["variant"] = parse_variant(self.variant or "")
        for kind, part in PARTS.items():
            fields[kind] = read_if_named(part.read, fields[kind])
        return fields


@dataclass(frozen=True)
class CurveOptions(SpecOptions):
    """Fields of the specs of a curve, with a delta for the methods that need one."""

    delta: Annotated[float, "For Gaussian noise, where a method needs it."] = 1e-6


@dataclass(frozen=True)
class MethodOptions:
    """The method, its budget and the length of its codes."""

    method: Annotated[str | None, "A name from `dpindex methods`."] = None
    epsilon: Annotated[float | None, "Budget of one code; lower protects more."] = None
    code_length: Annotated[
        int | None,
        "Coordinates of a code.  [default: the method's]",
    ] = None

    def spec(self, dim: int, options: SpecOptions) -> Spec:
        """Return the spec for vectors of ``dim`` attributes."""
        from dpindex.mechanism.spec import Spec

        if self.method is None:
            raise InputError("missing option '--method'; see dpindex methods.")
        return Spec(self.method, dim, self.code_length, self.epsilon, **options.stated())


@dataclass(frozen=True)
class PayloadOptions:
    """Columns that are published beside the codes."""

    payload: Annotated[Path | None, "Table to publish IN THE CLEAR, .parquet, .csv, …"] = None
    payload_columns: Annotated[
        str | None,
        "--payload-columns A,B",
        "Columns of --payload, or of VECTORS, to publish.",
    ] = None

    @property
    def _names(self) -> tuple[str, ...]:
        """The columns to take, empty for all."""
        if self.payload_columns is None:
            return ()
        names = tuple(self.payload_columns.split(","))
        if "" in names:
            raise InputError("--payload-columns has an empty name; write A,B.")
        if len(set(names)) < len(names):
            raise InputError("--payload-columns names a column twice; name each once.")
        return names

    def within(self, vectors: str) -> tuple[str, ...]:
        """The columns that lie beside the vectors; InputError if these would be published."""
        names = self._names
        if self.payload is None:
            return names
        file, _ = split_key(vectors)
        if not _is_same_file(split_key(str(self.payload))[0], file):
            return ()
        if not names or not file.lower().endswith(COLUMN_SUFFIXES):
            raise InputError(
                f"{self.payload} holds the vectors, which a payload would publish in the clear; "
                f"name other columns of a .parquet file with --payload-columns, or another file "
                f"(--payload)."
            )
        return names

    def read(self, vectors: str) -> Any:
        """The table, or None."""
        if self.payload is None and self.payload_columns is None:
            return None
        names = list(self._names) or None
        return read_payload(self.payload or split_key(vectors)[0], names)


@dataclass(frozen=True)
class ReleaseOptions:
    """Whose vectors are released, and the ledger that records it."""

    ids: Annotated[
        str | None,
        "--ids FILE",
        "Ids, one per row: .txt, .npy, PATH:KEY, - for stdin.",
    ] = None
    ledger: Annotated[Path | None, "Your private file of releases; refuses a second one."] = None
    allow_rerelease: Annotated[bool, "Release ids again; their epsilons add up."] = False

    def id_column(self, vectors: str) -> str | None:
        """The column that --ids names, if it lies beside the vectors."""
        return _column_beside(vectors, self.ids)

    def read_ids(self) -> AnyArray | None:
        """Return the ids of the file, None if none was named."""
        return read_if_named(read_ids, self.ids)

    def ids_for_ledger(self, what: str) -> AnyArray | None:
        """Return the ids of a release that does not carry them; InputError without a ledger."""
        ids = self.read_ids()
        if ids is not None and self.ledger is None:
            raise InputError(
                f"{what} no ids: they are for the ledger; name the ledger.", field="ledger"
            )
        return ids

    def terms(self) -> Terms:
        """Return the terms of the release."""
        from dpindex.storage.history import Terms

        ledger = None
        if self.ledger is not None:
            from dpindex.accounting.ledger import Ledger

            ledger = Ledger(self.ledger)
        return Terms(ledger, self.allow_rerelease)


@dataclass(frozen=True)
class CodeReleaseOptions(ReleaseOptions):
    """Terms of a release of codes, which may have a codebook."""

    skip_leak_check: Annotated[bool, "Accept a public part made of the vectors."] = False

    def terms(self) -> Terms:
        return replace(super().terms(), skip_leak_check=self.skip_leak_check)


def read_ids_of(vectors: str | None, ids: str | None) -> AnyArray | None:
    """Return the ids at a place, which may be a folder of the vectors; None if none was named."""
    column = _column_beside(vectors, ids)
    if vectors is None or column is None:
        return read_if_named(read_ids, ids)
    with open_dataset(vectors, id_column=column) as dataset:
        return dataset.ids()


def _column_beside(vectors: str | None, ids: str | None) -> str | None:
    """The column that a place of ids names, if it lies in the files of the vectors."""
    if vectors is None or ids is None:
        return None
    path, column = split_key(ids)
    file, _ = split_key(vectors)
    has_columns = file.lower().endswith(COLUMN_SUFFIXES) or os.path.isdir(file) or is_url(file)
    return column if has_columns and _is_same_file(path, file) else None


def _is_same_file(one: str, other: str) -> bool:
    if one == other:
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def read_if_named(read: Callable[[_Path], _Content], path: _Path | None) -> _Content | None:
    """Return what a file holds, None if none was named."""
    if path is None:
        return None
    return read(path)


def scaled_source(source: VectorSource, path: Path | None) -> VectorSource:
    """Return the vectors brought to 0 … 1 by the ranges of that file, if one was named."""
    if path is None:
        return source
    return Ranges.read(path).source(source)


def parsed_list(text: str, option: str, read: type) -> list[Any]:
    """Return the parts of a list such as ``1,2,5``, each as ``read`` understands it.

    >>> parsed_list("1, 2,5", "--epsilons", float)
    [1.0, 2.0, 5.0]
    """
    parts = [word for part in text.split(",") for word in part.split() or [""]]
    if not text:
        return []
    try:
        if "" in parts or (read is not str and MISREAD.search(text)):
            raise ValueError
        return [read(part) for part in parts]
    except ValueError:
        such_as = "A,B" if read is str else "1,2,5"
        raise InputError(f"{option} must be a list such as {such_as}, not {text!r}.") from None


# What commands print.


def note_warnings(spec: Spec, count: int | None = None) -> None:
    """Print a note for each parameter of a spec that promises little."""
    from dpindex.mechanism.promises import quality_warnings

    for sentence in quality_warnings(spec, count):
        note(sentence)


def refuse_existing(path: Path) -> None:
    """Refuse, before any work, an output file that is already there or has no folder."""
    if os.path.lexists(path):
        raise InputError(f"{path} already exists; choose another name.")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it first.")


def print_json(facts: Any, indent: int | None = 1) -> None:
    """Print plain values as JSON, and dates as text; without an indent on one line."""
    typer.echo(json.dumps(facts, indent=indent, default=str))


def say(text: object = "", *, error: bool = False) -> None:
    """Print one line; what cannot be printed of it, line breaks included, is escaped."""
    typer.echo(escaped(str(text)), err=error)


def print_facts(
    title: str,
    lines: Mapping[str, str],
    guarantee: Guarantee,
    dim: int,
    exposure: Sequence[str] = (),
) -> None:
    """Print labelled lines, what is protected and what not, and what attacks may find."""
    say(title)
    for label, text in lines.items():
        say(f"{label:12}{text}")
    say()
    say("What is protected")
    say(f"  {guarantee.protects()}")
    say(f"  {guarantee.odds()}")
    if exposure:
        say()
        say("What attacks may find")
        for line in exposure:
            say(f"  - {line}")
    say()
    say("What is not protected")
    for line in guarantee.does_not_protect(dim):
        say(f"  - {line}")


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def size_in_words(size: float) -> str:
    """Bytes with a unit, three digits.

    >>> size_in_words(20_700 * 256), size_in_words(999)
    ('5.3 MB', '999 B')
    """
    unit = [name for name, worth in _UNITS.items() if worth <= max(size, 1)][-1]
    return f"{size / _UNITS[unit]:.3g} {unit}"


def announce_size(count: int, format_: CodeFormat) -> None:
    """Say how large the codes may become."""
    each = format_.max_row_bytes
    codes = counted(count, "code")
    typer.echo(
        f"{codes} of {format_.contents}, at most {size_in_words(each)} each: at most "
        f"{size_in_words(count * each)}."
    )


def tell_clipped(share: float) -> None:
    """Say which share of the values was clipped, if any."""
    if share > 0:
        typer.echo(f"{share:.2%} of the values lay outside the bounds, and were clipped to them.")


def print_totals(ledger: Ledger | None, ids: AnyArray | None) -> None:
    """Print what was released of these ids in all, if some were released more than once."""
    totals = []
    if ledger is not None:
        totals = ledger.totals(ids)
    if totals and totals[0].releases > 1:
        typer.echo("In total, by the ledger:")
        for total in totals:
            typer.echo(f"  {total}.")


def warn_of_payload(columns: object) -> None:
    """Say that a payload is public, if there is one."""
    if columns:
        typer.echo("The payload is published in the clear, beside the codes: it is not protected.")


def number_or_share(stated: str | None) -> int | str | None:
    """Return a number of candidates as one; its reader takes a share, and refuses other texts."""
    if stated is not None and stated.isdecimal():
        return int(stated)
    return stated
