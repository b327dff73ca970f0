"""Options that several commands share, and what turns annotated functions into commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from dpindex.codebook import Codebook
from dpindex.errors import InputError
from dpindex.ledger import Ledger
from dpindex.privacy import VectorAdjacency, attribute, l2, record
from dpindex.spec import Spec
from dpindex.vectors import read_ids

LOCAL = "local"
"""The address of a cluster on this machine, for ``--dask`` alone."""

_SCHEDULER = re.compile(rf"((tcp|tls|ws|wss|ucx|inproc)://.*|[\w.-]+:\d+|{LOCAL})")
"""What follows --dask as its address; anything else is the next argument."""

QueryMode = Literal["exact", "private"]
VectorFile = Annotated[
    str,
    typer.Argument(
        help="Vector file: .npy, .npz, .fvecs, .bvecs, .hdf5, .parquet or a CSR .npz; "
        "PATH:KEY names one of several arrays."
    ),
]
IndexPath = Annotated[str, typer.Argument(help="Index directory, or s3://, gs:// or az:// URL.")]
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
CodeLength = Annotated[int | None, "Coordinates of a code.  [default: the method's]"]
Metric = Annotated[str, "cosine, ip or l2."]
AsJson = Annotated[bool, "--json", "Print JSON."]
Denoise = Annotated[
    Literal["auto", "linear", "score"] | None,
    "Fit a denoiser to the private codes; costs no budget.  [default: none]",
]
CodebookFile = Annotated[Path | None, "The codebook that the spec names: a file of public vectors."]
Unprotected = Annotated[bool, "Allow a none-* method, which protects nothing."]


@dataclass(frozen=True)
class DataOptions:
    """What is public about the vectors, and what neighbours may differ in."""

    delta: Annotated[float, "For Gaussian methods, e.g. 1e-6; pure methods need 0."] = 0.0
    beta: Annotated[
        float | None,
        "Neighbours differ in one attribute by at most this, after --scale.  [default: 1]",
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
        if (self.beta is not None) + (self.l2_radius is not None) + self.record > 1:
            raise InputError("give one of --beta, --l2 and --record: they are different promises.")
        if self.record:
            return record()
        if self.l2_radius is not None:
            return l2(self.l2_radius)
        return attribute(1.0 if self.beta is None else self.beta)

    def stated(self) -> dict[str, Any]:
        """The options as fields of a spec."""
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
        book = None if self.codebook is None else Codebook(self.codebook)
        return {**super().stated(), "codebook": book}


@dataclass(frozen=True)
class CurveOptions(SpecOptions):
    """The same with a delta for the methods that need one."""

    delta: Annotated[float, "For the methods that need one."] = 1e-6


@dataclass(frozen=True)
class ReleaseOptions:
    """Whose vectors are released, and the ledger that records it."""

    ids: Annotated[str | None, "File of ids, one for each row (.txt, .npy, PATH:KEY)."] = None
    ledger: Annotated[
        Path | None, "Your private file of releases; an id in it is not released again."
    ] = None
    allow_rerelease: Annotated[bool, "Release ids in the ledger again; epsilons add up."] = False
    skip_leak_check: Annotated[bool, "Accept a codebook that shares rows with the vectors."] = False

    def stated(self) -> dict[str, Any]:
        """The options as arguments of ``ingest``."""
        return {
            "ids": None if self.ids is None else read_ids(self.ids),
            "ledger": None if self.ledger is None else Ledger(self.ledger),
            "allow_rerelease": self.allow_rerelease,
            "skip_leak_check": self.skip_leak_check,
        }


def with_codebook(spec: Spec, path: Path | None) -> Spec:
    """The spec with the codewords in that file, if one was named."""
    return spec if path is None else spec.with_codebook(Codebook(path))


class Command(TyperCommand):
    """A command whose ``--dask`` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        whole: list[str] = []
        for arg, following in zip(args, [*args, ""][1:], strict=True):
            bare = arg == "--dask" and not _SCHEDULER.fullmatch(following)
            whole += [f"--dask={LOCAL}"] if bare else [arg]
        return super().parse_args(ctx, whole)


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """A function as typer takes it: groups of options become single ones, and strings their help.

    A parameter that is a dataclass is replaced by its fields. ``Annotated[type, "--name", "help"]``
    is an option with that name and help; without a name it is called as the parameter, and a flag
    has no ``--no-`` form.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(function).parameters.items():
        group = groups.get(name)
        stated = inspect.signature(group).parameters.values() if group else [own]
        types = get_type_hints(group, include_extras=True) if group else hints
        parameters += [p.replace(annotation=_option(p.name, types[p.name])) for p in stated]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]

    @wraps(function)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
        function(**values)

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
