"""Options that several commands share, and what turns annotated functions into commands."""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from dpindex.base.errors import InputError, QualityWarning
from dpindex.base.text import escaped
from dpindex.cli.kinds import Takes, mistaken
from dpindex.privacy import VectorAdjacency, attribute, l2, record
from dpindex.vectors import (
    Dataset,
    Ranges,
    VectorSource,
    open_dataset,
    read_ids,
    read_payload,
)

if TYPE_CHECKING:  # help loads no noise laws
    from dpindex.base.arrays import AnyArray
    from dpindex.index.owners import Owner
    from dpindex.integrations.requests import Tokens
    from dpindex.integrations.server import Holder
    from dpindex.mechanism.spec import Spec
    from dpindex.storage.release import Terms

_Path = TypeVar("_Path")
_Content = TypeVar("_Content")

LOCAL = "local"
"""The address of a cluster on this machine, for ``--dask`` alone."""

_SCHEDULER = re.compile(rf"((tcp|tls|ws|wss|ucx|inproc)://.*|[\w.-]+:\d+|{LOCAL})")
"""What follows --dask as its address; anything else is the next argument."""

RangesFile = Annotated[
    Path | None,
    "--ranges",
    "Public ranges of columns, .csv with column,low,high: each is brought to 0 … 1.",
]
QueryMode = Literal["exact", "private"]
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
Collection = Annotated[str, "Name in the vector database, for a URI of one."]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="[ADDRESS]",
        help="Run on the Dask cluster there; without an address on all cores here.",
    ),
]
MethodName = Annotated[str, "A name from `dpindex methods`."]
Epsilon = Annotated[float | None, "Budget of one release of one vector."]
CodeLength = Annotated[
    int | None,
    "Coordinates of a code.  [default: the method's; of OPORP every column up to 128, and more "
    "where there is little noise]",
]
Metric = Annotated[str, "cosine, ip or l2."]
AsJson = Annotated[bool, "--json", "Print JSON."]
DenoiserKind = Literal["auto", "linear", "score"]
Denoise = Annotated[
    DenoiserKind | None,
    "Fit a denoiser to the private codes; costs no budget.  [default: none]",
]
RerankIds = Annotated[
    str | None,
    "--rerank-ids",
    "File of ids, one for each row of --rerank (.txt, .npy, PATH:KEY).",
]
ImageShape = Annotated[
    str | None, "Show vectors as pictures: HEIGHTxWIDTH, or HEIGHTxWIDTHx3 for colours."
]
CodebookFile = Annotated[Path | None, "The codebook that the spec names: a file of public vectors."]
MaxSize = Annotated[str, "Refuse to write codes that may take more than this, e.g. 500MB, 20GB."]
Unprotected = Annotated[bool, "Allow a none-* method, which protects nothing."]


@dataclass(frozen=True)
class DataOptions:
    """What is public about the vectors, and what neighbours may differ in."""

    delta: Annotated[float, "For Gaussian methods, e.g. 1e-6; pure methods need 0."] = 0.0
    beta: Annotated[
        float | None,
        "Neighbours differ in one attribute by at most this, after --scale. One of --beta, --l2 "
        "and --record is required.",
    ] = None
    l2_radius: Annotated[
        float | None,
        "--l2",
        "Instead of --beta: neighbours lie within this Euclidean distance, after --scale.",
    ] = None
    record: Annotated[bool, "Instead of --beta: any two vectors are neighbours."] = False
    scale: Annotated[float, "Public divisor of every attribute, e.g. 255 for bytes."] = 1.0
    bounds: Annotated[tuple[float, float], "Public range of a scaled attribute, LOW HIGH."] = (
        -1.0,
        1.0,
    )
    clip: Annotated[bool, "Clip to the bounds instead of refusing."] = False
    norm: Annotated[
        float | None, "Public norm of every vector (1 for unit embeddings): better similarities."
    ] = None

    @property
    def adjacency(self) -> VectorAdjacency:
        """The adjacency that --beta, --l2 or --record states."""
        if (self.beta is not None) + (self.l2_radius is not None) + self.record != 1:
            raise InputError("give one of --beta, --l2 and --record: they are different promises.")
        if self.record:
            return record()
        if self.l2_radius is not None:
            return l2(self.l2_radius)
        return attribute(self.beta)

    def as_flags(self) -> list[str]:
        """Return these options as words of a command line, defaults left out.

        >>> DataOptions(scale=255.0, bounds=(0.0, 1.0), l2_radius=0.5, clip=True).as_flags()
        ['--l2 0.5', '--scale 255', '--bounds 0 1', '--clip']
        """
        hints = get_type_hints(type(self), include_extras=True)
        flags = []
        for stated in fields(self):
            value = getattr(self, stated.name)
            if value == stated.default:
                continue
            first = str(hints[stated.name].__metadata__[0])
            name = first if first.startswith("--") else "--" + stated.name.replace("_", "-")
            numbers = () if value is True else value if isinstance(value, tuple) else (value,)
            flags.append(" ".join([name, *(f"{number:.10g}" for number in numbers)]))
        return flags

    def stated(self) -> dict[str, Any]:
        """The options as fields of a spec."""
        width = self.bounds[1] - self.bounds[0]
        if self.beta is not None and self.beta > width > 0:
            note(
                f"--beta {self.beta:g} is more than the width of the bounds, by which attributes "
                f"differ at most: --beta {width:g} protects as much, with less noise"
            )
        values = {**vars(self), "adjacency": self.adjacency}
        for name in ("beta", "l2_radius", "record"):
            del values[name]
        return values


@dataclass(frozen=True)
class SpecOptions(DataOptions):
    """All fields of a spec but method, dim, epsilon and code length."""

    repetitions: Annotated[int, "OPORP repetitions that share epsilon (sign codes)."] = 1
    min_norm: Annotated[float | None, "Public lower bound on norms, where one is needed."] = None
    entries: Annotated[
        str | None,
        "Entries of a random projection: gaussian, rademacher, uniform, very-sparse.  "
        "[default: the method's]",
    ] = None
    sparsity: Annotated[
        int | None, "dp-sjlt-*: coordinates that an attribute moves; very-sparse: 1/density."
    ] = None
    codebook: Annotated[
        Path | None, "record-codebook: file of PUBLIC vectors of the same kind."
    ] = None
    subset: Annotated[int | None, "record-codebook: nearest codewords that share the report."] = (
        None
    )
    seed: Annotated[int, "Public seed of the projection."] = 0

    def stated(self) -> dict[str, Any]:
        from dpindex.mechanism.codebook import Codebook

        book = None
        if self.codebook is not None:
            book = Codebook(self.codebook)
        return {**super().stated(), "codebook": book}


@dataclass(frozen=True)
class MethodOptions:
    """The method, its budget and the length of its codes."""

    method: MethodName
    epsilon: Epsilon = None
    code_length: CodeLength = None

    def spec(self, dim: int, options: SpecOptions) -> Spec:
        """Return the spec for vectors of ``dim`` attributes."""
        from dpindex.mechanism.spec import Spec

        return Spec(self.method, dim, self.code_length, self.epsilon, **options.stated())


@dataclass(frozen=True)
class CurveOptions(SpecOptions):
    """Fields of the specs of a curve, with a delta for the methods that need one."""

    delta: Annotated[float, "For the methods that need one."] = 1e-6


@dataclass(frozen=True)
class PayloadOptions:
    """Columns that are published beside the codes."""

    payload: Annotated[
        Path | None, "Table, .parquet or .csv, to publish IN THE CLEAR: a row for each vector."
    ] = None
    payload_columns: Annotated[
        str | None,
        "Columns of --payload to publish, A,B,…; without --payload, columns of VECTORS (.parquet).",
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
        file = vectors if os.path.exists(vectors) else vectors.rpartition(":")[0]
        same = os.path.exists(path) and os.path.exists(file) and os.path.samefile(path, file)
        if same and (names is None or file.endswith(".csv")):
            raise InputError(
                f"{path} holds the vectors, which a payload would publish in the clear; name other "
                f"columns of a .parquet file with --payload-columns, or another file (--payload)."
            )
        return read_payload(path, names)


@dataclass(frozen=True)
class ReleaseOptions:
    """Whose vectors are released, and the ledger that records it."""

    ids: Annotated[
        str | None, "File of ids, one for each row (.txt, .npy, PATH:KEY), or - for standard input."
    ] = None
    ledger: Annotated[
        Path | None, "Your private file of releases; an id in it is not released again."
    ] = None
    allow_rerelease: Annotated[bool, "Release ids in the ledger again; epsilons add up."] = False
    skip_leak_check: Annotated[bool, "Accept a codebook made of the vectors."] = False

    def read_ids(self) -> AnyArray | None:
        """Return the ids of the file, None if none was named."""
        return read_if_named(read_ids, self.ids)

    def terms(self) -> Terms:
        """Return the terms of the release."""
        from dpindex.storage.release import Terms

        ledger = None
        if self.ledger is not None:
            from dpindex.accounting.ledger import Ledger

            ledger = Ledger(self.ledger)
        return Terms(ledger, self.allow_rerelease, self.skip_leak_check)


@dataclass(frozen=True)
class ScaledReleaseOptions(ReleaseOptions):
    """Whose vectors are released, with the public ranges of their columns."""

    ranges: RangesFile = None

    def scaled(self, dataset: Dataset) -> Dataset:
        """Return the dataset with its columns brought to 0 … 1, if there are ranges."""
        return with_ranges(dataset, self.ranges)


@dataclass(frozen=True)
class SearchOptions:
    """Neighbours to find, and who orders the candidates."""

    k: Annotated[int, "-k", "Neighbours of each query."] = 10
    query: Annotated[QueryMode, "exact: used as it is; private: privatized first."] = "exact"
    filter: Annotated[
        str | None, "Rows to search, e.g. \"year >= 2020 and lang in ['en']\".  [default: all]"
    ] = None
    rerank: Annotated[
        str | None,
        "Original vectors, which order the candidates exactly; rows in the order of the index.",
    ] = None
    ids: RerankIds = None
    candidates: Annotated[
        int | None, "Rows that the codes choose for --rerank to order.  [default: 1000]"
    ] = None
    ranges: RangesFile = None

    def owner(self) -> Owner | None:
        """Return who orders the candidates, None without --rerank."""
        from dpindex.index.owners import Originals

        if self.rerank is None:
            if self.ids is not None:
                raise InputError("--rerank-ids names the rows of --rerank; give that too.")
            return None
        ids = read_if_named(read_ids, self.ids)
        if self.ranges is None:
            return Originals(self.rerank, ids)
        return Originals(with_ranges(open_dataset(self.rerank), self.ranges), ids)


@dataclass(frozen=True)
class AccessOptions:
    """Who may ask a collector."""

    tokens: Annotated[
        Path | None,
        'File of lines "submit TOKEN", "search TOKEN" and "rerank TOKEN", yours alone (chmod 600).',
    ] = None
    open_to_all: Annotated[bool, "Let everybody on this machine submit and search."] = False

    def read(self) -> Tokens | None:
        """Return the tokens, None for everybody."""
        from dpindex.integrations.requests import Tokens

        if self.open_to_all == (self.tokens is not None):
            raise InputError(
                "give --tokens FILE, or --open-to-all on a machine that is yours alone."
            )
        if self.tokens is None:
            return None
        return Tokens.read(self.tokens)


@dataclass(frozen=True)
class HolderOptions:
    """Original vectors that a collector compares candidates with."""

    rerank: Annotated[
        str | None,
        "Original vectors: answer exact similarities of candidates, which no epsilon bounds.",
    ] = None
    ids: RerankIds = None
    per_minute: Annotated[
        int, "--rerank-per-minute", "Candidates that one token may ask about in a minute."
    ] = 60_000

    def holder(self) -> Holder | None:
        """Return who answers, None without --rerank."""
        from dpindex.integrations.server import Holder

        if self.rerank is None:
            return None
        return Holder(self.rerank, read_if_named(read_ids, self.ids), self.per_minute)


def read_if_named(read: Callable[[_Path], _Content], path: _Path | None) -> _Content | None:
    """Return what a file holds, None if none was named."""
    if path is None:
        return None
    return read(path)


def with_ranges(dataset: Dataset, path: Path | None) -> Dataset:
    """Return the dataset brought to 0 … 1 by the ranges of that file, if one was named."""
    if path is None:
        return dataset
    return dataset.with_ranges(Ranges.read(path))


def scaled_source(source: VectorSource, path: Path | None) -> VectorSource:
    """Return the vectors brought to 0 … 1 by the ranges of that file, if one was named."""
    if path is None:
        return source
    return Ranges.read(path).source(source)


def note(sentence: str) -> None:
    """Tell what may not be meant, in one line beside the output."""
    typer.echo(escaped(f"note: {sentence}."), err=True)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Tell each warning of the block as a note, when the block ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", QualityWarning)
        yield
    for warning in caught:
        note(str(warning.message))


def note_doubts(spec: Spec, count: int | None = None) -> None:
    """Tell which parameters of a spec promise little for so many vectors."""
    from dpindex.mechanism.doubts import doubts

    for sentence in doubts(spec, count):
        note(sentence)


def with_codebook(spec: Spec, path: Path | None) -> Spec:
    """The spec with the codewords in that file, if one was named."""
    from dpindex.mechanism.codebook import Codebook

    if path is None:
        return spec
    return spec.with_codebook(Codebook(path))


class Command(TyperCommand):
    """A command whose ``--dask`` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        whole: list[str] = []
        for arg, following in zip(args, [*args, ""][1:], strict=True):
            bare = arg == "--dask" and not _SCHEDULER.fullmatch(following)
            whole += [f"--dask={LOCAL}"] if bare else [arg]
        return super().parse_args(ctx, whole)


def parsed_list(text: str, option: str, read: type) -> list[Any]:
    """Return the parts of a list such as ``1,2,5``, each as ``read`` understands it.

    >>> parsed_list("1, 2,5", "--epsilons", float)
    [1.0, 2.0, 5.0]
    """
    try:
        return [read(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise InputError(f"{option} must be a list such as 1,2,5, not {text!r}.") from None


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """A function as typer takes it: groups of options become single ones, and strings their help.

    A parameter that is a dataclass is replaced by its fields. ``Annotated[type, "--name", "help"]``
    is an option with that name and help; without a name it is called as the parameter, and a flag
    has no ``--no-`` form.
    """
    hints = _hints(function)
    flags: dict[str, str] = {}
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(function).parameters.items():
        group = groups.get(name)
        stated = inspect.signature(group).parameters.values() if group else [own]
        types = _hints(group) if group else hints
        flags |= {p.name: _flag(p.name, types[p.name]) for p in stated}
        parameters += [p.replace(annotation=_option(p.name, types[p.name])) for p in stated]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    takes = {p.name: t for p in parameters for t in _metadata(p) if isinstance(t, Takes)}

    @wraps(function)
    def run(**values: Any) -> None:
        paths = {name: values[name] for name in takes}
        try:
            for name, group in groups.items():
                values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
            function(**values)
        except InputError as error:
            sentence = mistaken(paths, takes)
            if sentence is None:
                sentence = error.pointing_at(flags.get(error.field, error.field))
            raise type(error)(sentence) from error

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _option(name: str, hint: Any) -> Any:
    if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], str):
        return hint
    *names, text = hint.__metadata__
    if hint.__origin__ is bool and not names:
        names = ["--" + name.replace("_", "-")]
    return Annotated[hint.__origin__, typer.Option(*names, help=text)]


def _flag(name: str, hint: Any) -> str:
    """The option of that parameter; an argument is called by its own name in messages."""
    texts = [text for text in getattr(hint, "__metadata__", ()) if isinstance(text, str)]
    if len(texts) > 1:
        return texts[0]
    return "--" + name.replace("_", "-")


def _metadata(parameter: inspect.Parameter) -> tuple[Any, ...]:
    return getattr(parameter.annotation, "__metadata__", ())
