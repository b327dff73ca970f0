"""How annotated functions become commands, and the groups that find them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from dpindex.base.errors import InputError
from dpindex.cli.kinds import Takes, mistaken

DASK = "--dask"
LOCAL = "local"
"""The address of a cluster on this machine, for ``--dask`` alone."""

_SCHEDULER = re.compile(rf"((tcp|tls|ws|wss|ucx|inproc)://.*|[\w.-]+:\d+|{LOCAL})")
"""What follows --dask as its address; anything else is the next argument."""


@dataclass(frozen=True)
class Argument:
    """Annotation of a parameter that is given by its place and not by a flag."""

    help: str
    metavar: str | None = None


class Command(click.Command):
    """A command whose ``--dask`` needs no value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        whole: list[str] = []
        for arg, following in zip(args, [*args, ""][1:], strict=True):
            bare = arg == DASK and not _SCHEDULER.fullmatch(following)
            whole += [f"{DASK}={LOCAL}"] if bare else [arg]
        return super().parse_args(ctx, whole)


class Commands(click.Group):
    """A group of functions, each imported when it is run: only help needs all of them.

    Parameters
    ----------
    name, help : str
    functions : mapping of str to sequence of str
        Names of functions in each module of this package.
    """

    def __init__(
        self, name: str, help: str, functions: Mapping[str, Sequence[str]], **settings: Any
    ) -> None:
        super().__init__(name, help=help, no_args_is_help=True, **settings)
        self._modules = {name: module for module, names in functions.items() for name in names}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._modules, *self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand:  # which knows no functions that it could suggest
            names = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(args[0], possibilities=names, ctx=ctx) from None

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._modules:
            return super().get_command(ctx, name)
        return as_command(vars(import_module(f"dpindex.cli.{self._modules[name]}"))[name])


def as_command(function: Callable[..., None]) -> Command:
    """Return the command that runs a function, with options for its annotated parameters.

    A parameter that is a dataclass is replaced by its fields. ``Annotated[type, "--name", "help"]``
    is an option with that name and help; without a name it is called as the parameter. A metavar
    may follow the name after a space.
    """
    hints = _hints(function)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    flags: dict[str, str] = {}
    takes: dict[str, Takes] = {}
    parameters: list[click.Parameter] = []
    for name, own in inspect.signature(function).parameters.items():
        group = groups.get(name)
        stated = inspect.signature(group).parameters.values() if group else [own]
        types = _hints(group) if group else hints
        for parameter in stated:
            hint = types[parameter.name]
            parameters.append(_parameter(parameter, hint))
            flags[parameter.name] = _flag(parameter.name, hint)
            for note in get_args(hint):
                if isinstance(note, Takes):
                    takes[parameter.name] = note

    @wraps(function)
    def run(**values: Any) -> None:
        paths = {name: values[name] for name in takes}
        try:
            for name, group in groups.items():
                values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
            function(**values)
        except InputError as error:
            sentence = mistaken(paths, takes) or with_flags(error, flags)
            raise type(error)(sentence) from error

    return Command(function.__name__, callback=run, params=parameters, help=function.__doc__)


@cache
def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)


def _parameter(parameter: inspect.Parameter, hint: Any) -> click.Parameter:
    """Return the argument or option of one parameter."""
    settings: dict[str, Any] = {"required": True}
    if parameter.default is not inspect.Parameter.empty:
        settings = {"default": parameter.default}
    bare, *notes = get_args(hint)
    settings["type"] = _type(bare)
    for note in notes:
        if isinstance(note, Argument):
            place = [parameter.name]
            return click.Argument(place, help=note.help, metavar=note.metavar, **settings)
    if bare is bool:
        settings["is_flag"] = True
    *_, text = _texts(hint)
    flag, _, metavar = _flag(parameter.name, hint).partition(" ")
    return click.Option(
        [parameter.name, flag],
        help=text,
        metavar=metavar or None,
        show_default=True,
        **settings,
    )


def _type(hint: Any) -> Any:
    """Return what click calls a type, without the None of an optional value."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Literal:
        return click.Choice(kinds)
    if get_origin(hint) is tuple:
        return tuple(kinds)
    if kinds:
        return _type(kinds[0])
    if hint is Path:
        return click.Path(path_type=Path)
    return hint


def _texts(hint: Any) -> list[str]:
    """Return the strings of an annotation: the flag, if it is stated, and the help."""
    return [note for note in get_args(hint)[1:] if isinstance(note, str)]


def _flag(name: str, hint: Any) -> str:
    """Return the option of that parameter; an argument is called by its own name in messages."""
    texts = _texts(hint)
    if len(texts) > 1:
        return texts[0]
    return "--" + name.replace("_", "-")


def with_flags(error: InputError, flags: Mapping[str, str]) -> str:
    """The sentence of an error, with flags of the command line for parameters of the library.

    A name that the user can recognise in its flag, such as epsilon in --epsilon, stays as it is.

    >>> flags = {"max_bytes": "--max-bytes", "bounds": "--bounds", "clip": "--clip"}
    >>> words = ["bounds=(0, 1)", "clip=True", "max_bytes"]
    >>> error = InputError("set bounds=(0, 1), clip=True or max_bytes.", parameters=words)
    >>> with_flags(error, flags)
    'set --bounds 0 1, --clip or --max-bytes.'
    """
    place = str(error).removesuffix(error.sentence)
    sentence = error.sentence
    for words in error.parameters:
        name, assigned, value = words.partition("=")
        flag = flags.get(name, words)
        if value not in ("", "True", "…"):
            flag = f"{flag} {value.strip('()').replace(',', '')}"
        if name in flags and (assigned or "_" in name):
            sentence = sentence.replace(words, flag)
    return place + sentence
