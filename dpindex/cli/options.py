"""Options that several commands share, and what turns annotated functions into commands."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from textwrap import wrap
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
)

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from dpindex.base.arrays import MAX_TEXT
from dpindex.base.errors import InputError, QualityWarning, escaped
from dpindex.base.files import MAGIC
from dpindex.data import Ranges, VectorSource, read_ids, read_payload
from dpindex.data.readers import VECTOR_SUFFIXES
from dpindex.privacy import VectorAdjacency, attribute, l2, record

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.base.arrays import AnyArray
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.release import Terms

_Path = TypeVar("_Path")
_Content = TypeVar("_Content")


_HEAD_BYTES = 1 << 16
_LEDGER = b"SQLite format 3\0"


@dataclass(frozen=True)
class Takes:
    """Annotation of a parameter that takes the path of a thing of these kinds."""

    kinds: tuple[str, ...]


# Types of options. ``Annotated[type, "--name", "help"]`` is an option with that name and help;
# without a name it is called as the parameter.

VectorFile = Annotated[
    str,
    typer.Argument(
        help="Vector file: .npy, .npz, .fvecs, .bvecs, .hdf5, .parquet, .csv or a CSR .npz; "
        "PATH:KEY names one of several arrays."
    ),
    Takes(("vectors",)),
]
IndexPath = Annotated[
    str,
    typer.Argument(help="Index directory, or s3://, gs:// or az:// URL."),
    Takes(("index",)),
]
RangesFile = Annotated[
    Path | None,
    "--ranges",
    "PUBLIC ranges of columns, .csv: column,low,high.",
]
Collection = Annotated[str, "Name in the vector database, for a URI of one."]
AsJson = Annotated[bool, "--json", "Print JSON."]
MetricOption = Annotated[Literal["cosine", "ip", "l2"], "Similarity to rank by."]
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
class DataOptions:
    """What is public about the vectors, and what neighbours may differ in."""

    delta: Annotated[float, "For Gaussian noise, e.g. 1e-6; others need 0."] = 0.0
    beta: Annotated[
        float | None,
        "One attribute, changed by at most this after --scale. One of --beta, --l2 and --record is "
        "required.",
    ] = None
    l2_radius: Annotated[
        float | None,
        "--l2",
        "Instead of --beta: Euclidean distance, after --scale.",
    ] = None
    record: Annotated[bool, "Instead of --beta: the whole vector, any two."] = False
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

    def as_flags(self, *names: str) -> list[str]:
        """Return these options, or some of them, as words of a command line without defaults.

        >>> DataOptions(scale=255.0, bounds=(0.0, 1.0), l2_radius=0.5, clip=True).as_flags()
        ['--l2 0.5', '--scale 255', '--bounds 0 1', '--clip']
        """
        flags = []
        for name, option in _options(type(self)).items():
            value = getattr(self, name)
            if value == option.default or (names and name not in names):
                continue
            words = [_flag(option)]
            if isinstance(value, tuple):
                words += [f"{number:.10g}" for number in value]
            elif isinstance(value, Path):
                words.append(shlex.quote(str(value)))
            elif value is not True:
                words.append(f"{value:.10g}")
            flags.append(" ".join(words))
        return flags


@dataclass(frozen=True)
class SpecOptions(DataOptions):
    """All fields of a spec but method, dim, epsilon and code length."""

    repetitions: Annotated[int, "dp-signoporp-*: number of projections."] = 1
    min_norm: Annotated[float | None, "dp-signrp-rr: PUBLIC lower bound on norms."] = None
    entries: Annotated[
        str | None,
        "*-rp-*: gaussian, rademacher, uniform, very-sparse.",
    ] = None
    sparsity: Annotated[int | None, "dp-sjlt-*: blocks of a code; very-sparse: 1/density."] = None
    codebook: Annotated[Path | None, "*codebook*: PUBLIC vectors, as of `dpindex codebook`."] = None
    subset: Annotated[int | None, "record-codebook: codewords that share a report."] = None
    design: Annotated[Path | None, "*-designed-*: file of `dpindex design`."] = None
    seed: Annotated[int, "PUBLIC seed of the projection."] = 0

    def stated(self) -> dict[str, Any]:
        from dpindex.mechanism.public_parts import PARTS

        fields = super().stated()
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

    method: Annotated[str, "A name from `dpindex methods`."]
    epsilon: Annotated[float | None, "Budget of one code; lower protects more."] = None
    code_length: Annotated[
        int | None,
        "Coordinates of a code.  [default: the method's]",
    ] = None

    def spec(self, dim: int, options: SpecOptions) -> Spec:
        """Return the spec for vectors of ``dim`` attributes."""
        from dpindex.mechanism.spec import Spec

        return Spec(self.method, dim, self.code_length, self.epsilon, **options.stated())


@dataclass(frozen=True)
class PayloadOptions:
    """Columns that are published beside the codes."""

    payload: Annotated[Path | None, "Table to publish IN THE CLEAR, .parquet or .csv."] = None
    payload_columns: Annotated[
        str | None,
        "--payload-columns A,B",
        "Columns of --payload, or of VECTORS, to publish.",
    ] = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns to take, empty for all."""
        if self.payload_columns is None:
            return ()
        return tuple(self.payload_columns.split(","))

    def read(self, vectors: str) -> Any:
        """The table, or None; InputError if it would publish the vectors."""
        if self.payload is None and self.payload_columns is None:
            return None
        path = vectors if self.payload is None else str(self.payload)
        names = list(self.names) or None
        file = vectors
        if not os.path.exists(file):
            file, _, _ = vectors.rpartition(":")
        both_exist = os.path.exists(path) and os.path.exists(file)
        is_same = both_exist and os.path.samefile(path, file)
        if is_same and (names is None or file.endswith(".csv")):
            raise InputError(
                f"{path} holds the vectors, which a payload would publish in the clear; name other "
                f"columns of a .parquet file with --payload-columns, or another file (--payload)."
            )
        return read_payload(path, names)


@dataclass(frozen=True)
class ReleaseOptions:
    """Whose vectors are released, and the ledger that records it."""

    ids: Annotated[
        str | None,
        "--ids FILE",
        "Ids, one a row: .txt, .npy, PATH:KEY, - for stdin.",
    ] = None
    ledger: Annotated[Path | None, "Your private file of releases: none happens twice."] = None
    allow_rerelease: Annotated[bool, "Release ids again; their epsilons add up."] = False

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
        from dpindex.storage.release import Terms

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
    try:
        return [read(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{option} must be a list such as 1,2,5, not {text!r}.") from None


def note(sentence: str) -> None:
    """Print a note on standard error about what may be a mistake."""
    typer.echo(escaped(f"note: {sentence}."), err=True)


def note_warnings(spec: Spec, count: int | None = None) -> None:
    """Print a note for each parameter of a spec that promises little."""
    from dpindex.mechanism.spec import quality_warnings

    for sentence in quality_warnings(spec, count):
        note(sentence)


# From functions to commands.


_HEADINGS = {
    "What is secret": "epsilon delta beta l2_radius record record_epsilon scale bounds clip norm "
    "min_norm max_epsilon neighbouring",
    "The code": "method methods code_length codebook design public_part subset repetitions entries "
    "sparsity seed denoise kind index_type bits bandwidth hashes rows expected_count width",
    "Input": "ids id_column ranges payload payload_columns public_sample groups public_queries "
    "public_texts labels base_texts query_texts",
    "Search": "k at query queries metric query_epsilon filter rerank candidates show collection "
    "recall neighbours",
    "Ledger and resuming": "ledger allow_rerelease private dask upsert replace",
}
"""Headings of help, and the options below each; the others stand below the last one."""
_ARGUMENTS = "Arguments"
_NEEDED = "Needed first"
_OTHERS = "Other"
_METAVARS = {str: "TEXT", Path: "FILE", int: "N", float: "X", tuple[float, float]: "LOW HIGH"}
_FLAG_WIDTH = 21


class Command(TyperCommand):
    """A command whose help has groups of options.

    Its epilog is an example, and the options in that are listed first.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        example = (self.epilog or "").split()
        groups: dict[str, list[tuple[str, str]]] = {
            heading: [] for heading in (_ARGUMENTS, _NEEDED, *_HEADINGS, _OTHERS)
        }
        for option in self.get_params(ctx):
            flag, text = option.get_help_record(ctx) or ("", "")
            heading = _OTHERS
            if option.param_type_name == "argument":
                heading = _ARGUMENTS
                flag = option.name
            elif not set(example).isdisjoint(option.opts):
                heading = _NEEDED
            else:
                for each, names in _HEADINGS.items():
                    if option.name in names.split():
                        heading = each
            row = (flag.ljust(_FLAG_WIDTH), text.removesuffix("  [required]"))
            groups[heading].append(row)
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=_FLAG_WIDTH)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        lines = wrap(self.epilog or "", formatter.width - 8, break_on_hyphens=False)
        with formatter.section("Example"):
            formatter.write("  " + " \\\n      ".join(lines) + "\n")


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """A function as typer takes it: groups of options become single ones, and strings their help.

    A parameter that is a dataclass is replaced by its fields. A flag has no ``--no-`` form. An
    error that names a parameter names its option here, and one about a path of another kind than
    expected says what that is.
    """
    options: dict[str, inspect.Parameter] = {}
    groups: dict[str, Any] = {}
    own = _options(function)
    for name, option in own.items():
        if is_dataclass(option.annotation):
            groups[name] = option.annotation
            options |= _options(option.annotation)
        else:
            options[name] = option

    @wraps(function)
    def run(**values: Any) -> None:
        given = dict(values)
        try:
            for name, group in groups.items():
                own_values = {field.name: values.pop(field.name) for field in fields(group)}
                values[name] = group(**own_values)
            with warnings.catch_warnings():
                warnings.simplefilter("default", QualityWarning)
                warnings.showwarning = _noted
                function(**values)
        except InputError as error:
            sentence = _mistaken(given, options)
            if sentence is None:
                name = error.field
                if name == "k" and name not in options:
                    name = "code_length"
                if name in options:
                    name = _flag(options[name])
                sentence = error.pointing_at(name)
            raise type(error)(sentence) from error

    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: option.annotation for name, option in options.items()}
    return run


def _noted(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning without its line of source, which no user wrote."""
    note(str(message).rstrip("."))


def _options(stated: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or dataclass as typer takes them, by name."""
    options = {}
    for name, parameter in inspect.signature(stated, eval_str=True).parameters.items():
        hint = parameter.annotation
        if get_origin(hint) is Annotated and isinstance(hint.__metadata__[0], str):
            *flags, text = hint.__metadata__
            if not flags:
                flags = [f"--{name.replace('_', '-')}"]
            flag, _, metavar = flags[0].partition(" ")
            for kind in (hint.__origin__, *get_args(hint.__origin__)):
                metavar = metavar or _METAVARS.get(kind)
            info = typer.Option(
                flag,
                metavar=metavar,
                help=text,
                show_default=bool(parameter.default),
            )
            hint = Annotated[hint.__origin__, info]
        options[name] = parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)
    return options


def _flag(option: inspect.Parameter) -> str:
    """Return the flag of an option, and the name of an argument."""
    for info in option.annotation.__metadata__:
        if isinstance(info, OptionInfo):
            return str(info.default)  # where typer keeps the first name
    return option.name


# Kinds of files and folders: an error names the kind where another is expected.

_KINDS = {
    "index": (
        "a dpindex index",
        "use dpindex query, info, add or denoise; dpindex info --spec prints its spec",
    ),
    "sketch": ("a RACE sketch", "use dpindex race query or dpindex race info"),
    "spec": ("a spec", "dpindex privatize --spec makes codes under it"),
    "codes": (
        "a file of private codes",
        "dpindex add puts them into an index, and dpindex query searches with them",
    ),
    "ledger": ("a ledger", "dpindex ledger shows it"),
    "vectors": (
        "a file of vectors",
        "dpindex build makes an index of them, and dpindex race build a sketch",
    ),
}
"""What each kind is called, and what to do with it."""


def _mistaken(values: Mapping[str, Any], options: Mapping[str, inspect.Parameter]) -> str | None:
    """Return a sentence about a path of another kind than expected; None if there is none."""
    for name, option in options.items():
        for expected in getattr(option.annotation, "__metadata__", ()):
            if not isinstance(expected, Takes) or values[name] is None:
                continue
            present = _kind_of(Path(values[name]))
            if present is not None and present not in expected.kinds:
                wanted = " or ".join(_KINDS[kind][0] for kind in expected.kinds)
                title, use = _KINDS[present]
                return f"{values[name]} is {title}, not {wanted}; {use}."
    return None


def _kind_of(place: Path) -> str | None:
    """The kind of thing at a path, by its first bytes; None for anything unknown or unreadable."""
    try:
        if (place / "manifest.json").is_file():
            return "index"
        if not place.is_file():
            return None
        with open(place, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(MAGIC):
            stated = re.search(rb'"kind": "(codes|sketch)"', head)
            return stated and stated[1].decode()
        if head.startswith(_LEDGER) and head[68:72] == b"DPLG":
            return "ledger"
        if head.lstrip().startswith(b"{") and place.stat().st_size <= MAX_TEXT:
            facts = json.loads(place.read_bytes())
            if {"method", "format"} <= facts.keys():
                return "spec"
    except (OSError, ValueError, RecursionError):
        return None
    if place.suffix.lower() in VECTOR_SUFFIXES:
        return "vectors"
    return None
