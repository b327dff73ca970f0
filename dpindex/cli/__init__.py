"""The command line: functions become commands here, and errors one sentence and an exit code.

Commands are thin, one file a group, and have no logic of their own.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from dpindex.base.checks import MAX_TEXT
from dpindex.base.errors import InputError, QualityWarning, escaped
from dpindex.base.files import MAGIC
from dpindex.data.columns import COLUMN_SUFFIXES
from dpindex.data.readers import VECTOR_SUFFIXES
from dpindex.version import __version__

_HEAD_BYTES = 1 << 16
_LEDGER = b"SQLite format 3\0"
_PARQUET = b"PAR1"
_TABLE = b"dpindex.sha256"
"""What the footer of a published Parquet table states."""
_INTERRUPTED = "interrupted; what was committed is kept. Run it again."
_UsageError: Any = typer.BadParameter.__base__
"""What a wrong command line raises; typer has no public name for it."""


_READ_ALIKE = {str, int, float, Path}
"""Types that Python reads from text as typer does."""
MISREAD = re.compile(r"_|[^\x00-\x7f]")
"""What Python takes in a number and nobody means: ``1_5``, a slip of ``1.5``, would be 15."""


class _Quick:
    """Options of a command whose values typer reads where Python alone does not.

    Typer asks pydantic for every value, whose import takes longer than a search.
    """

    kinds: Mapping[str, Any] = {}
    """Types of options by name, as far as they may have a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        options: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for option in options:
            if "process_value" not in vars(option):
                option.process_value = _quickly(option, self.kinds.get(option.name))
        return options


def _quickly(option: Any, kind: Any) -> Callable[[Any, Any], Any]:
    """How an option reads a value of that type."""
    read_by_typer = option.process_value
    kinds = {kind}
    if get_origin(kind) is not tuple:
        kinds.update(get_args(kind))  # of one that may be None, or the words to choose from
    words = {word for one in kinds if get_origin(one) is Literal for word in get_args(one)}
    is_number = not {int, float}.isdisjoint({*kinds, *get_args(kind)})

    def process_value(context: Any, value: Any) -> Any:
        is_left_out = value in (None, option.default) and not option.required
        if is_left_out or (isinstance(value, str) and value in words):
            return value
        said = " ".join(value) if isinstance(value, tuple) else value
        if is_number and isinstance(said, str) and MISREAD.search(said):
            raise typer.BadParameter(f"{said!r} is not a number", context, option)
        for read in kinds & _READ_ALIKE if isinstance(value, str) else ():
            with suppress(ValueError):  # typer says what is wrong
                return read(value)
        return read_by_typer(context, value)

    return process_value


class _Commands(_Quick, TyperGroup):
    """Commands that are imported when they are looked up: all of them take a tenth of a second.

    The command is the function of its name. An interruption is reported here: typer would exit
    without a message.
    """

    modules: Mapping[str, str] = {  # in the order in which they are needed
        "embed": "build_commands",
        "plan": "study_commands",
        **dict.fromkeys(("codebook", "design", "build"), "build_commands"),
        **dict.fromkeys(("query", "info", "methods"), "search_commands"),
        **dict.fromkeys(("add", "calibrate", "denoise", "spec", "privatize"), "release_commands"),
        **dict.fromkeys(("publish", "serve"), "search_commands"),
        **dict.fromkeys(("evaluate", "demo"), "study_commands"),
        **dict.fromkeys(("audit", "ledger"), "release_commands"),
    }

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = {**dict.fromkeys(self.modules), **self.commands}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.modules:
            return _command(self.modules[cmd_name], cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _end(_INTERRUPTED, 130)


class _RaceCommands(_Commands):
    """Commands of a sketch."""

    modules = dict.fromkeys(("build", "query", "info"), "race_commands")


@cache
def _command(module: str, name: str) -> Any:
    """Return the command that runs the function of that name."""
    function = vars(import_module(f"dpindex.cli.{module}"))[name]
    text, _, example = inspect.cleandoc(function.__doc__).partition("\n\n$ ")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    run = as_command(function)
    alone.command(cls=Command, help=text, epilog=example)(run)
    command: Any = typer.main.get_command(alone)
    command.kinds = {name: kind.__origin__ for name, kind in run.__annotations__.items()}
    return command


app = typer.Typer(
    name="dpindex",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
race_app = typer.Typer(
    name="race",
    cls=_RaceCommands,
    short_help="Sketch a whole collection: density, counts.",
    help="A private sketch of a whole collection, for density and counts near a query.\n\n"
    "Every answer comes from one release under one epsilon (Coleman & Shrivastava 2020). "
    "`dpindex audit --exact SKETCH` verifies its guarantee.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(race_app)


def _version(is_asked: bool) -> None:
    """The version, and what a bug report needs to know about the machine."""
    if not is_asked:
        return
    import platform
    from importlib import metadata

    from cryptography.hazmat.backends.openssl import backend

    typer.echo(f"dpindex {__version__}")
    typer.echo(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for package in ("numpy", "scipy", "faiss-cpu", "cryptography"):
        typer.echo(f"{package} {metadata.version(package)}")
    typer.echo(backend.openssl_version_text())
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print version and build facts."
        ),
    ] = False,
) -> None:
    """A private vector-search index: differentially private codes that anyone may search."""


@cache
def commands() -> Any:
    """Return the commands as they run; building them anew at every call would take 15 ms."""
    return typer.main.get_command(app)


_REMEDIES = {
    errno.ENOSPC: "; make room there and run it again",
    errno.EROFS: "; take another place",
    errno.EEXIST: "; choose another name",
    errno.ENOTDIR: "; choose a folder",
}


def main() -> None:
    """Entry point: bad input is one sentence on standard error and exit code 2."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Of a terminal or file in Latin-1: letters that it lacks are escaped, as those of errors.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.exit(commands()(prog_name="dpindex", standalone_mode=False))
    except InputError as error:
        _end(str(error), 2)
    except _UsageError as error:
        if "\n" in str(error.message):  # the help, for a command without arguments
            error.show()
            sys.exit(error.exit_code)
        _end(_usage(error), error.exit_code)
    except KeyboardInterrupt:
        _end(_INTERRUPTED, 130)
    except BrokenPipeError:
        # The reader of the output has closed the pipe, as `| head` does: nobody reads an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "")
        _end(f"{error.filename or 'a file'}: {error.strerror or error}{remedy}.", 2)
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and not _is_out_of_memory(error):
            raise
        _end(
            f"there is not enough memory ({_first_line(error)}); take fewer vectors or queries at "
            f"once, or shorter codes (--code-length).",
            2,
        )
    except Exception as error:
        if not _was_interrupted(error):
            raise
        _end(_INTERRUPTED, 130)


def _usage(error: Any) -> str:
    """Return a usage error as one sentence that names the --help to read."""
    said = " ".join(error.format_message().split()).rstrip(".?").replace("Value error, ", "")
    said = re.sub(r"\.? (?:Did you mean|\(Possible options:) (.*?)\)?$", r"; did you mean \1", said)
    shown = "."
    if error.ctx:
        shown = f"; see {error.ctx.command_path} --help."
    return f"{said[0].lower()}{said[1:]}{shown}"


def _is_out_of_memory(error: ImportError) -> bool:
    """Whether the loader had no room for a module."""
    return any(words in str(error) for words in ("failed to map", "annot allocate memory"))


def _first_line(error: BaseException) -> str:
    """Return numpy's message about an array that is too large: its size, shape and type."""
    return str(error).partition("\n")[0].rstrip(".") or "no more is free"


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused this error: Python before 3.12 wraps it when a class is created."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _end(sentence: str, code: int) -> None:
    print(escaped(f"dpindex: {sentence}"), file=sys.stderr)
    sys.exit(code)


def note(sentence: str) -> None:
    """Print a note on standard error about what may be a mistake."""
    typer.echo(escaped(f"note: {sentence}."), err=True)


# From functions to commands.


@dataclass(frozen=True)
class Takes:
    """Annotation of a parameter that takes the path of a thing of these kinds."""

    kinds: tuple[str, ...]


_HEADINGS = {
    "What is secret": "epsilon delta beta l2_radius record record_epsilon scale bounds clip norm "
    "max_epsilon neighbouring",
    "The code": "method methods code_length codebook design public_part subset window variant "
    "seed denoise kind index_type bits bandwidth hashes rows expected_count width",
    "Input": "header columns ids id_column ranges payload payload_columns public attackers plan "
    "groups public_queries public_texts labels base_texts query_texts",
    "Search": "k at query queries metric query_epsilon filter where rerank candidates show "
    "show_from text model collection recall neighbours",
    "Ledger and resuming": "ledger allow_rerelease private dask upsert replace",
}
"""Headings of help, and the options below each; the others stand below the last one."""
_HEADING_OF = {name: heading for heading, names in _HEADINGS.items() for name in names.split()}
_ARGUMENTS = "Arguments"
_NEEDED = "Needed first"
_ONE_NEEDED = frozenset(
    ("public", "plan", "method", "epsilon", "beta", "l2_radius", "record", "tokens", "open_to_all")
)
"""Options that a command cannot do without, unless another takes their place."""
_OTHERS = "Other"
_METAVARS = {str: "TEXT", Path: "FILE", int: "N", float: "X", tuple[float, float]: "LOW HIGH"}
_FLAG_WIDTH = 21


class Command(_Quick, TyperCommand):
    """A command whose help has groups of options.

    Those that it cannot do without are listed first. Its epilog is an example.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {
            heading: [] for heading in (_ARGUMENTS, _NEEDED, *_HEADINGS, _OTHERS)
        }
        for option in self.get_params(ctx):
            flag, text = option.get_help_record(ctx) or ("", "")
            heading = _HEADING_OF.get(option.name, _OTHERS)
            if option.param_type_name == "argument":
                heading = _ARGUMENTS
                flag = option.name
            elif option.required or _may_be_needed(option):
                heading = _NEEDED
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


def _may_be_needed(option: Any) -> bool:
    return option.name in _ONE_NEEDED and (option.default is None or option.default is False)


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """A function as typer takes it: groups of options become single ones, and strings their help.

    A parameter that is a dataclass is replaced by its fields. A flag has no ``--no-`` form. An
    error that names a parameter names its option here, and one about a path of another kind than
    expected says what that is.
    """
    options: dict[str, inspect.Parameter] = {}
    groups: dict[str, Any] = {}
    for name, option in options_of(function).items():
        if is_dataclass(option.annotation):
            groups[name] = option.annotation
            options |= options_of(option.annotation)
        else:
            options[name] = option
    files = [name for name in _VECTOR_FILES if name in options and _is_text(options[name])]
    if files:
        options |= options_of(ReadAs)

    def arguments(values: dict[str, Any]) -> dict[str, Any]:
        if files:
            read_as = ReadAs(values.pop("header"), values.pop("columns"))
            values |= read_as.applied({name: values[name] for name in files})
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return values

    @wraps(function)
    def run(**values: Any) -> None:
        given = {name: _at_home(value) for name, value in values.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", QualityWarning)
                warnings.showwarning = _noted
                function(**arguments(dict(given)))
        except InputError as error:
            sentence = _mistaken(given, options)
            if sentence is None:
                names = [_option_of(name, options) for name in error.field.split(", ")]
                sentence = error.pointing_at(", ".join(names))
            raise type(error)(sentence) from error

    run.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: option.annotation for name, option in options.items()}
    return run


def _option_of(name: str, options: Mapping[str, inspect.Parameter]) -> str:
    """Return what a person wrote of a parameter that an error names: its option."""
    if name == "k" and name not in options:
        name = "code_length"
    if name in options:
        return flag_of(options[name])
    if name in _PUBLIC_PARTS and "public_part" in options:
        return f"--{name}"
    return name


_PUBLIC_PARTS = ("codebook", "design")
"""Both names of the option ``public_part``."""

_VECTOR_FILES = (
    *("vectors", "items", "base", "queries", "rerank"),
    *("public", "public_queries", "attackers"),
)
"""Names of parameters that take a file of vectors, where they take text."""


def _at_home(value: Any) -> Any:
    """Return a path with ~ as the home folder, which no shell puts into --ids=~/ids.txt."""
    if isinstance(value, str) and value.startswith("~/"):
        return os.path.expanduser(value)
    if isinstance(value, Path):
        return value.expanduser()
    return value


def _is_text(option: inspect.Parameter) -> bool:
    return option.annotation.__origin__ in (str, str | None)


@dataclass(frozen=True)
class ReadAs:
    """How the files of vectors of a command are read, as ``PATH:KEY`` says for one of them."""

    header: Annotated[Literal["yes", "no"] | None, "Whether line 1 of .csv, .tsv is names."] = None
    columns: Annotated[
        str | None,
        "--columns D0:D383",
        "Columns of numbers of .parquet, first:last or 'd*'.",
    ] = None

    def applied(self, files: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the files with their keys; InputError for an option that none of them takes."""
        applied = dict(files)
        header = self.header and f"header={self.header}"
        for key, takes, files_of_it in (
            (header, _is_of_text, "--header is for .csv and .tsv files"),
            (self.columns, _has_columns, "--columns is for .parquet and .arrow files"),
        ):
            if key is None:
                continue
            fitting = {name: file for name, file in files.items() if file and takes(file)}
            if not fitting:
                raise InputError(f"{files_of_it}, and none is named here; leave it out.")
            applied |= {name: f"{file}:{key}" for name, file in fitting.items()}
        return applied


def _is_of_text(file: str) -> bool:
    return file.lower().endswith((".csv", ".tsv"))


def _has_columns(file: str) -> bool:
    suffix = os.path.splitext(file)[1].lower()
    return suffix not in VECTOR_SUFFIXES.difference(COLUMN_SUFFIXES)


def _noted(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning without its line of source, which no user wrote."""
    note(str(message).rstrip("."))


def options_of(stated: Any) -> dict[str, inspect.Parameter]:
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


def flag_of(option: inspect.Parameter) -> str:
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
            if head.startswith(_PARQUET):
                file.seek(-min(_HEAD_BYTES, place.stat().st_size), os.SEEK_END)
                tail = file.read()
                if _TABLE in tail:
                    return "index"
                if not tail.endswith(_PARQUET):
                    return None  # it was cut off
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
