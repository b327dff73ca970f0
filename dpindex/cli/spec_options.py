"""The options that make a spec: one set for every command that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from dpindex.errors import InputError
from dpindex.privacy import Adjacency, attribute, l2
from dpindex.spec import Spec

__all__ = ["DataOptions", "SpecOptions", "with_options"]


@dataclass(frozen=True)
class DataOptions:
    """What is public about the vectors, and what neighbours may differ in."""

    delta: Annotated[
        float, typer.Option(help="For Gaussian methods, e.g. 1e-6; pure methods need 0.")
    ] = 0.0
    beta: Annotated[
        float | None,
        typer.Option(help="Neighbours differ in one attribute by at most this.  [default: 1]"),
    ] = None
    l2_radius: Annotated[
        float | None,
        typer.Option(
            "--l2", help="Instead of --beta: neighbours lie within this Euclidean distance."
        ),
    ] = None
    scale: Annotated[
        float, typer.Option(help="Public divisor of every attribute, e.g. 255 for bytes.")
    ] = 1.0
    bounds: Annotated[
        tuple[float, float], typer.Option(help="Public range of a scaled attribute, LOW HIGH.")
    ] = (-1.0, 1.0)
    clip: Annotated[
        bool, typer.Option("--clip", help="Clip to the bounds instead of refusing.")
    ] = False
    norm: Annotated[
        float | None,
        typer.Option(
            help="Public norm of every vector (1 for unit embeddings): better similarities."
        ),
    ] = None

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency that --beta or --l2 states."""
        if self.l2_radius is None:
            return attribute(1.0 if self.beta is None else self.beta)
        if self.beta is not None:
            raise InputError("give --beta or --l2, not both: they are different promises.")
        return l2(self.l2_radius)

    def stated(self) -> dict[str, Any]:
        """The options as fields of a spec."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        del values["beta"], values["l2_radius"]
        return {**values, "adjacency": self.adjacency}


@dataclass(frozen=True)
class SpecOptions(DataOptions):
    """Everything that a spec states, but its method and the number of attributes."""

    epsilon: Annotated[float | None, typer.Option(help="Budget of one release of one vector.")] = (
        None
    )
    code_length: Annotated[
        int | None, typer.Option(help="Coordinates of a code.  [default: the method's]")
    ] = None
    repetitions: Annotated[
        int, typer.Option(help="OPORP repetitions that share epsilon (sign codes).")
    ] = 1
    min_norm: Annotated[
        float | None, typer.Option(help="Public lower bound on norms, for methods that need it.")
    ] = None
    entries: Annotated[
        str | None,
        typer.Option(
            help="Entries of a random projection: gaussian, rademacher, uniform, very-sparse.  "
            "[default: the method's]"
        ),
    ] = None
    sparsity: Annotated[
        int | None,
        typer.Option(
            help="dp-sjlt-*: coordinates that an attribute moves; very-sparse: 1/density."
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Public seed of the projection.")] = 0

    def spec(self, method: str, dim: int) -> Spec:
        """The spec of that method for vectors of ``dim`` attributes."""
        stated = self.stated()
        return Spec(method=method, dim=dim, k=stated.pop("code_length"), **stated)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter that is a dataclass of options is replaced by its fields."""
    hints = get_type_hints(command, include_extras=True)
    group_name, group = next((name, hint) for name, hint in hints.items() if is_dataclass(hint))
    group_hints = get_type_hints(group, include_extras=True)
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == group_name:
            own = [(f.name, f.default, group_hints[f.name]) for f in fields(group)]
        else:
            own = [(parameter.name, parameter.default, hints[parameter.name])]
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )
            for name, default, hint in own
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        stated = {f.name: values.pop(f.name) for f in fields(group)}
        command(**values, **{group_name: group(**stated)})  # type: ignore[operator]

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
